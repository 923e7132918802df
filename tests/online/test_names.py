"""Rows with names in the learners: the same as their columns, in any batches, kept in files, and mixed with nothing."""

import itertools
import pickle
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.data.names._naming import HashedNames, NameTable

MODELS = {
    "newton": lambda **more: fs.SketchedNewton(4, **more),
    "newton, logistic": lambda **more: fs.SketchedNewton(4, loss="logistic", **more),
    "fd": lambda **more: fs.SketchedNewton(4, method="fd", alpha0=1.0, **more),
    "ada_ffd": lambda **more: fs.AdaptiveSubgradient(4, **more),
    "ada_diag": lambda **more: fs.AdaptiveSubgradient(method="ada_diag", **more),
    "adam": lambda **more: fs.AdaptiveSubgradient(method="adam", **more),
}


def people(n=120, seed=0):
    """Draw (rows as dicts of numbers and words, with ever new words; labels "no" and "yes")."""
    rng = np.random.default_rng(seed)
    rows, labels = [], []
    for i in range(n):
        city = ("Paris", "Rome", "Oslo")[rng.integers(3)]
        row = {"age": float(rng.integers(1, 90)) / 30, "city": city, "user": f"u{rng.integers(1 + i)}"}
        if rng.random() < 0.5:
            row["member"] = True
        rows.append(row)
        labels.append("yes" if row["age"] + 2 * (city == "Rome") + rng.standard_normal() > 2.5 else "no")
    return rows, labels


def numbered(rows, hash_bits):
    naming = NameTable() if hash_bits is None else HashedNames(hash_bits)
    indptr, indices, data = naming.parts(rows)
    return sparse.csr_array((data, indices, indptr), shape=(len(rows), naming.width or len(naming)))


def same(one, two):
    """Return whether two models know the same; arrays of held rows may have room of their own."""
    (state, arrays), (other, others) = one._state(), two._state()
    used = [name for name in arrays if name not in ("0.kept_data", "0.kept_indices")]
    return (
        state == other
        and arrays.keys() == others.keys()
        and np.array_equal(one.coef, two.coef)
        and all(np.array_equal(arrays[name], others[name]) for name in used)
    )


@pytest.mark.parametrize("hash_bits", [None, 12])
@pytest.mark.parametrize("kind", MODELS)
def test_names_are_their_columns(kind, hash_bits):
    """The bits of the CSR rows that the names stand for."""
    rows, labels = people()
    named = MODELS[kind](hash_bits=hash_bits).update(rows, labels)
    columns = numbered(rows, hash_bits)
    plain = MODELS[kind](open_columns=True).update(columns, labels)
    assert np.array_equal(named.last_scores, plain.last_scores)
    assert np.array_equal(named.decision_function(rows), plain.decision_function(columns))
    size = len(plain.coef)
    assert np.array_equal(named.coef[:size], plain.coef) and not named.coef[size:].any()
    assert named.n_features == (None if hash_bits is None else 2**hash_bits)
    assert (named.predict(rows) == labels).mean() > 0.75
    assert named.predict(rows[0]).tolist() == named.predict(rows[:1]).tolist()


@pytest.mark.parametrize("hash_bits", [None, 12])
@pytest.mark.parametrize("kind", MODELS)
def test_the_same_bits_for_any_split(kind, hash_bits):
    rows, labels = people(60)
    whole = MODELS[kind](hash_bits=hash_bits).update(rows, labels)
    for cuts in (range(61), (0, 1, 7, 8, 30, 60)):
        parts = MODELS[kind](hash_bits=hash_bits)
        for start, stop in itertools.pairwise(cuts):
            if stop == start + 1:
                parts.update(rows[start], labels[start])  # a dict alone is one row
            else:
                parts.update(rows[start:stop], labels[start:stop])
        assert same(parts, whole)


def test_pairs_and_names_are_rows():
    rows, labels = people(40)
    dicts = fs.SketchedNewton(4).update(rows, labels)
    pairs = fs.SketchedNewton(4).update([list(row.items()) for row in rows], labels)
    words = [[(k, v) if not isinstance(v, str) else f"{k}={v}" for k, v in row.items()] for row in rows]
    assert pairs.to_bytes() == dicts.to_bytes() == fs.SketchedNewton(4).update(words, labels).to_bytes()


@pytest.mark.parametrize("hash_bits", [None, 12])
@pytest.mark.parametrize("kind", MODELS)
def test_files_continue(kind, hash_bits):
    rows, labels = people(80)
    whole = MODELS[kind](hash_bits=hash_bits).update(rows, labels)
    half = MODELS[kind](hash_bits=hash_bits).update(rows[:40], labels[:40])
    for copy in (fs.from_bytes(half.to_bytes()), half.copy(), pickle.loads(pickle.dumps(half))):
        assert copy.vocabulary == half.vocabulary
        assert copy.update(rows[40:], labels[40:]).to_bytes() == whole.to_bytes()
    assert half.n_rows == 40


def test_more_than_two_classes():
    rows, _ = people(90)
    labels = [row["city"] for row in rows]
    model = fs.SketchedNewton(4).update([{"age": r["age"], "where": r["city"]} for r in rows], labels)
    assert (model.predict([{"where": c} for c in ("Oslo", "Rome", "Paris")]) == ["Oslo", "Rome", "Paris"]).all()
    top = model.top_features(4)
    assert list(top) == ["Oslo", "Paris", "Rome"] and all(len(found) == 4 for found in top.values())
    for label, found in top.items():
        assert max(found, key=lambda one: one[1])[0] == f"where={label}"
        assert model.top_features(4, label=label) == found
    assert fs.from_bytes(model.to_bytes()).top_features() == model.top_features()


def test_unknown_names_count_nothing():
    rows, labels = people()
    model = fs.SketchedNewton(4).update(rows, labels)
    known = {"age": 1.0, "city": "Rome"}
    assert model.decision_function([{**known, "new": 7.0, "user": "nobody"}]) == model.decision_function([known])
    assert model.decision_function({"new": 1.0}) == model.decision_function({})
    assert "new" not in model.vocabulary and len(model.vocabulary) == len(model.coef)
    model.vocabulary["new"] = 7  # of a copy
    assert "new" not in model.vocabulary


def test_vocabulary_of_others_is_none():
    assert fs.SketchedNewton(2).vocabulary is None
    assert fs.SketchedNewton(2).update([[1.0, 2.0]], [1]).vocabulary is None
    assert fs.SketchedNewton(2, hash_bits=4).update([{"a": 1}], [1]).vocabulary is None


class Interrupting(Fraction):
    def __float__(self):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("rows", "labels", "error"),
    [
        ([{"new": 1.0}, {"age": None}], ["yes", "no"], ValueError),
        ([{"new": 1.0}, {"age": float("nan")}], ["yes", "no"], ValueError),
        ([{"new": 1.0}], ["yes", "no"], ValueError),
        ([{"new": 1.0}], [None], (ValueError, TypeError)),
        ([{"new": 1.0, "city": "Bern"}, {"x": Interrupting(1)}], ["yes", "no"], KeyboardInterrupt),
        ([{"new": 1e300, "b": 1e300}, {"new": -1e300, "b": 1e300}], ["yes", "no"], FloatingPointError),
        ({"new": [1.0]}, ["yes"], TypeError),
        (np.ones((1, 3)), ["yes"], ValueError),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_refused_batch_changes_nothing(first, rows, labels, error):
    seen, known = people(30)
    model = fs.SketchedNewton(4, loss="square" if error is FloatingPointError else "squared_hinge")
    if error is FloatingPointError:
        known, labels = np.arange(30.0), [1e300, -1e300]
    if not first:
        model.update(seen, known)
    elif isinstance(rows, np.ndarray):
        return
    before = model.to_bytes()
    with pytest.raises(error):
        model.update(rows, labels)
    assert model.to_bytes() == before
    after = model.copy().update(seen, known)
    assert model.update(seen, known).to_bytes() == after.to_bytes()
    assert "new" not in model.vocabulary and "city=Bern" not in model.vocabulary


def test_names_and_numbers_do_not_mix():
    matrix = np.eye(3)
    model = fs.SketchedNewton(2).update([{"a": 1.0}], [1])
    for call in (lambda: model.update(matrix, [1, 0, 1]), lambda: model.decision_function(matrix)):
        with pytest.raises(ValueError, match="learns from rows with names .* matrices do not go with them"):
            call()
    model = fs.SketchedNewton(2).update(matrix, [1, 0, 1])
    for call in (lambda: model.update({"a": 1.0}, 1), lambda: model.predict([[("a", 1.0)]])):
        with pytest.raises(ValueError, match="columns have numbers: dicts and lists of names do not go with them"):
            call()
    with pytest.raises(ValueError, match="hash_bits=8 is for rows with names"):
        fs.SketchedNewton(2, hash_bits=8).update(matrix, [1, 0, 1])
    with pytest.raises(ValueError, match="hash_bits must be below 31"):
        fs.SketchedNewton(2, hash_bits=31)
    with pytest.raises(ValueError, match="the model has seen no rows"):
        fs.SketchedNewton(2).predict({"a": 1.0})
    # what was refused before the first row decides nothing
    model = fs.SketchedNewton(2)
    with pytest.raises(ValueError):
        model.update([{"a": None}], [1])
    assert model.update(matrix, [1, 0, 1]).n_features == 3


def test_methods_without_a_sparse_form():
    full = fs.AdaptiveSubgradient(method="ada_full")
    with pytest.raises(ValueError, match="rows with names: that needs a form for sparse rows"):
        full.update([{"a": 1.0}], [1])
    with pytest.raises(ValueError, match="hash_bits needs a form for sparse rows"):
        fs.AdaptiveSubgradient(method="ada_full", hash_bits=4)


def test_comparators_are_for_numbered_columns():
    with pytest.raises(ValueError, match="comparator: .* learns from names"):
        fs.SketchedNewton(2).update([{"a": 1.0}], [1]).compare_with([1.0])
    with pytest.raises(ValueError, match="comparator: .* rows have names"):
        fs.SketchedNewton(2).compare_with([1.0]).update([{"a": 1.0}], [1])


def test_rows_without_features():
    model = fs.SketchedNewton(2).update([{}], [1]).update([{"a": 1.0}, {}], [1, 0])
    assert fs.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()
    assert model.update([], []).n_rows == 3
    assert "3 rows with 1 features so far" in repr(model)


PLAIN = {"fit_intercept": False, "scale": None}


def test_top_features():
    rows, labels = people()
    model = fs.SketchedNewton(4, **PLAIN).update(rows, labels)
    top = model.top_features(3)
    weights = np.abs(model.coef)
    assert [abs(w) for _, w in top] == sorted(weights, reverse=True)[:3]
    assert all(model.coef[model.vocabulary[name]] == w for name, w in top)
    assert model.top_features(3, label="yes") == top
    assert model.top_features(3, label="no") == [(name, -w) for name, w in top]
    assert len(model.top_features(10**9)) == np.count_nonzero(weights)
    with pytest.raises(ValueError, match=r"label must be one of \['no', 'yes'\], got 'maybe'"):
        model.top_features(label="maybe")
    with pytest.raises(ValueError, match="n must be at least 1"):
        model.top_features(0)
    hashed = fs.SketchedNewton(4, hash_bits=12).update(rows, labels).top_features(1)
    assert isinstance(hashed[0][0], int)


@pytest.mark.parametrize("intercept", [False, True])
def test_scaled_features_rank_by_what_they_move(intercept):
    """Weight times root mean square, and the weight of the feature's own units is shown."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 500))
    rows = [{"large": 1000 * x, "small": y} for x, y in zip(a, b, strict=True)]
    model = fs.SketchedNewton(4, scale="moments", fit_intercept=intercept).update(rows, np.where(2 * a + b > 0, 1, -1))
    (one, weight), (two, other) = model.top_features()
    assert (one, two) == ("large", "small") and 0 < weight < other
    assert [weight, other] == [model.coef[model.vocabulary[name]] for name in (one, two)]
    dense = fs.SketchedNewton(4, scale="moments", fit_intercept=intercept)
    dense.update(np.column_stack([b, 1000 * a]), np.where(2 * a + b > 0, 1, -1))
    assert [column for column, _ in dense.top_features()] == [1, 0]


def test_top_features_of_numbered_columns():
    rows = np.array([[0.0, 1.0, -3.0, 0.0]] * 4)
    dense = fs.SketchedNewton(2, loss="square", **PLAIN).update(rows, np.ones(4))
    assert [column for column, _ in dense.top_features()] == [2, 1]
    assert dense.top_features(1)[0][1] == dense.coef[2] < 0
    with pytest.raises(ValueError, match="takes real targets"):
        dense.top_features(label=1.0)
    with pytest.raises(ValueError, match="has seen no rows"):
        fs.SketchedNewton(2).top_features()


def test_stranger_files():
    """Names that do not fit are refused when a file is read."""
    from fastsketch.data.files import _state as files

    rows, labels = people(20)
    model = fs.SketchedNewton(4).update(rows, labels)
    state, arrays = model._state()
    about = {"kind": "SketchedNewton", "home": "fastsketch.online", "parameters": model.parameters, "notes": {}}
    for changed, more in (
        ({"named": False}, {}),
        ({"named": 1}, {}),
        ({}, {"names": arrays["names"][:-1]}),
        ({}, {"name_ends": arrays["name_ends"][:-1], "names": arrays["names"][: arrays["name_ends"][-2]]}),
        ({}, {"columns": arrays["columns"] + 1}),
    ):
        content = files.pack({**about, "state": {**state, **changed}}, {**arrays, **more})
        with pytest.raises(fs.StateError):
            fs.from_bytes(content)
    without = {name: array for name, array in arrays.items() if not name.startswith("name")}
    with pytest.raises(fs.StateError):
        fs.from_bytes(files.pack({**about, "state": state}, without))
    fs.from_bytes(files.pack({**about, "state": state}, arrays))


@pytest.mark.parametrize("name", ["decision_function", "predict", "predict_proba"])
def test_names_classes_and_weights_of_an_answer_are_of_one_moment(name):
    model = fs.SketchedNewton(3).update([{"a": 1.0}, {"b": 1.0}], [0, 1])
    before = model.to_bytes()

    class Row(Mapping):
        """A row at whose reading somebody else learns."""

        def __getitem__(self, key):
            return 1.0

        def __len__(self):
            return 1

        def __iter__(self):
            model.update([{"c": 1.0}], [2])
            return iter(["a"])

    with pytest.raises(RuntimeError, match="one thread at a time"):
        getattr(model, name)([Row()])
    assert model.to_bytes() == before


@pytest.mark.parametrize("rows", [["good film", "bad film"], ({"a": 1} for _ in range(2))], ids=["texts", "generator"])
def test_texts_and_generators_are_told_how_rows_are_given(rows):
    model = fs.SketchedNewton(2).update([{"a": 1}, ["good"]], ["x", "y"])
    with pytest.raises(ValueError, match=r"rows come in a list, and a text as the list of its words: \[text.split"):
        model.update(rows, ["x", "y"])
    assert model.n_rows == 2


@pytest.mark.parametrize("rows", ["clicks.csv", np.array([[1, "news"]], dtype=object), np.array([["3", "news"]])])
def test_words_that_are_no_dicts_are_told_how_rows_are_given(rows):
    with pytest.raises((TypeError, ValueError), match=r"rows with words are dicts, .*TableRows\(file"):
        fs.SketchedNewton(2).update(rows, [1])


@pytest.mark.parametrize("rows", [[[1.0, 2.0], [3.0]], np.ones((1, 2), complex)])
def test_rows_without_words_are_not_told_of_them(rows):
    with pytest.raises((TypeError, ValueError)) as refused:
        fs.SketchedNewton(2).update(rows, [1])
    assert "words" not in str(refused.value)
