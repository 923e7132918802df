"""Optimizers on two small networks: test loss after equal steps at three rates each, nothing else searched.

"net": 196-256-256-10 on MNIST (14 x 14). "transformer": two layers of 96 on the bytes of Python's own standard library,
every tenth file held out. Warm-up of a tenth and a cosine to zero for all. Rates are 1e-3, 3e-3, 1e-2 (of SGD a hundred
times that). Of the transformer, hidden matrices are Muon's, as its documentation asks, and the rest AdamW's;
SketchedSOAP is shown with that split and without.
"""

import functools
import math
import platform
import sysconfig
import time
from collections import OrderedDict
from pathlib import Path

import numpy as np

from bench_data import mnist
from bench_tools import few, spread, table

RATES = (1e-3, 3e-3, 1e-2)
DECAY = {"weight_decay": 0.01}
SPLIT = "SketchedSOAP, hidden"
# Far behind the others on a transformer at these rates, or (AdaFFD) with 40 times the weights as state.
NET_ALONE = ("SGD, momentum .9", "Adafactor", "AdaFFD")


def optimizers(args):
    """Train both networks by all optimizers at all rates."""
    import torch

    torch.set_num_threads(1)
    for name, task, steps in (("net", net, 300), ("transformer", transformer, 200)):
        data = task()
        if data is None:
            print(f"{name}: its data are absent")
            continue
        compare(name, data, seeds=few(2 if args.quick else 5, 1), steps=few(steps, 3))


def compare(name, task, *, seeds, steps):
    """Train one network by each optimizer; seeds in turn, so that differences are paired."""
    runs = {}
    for seed in range(seeds):
        for method in METHODS:
            if name != "net" and method in NET_ALONE:
                continue
            for rate in RATES:
                runs.setdefault((method, rate), []).append(trained(task, method, rate, seed, steps))
                print(name, seed, method, rate, *(f"{x:.4g}" for x in runs[method, rate][-1]), flush=True)
    rows = []
    for method in METHODS:
        if (method, RATES[0]) not in runs:
            continue
        losses = {rate: np.array([run[0] for run in runs[method, rate]]) for rate in RATES}
        beside = {rate: losses[rate] - [run[0] for run in runs["AdamW", rate]] for rate in RATES}
        every = np.array([run for rate in RATES for run in runs[method, rate]])
        row = {"optimizer": method, **{f"loss at {rate:g}": spread(losses[rate], 3) for rate in RATES}}
        row |= {f"beside AdamW at {rate:g}": spread(beside[rate], 3) for rate in RATES[:2]}
        right = np.mean([run[1] for run in runs[method, RATES[1]]])
        row |= {f"accuracy at {RATES[1]:g}, %": f"{right:.1f}", "ms a step": f"{every[:, 2].min():.2f}"}
        rows.append({**row, "state, numbers a weight": f"{every[0, 3]:.1f}"})
    note = f"{steps} steps; ms of the optimizer's part of a step, one thread, the least of all runs."
    if name == "net":
        note += " Of SGD rates are a hundred times as large."
    if name == "transformer":
        note += f" Sources of Python {platform.python_version()}; loss in nats a byte."
    table(rows, name=name, runs=f"{seeds} seeds, mean +- standard deviation, differences seed by seed", note=note)


def trained(task, method, rate, seed, steps):
    """Return test loss, accuracy in %, ms a step of the optimizer, numbers of state for each weight."""
    import torch

    make, loss_of, test = task
    torch.manual_seed(seed)
    network, rng = make(), np.random.default_rng(seed)
    used = METHODS[method](network, rate)
    peaks = [[group["lr"] for group in optimizer.param_groups] for optimizer in used]
    inside, warm = 0.0, steps / 10
    for step in range(steps):
        share = min((step + 1) / warm, 0.5 + 0.5 * math.cos(math.pi * max(0, step - warm) / (steps - warm)))
        for optimizer, peak in zip(used, peaks, strict=True):
            for group, lr in zip(optimizer.param_groups, peak, strict=True):
                group["lr"] = share * lr
            optimizer.zero_grad()
        loss_of(network, rng).backward()
        start = time.process_time()
        for optimizer in used:
            optimizer.step()
        inside += time.process_time() - start
    states = [x for optimizer in used for known in optimizer.state.values() for x in known.values()]
    held = sum(x.numel() for x in states if hasattr(x, "numel")) / sum(p.numel() for p in network.parameters())
    with torch.no_grad():
        loss, right = test(network)
    return loss, 100 * right, 1e3 * inside / steps, held


# -- optimizers ----------------------------------------------------------------------------------------------------
def _torch(name, factor=1, **options):
    def make(network, rate):
        import torch

        return [getattr(torch.optim, name)(network.parameters(), lr=factor * rate, **options)]

    return make


def _parts(network):
    """Return the hidden matrices of a network, and its other parameters."""
    outer = ("embedding", "position", "head")
    named = list(network.named_parameters())
    hidden = [p for name, p in named if p.ndim == 2 and not name.startswith(outer)]
    return hidden, [p for name, p in named if p.ndim != 2 or name.startswith(outer)]


def _muon(network, rate):
    import torch

    hidden, rest = _parts(network)
    adjusted = {"adjust_lr_fn": "match_rms_adamw", **DECAY}
    return [torch.optim.Muon(hidden, lr=rate, **adjusted), torch.optim.AdamW(rest, lr=rate, **DECAY)]


def _sketched(network, rate, split=False):
    from fastsketch.torch import SketchedSOAP

    hidden, rest = _parts(network)
    groups = [{"params": hidden, "sketched": True}, {"params": rest, "sketched": False}]
    return [SketchedSOAP(groups if split else network.parameters(), lr=rate, **DECAY)]


def _adaffd(network, rate):
    from fastsketch.torch import AdaFFD

    return [AdaFFD(network.parameters(), lr=rate)]


METHODS = {
    "AdamW": _torch("AdamW", **DECAY),
    "AdamW, betas .95, .95": _torch("AdamW", betas=(0.95, 0.95), **DECAY),
    "SGD, momentum .9": _torch("SGD", factor=100, momentum=0.9),
    "Adafactor": _torch("Adafactor", **DECAY),
    "Muon": _muon,
    "SketchedSOAP": _sketched,
    SPLIT: functools.partial(_sketched, split=True),
    "AdaFFD": _adaffd,
}


# -- networks: how one is made, the loss of a batch, test loss and accuracy ------------------------------------------
def net():
    """Return the parts of the task on MNIST, or None."""
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    parts = mnist(), mnist("t10k")
    if None in parts:
        return None
    (x, y), (test_x, test_y) = (
        (
            torch.tensor(np.reshape(rows, (-1, 14, 2, 14, 2)).mean(axis=(2, 4)).reshape(-1, 196) / 255).float(),
            torch.tensor(np.asarray(labels, dtype=np.int64)),
        )
        for rows, labels in parts
    )

    def make():
        layers = {"first": nn.Linear(196, 256), "bend": nn.ReLU(), "second": nn.Linear(256, 256), "again": nn.ReLU()}
        return nn.Sequential(OrderedDict(**layers, head=nn.Linear(256, 10)))

    def loss_of(network, rng):
        batch = torch.from_numpy(rng.integers(0, len(y), 128))
        return cross_entropy(network(x[batch]), y[batch])

    def test(network):
        scores = network(test_x)
        return cross_entropy(scores, test_y).item(), (scores.argmax(1) == test_y).float().mean().item()

    return make, loss_of, test


def transformer(width=96, layers=2, heads=4, length=96, batch=8):
    """Return the parts of the task on the sources of Python's standard library."""
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(path for path in root.rglob("*.py") if "site-packages" not in path.parts)
    kept = [[path for i, path in enumerate(files) if (i % 10 == 9) == held] for held in (False, True)]
    train, held_out = (
        torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in paths)), dtype=torch.uint8) for paths in kept
    )

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
        return tuple(np.mean(pairs, axis=0))

    return Transformer, loss_of, test
