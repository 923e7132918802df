"""Optimizers on four small networks (`tasks`): test loss at equal steps and at equal seconds, memory, time.

Warm-up of a tenth and a cosine to zero for all, the same three rates for all, nothing else searched; of SGD rates are a
hundred times as large. Muon and GaLore have the hidden matrices, the rest is AdamW's.
At equal seconds a method has as many steps as fit into the processor time of AdamW's run.

With --keep a command which was stopped goes on where it was.
"""

import functools
import math
import platform
import time

import numpy as np

from bench_tools import few, rival, spread, table
from optimizers.tasks import TASKS, net, transformer
from store import Parts

RATES = (3e-4, 1e-3, 3e-3)
TIMED = 3e-3  # the rate at which seconds are equal, too
DECAY = {"weight_decay": 0.01}
SEEDS = {"net": 5, "transformer": 3, "residual": 2, "papers_net": 2}


def optimizers(args):
    """Train all networks by all optimizers at all rates."""
    import torch

    torch.set_num_threads(1)
    kept = Runs(args)
    tasks = {name: task for name, made in TASKS.items() if (task := made()) is not None}
    for name in set(TASKS) - set(tasks):
        print(f"{name}: its data are absent")
    there = [method for method in METHODS if method not in PEERS or rival("pytorch_optimizer") is not None]
    methods = {name: [method for method in there if name in METHODS[method][1]] for name in tasks}
    for seed in range(few(1 if args.quick else max(SEEDS.values()), 1)):
        for name, task in tasks.items():
            if seed < SEEDS[name]:
                _measure(kept, name, task, methods[name], seed)
    for name, task in tasks.items():
        _show(kept, name, task, methods[name])


def _measure(kept, name, task, methods, seed):
    """Train one network of a seed by each optimizer at each rate, and in AdamW's seconds at one rate."""
    rates = RATES[: few(3, 1)]
    for rate in reversed(rates):
        for method in methods:
            _trained(kept, name, task, method, rate, seed)
    for method in methods:
        _trained(kept, name, task, method, min(TIMED, max(rates)), seed, timed=True)


class Runs:
    """What runs gave, by network, method, rate, seed and way."""

    def __init__(self, args):
        self.parts = Parts(args)

    def every(self, name, method, rate, way="steps"):
        """Return what the runs of all seeds gave, (seeds, 5)."""
        start = f"{name}|{method}|{rate:g}|{way}|"
        return np.array([part["result"] for key, part in self.parts.known.items() if key.startswith(start)])

    def milliseconds(self, name, method):
        """Return the least ms of a whole step in any run of equal steps."""
        return min(runs[:, 2].min() for rate in RATES if len(runs := self.every(name, method, rate)))


def _trained(kept, name, task, method, rate, seed, timed=False):
    """Train once if that has not been done; a method that takes about AdamW's seconds is not run anew for them."""
    steps, key = few(task.steps, 3), f"{name}|{method}|{rate:g}|steps|{seed}"
    if timed:
        share = kept.milliseconds(name, "AdamW") / kept.milliseconds(name, method)
        if share > 0.95:
            kept.parts.of(key.replace("steps", "seconds"), lambda: kept.parts.known[key]["result"])
            return
        steps, key = max(round(share * steps), 2), key.replace("steps", "seconds")
    found = kept.parts.of(key, trained, task, METHODS[method][0], rate, seed, steps)
    print(key, *(f"{x:.4g}" for x in found), flush=True)


def _show(kept, name, task, methods):
    """Print the table of a network, of the rates that all optimizers have been run at."""
    rates = [rate for rate in RATES if all(len(kept.every(name, method, rate)) for method in methods)]
    last = rates[-1]
    seeds = min(len(kept.every(name, method, rate)) for method in methods for rate in rates)
    timed = all(len(kept.every(name, method, last, "seconds")) >= seeds for method in methods)
    shown = spread if seeds > 1 else lambda values, digits: f"{values[0]:.{digits}f}"
    rows = []
    for method in methods:
        runs = {rate: kept.every(name, method, rate)[:seeds] for rate in rates}
        row = {"optimizer": method} | {f"loss at {rate:g}": shown(runs[rate][:, 0], 3) for rate in rates}
        for rate in rates[-2:]:
            beside = runs[rate][:, 0] - kept.every(name, "AdamW", rate)[:seeds, 0]
            row[f"beside AdamW at {rate:g}"] = shown(beside, 3)
        row[f"accuracy at {last:g}, %"] = f"{100 * runs[last][:, 1].mean():.1f}"
        if timed:
            within = kept.every(name, method, last, "seconds")[:seeds]
            row[f"loss in AdamW's seconds, {last:g}"] = shown(within[:, 0], 3)
            row[f"accuracy in AdamW's seconds, {last:g}, %"] = f"{100 * within[:, 1].mean():.1f}"
        rows.append({**row, "kB of state": f"{runs[last][0, 4] / 1e3:.0f}"})
    note = f"{task.steps} steps. SGD has 100 times the learning rate of the other optimizers."
    if name == "transformer":
        note += f" The texts are the sources of Python {platform.python_version()}, and losses are in nats a byte."
    words = f"{seeds} seeds, mean +- standard deviation, differences seed by seed" if seeds > 1 else "one seed"
    table(rows, name=name, runs=words, note=note)


def trained(task, make, rate, seed, steps):
    """Return test loss, share that is right, ms of a step, ms of the optimizer's part of it, bytes of state."""
    import torch

    torch.manual_seed(seed)
    network, rng = task.make(), np.random.default_rng(seed)
    used = make(network, rate, task.outer)
    peaks = [[group["lr"] for group in optimizer.param_groups] for optimizer in used]
    inside, warm, begun = 0.0, steps / 10, time.process_time()
    for step in range(steps):
        share = min((step + 1) / warm, 0.5 + 0.5 * math.cos(math.pi * max(0, step - warm) / (steps - warm)))
        for optimizer, peak in zip(used, peaks, strict=True):
            for group, lr in zip(optimizer.param_groups, peak, strict=True):
                group["lr"] = share * lr
            optimizer.zero_grad()
        task.loss_of(network, rng).backward()
        start = time.process_time()
        for optimizer in used:
            optimizer.step()
        inside += time.process_time() - start
    whole = time.process_time() - begun
    with torch.no_grad():
        loss, right = task.test(network)
    return [loss, right, 1e3 * whole / steps, 1e3 * inside / steps, sum(map(_bytes, (o.state for o in used)))]


def _bytes(held):
    """Return the bytes of all tensors within dicts, lists and objects of pytorch_optimizer."""
    if hasattr(held, "nbytes"):
        return held.nbytes
    if type(held).__module__.startswith("pytorch_optimizer"):
        held = vars(held)
    parts = held.values() if hasattr(held, "values") else held if isinstance(held, list | tuple) else ()
    return sum(map(_bytes, parts))


def step_costs(args):
    """Time forward, backward and step of small batches and of 4,096 tokens, beside AdamW's."""
    import torch

    torch.set_num_threads(1)
    wide = {"width": few(128, 32), "length": 128, "batch": few(32, 2)}
    batches = {"128 rows of 196 pixels": net, "768 tokens, width 96": transformer}
    rows = []
    for name, make in {**batches, "4,096 tokens, width 128": functools.partial(transformer, **wide)}.items():
        task = make()
        if task is not None:
            rows += [[name, *cells] for cells in _in_turn(task)]
    columns = ["batch", "optimizer", "ms a step", "with forward and backward", "of AdamW's"]
    note = "SketchedSOAP sketches every tenth gradient, and SOAP rotates its directions at every tenth step."
    table(rows, columns, "main", runs="mean of 20 steps in turn, processor time, one thread", note=note)


def _in_turn(task):
    """Return the cells of optimizers whose steps on a network are made in turn, after ten that are not timed."""
    import torch

    runs = {}
    for method in ("AdamW", "Muon", "SOAP", "SketchedSOAP"):
        if method not in PEERS or rival("pytorch_optimizer") is not None:
            torch.manual_seed(0)
            network = task.make()
            runs[method] = (network, METHODS[method][0](network, 1e-3, task.outer), [])
    rng = np.random.default_rng(0)
    for step in range(few(30, 2)):
        for network, used, times in runs.values():
            start = time.process_time()
            task.loss_of(network, rng).backward()
            between = time.process_time()
            for optimizer in used:
                optimizer.step()
                optimizer.zero_grad()
            end = time.process_time()
            if step >= few(10, 0):
                times.append((1e3 * (end - between), 1e3 * (end - start)))
    means = {method: np.mean(times, axis=0) for method, (_, _, times) in runs.items()}
    for method, (inside, whole) in means.items():
        yield method, f"{inside:.1f}", f"{whole:.1f}", f"{whole / means['AdamW'][1]:.2f}"


# -- optimizers of a network, a rate, and the names of embeddings and output layers ----------------------------------
def _torch(name, factor=1, **options):
    def make(network, rate, outer):
        import torch

        return [getattr(torch.optim, name)(network.parameters(), lr=factor * rate, **options)]

    return make


def _peer(name, **options):
    def make(network, rate, outer):
        import pytorch_optimizer

        return [getattr(pytorch_optimizer, name)(network.parameters(), lr=rate, **DECAY, **options)]

    return make


def _parts(network, outer):
    """Return the hidden matrices and filters of a network, and its other parameters."""
    named = list(network.named_parameters())
    hidden = [p for name, p in named if p.ndim > 1 and not name.startswith(outer)]
    return hidden, [p for name, p in named if p.ndim < 2 or name.startswith(outer)]


def _muon(network, rate, outer):
    """Return torch's Muon, or that of pytorch_optimizer where there are convolutions, which torch's refuses."""
    import torch

    hidden, rest = _parts(network, outer)
    others = torch.optim.AdamW(rest, lr=rate, **DECAY)
    if all(p.ndim == 2 for p in hidden):
        return [torch.optim.Muon(hidden, lr=rate, adjust_lr_fn="match_rms_adamw", **DECAY), others]
    import pytorch_optimizer

    group = {"params": hidden, "use_muon": True, "lr": rate, "use_adjusted_lr": True, **DECAY}
    return [pytorch_optimizer.Muon([group]), others]


def _galore(network, rate, outer):
    import pytorch_optimizer

    hidden, rest = _parts(network, outer)
    groups = [{"params": hidden, "rank": 16, "update_proj_gap": 50, "scale": 1.0, "projection_type": "std"}]
    return [pytorch_optimizer.GaLore([*groups, {"params": rest}], lr=rate, **DECAY)]


def _sketched(network, rate, outer, **options):
    from fastsketch.torch import SketchedSOAP

    return [SketchedSOAP(network.parameters(), lr=rate, **DECAY, **options)]


def _adaffd(network, rate, outer):
    from fastsketch.torch import AdaFFD

    return [AdaFFD(network.parameters(), lr=rate)]


ALL = tuple(SEEDS)
# Steps of RMSprop's length, as means, of roots that are computed anew at every tenth.
SHAMPOO = {"decoupled_weight_decay": True, "moving_average_for_momentum": True, "graft_type": 3}
SHAMPOO |= {"start_preconditioning_step": 10, "preconditioning_compute_steps": 10}
PEERS = ("SOAP", "Shampoo", "GaLore")  # of the package pytorch_optimizer
METHODS = {
    "AdamW": (_torch("AdamW", **DECAY), ALL),
    "AdamW, betas .95, .95": (_torch("AdamW", betas=(0.95, 0.95), **DECAY), ALL),
    "SGD, momentum .9": (_torch("SGD", factor=100, momentum=0.9), ALL),
    "Adafactor": (_torch("Adafactor", **DECAY), ALL),
    "Muon": (_muon, ALL),
    "SOAP": (_peer("SOAP", max_precondition_dim=2048), ALL),  # a whole side of 9,216 takes it half a minute a step
    "Shampoo": (_peer("ScalableShampoo", **SHAMPOO), ALL),
    "GaLore": (_galore, ("net", "transformer")),
    "SketchedSOAP": (_sketched, ALL),
    "SketchedSOAP, rank 4": (functools.partial(_sketched, rank=4), ("net", "transformer")),
    "SketchedSOAP, rank 64": (functools.partial(_sketched, rank=64), ("net", "transformer")),
    "AdaFFD": (_adaffd, ("net",)),
}
