"""Networks in the ADA-FD paper: section 5.4, a small one, and 5.5, a layer on a deep one that learns nothing."""

import itertools
import time

import numpy as np

from adaptive.grid import projected_once
from bench_data import cifar10, mnist
from bench_tools import few, spread, table
from fastsketch.reference._rounds import FFD, solved
from store import Parts

# -- section 5.4 -----------------------------------------------------------------------------------------------------
STEPS = [(lr, delta) for lr in (0.03, 0.1, 0.3) for delta in (1e-3, 1e-2, 0.1, 1.0)]
POINTS = {  # gradients are far shorter than the paper's delta = 1, so delta is searched too
    **dict.fromkeys(("AdaFFD", "AdaFD", "RADAGRAD", "FD-SON"), STEPS),
    "AdaGrad": [(lr,) for lr in (1e-4, 1e-3, 1e-2, 0.1)],
    "Adam": [(lr,) for lr in (1e-4, 1e-3, 1e-2, 0.1)],
    "SGD": [(lr,) for lr in (1e-3, 1e-2, 0.1, 1.0)],
}


def cnn(args):
    """The four layers of section 5.4 on MNIST and CIFAR-10: training loss and test accuracy by optimizer."""
    import torch

    torch.set_num_threads(1)
    parts, out = Parts(args), []
    n, epochs, seeds = (few(2000, 128), 1, 1) if args.quick else (6000, 3, 2)
    for name in ("MNIST",) if args.quick else ("MNIST", "CIFAR-10"):
        images = images_of(name)
        if images is None:
            continue
        x, y, test, truth = images
        train, test = (x[:n], y[:n]), (test[:5000], truth[:5000])
        for optimizer, points in POINTS.items():
            chosen = parts.of(f"{name} {optimizer}", chosen_of, optimizer, points[: few(99, 1)], train)
            found = [
                parts.of(f"{name} {optimizer} {seed}", trained, optimizer, chosen, epochs, seed + 1, train, test)
                for seed in range(seeds)
            ]
            loss, right, epoch, step = np.array(found).T
            delta = f" (delta {chosen[1]:g})" if len(chosen) > 1 else ""
            out.append(
                {
                    "set": name,
                    "optimizer": optimizer,
                    "lr": f"{chosen[0]:g}{delta}",
                    "training loss": spread(loss),
                    "test accuracy, %": spread(right, 2),
                    "s an epoch": f"{epoch.mean():.1f}",
                    "ms a step of the optimizer": f"{step.mean():.2f}",
                }
            )
            print(*out[-1].values(), flush=True)
    note = (
        f"{n} images, {epochs} epochs, batches of {BATCH}; lr and delta have the "
        "lowest loss of an epoch on a third of the images."
    )
    table(out, name="main", runs=f"{seeds} seeds, mean +- standard deviation", note=note)


def images_of(name):
    """Images (n, channels, rows, columns) in [0, 1] and labels, for learning and for the test, as tensors; or None."""
    import torch

    kinds = (mnist, ("train", "t10k")) if name == "MNIST" else (cifar10, ("train", "test"))
    out = []
    for part in kinds[1]:
        found = kinds[0](part)
        if found is None:
            return None
        order = np.random.default_rng(0).permutation(len(found[1]))
        x = found[0][order].reshape(len(order), *((1, 28, 28) if name == "MNIST" else (32, 32, 3)))
        x = torch.tensor(x, dtype=torch.float32) / 255
        out += [x if name == "MNIST" else x.permute(0, 3, 1, 2), torch.tensor(found[1][order].astype(np.int64))]
    return out


def network(channels, side):
    """Two convolutions and two layers with all weights, as in the paper."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * (side // 2 - 2) ** 2, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
    )


def stepping(optimizer, model, lr, delta=None):
    """Return an optimizer; of the sketched ones the other layers have AdaGrad with a rate of 0.01."""
    import torch

    from fastsketch.torch import AdaFD, AdaFFD

    plain = {"AdaGrad": torch.optim.Adagrad, "Adam": torch.optim.Adam, "SGD": torch.optim.SGD}
    if optimizer in plain:
        return plain[optimizer](model.parameters(), lr=lr)
    convolutions = [p for layer in (model[0], model[2]) for p in layer.parameters()]
    others = [p for layer in (model[7], model[10]) for p in layer.parameters()]
    if optimizer in DIRECTIONS:
        return Beside(convolutions, others, DIRECTIONS[optimizer], lr, delta)
    groups = {"params": convolutions, "lr": lr, "delta": delta}, {"params": others, "sketched": False, "lr": 0.01}
    return {"AdaFD": AdaFD, "AdaFFD": AdaFFD}[optimizer](list(groups))


class Beside:
    """A direction in NumPy for each of some tensors, AdaGrad for the others: rivals that the library does not have."""

    def __init__(self, some, others, direction, lr, delta):
        import torch

        self.others = torch.optim.Adagrad(others, lr=0.01)
        self.some = [(p, direction(p.numel(), delta)) for p in some]
        self.lr = lr

    def zero_grad(self):
        self.others.zero_grad()
        for p, _ in self.some:
            p.grad = None

    def step(self):
        import torch

        self.others.step()
        for p, direction in self.some:
            step = direction(p.grad.reshape(-1).double().numpy())
            p.data -= self.lr * torch.from_numpy(step).to(p.dtype).reshape(p.shape)


def radagrad(d, delta):
    """Return g -> the direction of RADAGRAD, that of `reference.radagrad`."""
    eigenpairs = projected_once(d, SKETCH)

    def direction(g):
        s, v = eigenpairs(g)
        inner = v @ g
        return g - inner @ v + (inner / (np.sqrt(s) + delta)) @ v

    return direction


def fd_son(d, delta):
    """Return g -> the direction of FD-SON, that of `reference.sketched_newton_subgradient`."""
    sketch, rounds = FFD(d, SKETCH), itertools.count(1)

    def direction(g):
        v, s = sketch.add(g / next(rounds) ** 0.25)
        return solved(g, v, s**2, delta)

    return direction


DIRECTIONS = {"RADAGRAD": radagrad, "FD-SON": fd_son}
SKETCH, BATCH = 20, 128


def chosen_of(optimizer, points, train):
    """Return the point of the least training loss after one epoch of a third of the images."""
    x, y = train
    third = x[: len(x) // 3], y[: len(x) // 3]
    return min(points, key=lambda point: trained(optimizer, point, 1, 0, third)[0])


def trained(optimizer, point, epochs, seed, train, test=None):
    """Return (loss of the last epoch, test accuracy in %, seconds an epoch, ms a step of the optimizer)."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    x, y = train
    model = network(x.shape[1], x.shape[2])
    stepped, inside, start = stepping(optimizer, model, *point), 0.0, time.process_time()
    for _ in range(epochs):
        model.train()
        total = 0.0
        for part in torch.randperm(len(x)).split(BATCH):
            stepped.zero_grad()
            loss = nn.functional.cross_entropy(model(x[part]), y[part])
            if not torch.isfinite(loss):
                return np.inf, 0.0, 0.0, 0.0
            loss.backward()
            before = time.process_time()
            stepped.step()
            inside += time.process_time() - before
            total += loss.item() * len(part)
    taken = time.process_time() - start
    right = 0.0 if test is None else 100 * accuracy(model, *test)
    return total / len(x), right, taken / epochs, 1e3 * inside / epochs / -(-len(x) // BATCH)


def accuracy(model, x, y):
    """Return the share of images whose class is found."""
    import torch

    model.eval()
    with torch.no_grad():
        found = torch.cat([model(part).argmax(1) for part in x.split(500)])
    return float((found == y).float().mean())


# -- section 5.5 -----------------------------------------------------------------------------------------------------
VGG19 = (64, 64, 0, 128, 128, 0, *(256,) * 4, 0, *(512,) * 4, 0, *(512,) * 4, 0)  # channels of convolutions, 0: halved


def vgg19(args):
    """Time and memory of section 5.5: a layer of ten on 2,048 numbers of a VGG19 that learns nothing, random weights.

    The weights of ImageNet are not to be had, so nothing is said of losses; what a step costs does not depend on them.
    """
    import torch
    from torch import nn

    from fastsketch.torch import AdaFD, AdaFFD

    torch.set_num_threads(1)
    found = cifar10()
    if found is None:
        return
    torch.manual_seed(0)
    layers, width = [], 3
    for channels in VGG19:
        layers += [nn.MaxPool2d(2)] if not channels else [nn.Conv2d(width, channels, 3, padding=1), nn.ReLU()]
        width = channels or width
    frozen = nn.Sequential(*layers, nn.Flatten())
    batches, size = few(3, 1), few(128, 2)
    images = torch.tensor(found[0][: batches * size]).permute(0, 3, 1, 2).float() / 255
    labels = torch.tensor(found[1][: batches * size])
    images = nn.functional.interpolate(images, size=64, mode="bilinear")
    start = time.process_time()
    with torch.no_grad():
        rows = torch.cat([frozen(part) for part in images.split(size)])
    forward = (time.process_time() - start) / batches
    makers = {
        "AdaFFD": lambda p: AdaFFD(p, lr=0.01),
        "AdaFD": lambda p: AdaFD(p, lr=0.01),
        "AdaGrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
        "Adam": lambda p: torch.optim.Adam(p, lr=0.001),
        "SGD": lambda p: torch.optim.SGD(p, lr=0.01),
    }
    out = []
    for name, make in makers.items():
        top = nn.Linear(rows.shape[1], 10)
        optimizer, times = make(top.parameters()), []
        for step in range(few(200, 3)):
            part = slice(size * (step % batches), size * (step % batches + 1))
            optimizer.zero_grad()
            nn.functional.cross_entropy(top(rows[part]), labels[part]).backward()
            start = time.process_time()
            optimizer.step()
            times.append(time.process_time() - start)
        states = [x for known in optimizer.state.values() for x in known.values() if hasattr(x, "nbytes")]
        step = float(np.mean(times[len(times) // 2 :]))  # when the sketches are full
        held = sum(x.nbytes for x in states) / 1e6
        cells = [f"{1e3 * step:.2f}", f"{1 + step / forward:.4f}", f"{held:.1f}"]
        out.append([name, *cells])
    columns = ["optimizer", "ms a step", "of a batch that only goes forward, times", "MB of state"]
    note = (
        f"The forward pass of a batch of {size} takes {forward:.1f} s; {rows.shape[1]} "
        "x 10 weights are trained, and all other weights are random."
    )
    table(out, columns, "main", runs=f"{len(times)} steps, mean of the second half", note=note)
