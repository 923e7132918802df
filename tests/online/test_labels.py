"""Labels of any kind, more than two classes, class weights: what the rows say, whatever the batches are."""

import re
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

import fastsketch as fs
from fastsketch.online._class_states import MISTAKES, SHARED
from tests.helpers import papers

D = 12
MAKERS = {
    "newton": lambda **kw: papers.SketchedNewton(3, **kw),
    "newton-logistic": lambda **kw: papers.SketchedNewton(3, loss="logistic", constraint=None, alpha0=1.0, **kw),
    "newton-rfd0": lambda **kw: papers.SketchedNewton(3, alpha0=0.0, **kw),
    "ada-ffd": lambda **kw: papers.AdaptiveSubgradient(3, **kw),
    "ada-fd-dual": lambda **kw: papers.AdaptiveSubgradient(3, method="ada_fd", form="dual_averaging", **kw),
    "ada-full": lambda **kw: papers.AdaptiveSubgradient(3, method="ada_full", **kw),
    "ada-diag": lambda **kw: papers.AdaptiveSubgradient(method="ada_diag", **kw),
}
FORMS = {"dense": np.asarray, "sparse": sparse.csr_array}


def stream(n=120, k=4, seed=0, form="dense"):
    """Draw rows and class numbers, which first appear at any place."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-2, 3, (n, D)) * (rng.random((n, D)) < 0.25) * 1.0
    numbers = (rows @ rng.standard_normal((D, k))).argmax(axis=1)
    numbers[:7] = np.minimum(numbers[:7], 1)  # the first ones are two classes
    numbers[40:] = np.where(numbers[40:] == 3, 3, numbers[40:])
    numbers[:40] = np.minimum(numbers[:40], 2)  # and the last one is late
    return FORMS[form](rows), numbers


NAMES = np.array(["pear", "apple", "quince", "fig"])


def same(one, two):
    return one.to_bytes() == two.to_bytes()


# -- more than two classes ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", MAKERS)
def test_it_is_one_against_the_rest_by_hand(kind, form):
    rows, numbers = stream(form=form)
    labels = NAMES[numbers]
    model = MAKERS[kind]().update(rows, labels)
    assert model.classes.tolist() == sorted(NAMES)
    # by hand: two classes are one model; the third and later ones begin with the row where they first are
    first = {k: int(np.flatnonzero(numbers == k)[0]) for k in range(4)}
    pair = sorted((0, 1), key=first.get)
    by_hand, scores = {}, {}
    for k in range(4):
        begin = first[k] if k not in pair else 0
        one = MAKERS[kind](classes=[-1, 1])
        y = np.where(numbers == k, 1, -1)
        for start, stop in ((begin, max(begin, 60)), (60, len(y))):
            one.update(rows[start:stop], y[start:stop])
            scores[k] = np.append(scores.get(k, []), one.last_scores)
        by_hand[k] = one
    order = np.argsort(NAMES)
    # a model that begins late numbers the columns of sparse rows in another order: equal to rounding, for ADA-FFD to
    # the 3e-7 of a row below which nothing is a new direction
    same_order = form == "dense"
    equal = np.array_equal if same_order else partial(np.allclose, rtol=1e-6, atol=1e-6)
    assert equal(model.coef, [by_hand[k].coef for k in order])
    by_hand_scores = np.stack([rows @ by_hand[k].coef for k in order], axis=1)
    assert np.allclose(model.decision_function(rows), rows @ model.coef.T, rtol=1e-13, atol=1e-13)
    assert np.allclose(model.decision_function(rows), by_hand_scores, rtol=1e-5, atol=1e-5)
    for column, k in enumerate(order):
        mine = model.last_scores[:, column]
        late = 0 if k in pair else first[k]
        assert equal(mine[late:], scores[k]) and np.isnan(mine[:late]).all()
    assert np.array_equal(model.predict(rows), np.sort(NAMES)[model.decision_function(rows).argmax(axis=1)])


@pytest.mark.parametrize("kind", MAKERS)
def test_negated_targets_negate_the_coefficients_to_the_bit(kind):
    """Negate targets: this lets one state serve both of two classes."""
    for form in FORMS:
        rows, numbers = stream(k=2, form=form)
        y = np.where(numbers == 0, 1, -1)
        one = MAKERS[kind](classes=[-1, 1]).update(rows, y)
        two = MAKERS[kind](classes=[-1, 1]).update(rows, -y)
        assert np.array_equal(one.coef, -two.coef) and np.abs(one.coef).max() > 0
        assert one.progress == two.progress


@pytest.mark.parametrize("weight", [None, "balanced", {"fig": 3.0, "apple": 0.5}])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["newton", "ada-ffd", "ada-diag"])
def test_any_split_and_any_resume_has_the_same_bits(kind, form, weight):
    rows, numbers = stream(form=form)
    labels, weights = NAMES[numbers], np.random.default_rng(1).random(len(numbers))
    whole = MAKERS[kind](class_weight=weight).update(rows, labels, sample_weight=weights)
    changes = sorted(int(np.flatnonzero(numbers == k)[0]) for k in range(4))
    for cuts in (range(1, 120), changes, [c + 1 for c in changes], [3, 3, 60], [119]):
        model, first = MAKERS[kind](class_weight=weight), 0
        for stop in [*cuts, 120]:
            model.update(rows[first:stop], labels[first:stop], sample_weight=weights[first:stop])
            model = fs.from_bytes(model.to_bytes()) if first % 7 == 0 else model
            first = stop
        assert np.array_equal(model.coef, whole.coef)
        assert model.progress == whole.progress and model.n_rows == 120
        # what rows are kept in has room that depends on batches, and nothing else does
        assert form == "sparse" or same(model, whole)


def test_single_labels_are_taken_as_they_are():
    rows, numbers = stream()
    one = papers.SketchedNewton(3).update(rows, NAMES[numbers])
    for make in (
        str,
        lambda name: [name],
        lambda name: np.array([name]),
        np.str_,
        lambda name: np.array([name], object),
    ):
        two = papers.SketchedNewton(3)
        for row, name in zip(rows, NAMES[numbers].tolist(), strict=True):
            two.update(row, make(name))
        assert same(one, two)


def test_a_class_that_appears_starts_fresh_and_the_losses_add_up():
    rows, numbers = stream()
    model = papers.SketchedNewton(3)
    two = int(np.flatnonzero(numbers > 1)[0])
    model.update(rows[:two], numbers[:two])
    before = model.progress
    assert model.coef.shape == (D,) and model.last_scores.shape == (two,)
    model.update(rows[two:], numbers[two:])
    held = model._model_state.states.main_learners
    sums = [state.totals()[1] for state in held]
    assert model.progress["cumulative_loss"] == sum(sums) - before["cumulative_loss"]
    assert model.coef.shape == (4, D) and model.last_scores.shape == (120 - two, 4)
    # the mistakes are those of the largest score, and a class that nobody knew is one
    scores = np.where(np.isnan(model.last_scores), -np.inf, model.last_scores)
    own = np.take_along_axis(scores, numbers[two:, None], 1)[:, 0]
    np.put_along_axis(scores, numbers[two:, None], -np.inf, 1)
    wrong = ~(own > scores.max(axis=1))
    for k in (2, 3):
        wrong[np.flatnonzero(numbers[two:] == k)[0]] = True
    assert model.progress["error_rate"] * 120 == pytest.approx(before["error_rate"] * two + wrong.sum())


# -- kinds of labels ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (-1, 1, np.int64),
        (0, 1, np.int64),
        (1, 2, np.int64),
        (7, -3, np.int64),
        (0.0, 1.0, np.float64),
        (False, True, np.bool_),
        ("ham", "spam", "<U4"),
        ("b", "a", "<U1"),
    ],
)
@pytest.mark.parametrize("kind", ["newton", "ada-diag"])
def test_two_classes_are_what_minus_and_plus_one_are(kind, low, high, dtype):
    rows, numbers = stream(k=2)
    for y in (numbers, 1 - numbers):  # whichever is first
        labels = np.array([low, high])[y]
        model = MAKERS[kind]().update(rows, labels)
        positive = max(low, high)
        signs = np.where(labels == positive, 1.0, -1.0)
        plain = MAKERS[kind]().update(rows, signs)
        assert model.classes.dtype == dtype and model.classes.tolist() == sorted([low, high])
        assert np.array_equal(model.coef, plain.coef) and np.array_equal(model.last_scores, plain.last_scores)
        assert model.progress == plain.progress
        assert model.predict(rows).dtype == dtype
        assert np.array_equal(model.predict(rows) == positive, plain.predict(rows) == 1)
        again = MAKERS[kind](classes=[high, low]).update(rows, labels)
        assert np.array_equal(again.coef, model.coef)


def test_equal_labels_are_one_class_whatever_their_type():
    rows, numbers = stream(k=2)
    model = papers.SketchedNewton(3).update(rows[:40], numbers[:40] == 1)
    assert model.classes.dtype == bool
    model.update(rows[40:80], numbers[40:80].astype(np.uint8)).update(rows[80:], numbers[80:].astype(np.float32))
    assert np.array_equal(model.coef, papers.SketchedNewton(3).update(rows, numbers).coef)
    model.update(rows[:1], 2)
    assert model.classes.tolist() == [0, 1, 2] and model.classes.dtype == np.int64


def test_lists_and_objects_are_taken():
    rows, numbers = stream()
    one = papers.SketchedNewton(3).update(rows, NAMES[numbers])
    for labels in (NAMES[numbers].tolist(), NAMES[numbers].astype(object), tuple(NAMES[numbers])):
        assert same(papers.SketchedNewton(3).update(rows, labels), one)
    ints = papers.SketchedNewton(3).update(rows, numbers)
    assert same(papers.SketchedNewton(3).update(rows, numbers.astype(object)), ints)


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        ([1, 2, np.nan], ValueError, "targets must be finite: entry 2 is not"),
        ([1, 2, np.inf], ValueError, "targets must be finite: entry 2 is not"),
        ([1, 0.5, 1], ValueError, "the label of row 1 must be an integer, a bool or a string, got 0.5: .*--regression"),
        ([1, 2, 2**53], ValueError, "the label of row 2 must be an integer below"),
        (["a", "b", ""], ValueError, "the label of row 2 must not be empty"),
        (["a", 1, "b"], TypeError, "the label of row 1 must be a string as those before, got 1"),
        ([1, "a", "b"], TypeError, "the label of row 1 must be a number or a bool, got 'a'"),
        (
            np.array(["a", None, "b"], object),
            TypeError,
            "the label of row 1 must be a string as those before, got None",
        ),
        (np.array([None, 1, 2], object), TypeError, "the label of row 0 must be a number or a bool, got None"),
        (np.array([b"a", b"b", b"a"]), TypeError, r"must hold labels \(numbers, bools or strings\), got dtype"),
        (np.array([1j, 1, 2]), TypeError, "must hold labels"),
        ([1, 2], ValueError, r"one entry for each of the 3 rows, got shape \(2,\)"),
        ([[1], [2], [3]], ValueError, "one entry for each"),
        (np.ma.masked_array([1, 2, 3]), TypeError, "masked"),
    ],
)
def test_bad_labels_are_named_with_their_row(labels, error, message):
    model = papers.SketchedNewton(3).update(np.eye(3), [1, -1, 1])
    for target in (papers.SketchedNewton(3), model):
        before = target.to_bytes()
        with pytest.raises(error, match="row" if "row" in message and target is model else message):
            target.update(np.eye(3), labels)
        assert target.to_bytes() == before


def test_strings_after_numbers_are_refused():
    model = papers.SketchedNewton(3).update(np.eye(3), [1, -1, 1])
    with pytest.raises(ValueError, match=r"row 0 has the label 'a', and those before are numbers \(1, -1\)"):
        model.update(np.eye(3), ["a", "b", "a"])
    with pytest.raises(ValueError, match="row 0 has the label '1', and those before are numbers"):
        model.update(np.eye(1, 3), "1")


def test_real_targets_are_no_labels():
    y = np.arange(2000.0)
    with pytest.raises(ValueError, match="row 1000 has the label 1000.0, after 1000 others: are these real targets"):
        papers.AdaptiveSubgradient(method="ada_diag").update(np.ones((2000, 1)), y)
    model = papers.AdaptiveSubgradient(method="ada_diag", classes=y[:1100])
    assert len(model.update(np.ones((5, 1)), y[:5]).classes) == 1100


# -- classes and weights -----------------------------------------------------------------------------------------------
def test_given_classes_refuse_others_with_label_and_row():
    rows, numbers = stream()
    model = papers.SketchedNewton(3, classes=["apple", "fig", "pear"])
    with pytest.raises(ValueError, match=re.escape("row 2 has the label 'plum', which is not in classes=")):
        model.update(rows[:4], ["apple", "pear", "plum", "prune"])
    assert model.n_rows == 0 and model.classes.tolist() == ["apple", "fig", "pear"]
    model.update(rows, np.array(["apple", "fig", "pear"])[numbers % 3])
    before = model.to_bytes()
    for one in ("plum", ["plum"]):
        with pytest.raises(ValueError, match="row 0 has the label 'plum'"):
            model.update(rows[0], one)
    assert model.to_bytes() == before
    assert model.coef.shape == (3, D) and fs.from_bytes(before).classes.tolist() == ["apple", "fig", "pear"]
    with pytest.raises(ValueError, match="not in classes"):
        fs.from_bytes(before).update(rows[0], "plum")


def test_given_classes_have_a_state_each_from_the_first_row():
    rows, numbers = stream()
    model = papers.SketchedNewton(3, classes=range(4)).update(rows, numbers)
    for k in range(4):
        one = papers.SketchedNewton(3, classes=[-1, 1]).update(rows, np.where(numbers == k, 1, -1))
        assert np.array_equal(model.coef[k], one.coef)
    assert np.isfinite(model.last_scores).all()


def test_class_weights_multiply_sample_weights():
    rows, numbers = stream()
    labels, weights = NAMES[numbers], np.random.default_rng(1).random(120)
    of = {"fig": 3.0, "apple": 0.5}
    one = papers.SketchedNewton(3, class_weight=of).update(rows, labels, sample_weight=weights)
    factors = np.array([of.get(name, 1.0) for name in labels])
    two = papers.SketchedNewton(3).update(rows, labels, sample_weight=weights * factors)
    assert np.array_equal(one.coef, two.coef)
    seen = np.array([len(set(numbers[: i + 1])) for i in range(120)])
    own = np.array([(numbers[: i + 1] == numbers[i]).sum() for i in range(120)])
    balanced = np.arange(1, 121) / (seen * own)
    one = papers.SketchedNewton(3, class_weight="balanced").update(rows, labels)
    # balanced weights have no unit: they are the only ones that no mean divides
    two = papers.SketchedNewton(3)._learn(rows, labels, balanced, mean_weight=1.0)
    assert np.array_equal(one.coef, two.coef)
    # labels that are no strings come back from a file as they were
    model = papers.SketchedNewton(3, class_weight={0: 1.0, 1: 2.5})
    assert fs.from_bytes(model.to_bytes()).class_weight == {0: 1.0, 1: 2.5}


@pytest.mark.parametrize("make", [fs.SketchedNewton, fs.AdaptiveSubgradient])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
@pytest.mark.parametrize("calibrate", [True, False])
def test_a_class_that_weighs_more_is_found_more_often(make, loss, calibrate):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((4000, 10))
    score = rows @ rng.standard_normal(10) + rng.standard_normal(4000)
    labels = np.where(score > 4, "rare", "usual")
    found = []
    for weight in (0.2, 1.0, 3.0, 9.0):
        model = make(class_weight={"rare": weight}, loss=loss, calibrate=calibrate).update(rows, labels)
        found.append(np.mean(model.predict(rows[labels == "rare"]) == "rare"))
    assert found == sorted(found) and found[-1] > found[1] + 0.1, found


# -- answers -----------------------------------------------------------------------------------------------------------
def test_probabilities():
    rows, numbers = stream()
    model = papers.SketchedNewton(3, loss="logistic", alpha0=1.0).update(rows, numbers)
    p = model.predict_proba(rows)
    each = expit(model.decision_function(rows))
    assert p.shape == (120, 4) and np.allclose(p, each / each.sum(axis=1, keepdims=True), rtol=1e-14)
    two = papers.SketchedNewton(3, loss="logistic", alpha0=1.0).update(rows, numbers > 1)
    positive = expit(two.decision_function(rows))
    assert np.array_equal(two.predict_proba(rows), np.stack([1 - positive, positive], axis=1))
    one = papers.SketchedNewton(3).update(rows[:5], ["a"] * 5)
    assert np.array_equal(one.predict_proba(rows), np.ones((120, 1)))
    assert one.predict(rows).tolist() == ["a"] * 120
    with pytest.raises(ValueError, match="predict_proba needs a loss of labels, this model has loss='square'"):
        papers.SketchedNewton(3, loss="square").update(rows, numbers).predict_proba(rows)


def test_what_a_model_without_rows_or_labels_says():
    model = papers.SketchedNewton(3)
    assert model.classes.shape == (0,) and papers.SketchedNewton(3, loss="square").classes is None
    model.update(np.zeros((0, D)), [])
    assert model.n_features == D and model.n_rows == 0
    with pytest.raises(ValueError, match="has seen no labels"):
        model.predict(np.ones((2, D)))
    rows, numbers = stream()
    assert np.array_equal(
        model.update(rows, NAMES[numbers]).coef, papers.SketchedNewton(3).update(rows, NAMES[numbers]).coef
    )


def test_a_refused_batch_leaves_all_states_as_they_were():
    rows, numbers = stream()
    model = papers.SketchedNewton(3, constraint=None).update(rows, numbers)
    before = model.to_bytes()
    with pytest.raises(FloatingPointError, match="the coefficients left the range of numbers in row 123"):
        model.update(np.vstack([rows[:2], 1e308 * np.ones((1, D))]), [9, 0, 1])
    assert model.to_bytes() == before and model.classes.tolist() == [0, 1, 2, 3]


def test_comparators_are_of_two_classes():
    rows, numbers = stream(k=2)
    w = np.ones(D)
    plain = papers.SketchedNewton(3).compare_with(w).update(rows, np.where(numbers == 1, 1, -1)).progress["regret"]
    for labels in (numbers, np.array(["a", "b"])[numbers]):
        assert (
            papers.SketchedNewton(3, classes=np.unique(labels)).compare_with(w).update(rows, labels).progress["regret"]
            == plain
        )
    model = papers.SketchedNewton(3).compare_with(w)
    first = int(np.flatnonzero(numbers != numbers[0])[0])
    names = np.array(["a", "b"] if numbers[0] == 0 else ["b", "a"])  # the first one is not the positive one
    with pytest.raises(ValueError, match=f"row {first} is the first to show .* 'b': give classes"):
        model.update(rows, names[numbers])
    model = papers.SketchedNewton(3).compare_with(w).update(rows, numbers)
    before = model.to_bytes()
    with pytest.raises(ValueError, match="row 2 has a third label, 2, and the comparator is of two classes"):
        model.update(rows[:3], [0, 2, 3])
    assert model.to_bytes() == before
    with pytest.raises(ValueError, match="one vector is for two classes, and there are 4"):
        papers.SketchedNewton(3, classes=range(4)).compare_with(w)


# -- files -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s, a: s["labels"]["known"].append("plum"), "knows 5 labels, and the rows of 4"),
        (lambda s, a: s["labels"]["known"].__setitem__(0, "apple"), "knows 4 labels"),
        (lambda s, a: s["labels"]["counts"].__setitem__(0, 1000), "rows of all classes must lie in"),
        (lambda s, a: s["labels"]["counts"].__setitem__(0, -1), "at least 0"),
        (lambda s, a: s["labels"].update(kind="complex"), "of the kind 'complex'"),
        (lambda s, a: s["labels"].update(known=[1, "a", 2, 3]), "numbers or strings"),
        (lambda s, a: s["signs"].pop(), "it has the signs"),
        (lambda s, a: s["signs"].__setitem__(1, 0.5), "it has the signs"),
        (lambda s, a: a["tally"].__setitem__(MISTAKES, 1000), "mistakes must lie in"),
        (lambda s, a: a.pop("1.base"), "array 'base' is missing"),
        (lambda s, a: a.update({"9.base": a["1.base"]}), "'9.base' does not belong"),
        (lambda s, a: a.update({"1.base": a["1.base"][:3]}), "array 'base' has shape"),
        (lambda s, a: a["tally"].__setitem__(SHARED, np.nan), "sums of losses"),
        (lambda s, a: a.pop("tally"), "tally"),
    ],
)
def test_files_of_strangers_are_checked(change, message):
    rows, numbers = stream()
    model = papers.SketchedNewton(3).update(rows, NAMES[numbers])
    state, arrays = model._state()
    import copy

    state, arrays = copy.deepcopy(state), {name: array.copy() for name, array in arrays.items()}
    change(state, arrays)
    with pytest.raises(Exception, match=message):
        papers.SketchedNewton(3)._validate(state, arrays)


def test_a_file_of_real_targets_has_no_labels():
    rows, numbers = stream()
    state, arrays = papers.SketchedNewton(3).update(rows, numbers)._state()
    with pytest.raises(ValueError, match="it has labels, and loss='square' takes real targets"):
        papers.SketchedNewton(3, loss="square")._validate(state, arrays)


@pytest.mark.parametrize("rows", [[{}, {}, {}], sparse.csr_array((3, 4))])
def test_classes_without_a_feature(rows):
    model = fs.SketchedNewton(3, fit_intercept=False).update(rows, ["a", "b", "c"])
    assert model.coef.shape == (3, 4 if sparse.issparse(rows) else 0)
    assert np.allclose(model.predict_proba(rows), 1 / 3) and model.predict(rows).tolist() == ["a"] * 3
    assert fs.from_bytes(model.to_bytes()).n_rows == 3


@pytest.mark.parametrize("blend", [None, False])
@pytest.mark.parametrize("d", [1, 3])
def test_batches_without_a_row(blend, d):
    model = fs.SketchedNewton(3, blend=blend).update(np.empty((0, d)), [])
    assert model.n_rows == 0 and model.n_features == d
    model.update(np.ones((2, d)), [0, 1])
    before = model.to_bytes()
    assert model.update(np.empty((0, d)), []).to_bytes() == before and model.last_scores.shape == (0,)
