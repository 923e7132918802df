"""Every kind of model in its settings, with rows to learn from and everything that can be read from it."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

import fastsketch as fs
from fastsketch.data import Source, open_rows
from fastsketch.data.sources._arrays import ArraySource
from fastsketch.lowrank._gap_moments import GapMoments
from fastsketch.reference import baselines
from fastsketch.sketching import SecondPass

N_FEATURES = 12


def dense_rows(seed, n=40, dtype=np.float64):
    """Rows (n, 12)."""
    return np.random.default_rng(seed).standard_normal((n, N_FEATURES)).astype(dtype)


def sparse_rows(seed, n=40):
    """CSR rows (n, 12) with a fifth of the entries."""
    rng = np.random.default_rng(seed)
    return sparse.csr_array(rng.standard_normal((n, N_FEATURES)) * (rng.random((n, N_FEATURES)) < 0.2))


def scarce_rows(seed, n=40):
    """CSR rows (n, 12) with a tenth of the entries: few enough for a sketch to hold them sparse."""
    rng = np.random.default_rng(seed)
    return sparse.csr_array(rng.standard_normal((n, N_FEATURES)) * (rng.random((n, N_FEATURES)) < 0.1))


def event_rows(seed, n=40):
    """CSR rows (n, 12) of small counts."""
    rng = np.random.default_rng(seed)
    return sparse.csr_array(rng.integers(1, 4, (n, N_FEATURES)) * (rng.random((n, N_FEATURES)) < 0.3))


# -- first rows of every form and dtype --------------------------------------------------------------------------------
WHOLE_NUMBERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", ">i4")
FLOATS = ("float16", "float32", "float64", "longdouble", ">f2", ">f4", ">f8")
OF_SPARSE = (*WHOLE_NUMBERS[:-1], "float32", "float64", "longdouble")  # which scipy takes


def _list(values, folder):
    return values.tolist()


def _csr(values, folder):
    return sparse.csr_array(values)


def _frame(values, folder):
    import pandas as pd

    return pd.DataFrame(values, columns=[f"x{j}" for j in range(values.shape[1])])


def _npy_file(values, folder):
    path = folder / "rows.npy"
    np.save(path, values)
    return open_rows(path)


def _npz_file(values, folder):
    path = folder / "rows.npz"
    sparse.save_npz(path, sparse.csr_array(values))
    return open_rows(path)


FORMS = {"array": lambda values, folder: values, "list": _list, "CSR": _csr, "frame": _frame}
FORMS |= {"npy file": _npy_file, "npz file": _npz_file}
# Of a source these learn from its chunks.
BY_CHUNKS = ("online", "hash-sgh")
STARTS = (
    *(("array", dtype) for dtype in WHOLE_NUMBERS + FLOATS),
    *(("CSR", dtype) for dtype in OF_SPARSE),
    *(("list", dtype) for dtype in ("bool", "int64", "float64")),
    *(("npy file", dtype) for dtype in ("bool", "int8", "uint8", "int64", "float16", "longdouble", ">i4")),
    *(("npz file", dtype) for dtype in ("bool", "int8", "int64")),
    *(("frame", dtype) for dtype in ("bool", "int8", "uint8", "int64", "float32")),
)


def start_values(dtype, seed=5, n=24, *, below_zero=True):
    """Rows (n, 12) of this dtype: whole numbers of two and three digits, whose squares and sums int8 does not hold."""
    rng = np.random.default_rng(seed)
    low = 0 if dtype == "bool" or np.dtype(dtype).kind == "u" or not below_zero else -100
    values = rng.integers(low, 2 if dtype == "bool" else 120, (n, N_FEATURES))
    return (values * (rng.random(values.shape) < 0.6)).astype(dtype)


# These compute in float32 if their first rows are of float16 or float32, and they were given no dtype.
TAKE_A_DTYPE = ("sketch", "groups", "window-sketch", "window-hash", "window-quantizer", "quantizer", "completion")
TAKE_A_DTYPE += ("hash-srht", "hash-fd", "hash-exact", "hash-countsketch", "hash-sampling", "hash-pca", "hash-itq")


def float_values(values, *, takes_a_dtype=True):
    """The same numbers in the dtype of floats that a model computes in if these are its first rows."""
    narrow = values.dtype.kind == "f" and values.dtype.itemsize <= 4 and takes_a_dtype
    return values.astype(np.float32 if narrow else np.float64)


def matrix_of(rows):
    """Rows of any form as an array or CSR; those of other dtypes than the two usual ones in double."""
    rows = next(iter(rows)) if isinstance(rows, Source) else rows
    rows = rows if sparse.issparse(rows) else np.asarray(rows)
    return rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float64)


def signs(rows):
    """A target of each row that depends on it."""
    return np.where(np.asarray(matrix_of(rows)[:, [0]].sum(axis=1)).ravel() > 0, 1.0, -1.0)


def numbers_of(rows, below):
    """A whole number for each row, by what is in it alone."""
    rows = matrix_of(rows)
    return np.floor(np.asarray(abs(rows).sum(axis=1)).ravel() * 16).astype(int) % below


def _learn(model, rows, **more):
    return model.update(rows, **more)


def _learn_source(model, rows, **more):
    """From a source of named columns."""
    source = rows if isinstance(rows, Source) else ArraySource(rows)
    source.feature_names = tuple(f"x{j}" for j in range(N_FEATURES))
    return model.update(source, **more)


def _learn_labelled(model, rows, **more):
    return model.update(rows, signs(rows), **more)


def named(rows):
    """The rows as dicts, with a word for each."""
    words = [f"w{number}" for number in numbers_of(rows, 5)]
    values = sparse.csr_array(matrix_of(rows)).toarray().tolist()
    return [{f"x{j}": v for j, v in enumerate(row) if v} | {"word": w} for row, w in zip(values, words, strict=True)]


def classes_of(rows):
    """One of three labels for each row."""
    sums = np.asarray(matrix_of(rows)[:, [0]].sum(axis=1)).ravel()
    return np.array(["low", "middle", "high"])[(sums > -0.3).astype(int) + (sums > 0.3)]


def _learn_classes(model, rows, **more):
    return model.update(rows, classes_of(rows), **more)


def _learn_weighted(model, rows):
    return model.update(rows, signs(rows), sample_weight=1 + numbers_of(rows, 3))


def _learn_named(model, rows):
    return model.update(named(rows), signs(rows))


def _entries(rows):
    """Rows as models of entries take them: sparse ones as they are."""
    if isinstance(rows, Source):
        (rows,) = rows
    return rows if sparse.issparse(rows) else sparse.csr_array(float_values(np.asarray(rows)))


def _fit(model, rows):
    return model.fit(_entries(rows))


def _learn_by_ids(model, rows, **more):
    return model.update(rows, item_ids=[f"item {j}" for j in range(N_FEATURES)], **more)


def _fit_by_ids(model, rows):
    names = [f"item {j}" for j in range(N_FEATURES)]
    entries = _entries(rows)
    return model.fit(entries, row_ids=np.arange(entries.shape[0]), column_ids=names)


def _learn_groups(model, rows):
    """Every third row is of one group."""
    n = matrix_of(rows).shape[0]
    return model.merge(fs.sketch_groups(rows, by=np.arange(n) % 3, **model.parameters)) if n else model


@dataclass(frozen=True)
class Specimen:
    """One setting of one kind of model."""

    name: str
    make: Callable[[], Any]
    learn: Callable[[Any, Any], Any] = _learn
    rows: Callable[..., Any] = dense_rows
    # methods and attributes that read the model; a call gets rows of its kind where it needs them
    reads: dict[str, Callable[[Any], Any]] = field(default_factory=dict)

    def learned(self, n=40, seed=0):
        """A model that has seen n rows."""
        return self.learn(self.make(), self.rows(seed, n))

    def read(self, model):
        """All that can be read, by name."""
        return {"facts": model.facts(), **{name: read(model) for name, read in self.reads.items()}}


_SKETCH_READS = {
    "sketch": lambda m: m.sketch(),
    "error_bound": lambda m: m.error_bound,
    "squared_norm": lambda m: m.squared_norm,
    "gram": lambda m: m.gram() if m.n_rows else None,
    "mean": lambda m: m.mean,
    "spectrum": lambda m: m.spectrum() if m.n_rows else None,
}
_NAMED_SKETCH_READS = {**_SKETCH_READS, "feature_names": lambda m: m.feature_names}
_GROUP_READS = {
    "keys": lambda m: m.group_keys,
    "rows": lambda m: m.group_rows,
    "squared_norms": lambda m: m.squared_norms,
    "shrinkages": lambda m: m.shrinkages,
    "sketches": lambda m: [model.sketch() for model in m.values()],
}
_HASH_READS = {
    "encode": lambda m: m.encode(dense_rows(9, 5)),
    "projection": lambda m: getattr(m, "projection", None),
    "factors": lambda m: m.encode(dense_rows(9, 5), factors=True) if m.n_rows else None,
    "fingerprint": lambda m: m.encoder(factors=True).fingerprint if m.n_rows else None,
    "found": lambda m: m.search(dense_rows(8, 3), m.encode(dense_rows(9, 5)), k=2) if m.n_rows else None,
}
_QUANTIZER_READS = {
    "encode": lambda m: m.encode(dense_rows(9, 5)) if m.n_rows else None,
    "decoded": lambda m: m.decode(m.encode(dense_rows(9, 5))) if m.n_rows else None,
    "found": lambda m: m.search(dense_rows(8, 3), m.encode(dense_rows(9, 5)), k=2) if m.n_rows else None,
    "components": lambda m: m.components if m.n_rows else None,
    "variances": lambda m: m.variances if m.n_rows else None,
}
_ONLINE_READS = {
    "coef": lambda m: m.coef,
    "scores": lambda m: m.decision_function(dense_rows(9, 5)),
    "progress": lambda m: m.progress,
}
_LABEL_READS = {
    **_ONLINE_READS,
    "classes": lambda m: m.classes,
    "chances": lambda m: m.predict_proba(dense_rows(9, 5)),
    "labels": lambda m: m.predict(dense_rows(9, 5)),
    "top": lambda m: m.top_features(3),
}
_NAMED_READS = {
    "coef": lambda m: m.coef if m.n_rows else None,
    "scores": lambda m: m.decision_function(named(sparse_rows(9, 5))),
    "names": lambda m: list(m.vocabulary or ()),
    "top": lambda m: m.top_features(3) if m.n_rows else None,
    "progress": lambda m: m.progress,
}
_COMPLETION_READS = {"predict": lambda m: m.predict(np.arange(5), np.arange(5))}


def _sketch(name, *, rows=dense_rows, **parameters):
    return Specimen(f"sketch-{name}", lambda: fs.FrequentDirections(5, **parameters), rows=rows, reads=_SKETCH_READS)


def _second_pass(name, **parameters):
    """One whose sketch has seen forty rows; an empty one of its kind has none yet, and takes that one."""
    sketch = fs.FrequentDirections(5, **parameters).update(dense_rows(7))

    def learn(model, rows, **more):
        if model.n_features is None:
            model.merge(SecondPass.of(sketch))
        return model.update(rows, **more)

    return Specimen(f"second-pass-{name}", SecondPass, learn=learn, reads={"finish": _finished})


def _finished(model):
    if model.n_features is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the rows are others
        return model.finish().sketch()


def _float32_rows(seed, n=40):
    return dense_rows(seed, n, np.float32)


def _hash(name, cls, **parameters):
    return Specimen(f"hash-{name}", lambda: cls(4, **parameters), reads=_HASH_READS)


def _quantizer(name, *, anchored=False, **parameters):
    def learn(model, rows):
        model.update(rows)
        return model.anchor() if anchored and model.n_rows and model._anchor is None else model  # once: two steps

    make = lambda: fs.SketchQuantizer(4, **parameters)  # noqa: E731
    return Specimen(f"quantizer-{name}", make, learn=learn, reads=_QUANTIZER_READS)


def _online(name, cls, *args, rows=dense_rows, **parameters):
    return Specimen(
        f"online-{name}", lambda: cls(*args, **parameters), learn=_learn_labelled, rows=rows, reads=_ONLINE_READS
    )


def _classes(name, cls, *args, learn=_learn_classes, rows=dense_rows, **parameters):
    make = lambda: cls(*args, **parameters)  # noqa: E731
    return Specimen(f"online-{name}", make, learn=learn, rows=rows, reads=_LABEL_READS)


def _named(name, cls, *args, **parameters):
    make = lambda: cls(*args, **parameters)  # noqa: E731
    return Specimen(f"online-{name}", make, learn=_learn_named, rows=sparse_rows, reads=_NAMED_READS)


def _completion(name, cls, **parameters):
    return Specimen(
        f"completion-{name}", lambda: cls(2, **parameters), learn=_fit, rows=sparse_rows, reads=_COMPLETION_READS
    )


def gap_rows(seed, n=40):
    """Rows (n, 12) with NaN for a fifth of the entries."""
    rows = dense_rows(seed, n)
    return np.where(np.random.default_rng(seed + 1).random(rows.shape) < 0.2, np.nan, rows)


def _gaps(name, *, expecting=False):
    """One that sums up the pairs of entries, or the expectations of an E step; an empty one takes its Gaussian."""
    given = GapMoments().update(gap_rows(7)).gaussian()

    def learn(model, rows, **more):
        if expecting and model.n_features is None:
            model.merge(GapMoments.for_e_step(given))
        return model.update(rows, **more)

    reads = {"filled": lambda m: m.gaussian().fill(gap_rows(9, 5)) if m.n_rows else None}
    return Specimen(f"gaps-{name}", GapMoments, learn=learn, rows=gap_rows, reads=reads)


_EASE_READS = {
    "popularity": lambda m: m.popularity if m.n_rows else None,
    "scores": lambda m: m.decision_block(event_rows(9, 5)) if m.n_rows else None,
    "recommended": lambda m: m.recommend(event_rows(9, 5), 3) if m.n_rows else None,
    "similar": lambda m: m.similar_items([0, 3], 3) if m.n_rows else None,
    "explained": lambda m: m.explain(event_rows(9, 1), 2) if m.n_rows else None,
}


def _ease(name, **parameters):
    return Specimen(f"ease-{name}", lambda: fs.SketchedEASE(5, **parameters), rows=event_rows, reads=_EASE_READS)


_RIDGE_READS = {
    "coef": lambda m: m.coef() if m.n_rows else None,
    "intercept": lambda m: m.intercept(2.0) if m.n_rows else None,
    "predict": lambda m: m.predict(dense_rows(9, 5)) if m.n_rows else None,
}


def _learn_twice(model, rows, **more):
    """Two targets."""
    return model.update(rows, np.column_stack([signs(rows), numbers_of(rows, 5)]), **more)


def _ridge(name, learn=_learn_labelled, rows=dense_rows, **parameters):
    return Specimen(
        f"ridge-{name}",
        lambda: fs.SketchedRidge(5, reservoir_size=10, **parameters),
        learn=learn,
        rows=rows,
        reads=_RIDGE_READS,
    )


_WINDOW_READS = {
    "sketch": lambda m: m.model.sketch() if m.n_rows else None,
    "error_bound": lambda m: m.model.error_bound if m.n_rows else None,
    "blocks": lambda m: [model.sketch() for model in m.block_models.values()],
}


def _learn_timed(model, rows):
    """Eight rows an hour."""
    return model.update(rows, by=(model.n_rows + np.arange(matrix_of(rows).shape[0])) * 450.0)


def _window_sketch():
    return fs.Window(fs.FrequentDirections(5, method="tfd", solver="gram"), 3, every=16)


def _window_hash():
    return fs.Window(fs.SketchHash(4, block_rows=4), 4, every="1h")


def _window_ease():
    return fs.Window(fs.SketchedEASE(5, ridge=1.0, reservoir_size=6), 3, every=16)


def _window_quantizer():
    return fs.Window(fs.SketchQuantizer(4, block_rows=8, sketch_size=12), 3, every=16)


def _window_ridge():
    return fs.Window(fs.SketchedRidge(4, ridge=1.0, reservoir_size=6), 3, every=16)


_RIDGE_WINDOW_READS = {"model": lambda m: m.model.coef() if m.n_rows else None}


def _monitor():
    return fs.DriftMonitor(every=2, reference=10, run_length=10)


_MONITOR_READS = {
    "evidence": lambda m: m.evidence if m.armed else None,
    "alarms": lambda m: m.alarms,
    "sides": lambda m: [side.sketch() for side in m.sides] if m.alarms else None,
}


def trained(specimen, form, values, folder):
    """A model that has learned from first rows of these values in a form, and then from rows of floats.

    One that learns from a single batch has learned from the first rows only.
    """
    rows = FORMS[form](values, folder)
    if isinstance(rows, Source) and specimen.name.startswith(BY_CHUNKS):
        (rows,) = rows
    model = specimen.learn(specimen.make(), rows)
    if specimen.name.startswith(("completion", "hash-sgh")):
        return model
    later = specimen.rows(1) * 0.75
    if specimen.name.startswith("groups"):  # a merge, which groups of another dtype are refused by
        later = later.astype(float_values(values).dtype)
    return specimen.learn(model, later)


SPECIMENS = (
    Specimen("monitor", _monitor, reads=_MONITOR_READS),
    Specimen("window-sketch", _window_sketch, reads=_WINDOW_READS),
    Specimen(
        "window-ridge", _window_ridge, _learn_labelled, reads={"model": lambda m: m.model.coef() if m.n_rows else None}
    ),
    Specimen(
        "window-hash",
        _window_hash,
        learn=_learn_timed,
        reads={"encode": lambda m: m.model.encode(dense_rows(9, 5)) if m.n_rows else None},
    ),
    Specimen(
        "window-quantizer",
        _window_quantizer,
        reads={"encode": lambda m: m.model.encode(dense_rows(9, 5)) if m.n_rows else None},
    ),
    Specimen(
        "window-ease",
        _window_ease,
        rows=event_rows,
        reads={"scores": lambda m: m.model.decision_block(event_rows(9, 5)) if m.n_rows else None},
    ),
    *(
        Specimen(
            f"groups-{method}",
            lambda method=method, center=center: fs.GroupSketches(4, method=method, center=center),
            learn=_learn_groups,
            reads=_GROUP_READS,
        )
        for method, center in (("rfd", False), ("fd", True))
    ),
    *(_sketch(method, method=method, solver="gram") for method in ("fd", "rfd", "pfd", "cfd", "isvd", "tfd")),
    *(
        _sketch(f"{solver}-centred-decayed", solver=solver, center=True, decay=0.99)
        for solver in ("gram", "svd", "exact")
    ),
    *(_sketch(f"{solver}-float32", solver=solver, rows=_float32_rows) for solver in ("gram", "svd", "exact")),
    _sketch("csr", solver="gram", rows=scarce_rows),
    Specimen("sketch-named", lambda: fs.FrequentDirections(5), learn=_learn_source, reads=_NAMED_SKETCH_READS),
    _sketch("csr-tfd-centred-decayed", method="tfd", solver="gram", rows=scarce_rows, center=True, decay=0.99),
    _sketch("csr-centred-decayed", solver="gram", rows=scarce_rows, center=True, decay=0.99),
    _sketch("tolerance", solver="gram", tolerance=0.04, max_sketch_size=20),
    _sketch("tolerance-svd", solver="svd", method="pfd", tolerance=0.1, rows=_float32_rows),
    _sketch(
        "tolerance-csr-centred-decayed",
        solver="gram",
        rows=scarce_rows,
        center=True,
        decay=0.99,
        tolerance=0.02,
        tolerance_relative_to="largest_eigenvalue",
    ),
    *(
        _sketch(f"mapped-{kind}", compressor=fs.Compressor(kind, rows_out=5, block_rows=16))
        for kind in ("srht", "countsketch", "gaussian")
    ),
    _sketch("mapped-tfd", method="tfd", compressor=fs.Compressor("srht", rows_out=5, block_rows=16)),
    _sketch("mapped-centred", compressor=fs.Compressor("srht", rows_out=5, block_rows=16), center=True),
    _second_pass("rfd", solver="gram"),
    _second_pass("tfd-centred", solver="gram", method="tfd", center=True),
    *(
        _hash(method, fs.SketchHash, method=method, block_rows=16)
        for method in ("srht", "fd", "exact", "countsketch", "sampling")
    ),
    _hash("random-float32", fs.SketchHash, rotation="random", dtype="float32", block_rows=16),
    _hash("lsh", baselines.LSH),
    _hash("pca", baselines.PCAHash),
    _hash("itq", baselines.ITQ),
    _hash("sgh", baselines.SGH, n_bases=20),
    *(
        _quantizer(method, method=method, block_rows=16, sketch_size=12, reservoir_size=30)
        for method in ("exact", "fd", "srht")
    ),
    _quantizer("float32", dtype="float32", block_rows=16, sketch_size=12),
    _quantizer("anchored", block_rows=16, sketch_size=12, anchored=True),
    *(_online(method, fs.SketchedNewton, 3, method=method, alpha0=1.0) for method in ("fd", "rfd", "pfd")),
    _online("rfd-found", fs.SketchedNewton, 3),
    _online("rfd-csr", fs.SketchedNewton, 3, rows=sparse_rows),
    *(
        _online(method, fs.AdaptiveSubgradient, 3, method=method)
        for method in ("ada_fd", "ada_ffd", "ada_diag", "ada_full", "adam")
    ),
    _online("ada-ffd-csr", fs.AdaptiveSubgradient, 3, form="dual_averaging", rows=sparse_rows),
    _classes("classes", fs.SketchedNewton, 3),
    _classes("classes-csr", fs.SketchedNewton, 3, rows=sparse_rows),
    _classes(
        "classes-given-balanced", fs.SketchedNewton, 3, classes=["low", "middle", "high"], class_weight="balanced"
    ),
    _classes("classes-diag-plain", fs.AdaptiveSubgradient, method="ada_diag", calibrate=False, scale=None),
    _classes("classes-ffd-decayed", fs.AdaptiveSubgradient, 3, decay=0.9, rows=sparse_rows),
    _classes("weighted", fs.SketchedNewton, 3, learn=_learn_weighted, class_weight={-1: 2.0, 1: 0.5}),
    _classes("unblended", fs.SketchedNewton, 3, learn=_learn_labelled, blend=False),
    _classes("plain", fs.SketchedNewton, 3, learn=_learn_labelled, calibrate=False, fit_intercept=False, scale=None),
    _online("decayed", fs.SketchedNewton, 3, decay=0.9),
    _online("decay-auto-csr", fs.AdaptiveSubgradient, 3, decay="auto", rows=sparse_rows),
    _classes("classes-decay-auto", fs.SketchedNewton, 3, decay="auto"),
    _online("open", fs.SketchedNewton, 3, open_columns=True, rows=sparse_rows),
    _online("real-by-loss", fs.SketchedNewton, 3, loss="square", fit_intercept=True, scale="moments"),
    _online("real-by-gradient", fs.SketchedNewton, 3, loss="huber", curvature="gradient"),
    _named("named", fs.SketchedNewton, 3),
    _named("named-hashed", fs.SketchedNewton, 3, hash_bits=6),
    _named("named-diag", fs.AdaptiveSubgradient, method="ada_diag"),
    _gaps("pairs"),
    _gaps("expecting", expecting=True),
    _completion("low-rank", fs.LowRankModel),
    _completion("low-rank-huber", fs.LowRankModel, loss="huber"),
    _ease("fixed", ridge=1.0),
    _ease("chosen-decayed", decay=0.99, reservoir_size=10),
    _ease("rfd-float64", method="rfd", dtype="float64", activity_power=0.0),
    _ridge("exact-decayed", decay=0.99),
    _ridge("csr", solver="gram", rows=scarce_rows),
    _ridge("two-decayed", _learn_twice, solver="gram", rank=1, decay=0.99),
    _ridge("scaled", _learn_twice, solver="gram", scale=True, fit_intercept=False),
    Specimen(
        "ease-by-ids",
        lambda: fs.SketchedEASE(5, ridge=1.0),
        learn=_learn_by_ids,
        rows=event_rows,
        reads={
            "scores": _EASE_READS["scores"],
            "near": lambda m: m.similar_items(["item 0", "item 3"], 3).items.tolist() if m.n_rows else None,
        },
    ),
    Specimen(
        "completion-low-rank-by-ids",
        lambda: fs.LowRankModel(2),
        learn=_fit_by_ids,
        rows=sparse_rows,
        reads={"predict": lambda m: m.predict(np.arange(5), [f"item {j}" for j in range(5)])},
    ),
)
