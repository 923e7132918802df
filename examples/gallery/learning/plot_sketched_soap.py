"""
A network trained by SketchedSOAP, by steps and by seconds
==========================================================

**Does a network of convolutions learn faster with sketches of its gradients, and is it worth the time and the memory?**
``fastsketch.torch.SketchedSOAP`` stands where AdamW stood, at AdamW's rate and schedule. The images are CIFAR-10's
where ``FASTSKETCH_DATA`` names a folder that has them (as JPEG, ``cifar10/cifar10_jpeg.zip``), else the handwritten
digits of scikit-learn. A sixth of them is not trained on.
"""

# needs: torch, sklearn, PIL
import io
import os
import time
import zipfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn

from fastsketch.torch import SketchedSOAP

torch.set_num_threads(1)
path = Path(os.environ.get("FASTSKETCH_DATA", "../shared/data")) / "cifar10" / "cifar10_jpeg.zip"


def cifar(n=3_000):
    """Some training images of CIFAR-10, (n, 3, 32, 32), and their classes."""
    with zipfile.ZipFile(path) as files:
        names = [name for name in files.namelist() if name.startswith("train/") and name.endswith(".jpg")]
        names = np.random.default_rng(0).permutation(names)[:n]
        pixels = [np.asarray(Image.open(io.BytesIO(files.read(name))).convert("RGB")) for name in names]
    classes = np.unique([name.split("/")[1] for name in names], return_inverse=True)[1]
    return (np.array(pixels, dtype=np.float32).transpose(0, 3, 1, 2) - 120) / 63, classes


def digits():
    """The digits, (1797, 1, 8, 8), in a random order."""
    pixels, classes = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(classes))
    return (pixels[order].reshape(-1, 1, 8, 8).astype(np.float32) - 5) / 6, classes[order]


name, (pixels, classes) = ("CIFAR-10", cifar()) if path.exists() else ("digits", digits())
images, labels = torch.tensor(pixels), torch.tensor(classes)
held = len(labels) // 6

# %%
# Three optimizers, one network
# -----------------------------
#
# Each has the same images in the same order, a warm-up and a cosine. SGD has a hundred times the rate. What is timed is
# forward, backward and step, by the clock of the processor.


def trained(make, steps=120):
    """The loss of the images that are held out after every twentieth step, seconds, bytes of state."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(images.shape[1], 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU()]
    for before, after in ((32, 64), (64, 128)):
        layers += [nn.Conv2d(before, after, 3, 2, 1), nn.BatchNorm2d(after), nn.ReLU()]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    optimizer = make(network.parameters())
    rise, fall = torch.optim.lr_scheduler.LinearLR, torch.optim.lr_scheduler.CosineAnnealingLR
    ways = [rise(optimizer, 0.1, total_iters=20), fall(optimizer, steps - 20)]
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, ways, [20])
    rng, seconds, curve = np.random.default_rng(0), 0.0, []
    for step in range(1, steps + 1):
        batch = torch.from_numpy(rng.integers(held, len(labels), 32))
        network.train()
        start = time.process_time()
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images[batch]), labels[batch]).backward()
        optimizer.step()
        seconds += time.process_time() - start
        schedule.step()
        if step % 20 == 0:
            with torch.no_grad():
                scores = network.eval()(images[:held])
            curve.append((step, seconds, nn.functional.cross_entropy(scores, labels[:held]).item()))
    size = sum(x.nbytes for known in optimizer.state.values() for x in known.values() if torch.is_tensor(x))
    return np.array(curve), size, (scores.argmax(1) == labels[:held]).double().mean().item()


optimizers = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=3e-3),
    "SGD, momentum .9": lambda parameters: torch.optim.SGD(parameters, lr=0.3, momentum=0.9),
    "SketchedSOAP": lambda parameters: SketchedSOAP(parameters, lr=3e-3),
}
runs = {optimizer: trained(make) for optimizer, make in optimizers.items()}
print(f"{name}; {'loss':>18} {'accuracy':>9} {'seconds':>8} {'kB of state':>12}")
for optimizer, (curve, size, right) in runs.items():
    print(f"{optimizer:20} {curve[-1, 2]:8.3f} {right:9.3f} {curve[-1, 1]:8.1f} {size / 1000:12.0f}")

# %%
# The picture
# -----------

figure, panels = plt.subplots(1, 2, figsize=(9, 4), sharey=True)
for (optimizer, (curve, _, _)), colour in zip(runs.items(), ("#D55E00", "#999999", "#0072B2"), strict=True):
    for panel, along in zip(panels, curve.T[:2], strict=True):
        panel.plot(along, curve[:, 2], "o-", markersize=3, color=colour, label=optimizer)
panels[0].set(xlabel="steps", ylabel="loss of images that are held out")
panels[1].set(xlabel="seconds of one processor core")
panels[0].legend(frameon=False)
figure.suptitle(f"A small network on {name}, one run each")
plt.show()

# %%
# **How sure is this?** One network, one seed, one rate, and layers so small that a step of SketchedSOAP takes more of
# the time than it would in a large one. Several networks and rates, five seeds where the page says so, Muon and
# SOAP beside them: :doc:`benchmarks of optimizers </benchmarks/optimizers>`.
#
# **Next:** :doc:`training a network </jobs/networks>`.
