"""Calls with one argument replaced by what it must not be, over every public callable; test_bad_calls.py runs it.

    python -m tests.reliability.bad_calls FIRST STEP

makes every STEP-th call from FIRST on (and every good one, if STEP is at most 100) and writes a line of json before and
after each: a crash shows by its absence.
"""

import copy
import inspect
import io
import itertools
import json
import os
import pickle
import resource
import sys
import tempfile
import traceback
import typing
import warnings
from functools import cache
from pathlib import Path

import numpy as np
from scipy import sparse

import fastsketch as fs
from fastsketch.neighbours.codes._code_factors import Minifloat
from fastsketch.neighbours.codes._layout import Layout
from tests.broken import BROKEN, LYING, whole
from tests.reliability.zoo import SPECIMENS
from tests.test_dialect import FACES, ROOMS, exported

N, D = 40, 12
# What a refusal may be. LinAlgError is a ValueError, the errors of files and states are too. An OverflowError is none:
# it comes from a number that Python, a kernel or LAPACK could not hold, and says nothing of a parameter.
REFUSALS = (TypeError, ValueError, MemoryError, OSError, FloatingPointError)
# Rooms whose functions are to be read, in NumPy, and check nothing.
UNCHECKED = ("fastsketch.reference.", "fastsketch.lowrank.FoldedIn(")
MEMORY = 6 << 30
# Good calls that are refused all the same, by the kind of model.
NEVER = ("SGH.update", "ADMML1.predict_proba")
NEVER += tuple(f"{kind}.predict_proba" for kind in ("AISImpute", "AltMin", "WibergL1"))
NEVER += ("CodeIndex.add_codes",)  # which needs the rows, too, where they are kept
NEVER += ("SketchedRidge.update",)  # which needs targets, unless they lie beside the rows of a source
# One that forgets reads no rows again; of these few rows none are held out to choose and to measure.
NEVER += ("SketchedRidge.refine", "SketchedRidge.score_path", "SketchedRidge.predict_interval")
NEVER += ("Source.chunks_beside", "Source.read_beside")  # no column lies beside these rows
ENDLESS = ("1e308", "huge values", "unaligned", "columns beyond memory")
# Numbers of turns: a huge one is a long wait that was asked for.
TURNS = {"epochs", "sweeps", "max_iterations", "max_power_iterations", "power_iterations", "inner_steps", "rounds"}
TURNS |= {"steps", "max_inner_rank", "n", "m", "q", "retries", "reservoir_size", "batch_size", "workers", "d"}


def dense(n=N, d=D):
    """Rows (n, d) of +1 and -1, which are also labels."""
    return np.random.default_rng(0).choice([-1.0, 1.0], (n, d))


# -- good arguments, by their names: one word has one meaning --------------------------------------------------------
def _gradient(t, w):
    return float(w.sum()), np.cos(np.arange(len(w)) + t)


def _losses(z, o):
    return (z - o) ** 2 / 2, z - o


def _draw(block, n):
    rng = np.random.default_rng(block)
    return rng.choice([-1.0, 1.0], n), rng.choice(n, 4, replace=False)


def _file(kind):
    """The path of a new file of a kind."""
    handle, path = tempfile.mkstemp(suffix=kind)
    os.close(handle)
    if kind == ".npy":
        np.save(path, dense())
    elif kind == ".csv":
        Path(path).write_text("a,b,y\n1,x,0\n2,y,1\n", encoding="ascii")
    elif kind == ".svm":
        Path(path).write_text("1 1:0.5 3:2\n-1 2:1\n", encoding="ascii")
    else:
        Path(path).write_bytes(_learned(fs.FrequentDirections).to_bytes())
    return path


def _task(item, part):
    return fs.FrequentDirections(4).update(dense(item + 5))


def _doubled(rows):
    return 2 * rows


GOOD = {
    "rows": dense,
    "X": whole,
    "X_test": dense,
    "targets": lambda: dense()[:, 0],
    "y": lambda: dense()[:, 0],
    "sample_weight": lambda: np.ones(N),
    "factor": lambda: 0.5,
    "v": lambda: np.ones(D),
    "comparator": lambda: np.ones(D),
    "x": lambda: np.ones(8),
    "completed": dense,
    "mean": lambda: np.zeros(D),
    "covariance": lambda: np.eye(D),
    "uncertainty": lambda: np.zeros((D, D)),
    "inner_tolerance": lambda: 0.9,
    "q": lambda: 4,
    "n_bits": lambda: 4,
    "n_bytes": lambda: 4,
    "queries": lambda: np.ones((3, 1), np.uint8),
    "codes": lambda: np.ones((30, 1), np.uint8),
    "k": lambda: 5,
    "learning_rate": lambda: 0.1,
    "delta": lambda: 1.0,
    "penalty_strength": lambda: 0.1,
    "rank": lambda: 2,
    "n": lambda: 1,
    "index": lambda: 1,
    "columns": lambda: [1, 2],
    "new": lambda: [0, 1],
    "known": lambda: [0, 1],
    "models": lambda: [_learned(fs.FrequentDirections).copy() for _ in range(3)],
    "task": lambda: _task,
    "items": lambda: [1, 2, 3],
    "by": lambda: np.arange(N) % 3,
    "keys": lambda: [k % 3 for k in range(N)],
    "function": lambda: _doubled,
    "output": lambda: _file(".npy"),
    "scheduler": lambda: None,
    "n_workers": lambda: 1,
    "retries": lambda: 1,
    "start_row": lambda: 0,
    "start": lambda: 0,
    "stop": lambda: 5,
    "engine": lambda: "serial",
    "workers": lambda: 1,
    "content": lambda: _learned(fs.FrequentDirections).to_bytes(),
    "source": lambda: io.BytesIO(_learned(fs.FrequentDirections).to_bytes()),
    "path": lambda: _file(".svm"),
    "model": lambda: fs.FrequentDirections(4),
    "data": lambda: [dense],
    "axis": lambda: 0,
    "classes": lambda: [-1.0, 1.0],
    "hash_bits": lambda: 8,
    "decay": lambda: 0.9,
    "decay_rates": lambda: (1.0, 0.999, 0.98),
    "decay_prior": lambda: 0.8,
    "decay_share": lambda: 1e-3,
    "class_weight": lambda: "balanced",
    "fit_intercept": lambda: True,
    "scale": lambda: "moments",
    "open_columns": lambda: True,
    "curvature": lambda: "gradient",
    "calibrate": lambda: True,
    "blend": lambda: False,
    "blend_rate": lambda: None,
    "dense_above": lambda: 0.3,
    "alpha0_share": lambda: None,
    "names": lambda: ["a", "b"],
    # torch
    "params": lambda: [_tensor()],
    "param_group": lambda: {"params": [_tensor()]},
    # the reference
    "d": lambda: 6,
    "gram": lambda: np.eye(D),
    "ridge": lambda: 1.0,
    "squares": lambda: np.full(D, 1e3),
    "leaked": lambda: np.zeros((D, D)),
    "lost": lambda: 0.0,
    "vectors": lambda: np.eye(4, D),
    "trace": lambda: 10.0,
    "number": lambda: Minifloat(1, 8, 1.0),
    "tables": lambda: np.ones((2, 2, 16), np.float32),
    "layout": lambda: Layout(2),
    "alpha": lambda: 1.0,
    "factors": lambda: np.ones((2, 3)),
    "biases": lambda: np.zeros(2),
    "known_factors": lambda: np.ones((D, 3)),
    "known_biases": lambda: np.zeros(D),
    # ranking
    "recommended": lambda: [[0, 1], [1, 2]],
    "relevant": lambda: np.ones((2, D)),
    "scores": lambda: np.ones((2, D)),
    "values": lambda: np.ones(4),
    "times": lambda: np.arange(whole().nnz),
    "n_items": lambda: D,
    "row": lambda: np.ones((1, D)),
    "item": lambda: 1,
    "rounds": lambda: 5,
    "subgradient": lambda: _gradient,
    "tolerance": lambda: 0.1,
    "share": lambda: 0.9,
    "rng": lambda: np.random.default_rng(0),
    "a": lambda: np.random.default_rng(0).standard_normal((N, D)),
    "b": lambda: np.random.default_rng(0).standard_normal((N, D)),
    "f": lambda: np.ones((8, 3)),
    "signs": lambda: np.ones(8),
    "sample": lambda: np.arange(4),
    "r": lambda: 3,
    "m": lambda: 8,
    "size": lambda: 8,
    "draw": lambda: _draw,
    "beta": lambda: 0.5,
    "alpha0": lambda: 1.0,
    "sketch_size": lambda: 4,
    "xs": lambda: dense() / 4,
    "ys": lambda: dense()[:, 0],
    "begin": lambda: 20,
    "blocks": lambda: [np.random.default_rng(i).standard_normal((16, D)) for i in range(3)],
    "o": lambda: np.ones((8, 6)),
    "seen": lambda: np.eye(8, 6, dtype=bool),
    "steps": lambda: 3,
    "step_size": lambda: 0.1,
    "lipschitz": lambda: 1.0,
    "loss": lambda: _losses,
    "parts": lambda: [(np.ones((8, D)), np.zeros(D), 16), (np.eye(8, D), np.ones(D), 16)],
}


def _by_call(name, parameter):
    """A good argument where that of the name alone would not do."""
    kind = name.split(".")[-2]
    if name.startswith(("fastsketch.torch.FrequentDirections", "fastsketch.torch.c", "fastsketch.torch.load")):
        return _for_tensors(name, parameter)
    if name.startswith("fastsketch.torch.save"):
        return {"sketches": {"a": _learned(_class("fastsketch.torch.FrequentDirections.update"))}}.get(parameter)
    if name.startswith(("fastsketch.data.Source", "fastsketch.data.naming")) and parameter in ("source", "row"):
        return 3 if parameter == "row" else fs.open_rows(dense())
    if name.endswith((".run", ".map_rows", ".sketch_groups")) and parameter in ("source", "engine"):
        return "threads" if parameter == "engine" else dense()
    if name.endswith("streams.compare") or name == "fastsketch.compare":
        return _learned(fs.FrequentDirections) if parameter in ("a", "b") else None
    if name.endswith("TableRows.line_of"):
        return 1
    if name.endswith("mrcd_distances") and parameter == "new":
        return dense()
    if name.startswith("fastsketch.papers") and parameter == "loss":
        return "logistic" if name.endswith("glrl") else "absolute"
    if name.endswith("tracked_merge") and parameter in ("parts", "x"):
        return dense(2) if parameter == "x" else [_learned(fs.reference.Tracked)] * 2
    if kind == "SketchQuantizer" and parameter == "codes":
        return _learned(fs.SketchQuantizer).encode(dense())
    if name.endswith("SketchCoder.inverse_transform"):
        return _learned(_class(name)).transform(dense())
    if name.endswith("SketchedPCA.inverse_transform"):
        return np.ones((3, _learned(_class(name)).n_components_))
    if name.endswith(("map_merge", ".merge")) and parameter in ("engine", "workers"):
        return GOOD[parameter]()
    if "CodeIndex" in name:
        kept = _learned(fs.CodeIndex)
        codes, fingerprint = kept.encoder.encode(dense()), kept.encoder.fingerprint
        own = {"model": _learned(fs.SketchHash), "ids": [1, 2], "codes": codes}
        own |= {"fingerprint": fingerprint}
        if parameter in own:
            return own[parameter]
    if parameter == "model" and name.endswith(".from_model"):
        learned = _learned(_class(name))
        return getattr(learned, learned._MODEL).copy()
    if parameter == "source" and name.startswith("fastsketch.sklearn"):
        path = _file(".fsk")
        _learned(_class(name)).save(path)
        return path
    if parameter == "path" and name.endswith("save"):
        return _file(".fsk")
    if parameter == "state_dict":
        return _learned(_class(name)).state_dict()
    if parameter == "source":
        of = _class(name) if name.split(".")[-1] == "load" and name != "fastsketch.load" else fs.FrequentDirections
        return io.BytesIO(_learned(of).to_bytes())
    if parameter == "other":
        kept = _learned(_class(name))
        if "part" in getattr(kept, "parameters", {}):  # two models of one part hold the same block
            return type(kept)(**{**kept.parameters, "part": 1}).update(dense())
        return copy.deepcopy(kept)
    if name.startswith(("fastsketch.data.IdMap", "fastsketch.data.Triples")):
        own = {"ids": ["a", "b"], "users": [1, 2], "items": ["x", "y"], "table": [("a", "x"), ("b", "x")]}
        return own.get(parameter)
    if name.startswith(("fastsketch.data.NamedRows", "fastsketch.data.TableRows")):
        return {"rows": [{"a": 1.0, "b": "x"}, [("c", 2.0), "d"]], "path": _file(".csv")}.get(parameter)
    if "EASE" in name and parameter in ("rows", "X"):
        return np.abs(dense())
    if name.endswith("SecondPass.of"):
        return {"model": _learned(fs.FrequentDirections), "data": [dense]}.get(parameter)
    if name.endswith(".search") and parameter == "queries":
        return dense(3)
    if parameter == "subgradient" and name.endswith("greedy_low_rank_nonsmooth"):
        return _losses
    if parameter == "projection":
        return np.eye(D, 4)
    if parameter == "rows" and _has_pairs(name):
        return [1, 2]
    if parameter == "X" and name.endswith("LowRankFactors.inverse_transform"):
        return np.ones((3, _learned(_class(name)).rank_ + 1))
    return None


def _for_tensors(name, parameter):
    import torch

    if name.endswith("load_sketches") and parameter == "path":
        path = _file(".pt")
        torch.save({}, path)
        return path
    own = {"rows": _rows, "v": lambda: torch.ones(D), "model": lambda: torch.nn.Linear(D, 2), "modules": lambda: ""}
    own |= {"batches": lambda: [_rows()], "device": lambda: "cpu", "n_features": lambda: D}
    if name.endswith("from_fastsketch") and parameter == "model":
        return _learned(fs.FrequentDirections)
    kept = {"other": copy.deepcopy, "state_dict": lambda sketch: sketch.state_dict()}
    if parameter in kept:
        return kept[parameter](_learned(_class("fastsketch.torch.FrequentDirections.update")))
    return own[parameter]() if parameter in own else None


def _has_pairs(name):
    return any(kind in name for kind in ("LowRankModel", "ADMM", "Wiberg", "AISImpute", "AltMin"))


# -- who is called ---------------------------------------------------------------------------------------------------
def _tensor():
    import torch

    out = torch.nn.Parameter(torch.ones(4, 3))
    out.grad = torch.ones(4, 3)
    return out


def _rows():
    import torch

    return torch.from_numpy(dense()).float()


@cache
def _learned(cls):
    """An object of a class that has learned something; not to be changed."""
    if cls.__module__ == "fastsketch.torch._frequent_directions":
        return cls(4).update(_rows())
    if cls.__module__.startswith("fastsketch.torch"):
        out = cls([_tensor()])
        out.step()
        return out
    if cls is fs.data.Source:
        return fs.open_rows(_file(".npy"))
    if cls is fs.Compressor:
        return cls("srht", 4)
    if cls.__module__.startswith("fastsketch.data.names"):
        arguments = {"TableRows": {"path": _file(".csv")}}
        arguments |= {"IdMap": {"ids": ["a", "b"]}, "Triples": {"users": [1, 2], "items": ["x", "y"]}}
        return cls(**arguments[cls.__name__])
    if cls.__name__ == "Tracked":
        held = {"squares": np.ones(3), "v": np.eye(3, D), "seen": np.eye(3), "leaked": np.zeros((3, 3))}
        return cls(**held, delta=0.0, lost=0.0)
    if cls is fs.CodeIndex:
        out = cls(_learned(fs.SketchHash), rows="float32")
        out.add(dense())
        return out
    if issubclass(cls, fs.FrequentDirections):
        return cls(5, solver="gram").update(dense())
    if cls.__name__ == "FoldedIn":
        return _learned(fs.LowRankModel).fold_in(whole()[:3])
    if cls.__name__ == "LowRankModel":  # which can also go on, and tell probabilities
        return cls(2, sweeps=0, loss="logistic").fit(whole())
    if cls.__module__.endswith("_completion"):
        return cls(2, max_iterations=2).fit(whole())
    if cls.__name__ in ("SketchedNewton", "AdaptiveSubgradient"):
        return cls(3, loss="logistic").update(dense(), dense()[:, 0])
    if cls.__module__.startswith("fastsketch.sklearn"):
        of_labels = "Classifier" in cls.__name__ and "loss" in inspect.signature(cls).parameters
        if cls.__name__ == "LowRankCompleter":  # which can also go on, merge and tell intervals
            return cls(method="gaussian").fit(np.where(np.arange(N * D).reshape(N, D) % 7 == 0, np.nan, dense()))
        out = cls(**({"loss": "logistic"} if of_labels else {}))
        return out.fit(abs(whole()) if "EASE" in cls.__name__ else whole(), dense()[:, 0])
    return next(s for s in SPECIMENS if type(s.make()) is cls).learned()


_CLASSES = {}


def _class(name):
    return _CLASSES[name.rsplit(".", 1)[0]]


@cache
def calls():
    """(name, function of receiver or None, parameters) of every public callable, each once."""
    found, known = [], set()
    for name, item in exported((*ROOMS, *(face for face in FACES if face != "anndata"))):  # see tests/anndata
        is_class = inspect.isclass(item)
        if (
            item in known
            or is_class
            and (issubclass(item, Exception | dict | tuple) or getattr(item, "_is_protocol", False))
        ):
            continue
        known.add(item)
        if not inspect.isabstract(item):
            found.append((name, item, None, _parameters(item)))
        if inspect.isclass(item):
            _CLASSES[name] = item
            for method, member in inspect.getmembers(item, inspect.isroutine):
                home = getattr(member, "__module__", None) or ""
                if method.startswith("_") or not home.startswith("fastsketch"):
                    continue
                bound = not isinstance(inspect.getattr_static(item, method), classmethod | staticmethod)
                if inspect.isabstract(item):
                    continue  # its kinds are tried
                found.append((f"{name}.{method}", member, item if bound else None, _parameters(member)[bound:]))
    return found


def _parameters(function):
    """The parameters of a signature; of **settings that have names, these."""
    out = []
    for parameter in inspect.signature(function).parameters.values():
        if typing.get_origin(parameter.annotation) is not typing.Unpack:
            out.append(parameter)
            continue
        (settings,) = typing.get_args(parameter.annotation)
        out += [
            parameter.replace(name=name, kind=parameter.KEYWORD_ONLY, default=inspect.Parameter.empty)
            if name in settings.__required_keys__
            else parameter.replace(name=name, kind=parameter.KEYWORD_ONLY, default=None)
            for name in settings.__annotations__
        ]
    return out


# -- what arguments must not be --------------------------------------------------------------------------------------
def _nested():
    out = []
    for _ in range(200):
        out = [out]
    return out


class _Hostile:
    """Fails however it is looked at."""

    def __array__(self, *_, **__):
        raise ValueError("no array")

    def __len__(self):
        return -1

    def __iter__(self):
        raise TypeError("no items")


ANYTHING = {
    "None": lambda: None,
    "NaN": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "-infinity": lambda: float("-inf"),
    "-1": lambda: -1,
    "0": lambda: 0,
    "2**31": lambda: 2**31,
    "2**63": lambda: 2**63,
    "2**70": lambda: 2**70,
    "10**400": lambda: 10**400,
    "-2**63": lambda: -(2**63),
    "1e308": lambda: 1e308,
    "0.5": lambda: 0.5,
    "True": lambda: True,
    "1j": lambda: 1j,
    "empty text": lambda: "",
    "text": lambda: "x" * 1000,
    "text with a zero": lambda: "a\0b",
    "bytes": lambda: b"\x80\x00bytes",
    "object": object,
    "class": lambda: int,
    "function": lambda: _gradient,
    "generator": lambda: (i for i in range(3)),
    "empty list": list,
    "dict": lambda: {"a": 1},
    "set": lambda: {1, 2},
    "nested lists": _nested,
    "ragged": lambda: [[1.0, 2.0], [3.0]],
    "list of None": lambda: [None] * 5,
    "hostile": _Hostile,
    "0-d": lambda: np.array(3.0),
    "0-d NaN": lambda: np.array(np.nan),
    "no entries": lambda: np.empty(0),
    "no columns": lambda: np.empty((3, 0)),
    "no rows": lambda: np.empty((0, D)),
    "3-d": lambda: np.ones((2, 3, 4)),
    "32-d": lambda: np.ones((1,) * 32),
    "one column too few": lambda: np.ones((N, D - 1)),
    "one row too many": lambda: np.ones(N + 1),
    "objects": lambda: np.array([[object()] * D] * N),
    "complex numbers": lambda: np.ones((N, D), complex),
    "words": lambda: np.full((N, D), "a"),
    "dates": lambda: np.zeros((N, D), "M8[s]"),
    "structured": lambda: np.zeros(N, [("a", "f8"), ("b", "i4")]),
    "void": lambda: np.zeros((N, D), "V7"),
    "masked": lambda: np.ma.masked_array(dense(), dense() > 0),
    "array with NaN": lambda: np.where(np.arange(N * D).reshape(N, D) == 77, np.nan, 1.0),
    "array with infinity": lambda: np.where(np.arange(N * D).reshape(N, D) == 77, np.inf, 1.0),
    "huge values": lambda: np.full((N, D), 1e308),
    "tiny values": lambda: np.full((N, D), 5e-324),
    "vector with NaN": lambda: np.r_[np.ones(N - 1), np.nan],
    "vector of negative": lambda: -np.ones(N),
    "vector of huge": lambda: np.full(N, 2**63, np.uint64),
    "columns beyond memory": lambda: np.broadcast_to(np.float32(1), (1, 2**36)),
    "big-endian": lambda: dense().astype(">f8"),
    "float16": lambda: dense().astype(np.float16),
    "negative strides": lambda: dense()[::-1, ::-1],
    "read-only": lambda: np.broadcast_to(1.0, (N, D)),
    "unaligned": lambda: np.frombuffer(b"x" * (N * D * 8 + 1), np.uint8)[1:].view(float).reshape(N, D),
    "bool": lambda: dense() > 0,
    "matrix": lambda: np.asmatrix(dense()),
    "memoryview": lambda: memoryview(b"abcdef"),
}
SPARSE = {
    **{f"broken: {name}": make for name, make in BROKEN.items()},
    **{f"lying: {name}": make for name, make in LYING.items()},
    "complex sparse": lambda: whole() * 1j,
    "sparse vector": lambda: sparse.coo_array(np.ones(D)),
    "sparse with NaN": lambda: whole() * np.nan,
    "sparse without rows": lambda: sparse.csr_array((0, D)),
    "sparse without columns": lambda: sparse.csr_array((N, 0)),
    "sparse of 64 bits": lambda: whole(index=np.int64),
    "sparse, wide": lambda: sparse.csr_array((np.ones(1), [2**40 - 1], [0, 1]), shape=(1, 2**40)),
    "sparse, long": lambda: sparse.coo_array((np.ones(1), ([0], [0])), shape=(10**12, D)),
    "sparse of float16": lambda: _float16(),
}
# Parameters that take sparse matrices somewhere.
TAKES_SPARSE = {"rows", "X", "X_test", "queries", "rescore", "sample_weight", "exclude", "validation", "data"}


def _float16():
    out = whole()
    out.data = out.data.astype(np.float16)
    return out


def cases():
    """(name, callable, class of the receiver, parameter, name of the value) of all bad calls; None: the good one."""
    for name, item, owner, parameters in calls():
        yield name, item, owner, None, None
        for parameter in parameters:
            if parameter.kind is parameter.VAR_KEYWORD:
                continue
            values = ANYTHING if parameter.name not in TAKES_SPARSE else {**ANYTHING, **SPARSE}
            for value in (*values, "itself"):
                huge = value in ("2**31", "2**63", "2**70", "10**400", "1e308")
                turns = parameter.name in TURNS or (parameter.name == "rank" and name.startswith(UNCHECKED))
                # scipy reads broken ones as they are, LAPACK may not end on infinite squares, nor loops over columns
                unseen = name.startswith(UNCHECKED) and (value.startswith("broken") or value in ENDLESS)
                if not (huge and turns or unseen) and not (value == "itself" and owner is None):
                    yield name, item, owner, parameter.name, value


# -- one call --------------------------------------------------------------------------------------------------------
def _good(name, parameters):
    out = {}
    for parameter in parameters:
        if parameter.default is not parameter.empty and parameter.name not in ("engine", "workers"):
            continue
        if parameter.kind is not parameter.VAR_KEYWORD:
            value = _by_call(name, parameter.name)
            out[parameter.name] = GOOD[parameter.name]() if value is None else value
    return out


def _state(thing):
    """What must be as before after a refusal."""
    if hasattr(thing, "to_bytes"):
        return thing.to_bytes()
    if hasattr(thing, "state_dict"):
        return str(thing.state_dict())
    if hasattr(thing, "_own"):
        thing._own()  # sorts a sample that is sorted when it is first read: no row of it changes
    return pickle.dumps(thing)


def _call(name, item, receiver, arguments):
    if inspect.isclass(item):
        made = item(**arguments)
        if item.__module__.startswith("fastsketch.sklearn"):  # parameters are looked at by fit
            made.fit(abs(whole()) if "EASE" in name else whole(), dense()[:, 0])
        return made
    if receiver is None:
        out = item(**arguments)
    else:
        out = getattr(receiver, name.rsplit(".", 1)[1])(**arguments)  # of a Source what its kind makes of it
    if inspect.isgenerator(out) or hasattr(out, "compute"):
        out = out.compute() if hasattr(out, "compute") else list(out)
    return out


def run(case):
    """(verdict, detail): "accepted", "refused", or what is wrong: "raw", "silent", "changed", "wrongly accepted"."""
    name, item, owner, parameter, value = case
    parameters = next(p for n, _, _, p in calls() if n == name)
    if name == "fastsketch.lowrank.FoldedIn" and parameter is None:
        return "accepted", ""  # models make these
    if name == "fastsketch.lowrank.FoldedIn":
        return "refused", "models make these"
    receiver = None
    if owner is not None:
        kept = _learned(owner)
        receiver = kept.copy() if hasattr(kept, "to_bytes") else copy.deepcopy(kept)
        if isinstance(receiver, fs.LowRankModel) and name.endswith("add_ranks"):
            receiver = kept.copy()
    arguments = _good(name, parameters)
    if parameter is not None:
        arguments[parameter] = receiver if value == "itself" else {**ANYTHING, **SPARSE}[value]()
        if value == "itself" and parameter == "other":
            return "refused", ""  # a model merges with itself, or says why not: tests/test_model.py
    # fit of an estimator forgets before it learns, as scikit-learn's do
    forgets = owner is not None and owner.__module__.startswith("fastsketch.sklearn") and name.endswith(".fit")
    before = None if receiver is None or forgets else _state(receiver)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _call(name, item, receiver, arguments)
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
        if parameter is None and not name.endswith(NEVER):
            return "a good call was refused", text
        # as NumPy has it, with our message
        indexed = isinstance(error, IndexError) and (" must lie in [" in text or " must be in the index: " in text)
        # or what a function that was given says of what it is called with
        indexed = indexed or traceback.extract_tb(error.__traceback__)[-1].name in ("_gradient", "_losses", "_draw")
        indexed = indexed or (isinstance(error, KeyError) and " that the model does not know: " in text)
        if not (name.startswith(UNCHECKED) or indexed or isinstance(error, REFUSALS)):
            places = traceback.extract_tb(error.__traceback__)[-3:]
            return "raw", f"{text[:200]} | " + "; ".join(f"{Path(f.filename).name}:{f.lineno}" for f in places)
        if not (name.startswith(UNCHECKED) or str(error).strip() or isinstance(error, MemoryError)):
            return "silent", text
        if before is not None and _state(receiver) != before:
            return "changed", text[:300]
        return "refused", text[:300]
    if parameter is not None and value.startswith("broken"):
        return "wrongly accepted", ""
    return "accepted", ""


def main():
    """See above."""
    first, step = int(sys.argv[1]), int(sys.argv[2])
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        tempfile.tempdir = folder
        for number, case in enumerate(itertools.islice(cases(), first, None)):
            if (first + number) % step and (step > 100 or case[3] is not None):
                continue
            what = f"{case[0]}({'' if case[3] is None else f'{case[3]}={case[4]}'})"
            out.write(json.dumps([first + number, what]) + "\n")
            out.write(json.dumps(run(case)) + "\n")


if __name__ == "__main__":
    main()
