"""
A small network trained by AdaFFD
=================================

**Is a sketch of the gradients of any use for training a network?** ``fastsketch.torch.AdaFFD`` keeps one for each
weight matrix, with which steps take account of correlated gradients. Here it stands beside Adam, each with the best
of three learning rates by the validation set, on handwritten digits. A test set is looked at once.
"""

# needs: torch, sklearn
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from fastsketch.torch import AdaFFD

pixels, labels = load_digits(return_X_y=True)
pixels = torch.tensor(pixels / 16, dtype=torch.float32)
labels = torch.tensor(labels)
rest, test = train_test_split(np.arange(len(labels)), test_size=400, random_state=0)
train, validation = train_test_split(rest, test_size=300, random_state=0)
torch.set_num_threads(1)  # for tensors as small as these
loss_of = torch.nn.CrossEntropyLoss()


def trained(optimizer, rate, seed):
    """A network after 10 epochs, and its loss on the validation set after each."""
    torch.manual_seed(seed)
    network = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    steps = optimizer(network.parameters(), lr=rate)
    losses = []
    for _ in range(10):
        for batch in torch.randperm(len(train)).split(64):
            chosen = train[batch]
            steps.zero_grad()
            loss_of(network(pixels[chosen]), labels[chosen]).backward()
            steps.step()
        with torch.no_grad():
            losses.append(loss_of(network(pixels[validation]), labels[validation]).item())
    return network, losses


# %%
# Rates by the validation set, then five runs
# -------------------------------------------

candidates = {
    "Adam": (torch.optim.Adam, (0.003, 0.01, 0.03)),
    "AdaFFD": (AdaFFD, (0.003, 0.01, 0.03)),
}
curves = {}
for name, (optimizer, rates) in candidates.items():
    best = rates[np.argmin([trained(optimizer, rate, seed=100)[1][-1] for rate in rates])]
    runs = [trained(optimizer, best, seed) for seed in range(5)]
    curves[name] = np.array([losses for _, losses in runs])
    with torch.no_grad():
        right = [(network(pixels[test]).argmax(1) == labels[test]).double().mean().item() for network, _ in runs]
    print(f"{name}, rate {best}: validation loss {curves[name][:, -1].mean():.3f}")
    print(f"    test accuracy {np.mean(right):.3f}, standard deviation of five runs {np.std(right):.3f}")

# %%
# The picture
# -----------

figure, ax = plt.subplots()
epochs = np.arange(1, 11)
for (name, losses), colour in zip(curves.items(), ("#D55E00", "#0072B2"), strict=True):
    ax.fill_between(epochs, losses.min(axis=0), losses.max(axis=0), color=colour, alpha=0.2, linewidth=0)
    ax.plot(epochs, losses.mean(axis=0), color=colour, label=name)
ax.set(xlabel="epochs", ylabel="validation loss, five runs", ylim=(0, None))
ax.legend(frameon=False)
ax.set_title("AdaFFD beside Adam on handwritten digits")
plt.show()

# %%
# **How sure is this?** One small set, one network, rates tried in threes. Adam is ahead here, and is the one to
# begin with; AdaFFD is there to repeat its authors' experiments, and to be measured on problems of your own.
#
# **Next:** :doc:`learning from clicks </jobs/learning>`.
