"""Labels that come in runs: what a model counts, when it warns, and what its constant terms do."""

import warnings

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.online._labels import ROWS_PER_ORDER_CHECK, ClassTally
from tests.helpers import papers

SHARES = {"1%": (0.01, 0.99), "half": (0.5, 0.5), "three": (0.01, 0.2, 0.79), "twenty": (0.05,) * 20}
KINDS = [fs.SketchedNewton, fs.AdaptiveSubgradient]


def stream(n=1000, k=2, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n)
    return rng.standard_normal((n, 6)) + 1.5 * np.eye(k, 6)[labels], labels


def looks(numbers, n_classes):
    """Whether each look at a stream takes it for sorted."""
    tally, out = ClassTally([0] * n_classes), []
    for first in range(0, len(numbers), ROWS_PER_ORDER_CHECK):
        tally = tally.with_rows(numbers[first : first + ROWS_PER_ORDER_CHECK], n_classes)
        out.append(tally.is_sorted())
    return out


@pytest.mark.parametrize("shares", SHARES.values(), ids=SHARES)
def test_shuffled_streams_are_hardly_ever_taken_for_sorted(shares, amount):
    """Fewer than 1 in 1,000, of 2,000 streams: none here."""
    rng = np.random.default_rng(0)
    assert not any(any(looks(rng.choice(len(shares), 4096, p=shares), len(shares))) for _ in range(amount(60, 2000)))


@pytest.mark.parametrize("run", [8, 100, 1000])
def test_runs_are_seen(run):
    rng = np.random.default_rng(0)
    assert all(looks(np.repeat(rng.choice(3, 8192 // run), run), 3)[-1] for _ in range(20))


def test_a_label_that_comes_late_is_seen_after_some_rows():
    tally = ClassTally([0, 0]).with_rows(np.zeros(100_000, np.int64), 2)
    assert not tally.is_sorted() and not tally.with_rows(np.ones(20, np.int64), 2).is_sorted()
    assert tally.with_rows(np.ones(30, np.int64), 2).is_sorted()


def test_runs_of_any_split_are_the_same():
    numbers = np.random.default_rng(0).integers(0, 3, 200)
    whole = ClassTally([0, 0]).with_rows(numbers, 3)
    assert whole.runs == 1 + np.count_nonzero(np.diff(numbers)) and whole.rows == np.bincount(numbers).tolist()
    tally = ClassTally([0, 0])
    for first, stop in ((0, 1), (1, 3), (3, 60), (60, 75), (75, 200)):
        tally = tally.with_rows(numbers[first:stop], 3)
    assert tally == whole


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 64, 1000])
def test_a_model_says_so_once(kind, size):
    rows, labels = stream()
    at = np.argsort(labels, kind="stable")
    model = kind()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for first in range(0, 1000, size):
            model.update(rows[at[first : first + size]], labels[at[first : first + size]])
        model = model.copy().update(rows[at], labels[at])
    [warning] = caught
    assert str(warning.message).startswith("the labels come in runs: 2 in ") and "Shuffle the rows" in str(
        warning.message
    )
    assert warning.filename == __file__


@pytest.mark.parametrize("given", [{"decay": 0.99}, {"decay": "auto"}, {"loss": "square"}])
def test_models_of_an_order_say_nothing(given):
    rows, labels = stream()
    at = np.argsort(labels, kind="stable")
    fs.SketchedNewton(**given).update(rows[at], labels[at])


def test_a_warning_that_is_an_error_leaves_the_model_as_it_was():
    rows, labels = stream()
    at = np.argsort(labels, kind="stable")
    model = fs.SketchedNewton().update(rows[at[:300]], labels[at[:300]])
    before = model.to_bytes()
    with pytest.raises(UserWarning, match="labels come in runs"):
        model.update(rows[at], labels[at])
    assert model.to_bytes() == before


@pytest.mark.filterwarnings("ignore:the labels come in runs")
@pytest.mark.parametrize("by_slot", [False, True])
@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_constant_terms_do_not_follow_the_last_label(kind, k, by_slot):
    """Of sorted rows they are the log odds of the shares, and answers get better by it."""
    rows, labels = stream(3000, k)
    rows, labels = rows[labels + np.arange(3000) % 2 > 0], labels[labels + np.arange(3000) % 2 > 0]
    at = np.argsort(labels, kind="stable")
    model = kind(open_columns=by_slot).update(rows[at], labels[at])
    w, kept = model._prepared_coef(), model._model_state
    bounded, free = kept.intercepts(w, in_order=False), kept.intercepts(w, in_order=True)
    total = bounded + (kept.columns.intercept(w) if by_slot else w[..., -1])
    shares = np.log(np.bincount(labels) + 0.5)
    assert np.allclose(total, shares - shares.mean() if k > 2 else shares[1] - shares[0])
    scores = model.decision_function(rows) + free - bounded
    followed = (scores > 0).astype(int) if k == 2 else scores.argmax(axis=1)
    assert np.mean(model.predict(rows) == labels) > np.mean(followed == labels) + 0.05


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_constant_terms_of_shuffled_rows_are_left_alone(kind, k):
    model = kind().update(*stream(2000, k))
    w, kept = model._prepared_coef(), model._model_state
    assert np.array_equal(kept.intercepts(w, in_order=False), kept.intercepts(w, in_order=True))


@pytest.mark.filterwarnings("ignore:the labels come in runs")
@pytest.mark.parametrize(
    ("kind", "options"),
    [(fs.AdaptiveSubgradient, {"method": "ada_diag"}), (fs.AdaptiveSubgradient, {}), (fs.SketchedNewton, {})],
)
def test_one_class_in_the_first_hundred_thousand_rows(kind, options):
    rng = np.random.default_rng(0)
    model = kind(**options, classes=[0, 1])
    model.update(rng.standard_normal((100_000, 4)), np.zeros(100_000, int))
    assert (model.predict(np.zeros((1, 4))) == 0).all() and np.isfinite(model.intercept)
    model.update(rng.standard_normal((1000, 4)) + 2, np.ones(1000, int))
    assert (model.predict(np.full((1, 4), 2.0)) == 1).all()
    assert abs(model.intercept) < 200 and np.isfinite(model.predict_proba(np.zeros((1, 4)))).all()
    assert fs.from_bytes(model.to_bytes()).intercept == model.intercept


@pytest.mark.parametrize(("name", "value"), [("runs", 0), ("runs", 61), ("last", None), ("last", 7)])
def test_runs_in_a_file_fit_the_rows(name, value):
    rows, labels = stream(60)
    model = papers.SketchedNewton(3).update(rows, labels)
    state, arrays = model._state()
    broken = {**state, "labels": {**state["labels"], name: value}}
    with pytest.raises(ValueError, match="came in .* runs"):
        model._validate(broken, arrays)


def test_several_labels_a_row_are_refused():
    with pytest.raises(ValueError, match=r"got shape \(5, 3\); .* OneVsRestClassifier or MultiOutputClassifier"):
        fs.SketchedNewton().update(np.ones((5, 2)), np.eye(5, 3, dtype=int))
