"""Several threads on one model: updates, reads, merges and saves at once; what was refused left no trace.

Every accepted call is noted from within, while nobody else can be in the model, so that the same calls can be made one
after the other on another model: the two must end with the same bits.
"""

import json
import subprocess
import sys
import threading
import time

import numpy as np

import fastsketch as fs
from tests.helpers import sparse_rows
from tests.reliability.figures import environment, report
from tests.reliability.zoo import SPECIMENS, Specimen

THREADS = 4
RULE = "one thread at a time may update a model"
# Rows of a batch: several slices of an update, the longest of which hold no lock of the interpreter.
ROWS = 1000
# Rows of a batch for kinds whose fit takes long.
FEW = {"completion": 40, "hash-sgh": 40}


def wide(name, make, rows):
    return Specimen(f"wide-{name}", make, rows=rows, reads={"facts": lambda m: m.facts()})


def wide_rows(seed, n):
    return np.random.default_rng(seed).standard_normal((n, 300))


def wide_sparse_rows(seed, n):
    return sparse_rows(np.random.default_rng(seed), n, 3000, 0.01)


# Beside the zoo wide rows, whose kernels run long: these ended the process, or never ended, before there was a guard.
TRIED = (
    *SPECIMENS,
    wide("gram", lambda: fs.FrequentDirections(20, solver="gram"), wide_rows),
    wide("exact", lambda: fs.FrequentDirections(20, solver="exact"), wide_rows),
    wide("csr", lambda: fs.FrequentDirections(20, solver="gram"), wide_sparse_rows),
    wide("mapped", lambda: fs.FrequentDirections(20, compressor="srht"), wide_rows),
    wide("hash", lambda: fs.SketchHash(16), wide_rows),
)

# What a model may say of itself: SGH learns once, a part of a hash is merged once.
EXPECTED = ("learns from one batch", "has already been merged")


def key(given):
    """Of a batch or a model: of rows their first entries, for a fit may be given another object of the same."""
    if isinstance(given, list):  # rows with names, made of such that are known by their entries
        named = [(name, value) for row in given for name, value in row.items() if name != "word"]
        first = np.array([value for _, value in named][:4]).tobytes()
        return first + np.array([int(name[1:]) for name, _ in named][:16], np.int32).tobytes()
    if hasattr(given, "indices"):  # events are all alike: which items they are tells
        return np.asarray(given.data)[:4].tobytes() + np.asarray(given.indices)[:16].tobytes()
    entries = getattr(given, "data", None) if not isinstance(given, np.ndarray) else given.ravel()
    return id(given) if entries is None else np.asarray(entries)[:4].tobytes()


def batch(specimen, seed):
    """Rows of one call."""
    n = next((few for name, few in FEW.items() if specimen.name.startswith(name)), ROWS)
    return specimen.rows(seed, n) * (0.1 if specimen.name.startswith("online") else 1)


# Where rows are checked beside the module of the class.
ROWS_OF = {"fastsketch.lowrank.": "fastsketch.lowrank._loading"}


class Log:
    """The accepted calls, in order: noted by the functions of the library that each of them passes."""

    def __init__(self, model):
        self.calls, self.known, self.undo = [], {}, []
        cls = type(model)
        modules = {base.__module__ for base in cls.__mro__ if "update" in vars(base) or "fit" in vars(base)}
        for module in modules | {ROWS_OF[room] for room in ROWS_OF if cls.__module__.startswith(room)}:
            for name in ("as_rows", "as_events", "observed_entries"):
                if hasattr(sys.modules[module], name):
                    self._hook(sys.modules[module], name, 0)
        if hasattr(model, "_names"):  # of rows with names, and of others
            self._hook(type(model._names), "enter", 1)
            self._hook(cls, "_as_rows", 1)
        if hasattr(cls, "_merge"):
            self._hook(cls, "_merge", 1)

    def knows(self, call):
        """Expect this call: (kind, rows or a model)."""
        self.known[key(call[1])] = call

    def _hook(self, owner, name, place):
        original = getattr(owner, name)

        def noted(*args, **kwargs):
            call = self.known.get(key(args[place]))
            found = original(*args, **kwargs)
            if call is not None:
                self.calls.append(call)
            return found

        self.undo.append((owner, name, original))
        setattr(owner, name, noted)

    def end(self):
        for owner, name, original in self.undo:
            setattr(owner, name, original)


def work(specimen, model, log, chosen, stop, out):
    """Random calls until the time is over; counts by what came of them."""
    n, part = out["rows"], 0
    while time.monotonic() < stop and out["other_errors"] == 0:
        kind = chosen.choice(["update", "read", "save", "copy", "merge"], p=[0.5, 0.2, 0.1, 0.1, 0.1])
        if kind == "update" and not (hasattr(model, "update") or hasattr(model, "fit")):
            kind = "merge"  # all that changes it
        seed, call = int(chosen.integers(1 << 30)), None
        if kind == "update":
            call = ("update", batch(specimen, seed))
        elif kind == "merge" and hasattr(model, "merge") and part < 3:
            part += 1
            place = {"part": 1 + out["thread"] * 4 + part} if "part" in model.parameters else {}
            call = ("merge", specimen.learn(type(model)(**{**model.parameters, **place}), batch(specimen, seed)))
        if call is not None:
            log.knows(call)
        try:
            if kind == "update":
                specimen.learn(model, call[1])
            elif call is not None:
                model.merge(call[1])
            elif kind == "read":
                specimen.read(model)
            elif kind == "save":
                saved = fs.from_bytes(model.to_bytes()).n_rows
                out["half_updates"] += saved % n != 0
            else:
                out["half_updates"] += model.copy().n_rows % n != 0
            out["changes"] += call is not None
            out["calls"] += 1
        except RuntimeError as error:
            out["refused" if RULE in str(error) else "other_errors"] += 1
            out["text"] = str(error)
        except ValueError as error:
            if not any(text in str(error) for text in EXPECTED):
                out["other_errors"] += 1
                out["text"] = repr(error)
        except Exception as error:
            out["other_errors"] += 1
            out["text"] = repr(error)


def outcome(specimen, model):
    """What must be the same: the bytes of the state, but of a fit that keeps the time it took what it answers."""
    return str(specimen.reads["predict"](model)) if specimen.name.startswith("completion") else model.to_bytes()


def tried(specimen, seconds, seed):
    """Counts of one specimen."""
    model, chosen = specimen.make(), np.random.default_rng(seed)
    first = batch(specimen, seed)
    specimen.learn(model, first)
    log = Log(model)
    parts = [
        {
            "thread": k,
            "rows": model.n_rows,
            "calls": 0,
            "changes": 0,
            "refused": 0,
            "other_errors": 0,
            "half_updates": 0,
            "text": "",
        }
        for k in range(THREADS)
    ]
    stop = time.monotonic() + seconds
    workers = [
        threading.Thread(target=work, args=(specimen, model, log, child, stop, part))
        for child, part in zip(chosen.spawn(THREADS), parts, strict=True)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    log.end()
    again = specimen.learn(specimen.make(), first)
    for kind, given in log.calls:
        again = specimen.learn(again, given) if kind == "update" else again.merge(given)
    counts = {name: sum(part[name] for part in parts) for name in parts[0] if name not in ("thread", "rows", "text")}
    return {
        **counts,
        "name": specimen.name,
        "lost_updates": abs(counts["changes"] - len(log.calls)) + (again.n_rows != model.n_rows),
        "other_states": int(outcome(specimen, again) != outcome(specimen, model)),
        "text": next((part["text"] for part in parts if part["other_errors"]), ""),
    }


def child(names, seconds):
    """Runs in a process of its own: one line for each specimen."""
    sys.setswitchinterval(1e-5)
    for seed, specimen in enumerate(TRIED):
        if specimen.name in names:
            print(json.dumps(tried(specimen, seconds, seed)), flush=True)


def in_children(names, seconds):
    """(figures of each specimen, crashed, hung): a specimen that ends its process is left out and the others go on."""
    found, crashed, hung, left = [], [], [], list(names)
    while left:
        code = f"from tests.reliability.test_threads import child; child({left!r}, {seconds!r})"
        limit, status = 60 + 20 * seconds * len(left) + 5 * len(left), None
        process = subprocess.Popen([sys.executable, "-c", code], env=environment(), stdout=-1, stderr=-1, text=True)
        try:
            text, errors = process.communicate(timeout=limit)
            status = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            text, errors = process.communicate()
        lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
        found += lines
        left = [name for name in left if name not in {line["name"] for line in lines}]
        if left:
            (hung if status is None else crashed).append(left.pop(0))
            print(errors[-2000:])
    return found, crashed, hung


def test_threads_on_one_model(amount):
    seconds = amount(0.03, 1.0)
    found, crashed, hung = in_children([specimen.name for specimen in TRIED], seconds)
    totals = {
        name: sum(line[name] for line in found)
        for name in ("calls", "changes", "refused", "other_errors", "half_updates", "lost_updates", "other_states")
    }
    for line in found:
        if line["other_errors"] or line["half_updates"] or line["lost_updates"] or line["other_states"]:
            print(line)
    print("crashed:", crashed, "hung:", hung)
    report(
        "threads on one model",
        f"{len(TRIED)} models, {THREADS} threads each, {totals['calls'] + totals['refused']} calls",
        crashes=len(crashed),
        hangs=len(hung),
        **{name: totals[name] for name in ("other_errors", "half_updates", "lost_updates", "other_states")},
        also={"refused": totals["refused"], "accepted updates and merges": totals["changes"]},
    )
    assert totals["refused"] > 0 and totals["changes"] > 0  # or nothing was tried
