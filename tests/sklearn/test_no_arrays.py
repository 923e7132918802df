"""Masked arrays, and objects that are no arrays, tables, sparse matrices or lists: one check refuses them."""

import inspect
import time
import warnings

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")

import fastsketch as fs  # noqa: E402
from fastsketch import sklearn as estimators  # noqa: E402
from tests.reliability.zoo import SPECIMENS  # noqa: E402

KINDS = [kind for name in estimators.__all__ if inspect.isclass(kind := getattr(estimators, name))]
N, D = 40, 8
ROWS = np.random.default_rng(0).random((N, D))
SUPERVISED = tuple(kind for kind in KINDS if hasattr(kind, "coef_"))
COMPLETES = (estimators.LowRankCompleter, estimators.LowRankFactors)
SOURCES = (
    estimators.SketchedPCA,
    estimators.SketchedCovariance,
    estimators.SketchCoder,
    estimators.SketchHasher,
    estimators.EASERecommender,
    estimators.LowRankCompleter,
)


class Sequence:
    """An object with a length and items, which are such objects again, as an AnnData is: NumPy would never end."""

    def __len__(self):
        return N

    def __getitem__(self, item):
        assert not isinstance(item, int), "asked for one item after another"
        return Sequence()


class Matrix(Sequence):
    """One that says that it has rows and columns, but gives no arrays."""

    shape, ndim, dtype = (N, D), 2, np.dtype(np.float64)


class Wrapped:
    """An object that NumPy can convert, which is as good as an array."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.array, dtype=dtype)

    def __len__(self):
        return len(self.array)

    def __getitem__(self, item):
        raise AssertionError


def masked(values):
    """Return a masked array with what a logger writes when it has nothing behind the mask."""
    mask = np.zeros(values.shape, bool)
    mask[2] = True
    return np.ma.array(np.where(mask, values.dtype.type(99), values), mask=mask)


def bad_rows():
    """Yield what no method takes as rows."""
    yield "masked", masked(ROWS)
    yield "a mask without an entry", np.ma.array(ROWS)
    yield "masked chunks", pytest.importorskip("dask.array").from_array(masked(ROWS), chunks=(5, -1))
    yield "list of masked rows", list(masked(ROWS))
    yield "list with a masked entry", [[1.0] * (D - 1) + [np.ma.masked]]
    yield "sequence", Sequence()
    yield "list of sequences", [Sequence(), Sequence()]
    yield "lists of sequences", [[Sequence()]]
    yield "matrix", Matrix()
    yield "generator", (row for row in ROWS)
    yield "number", 3.0
    yield "none", None
    yield "object", object()


def bad_columns(values):
    """Yield what no method takes as targets or weights."""
    yield "masked", masked(values)
    yield "sequence", Sequence()
    yield "matrix", Matrix()
    yield "list of sequences", [Sequence()] * N
    yield "list with a masked entry", [*values[1:].tolist(), np.ma.masked]


def refused(call, *, quick=True):
    """Assert that a call raises a typed error, within 10 ms of processor time."""
    best = np.inf
    for _ in range(5):
        start = time.process_time()
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        best = min(best, time.process_time() - start)
        if best < 0.01:
            break
    assert best < 0.01 or not quick
    return str(caught.value)


def targets_of(kind):
    """Return targets that an estimator learns."""
    return np.arange(N) % 2 if "Classifier" in kind.__name__ else ROWS[:, 0]


def fitted(kind):
    """Return an estimator that has learned."""
    parameters = {"rank": 2} if kind is estimators.LowRankFactors else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(**parameters).fit(ROWS, targets_of(kind) if kind in SUPERVISED else None)


def methods(kind, names):
    """Yield (method, parameter) of the public methods with a parameter of these names."""
    for name, method in inspect.getmembers(kind, callable):
        if name[0] != "_" and not name.startswith("set_") and name not in ("from_model", "inverse_transform", "merge"):
            found = inspect.signature(method).parameters
            yield from ((name, parameter) for parameter in names if parameter in found)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_estimators_refuse_rows(kind):
    model, y = fitted(kind), targets_of(kind)
    own = model.n_samples_seen_ if hasattr(model, "n_samples_seen_") else model.model_.shape
    tried = 0
    for method, parameter in methods(kind, ("X", "X_test")):
        more = (y,) if kind in SUPERVISED and method in ("fit", "partial_fit", "score") else ()
        for what, rows in bad_rows():
            if parameter == "X" and rows is None and method.startswith("kneighbors"):
                continue  # then the rows of fit are asked about
            if kind in COMPLETES and what in ("masked", "a mask without an entry", "masked chunks"):
                continue
            if what == "masked chunks" and method == "refine":
                continue  # nothing is read of a source if the model is exact
            message = refused(lambda: getattr(model, method)(rows, *more), quick=what != "generator")  # noqa: B023
            if what not in ("generator", "number", "none", "object"):
                assert "masked array" in message or "object of type" in message, (method, what, message)
            tried += 1
    assert tried >= 20
    assert (model.n_samples_seen_ if hasattr(model, "n_samples_seen_") else model.model_.shape) == own


def rows_of_times():
    """Yield dates and durations, alone and beside numbers."""
    seconds = np.arange(N * D).reshape(N, D)
    yield seconds.astype("datetime64[s]")
    yield seconds.astype("timedelta64[s]")
    pandas = pytest.importorskip("pandas")
    columns = {f"x{j}": pandas.to_datetime(seconds[:, j], unit="s") for j in range(D)}
    yield pandas.DataFrame(columns)
    yield pandas.DataFrame({**columns, "x0": ROWS[:, 0]})
    for package in ("polars", "pyarrow"):
        table = pytest.importorskip(package)
        yield (table.DataFrame if package == "polars" else table.table)({k: v.to_numpy() for k, v in columns.items()})


@pytest.mark.parametrize("kind", KINDS)
def test_estimators_refuse_dates_and_durations(kind):
    """scikit-learn takes them for numbers, which depend on the resolution of the dtype: models refuse them."""
    model, y = fitted(kind), targets_of(kind)
    for method, _ in methods(kind, ("X",)):
        more = (y,) if kind in SUPERVISED and method in ("fit", "partial_fit", "score") else ()
        for rows in rows_of_times():
            with pytest.raises((TypeError, ValueError), match="(?i)number"):
                getattr(model, method)(rows, *more)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_estimators_refuse_targets_and_weights(kind):
    model, y = fitted(kind), targets_of(kind)
    tried = 0
    for method, parameter in methods(kind, ("y", "sample_weight")):
        if parameter == "y" and kind not in SUPERVISED:
            continue
        more = {"y": y} if kind in SUPERVISED else {}
        for what, bad in bad_columns(np.ones(N) if parameter == "sample_weight" else y):
            message = refused(lambda: getattr(model, method)(ROWS, **{**more, parameter: bad}))  # noqa: B023
            assert "masked array" in message or "object of type" in message, (method, what, message)
            assert parameter in message
            tried += 1
    assert tried or kind not in SUPERVISED


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_what_numpy_converts_is_taken(kind):
    model = fitted(kind)
    for name in ("transform", "predict", "decision_function"):
        if hasattr(model, name):
            out = np.asarray(getattr(model, name)(ROWS))
            for rows in (Wrapped(ROWS), ROWS.tolist(), tuple(map(tuple, ROWS)), list(ROWS)):
                assert np.allclose(np.asarray(getattr(model, name)(rows)), out)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_anndata(kind):
    """What reads sources learns its X; every other method refuses it at once, and says what to give."""
    anndata = pytest.importorskip("anndata")
    data = anndata.AnnData(ROWS)
    model, y = fitted(kind), targets_of(kind)
    for method, _ in methods(kind, ("X", "X_test")):
        if method in ("fit", "partial_fit", "refine", "fit_transform", "fit_predict") and kind in SOURCES:
            continue
        if (kind, method) == (estimators.SketchedPCA, "transform"):
            continue  # it reads sources
        more = (y,) if kind in SUPERVISED and method in ("fit", "partial_fit", "score") else ()
        assert "of an AnnData its X" in refused(lambda: getattr(model, method)(data, *more))  # noqa: B023
    if kind in SOURCES:
        for X in (ROWS, sparse.csr_matrix(ROWS * (ROWS > 0.5))):
            for method in ("fit", "partial_fit"):
                ours = getattr(kind(), method)(anndata.AnnData(X))
                plain = getattr(kind(), method)(X)
                assert ours.n_samples_seen_ == plain.n_samples_seen_ == N
                name = next(name for name in ("transform", "decision_function", "mahalanobis") if hasattr(kind, name))
                if name == "decision_function":
                    name = "mahalanobis" if hasattr(kind, "mahalanobis") else name
                assert np.allclose(getattr(ours, name)(ROWS), getattr(plain, name)(ROWS))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.bool_])
@pytest.mark.parametrize("kind", [estimators.LowRankCompleter, estimators.LowRankFactors])
def test_masked_entries_are_missing(kind, dtype):
    rng = np.random.default_rng(0)
    values = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 9))
    values = (values > 0) if dtype is np.bool_ else (8 * values).astype(dtype)
    mask = rng.random(values.shape) < 0.2
    behind = np.where(mask, values.dtype.type(1 if dtype is np.bool_ else 99), values)
    given = np.ma.array(behind, mask=mask)
    wide = values.astype(dtype if np.issubdtype(dtype, np.floating) else np.float64)
    plain = np.where(mask, wide.dtype.type(np.nan), wide)
    out = kind(2).fit(given).transform(given)
    assert np.array_equal(out, kind(2).fit(plain).transform(plain))
    assert np.array_equal(given.data, behind)  # the argument is not written to
    if kind is estimators.LowRankCompleter:
        assert np.isfinite(out).all()
        assert np.array_equal(out[~mask], values[~mask])
        if dtype is np.float64:
            assert np.abs(out - values)[mask].max() < 1.0


# -- models ------------------------------------------------------------------------------------------------------------
def arguments(model, rows, bad_name):
    """Return good arguments of a model, by name."""
    out = {
        "targets": np.where(np.asarray(rows[:, [0]].sum(axis=1)).ravel() > 0, 1.0, -1.0),
        "by": np.zeros(rows.shape[0], "datetime64[s]"),
        "row_ids": None,
        "n": 2,
        "k": 2,
        "label": None,
        bad_name: None,
    }
    if hasattr(model, "encode"):
        out["codes"] = model.encode(rows)
    return out


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda specimen: specimen.name)
def test_models_refuse_rows(specimen):
    model, rows = specimen.learned(), specimen.rows(3)
    before, tried = model.to_bytes(), 0
    for method, bad_name in methods(type(model), ("rows", "X", "row")):
        good = arguments(model, rows, bad_name)
        found = inspect.signature(getattr(model, method)).parameters
        required = [name for name, one in found.items() if one.default is one.empty and one.kind != one.VAR_KEYWORD]
        if not set(required) <= set(good):
            continue
        for what, bad in bad_rows():
            if bad is None or what in ("number", "a mask without an entry"):
                continue
            call = {**{name: good[name] for name in required}, bad_name: bad}
            quick = what != "generator" and not method.startswith("refine")
            refused(lambda: getattr(model, method)(**call), quick=quick)  # noqa: B023
            tried += 1
    assert tried >= 8 or isinstance(model, fs.GroupSketches), "no method of this model was tried"
    assert model.to_bytes() == before


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "specimen",
    # completions learn from a matrix with gaps, and groups of sketches by their merges
    [specimen for specimen in SPECIMENS if not specimen.name.startswith(("completion-", "groups-"))],
    ids=lambda specimen: specimen.name,
)
def test_models_refuse_targets_and_weights(specimen):
    model, rows = specimen.learned(), specimen.rows(3)
    found, before = inspect.signature(model.update).parameters, model.to_bytes()
    good = arguments(model, rows, "rows")
    call = {name: good[name] for name, one in found.items() if one.default is one.empty} | {"rows": rows}
    for parameter in {"targets", "sample_weight"} & set(found):
        for what, bad in bad_columns(np.ones(rows.shape[0])):
            message = refused(lambda: model.update(**{**call, parameter: bad}))  # noqa: B023
            assert what and message
    assert model.to_bytes() == before


def test_sources_of_masked_rows_and_of_objects_are_refused():
    for what, rows in bad_rows():
        if what in ("masked", "a mask without an entry", "list of masked rows", "matrix", "sequence"):
            for given in (rows, [rows, rows], iter([rows])):
                with pytest.raises((TypeError, ValueError)):
                    fs.FrequentDirections(4).update(fs.open_rows(given))


LABELLED = [kind for kind in KINDS if "Classifier" in kind.__name__]


@pytest.mark.parametrize("kind", LABELLED)
def test_labels_are_stored_or_refused(kind, tmp_path):
    """Long double, which files do not hold, is float64; dates, durations and records are no labels."""
    labels = np.arange(N) % 2
    for dtype in (np.longdouble, np.float16, ">i4", np.uint64, bool):
        model = kind().fit(ROWS, labels.astype(dtype))
        model.save(tmp_path / "model")
        loaded = kind.load(tmp_path / "model")
        assert np.array_equal(loaded.predict(ROWS), model.predict(ROWS))
        assert loaded.classes_.tolist() == [0, 1]
    for dtype in ("M8[s]", "m8[s]", [("a", "f8")]):
        with pytest.raises(TypeError, match="y must hold numbers, bools or strings"):
            kind().fit(ROWS, labels.astype(dtype))


@pytest.mark.parametrize("options", [{}, {"scale": True}, {"solver": "gram", "sketch_size": 5}, {"whiten": True}])
@pytest.mark.filterwarnings("ignore:explained_variance_ may be")
def test_components_that_are_no_numbers_have_no_rows(options):
    model = estimators.SketchedPCA(3, **options).fit(ROWS)
    components = model.transform(ROWS)
    rows = model.inverse_transform(components)
    for form in (np.asfortranarray, sparse.csr_array, list, lambda x: x.astype(np.longdouble)):
        assert np.allclose(model.inverse_transform(form(components)), rows)
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="X must be finite|X contains"):
            model.inverse_transform(np.where(components > 0, value, components))
    for dtype in (complex, "U30", "M8[s]", object):
        with pytest.raises(TypeError, match="X must hold real numbers"):
            model.inverse_transform(components.astype(dtype))
    for wrong in (components[None], masked(components), components[:, :2], None, 1.0):
        with pytest.raises((TypeError, ValueError), match="X must"):
            model.inverse_transform(wrong)
