"""Networks that optimizers are compared on: how one is made, the loss of a batch, loss and accuracy on held-out rows.

A task is made of ``held``: with "test" the part that nobody has chosen by, with "validation" a part of the rows that
are trained on otherwise, by which the optimizer's defaults were chosen.
"""

import sysconfig
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench_data import cifar10, mnist
from bench_tools import few

TESTED = 2_500  # images that a run is tested on, drawn once


class Task(NamedTuple):
    """What a run needs of a network; `batch` and `test` return losses and scores of torch."""

    make: object  # () -> network
    loss_of: object  # (network, rng) -> loss of a batch
    test: object  # (network) -> loss, share that is right
    steps: int
    outer: tuple = ("head",)  # names of embeddings and output layers


def net(held="test"):
    """Return the perceptron on MNIST's pixels, two by two, or None."""
    from torch import nn

    def make():
        layers = {"first": nn.Linear(196, 256), "bend": nn.ReLU(), "second": nn.Linear(256, 256), "again": nn.ReLU()}
        return nn.Sequential(OrderedDict(**layers, head=nn.Linear(256, 10)))

    parts = _images(mnist, "t10k", held)
    if parts is None:
        return None
    shrunk = [(x.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4), dtype=np.float32).reshape(-1, 196), y) for x, y in parts]
    return _of_images(make, shrunk, deviation=255, batch=128, steps=300)


def papers_net(held="test"):
    """Return the network of ADA-FD's section 5.4 on MNIST, or None."""
    from torch import nn

    def make():
        convolutions = {"first": nn.Conv2d(1, 32, 3), "r1": nn.ReLU(), "second": nn.Conv2d(32, 64, 3), "r2": nn.ReLU()}
        between = {"pool": nn.MaxPool2d(2), "drop": nn.Dropout(0.25), "flat": nn.Flatten()}
        dense = {"third": nn.Linear(64 * 144, 128), "r3": nn.ReLU(), "drop2": nn.Dropout(0.5)}
        return nn.Sequential(OrderedDict(**convolutions, **between, **dense, head=nn.Linear(128, 10)))

    parts = _images(mnist, "t10k", held)
    if parts is None:
        return None
    return _of_images(make, [(x.reshape(-1, 1, 28, 28), y) for x, y in parts], deviation=255, batch=32, steps=120)


def residual(held="test", width=32):
    """Return a residual network of seven convolutions on CIFAR-10, or None."""
    import torch
    from torch import nn
    from torch.nn.functional import relu

    class Block(nn.Module):
        def __init__(self, old, new):
            super().__init__()
            stride = new // old
            self.one, self.norm = nn.Conv2d(old, new, 3, stride, 1, bias=False), nn.BatchNorm2d(new)
            self.two, self.norm2 = nn.Conv2d(new, new, 3, 1, 1, bias=False), nn.BatchNorm2d(new)
            self.short = nn.Conv2d(old, new, 1, stride, bias=False) if old != new else nn.Identity()

        def forward(self, x):
            return relu(self.norm2(self.two(relu(self.norm(self.one(x))))) + self.short(x))

    def make():
        stem = {"stem": nn.Conv2d(3, width, 3, 2, 1, bias=False), "norm": nn.BatchNorm2d(width), "bend": nn.ReLU()}
        blocks = {f"block{n}": Block(width * max(n // 2, 1), width * n) for n in (1, 2, 4)}
        ends = {"pool": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten(), "head": nn.Linear(4 * width, 10)}
        return nn.Sequential(OrderedDict(**stem, **blocks, **ends)).to(memory_format=torch.channels_last)

    parts = _images(cifar10, "test", held)
    if parts is None:
        return None
    first = [(x.transpose(0, 3, 1, 2), y) for x, y in parts]
    return _of_images(make, first, mean=120.7, deviation=63, batch=32, steps=200)


def transformer(held="test", width=96, layers=2, heads=4, length=96, batch=8):
    """Return a transformer on the bytes of Python's standard library, every tenth file held out."""
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

    train, held_out = _sources(held)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attend, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            n, t, _ = x.shape
            q, k, v = self.attend(self.before(x)).view(n, t, 3, heads, -1).permute(2, 0, 3, 1, 4)
            seen = scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
            return x + self.down(gelu(self.up(self.between(x))))

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.position = nn.Embedding(256, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)
            for p in self.parameters():
                if p.ndim == 2:
                    nn.init.normal_(p, std=0.02)

        def forward(self, x):
            return self.head(self.norm(self.blocks(self.embedding(x) + self.position.weight)))

    def windows(text, starts):
        bytes_of = text[torch.from_numpy(starts)[:, None] + torch.arange(length + 1)].long()
        return bytes_of[:, :-1], bytes_of[:, 1:]

    def loss_of(network, rng):
        x, y = windows(train, rng.integers(0, len(train) - length, batch))
        return cross_entropy(network(x).flatten(0, 1), y.flatten())

    def test(network):
        pairs = []
        for starts in np.linspace(0, len(held_out) - length - 1, few(512, 16)).astype(np.int64).reshape(-1, 16):
            x, y = windows(held_out, starts)
            scores = network(x).flatten(0, 1)
            pairs.append((cross_entropy(scores, y.flatten()).item(), (scores.argmax(1) == y.flatten()).float().mean()))
        return tuple(np.mean(pairs, axis=0).tolist())

    return Task(Transformer, loss_of, test, 200, ("embedding", "position", "head"))


TASKS = {"net": net, "transformer": transformer, "residual": residual, "papers_net": papers_net}


# -- data ----------------------------------------------------------------------------------------------------------
def _images(read, test, held):
    """Return images and labels to train on and those that are held out, or None."""
    parts = [read(), read(test)]
    if None in parts:
        return None
    train, tests = ((np.asarray(x), np.asarray(y, np.int64)) for x, y in parts)
    if held == "test":
        part = np.random.default_rng(0).permutation(len(tests[1]))[:TESTED]
        return train, tuple(values[part] for values in tests)
    order = np.random.default_rng(0).permutation(len(train[1]))
    return [tuple(values[part] for values in train) for part in (order[TESTED:], order[:TESTED])]


def _of_images(make, parts, batch, steps, mean=0.0, deviation=1.0):
    """Return the task of a network that classifies images, whose pixels are scaled a batch at a time."""
    import torch
    from torch.nn.functional import cross_entropy

    (x, y), (test_x, test_y) = ((torch.tensor(np.ascontiguousarray(x)), torch.from_numpy(y)) for x, y in parts)

    def scaled(pixels):
        return (pixels.float() - mean) / deviation

    def loss_of(network, rng):
        network.train()
        rows = torch.from_numpy(rng.integers(0, len(y), batch))
        return cross_entropy(network(scaled(x[rows])), y[rows])

    def test(network):
        network.eval()
        scores = torch.cat([network(scaled(rows)) for rows in test_x.split(500)])
        return cross_entropy(scores, test_y).item(), (scores.argmax(1) == test_y).float().mean().item()

    return Task(make, loss_of, test, steps)


def _sources(held):
    """Return the bytes of the files that are trained on, and of those that are held out."""
    import torch

    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(path for path in root.rglob("*.py") if "site-packages" not in path.parts)
    if held == "validation":
        files = [path for i, path in enumerate(files) if i % 10 != 9]
    texts = []
    for out in (False, True):
        chosen = [path.read_bytes() for i, path in enumerate(files) if (i % 10 == 8 + (held == "test")) == out]
        texts.append(torch.frombuffer(bytearray(b"".join(chosen)), dtype=torch.uint8))
    return texts
