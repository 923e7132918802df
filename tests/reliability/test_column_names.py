"""Columns in another order, or of other names: every public method that takes rows matches them by name or refuses.

The methods are found by their signatures: a new one is tested without being listed here, and a parameter of a name that
is in neither table below is an error.
"""

import inspect
import pickle
import re
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs
import fastsketch.sklearn
from fastsketch.reference.baselines import SGH
from fastsketch.sketching import SecondPass
from tests.reliability.zoo import N_FEATURES, SPECIMENS, Specimen, classes_of, dense_rows, event_rows

pd = pytest.importorskip("pandas")

NAMES = [f"c{j}" for j in range(N_FEATURES)]
OTHERS = [f"other{j}" if j in (3, 7) else name for j, name in enumerate(NAMES)]  # the first that differs is column 3

# Parameters that are rows whose columns are those that were learned from.
ROWS = {"rows", "row", "queries", "X", "X_test", "rescore"}
# All others that public methods have.
NOT_ROWS = set(
    re.findall(
        r"\w+",
        """
    accuracy allow alpha axis basis begin by callback check_input classes codes column_ids columns comp_cov
    comparator copy coverage decoded deep default encoder exclude exclude_seen factor factors fit_params ids index
    input_features inverse item item_ids items k key kwargs label max_memory metric mode model n n_components n_lists
    n_neighbors n_rows name norm other oversample parameters params passes path patience prior projection rank
    return_distance ridge ridges row_ids sample_weight scaling source sparse squared targets tolerance transform v
    validation y
    """,
    )
)  # "other" is a model: test_merges_of_models_with_other_columns
MORE = Specimen("ridge-intervals", lambda: fs.SketchedRidge(5, reservoir_size=100))
# Specimens by their kind, without those whose columns are names in each row.
KINDS: dict[str, list[Specimen]] = {}
for specimen in (*SPECIMENS, MORE):
    if not getattr(specimen.make(), "hash_bits", None):
        KINDS.setdefault(type(specimen.make()).__name__, []).append(specimen)

# Why a method is of no use to some settings of a model, whatever the rows are.
DOES_NOT_APPLY = (
    "needs a (sketch|model) without (compressor|decay)|needs a loss of labels|needs the residuals of"
    "|SGH learns from one batch"
)
LEARNING = ("update", "fit", "partial_fit")
# Methods that forget what was learned, names of columns too.
BEGIN_AGAIN = ("fit", "fit_transform", "fit_predict")
ENCODERS = ("BookEncoder", "LinearSignEncoder", "GraphEncoder")
# Not rows, though the parameters are called so: indices and ids of rows, coordinates, what was checked before.
NO_ROWS = {
    *(("LowRankModel", name) for name in ("decision_function", "predict", "predict_block", "predict_proba")),
    *(("LowRankModel", name) for name in ("decision_block", "recommend")),
    *((name, "inverse_transform") for name in ("LowRankFactors", "SketchCoder", "SketchedPCA")),
    *((encoder, name) for encoder in ENCODERS for name in ("bits", "tables", "scores")),
}


def frame(values, names=NAMES, container="pandas"):
    """Rows as a table with these names of columns, or as a source."""
    table = pd.DataFrame(values, columns=list(names))
    if container == "pandas":
        return table
    if container == "source":
        return fs.open_rows(table)
    package = pytest.importorskip(container)
    return package.DataFrame(table.to_dict("list")) if container == "polars" else package.Table.from_pandas(table)


def row_methods(thing):
    """(Method, name of the parameter that is rows) of an object, by the signatures of its public methods."""
    found = []
    for name in dir(type(thing)):
        member = inspect.getattr_static(type(thing), name)
        if name.startswith("_") or isinstance(member, property) or not callable(getattr(type(thing), name)):
            continue
        if name.startswith("set_") and name.endswith("_request"):
            continue  # of scikit-learn: they name parameters of other methods
        if isinstance(member, classmethod | staticmethod | type):
            continue
        parameters = [p for p in inspect.signature(getattr(type(thing), name)).parameters if p != "self"]
        unknown = set(parameters) - ROWS - NOT_ROWS
        assert not unknown, f"{type(thing).__name__}.{name}: say of {sorted(unknown)} whether they are rows"
        if (type(thing).__name__, name) not in NO_ROWS:
            found += [(name, parameter) for parameter in parameters if parameter in ROWS]
    return found


def called(thing, name, parameter, rows, values):
    """What a method returns of rows; its other arguments are made of the same values."""
    method = getattr(thing, name)
    arguments = {parameter: rows}
    for other, declared in inspect.signature(method).parameters.items():
        required = declared.default is inspect.Parameter.empty and declared.kind is not declared.VAR_KEYWORD
        if other in ("targets", "y") and (required or (name in LEARNING and learns_targets(thing))):
            arguments[other] = classes_of(values) if getattr(thing, "parameters", {}).get("classes") else halves(values)
        elif other == "by" and isinstance(thing.every, str):
            arguments[other] = (thing.n_rows + np.arange(len(values))) * 450.0
        elif other == "codes":
            arguments[other] = thing.encode(values)
        elif other in ROWS and other != parameter and required:
            arguments[other] = values
        elif required and other != parameter:
            arguments[other] = {"item": 0}[other]
        elif other == "k":
            arguments[other] = 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few rows, rows read again that are others, and the like
        return method(**arguments)


def halves(values):
    """A target of each row: whether its first number is in the larger half."""
    return np.where(values[:, 0] > np.median(values[:, 0]), 1.0, -1.0)


def learns_targets(thing):
    """Whether rows come with targets."""
    if hasattr(thing, "_learns_targets"):
        return thing._learns_targets()
    return any(word in type(thing).__name__ for word in ("Classifier", "Regressor", "Ridge"))


def same(one, two):
    """Whether two answers are the same: models by their states."""
    if one is two:
        return True
    if isinstance(one, fs.LowRankModel):  # whose state has seconds in it
        return same(one.complete(), two.complete())
    if hasattr(one, "get_params"):
        return same(one._learner, two._learner)
    if hasattr(one, "to_bytes"):
        return type(one) is type(two) and one.to_bytes() == two.to_bytes()
    if isinstance(one, tuple) or hasattr(one, "_asdict"):
        return len(one) == len(two) and all(map(same, one, two))
    if hasattr(one, "predict_block"):
        return np.array_equal(one.predict_block(), two.predict_block())
    if hasattr(one, "tocsr"):
        return not (one != two).nnz
    if hasattr(one, "__dict__") and not isinstance(one, np.ndarray) and not hasattr(one, "iloc"):
        return pickle.dumps(one) == pickle.dumps(two)
    one, two = np.asarray(one), np.asarray(two)
    if one.dtype.kind != "f":
        return np.array_equal(one, two)
    # tables and arrays may differ in the order of memory, and sums of their rows by rounding
    return one.shape == two.shape and np.allclose(one, two, rtol=1e-6, atol=1e-9, equal_nan=True)


def state(thing):
    """All that a model, an estimator or an encoder has learned, as bytes."""
    if not hasattr(thing, "get_params"):
        return thing.to_bytes() if hasattr(thing, "to_bytes") else pickle.dumps(thing)
    with tempfile.TemporaryDirectory() as folder:
        thing.save(Path(folder, "state"))
        return Path(folder, "state").read_bytes()


def copied(thing):
    """An independent copy."""
    return pickle.loads(pickle.dumps(thing))


def values_of(specimen, seed=0, n=None):
    """Rows that a specimen takes, dense: many of a ridge regression, whose intervals need residuals."""
    n = n or (400 if "ridge" in specimen.name else 40)
    return event_rows(seed, n).toarray() if specimen.rows is event_rows else dense_rows(seed, n)


def asked_of(specimen):
    """Rows that methods are called with: some that are read again must be those that were learned from."""
    return values_of(specimen) if "ridge" in specimen.name else values_of(specimen, 1, 6)


def learned(specimen, container="pandas", names=NAMES):
    """A model that has learned rows with names of columns."""
    model, values = specimen.make(), values_of(specimen)
    rows = frame(values, names, container)
    if isinstance(model, fs.GroupSketches):
        return fs.sketch_groups(rows, by=np.arange(len(values)) % 3, **model.parameters)
    if isinstance(model, SecondPass):
        return SecondPass.of(fs.FrequentDirections(5, solver="gram").update(rows))
    if isinstance(model, fs.LowRankModel):
        return model.fit(rows)
    called(model, "update", "rows", rows, values)
    if isinstance(model, SGH):
        model.encode(values)
    return model


def check(thing, name, parameter, values, container="pandas"):
    """Call one method with rows whose columns are named as learned, in another order, and by other names.

    Return whether the method is of use to this model at all.
    """
    what = f"{type(thing).__name__}.{name}({parameter}: {container})"
    one, two, three = copied(thing), copied(thing), copied(thing)
    try:
        right = called(one, name, parameter, values, values)
    except ValueError as error:
        assert re.search(DOES_NOT_APPLY, str(error)), (what, error)
        return False
    answer = called(two, name, parameter, frame(values, NAMES, container), values)
    if name != "fit" or not hasattr(thing, "get_params"):  # of estimators one has names of columns, and one has none
        assert same(answer, right), what
    assert two.feature_names == tuple(NAMES) if hasattr(two, "feature_names") else True, what
    if name in BEGIN_AGAIN:
        return True
    before = state(three)
    try:
        answer = called(three, name, parameter, frame(values[:, ::-1], NAMES[::-1], container), values)
    except (TypeError, ValueError) as error:
        assert "c0" in str(error) or "order" in str(error), (what, error)
        assert state(three) == before, what
    else:
        assert same(answer, right), f"{what} answers for the wrong columns"
        assert state(three) == state(two), what
    for names in (OTHERS, [*NAMES[1:], "other3"]):
        four = copied(thing)
        with pytest.raises((TypeError, ValueError), match=r"c3|other3|c0"):
            print(what, called(four, name, parameter, frame(values, names, container), values))
        assert state(four) == before, what
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_methods_of_models(kind):
    """Every method of every specimen, and of its encoder; each must be of use to one of them at least."""
    found, applied = set(), set()
    for specimen in KINDS[kind]:
        model, values = learned(specimen), asked_of(specimen)
        for thing in (model, model.encoder() if hasattr(model, "encoder") else None):
            for name, parameter in [] if thing is None else row_methods(thing):
                found.add((type(thing), name, parameter))
                if check(thing, name, parameter, values[:1] if parameter == "row" else values):
                    applied.add((type(thing), name, parameter))
    assert {method for method in found if method[1:] != ("update", "rows") or kind != "SGH"} == applied
    assert found or kind == "GroupSketches"


# Models that learn from rows in memory alone.
IN_MEMORY = ("LowRankModel", "SGH", "SketchedNewton", "AdaptiveSubgradient")


@pytest.mark.parametrize("container", ["polars", "pyarrow", "source"])
@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_other_packages_and_sources(kind, container):
    """Where a method takes such rows at all; a source is for methods that read rows a chunk at a time."""
    if container != "source":
        pytest.importorskip(container)
    chunks = ("audit", "refine") if kind in IN_MEMORY else ("audit", "refine", "update")
    model = learned(KINDS[kind][-1], "pandas" if kind in IN_MEMORY and container == "source" else container)
    values = asked_of(KINDS[kind][-1])
    for name, parameter in row_methods(model):
        if container == "source" and name not in chunks:
            with pytest.raises((TypeError, ValueError)):
                called(model, name, parameter, frame(values, NAMES, container), values)
        else:
            check(model, name, parameter, values[:1] if parameter == "row" else values, container)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if hasattr(KINDS[kind][0].make(), "merge")])
def test_merges_of_models_with_other_columns(kind):
    """Sums over columns of different names, or orders, are not added."""
    for specimen in KINDS[kind]:
        model = learned(specimen)
        before = state(model)
        for names in (NAMES[::-1], OTHERS):
            other = learned(specimen, names=names)
            with pytest.raises(ValueError, match=r"column \d+ is '\w+', it was '\w+'|c3|c0"):
                model.merge(other)
            assert state(model) == before, specimen.name


# -- estimators --------------------------------------------------------------------------------------------------------
ESTIMATORS = [name for name in fastsketch.sklearn.__all__ if name[0].isupper()]


def fitted(name, container="pandas", names=NAMES):
    """An estimator that was fitted to rows with names of columns."""
    cls = getattr(fastsketch.sklearn, name)
    required = {"n_components": 3, "n_bits": 2, "n_bytes": 4, "sketch_size": 5}
    declared = inspect.signature(cls).parameters
    given = {key: value for key, value in required.items() if key in declared}
    values = abs(dense_rows(0, 200))
    estimator = cls(**given)
    called(estimator, "fit", "X", frame(values, names, container), values)
    return estimator


@pytest.mark.parametrize("container", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_methods_of_estimators(name, container):
    estimator, values = fitted(name, container), abs(dense_rows(1, 30))
    methods = row_methods(estimator)
    assert methods
    for method, parameter in methods:
        assert check(estimator, method, parameter, values, container)


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if hasattr(getattr(fastsketch.sklearn, name), "merge")])
def test_merges_of_estimators_with_other_columns(name):
    estimator, values = fitted(name), abs(dense_rows(2, 200))
    before = state(estimator)
    for names in (NAMES[::-1], OTHERS):
        other = copied(estimator)
        called(other, "fit", "X", frame(values, names), values)
        with pytest.raises(ValueError, match="feature names"):
            estimator.merge(other)
        assert state(estimator) == before


# -- labels that are no strings ----------------------------------------------------------------------------------------
# Of data frames of pandas: ids of items, wavelengths, days, pairs; and the numbers that pandas gives.
LABELS = {
    "ids": [7 * j + 3 for j in range(N_FEATURES)],
    "wavelengths": [400.5 + j for j in range(N_FEATURES)],
    "days": pd.date_range("2026-01-01", periods=N_FEATURES),
    "pairs": pd.MultiIndex.from_product([["a", "b"], range(N_FEATURES // 2)]),
    "numbers": range(N_FEATURES),
}


def check_labels(thing, labels, values):
    """What learned from a data frame answers for the same columns, and refuses them in another order, unchanged."""
    before, applied = state(thing), False
    for name, parameter in row_methods(thing):
        rows = values[:1] if parameter == "row" else values
        if name in BEGIN_AGAIN:
            continue
        try:
            right = called(copied(thing), name, parameter, frame(rows, labels), rows)
        except ValueError as error:
            assert re.search(DOES_NOT_APPLY, str(error)), (name, error)
            continue
        other, backwards = copied(thing), frame(rows, labels).iloc[:, ::-1]
        try:
            answer = called(other, name, parameter, backwards, rows)
        except ValueError as error:
            assert re.search("column 0 |columns that came before|same order|numbered 0 to", str(error)), name
            assert state(other) == before, name
        else:  # models of items match columns by name
            assert same(answer, right), f"{name} answers for the wrong columns"
        applied = True
    return applied


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("kind", KINDS)
def test_labels_that_are_no_strings_are_names_of_models(kind, labels):
    specimen = KINDS[kind][-1]
    assert check_labels(learned(specimen, names=labels), labels, asked_of(specimen)) or kind == "GroupSketches"


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_labels_that_are_no_strings_are_names_of_estimators(name, labels):
    assert check_labels(fitted(name, names=labels), labels, abs(dense_rows(1, 30)))


# -- items with ids ----------------------------------------------------------------------------------------------------
IDS = {"strings": NAMES, "integers": [7 * j + 3 for j in range(N_FEATURES)], "places": list(range(N_FEATURES))[::-1]}


def by_ids(kind, ids, values):
    """A model of items that has ids, and has seen no names of columns."""
    if kind == "LowRankModel":
        return fs.LowRankModel(2, ridge=1.0).fit(values, column_ids=ids)
    return fs.SketchedEASE(5, ridge=1.0).update(values, item_ids=ids)


@pytest.mark.parametrize("kind", ["SketchedEASE", "LowRankModel"])
@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
def test_columns_are_matched_with_the_ids_of_items(kind, ids):
    values = event_rows(0, 60).toarray().astype(float)
    model, asked = by_ids(kind, ids, values), values[:6]
    before = state(model)
    for name, parameter in row_methods(model):
        if name in BEGIN_AGAIN:
            continue
        rows = asked[:1] if parameter == "row" else asked
        one, two = copied(model), copied(model)
        item = {"item": ids[0]} if name == "explain" else {}
        right = getattr(one, name)(rows, **item)
        frame_of = pd.DataFrame(rows[:, ::-1], columns=ids[::-1])
        assert same(getattr(two, name)(frame_of, **item), right), name
        for unknown in (["other", *map(str, ids[1:])], ids[1:]):
            three = copied(model)
            with pytest.raises(ValueError, match=f"other|missing are '{ids[0]}'"):
                getattr(three, name)(pd.DataFrame(rows[:, : len(unknown)], columns=unknown), **item)
            assert state(three) == before


def test_weights_and_held_out_entries_follow_their_columns():
    """A fit matches the columns of all its frames; weights in an array are those of the entries beside them."""
    rng = np.random.default_rng(0)
    values, weights = dense_rows(0, 30), rng.random((30, N_FEATURES)) + 0.5
    hidden = rng.random(values.shape) < 0.2
    held, values = np.where(hidden, values, np.nan), np.where(hidden, np.nan, values)
    fit = {"sample_weight": frame(weights), "validation": frame(held)}
    turned = {"sample_weight": frame(weights[:, ::-1], NAMES[::-1]), "validation": frame(held[:, ::-1], NAMES[::-1])}
    one, two = (fs.LowRankModel(2, ridge=1.0).fit(frame(values), **options) for options in (fit, turned))
    assert same(one, two)
    right = one.fold_in(values[:5], sample_weight=weights[:5])
    backwards = frame(values[:5, ::-1], NAMES[::-1])
    for of_rows in (weights[:5, ::-1], frame(weights[:5]), frame(weights[:5, ::-1], NAMES[::-1])):
        assert same(one.fold_in(backwards, sample_weight=of_rows), right)
    with pytest.raises(ValueError, match="sample_weight must have the columns.*other3"):
        one.fold_in(values[:5], sample_weight=frame(weights[:5], OTHERS))
    with pytest.raises(ValueError, match="validation must have the columns.*other3"):
        fs.LowRankModel(2).fit(frame(values), validation=frame(held, OTHERS))


# -- functions ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("names", [NAMES[::-1], OTHERS], ids=["order", "others"])
def test_functions_of_rows_and_models(names, tmp_path):
    """Jobs over several tables, groups, answers of a model to a source, and comparisons of two sketches."""
    values = dense_rows(0, 60)
    right, wrong = frame(values), frame(values, names)
    for number, table in enumerate((right, wrong)):
        table.to_csv(tmp_path / f"{number}.csv", index=False)
    files = sorted(tmp_path.glob("*.csv"))
    refused = r"column \d+ is '\w+'|other3|c3|c0"
    if names is OTHERS:
        with pytest.raises(ValueError, match=refused):
            fs.run(fs.FrequentDirections(5), files)
        with pytest.raises(ValueError, match=refused):
            fs.sketch_groups(files, by=np.arange(120) % 2)
    else:  # several files of one job are matched by name
        by_name = fs.FrequentDirections(5).update(right).update(wrong[NAMES])
        assert np.allclose(fs.run(fs.FrequentDirections(5), files).gram(), by_name.gram())
        groups = fs.sketch_groups(files, by=np.repeat([0, 1], 60))
        assert np.allclose(groups[1].gram(), fs.FrequentDirections(16).update(wrong[NAMES]).gram())
    sketch, other = (fs.FrequentDirections(5).update(table) for table in (right, wrong))
    with pytest.raises(ValueError, match=refused):
        fs.compare(sketch, other)
    with pytest.raises(ValueError, match=refused):
        fs.merge([sketch, other])
    hashes = fs.SketchHash(4).update(right)
    ease = fs.SketchedEASE(5, ridge=1.0).update(abs(values), item_ids=NAMES)
    covariance = fastsketch.sklearn.SketchedCovariance(sketch_size=5).fit(right)
    newton = fs.SketchedNewton().update(right, halves(values))
    for method in (hashes.encode, hashes.encoder().encode, covariance.score_samples, newton.predict):
        with pytest.raises(ValueError, match=refused):
            fs.map_rows(method, files[1], output=tmp_path / "out.npy", workers=1)
        fs.map_rows(method, files[0], output=tmp_path / "out.npy", workers=1)
    with pytest.raises(ValueError, match=refused):
        fs.map_rows(ease.decision_block, fs.open_rows(abs(wrong)), output=tmp_path / "out.npy", workers=1)
