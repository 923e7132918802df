"""Weights of rows in all online learners: rows of weight 0 leave no trace, and only ratios of weights matter."""

import warnings

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
import fastsketch.sklearn as estimators

LABELS = ("logistic", "squared_hinge")
LOSSES = (*LABELS, "square", "huber", "absolute")
NEWTON = [
    *((fs.SketchedNewton, {"loss": loss}) for loss in LOSSES),
    (fs.SketchedNewton, {"loss": "square", "scale": None, "alpha0": 1.0}),
    (fs.SketchedNewton, {"loss": "square", "method": "fd", "alpha0": 1.0}),
    (fs.SketchedNewton, {"loss": "square", "method": "pfd", "alpha0": 1.0, "constraint": "both"}),
    (fs.SketchedNewton, {"loss": "logistic", "class_weight": "balanced"}),
    (fs.SketchedNewton, {"loss": "logistic", "fit_intercept": False, "calibrate": False}),
]
ADAPTIVE = [
    *((fs.AdaptiveSubgradient, {"loss": loss}) for loss in LOSSES),
    *(
        (fs.AdaptiveSubgradient, {"loss": "square", "method": method})
        for method in ("ada_fd", "ada_full", "ada_diag", "fd_son", "ogd", "adam")
    ),
    (fs.AdaptiveSubgradient, {"loss": "square", "form": "dual_averaging", "penalty": "l2", "penalty_strength": 0.01}),
    (fs.AdaptiveSubgradient, {"loss": "logistic", "penalty": "l1", "penalty_strength": 0.01}),
]
TIME = [
    (kind, {"loss": loss, **more})
    for kind in (fs.SketchedNewton, fs.AdaptiveSubgradient)
    for loss in ("logistic", "square")
    for more in ({"decay": 0.99}, {"decay": "auto"})
]
MODELS = [*NEWTON, *ADAPTIVE, *TIME]
FORMS = ("dense", "csr", "open", "names", "table")
ESTIMATORS = [
    *((kind, {"loss": loss}) for kind in ("SketchedNewton", "AdaptiveSubgradient") for loss in LOSSES),
    *((kind, {"loss": "logistic", "epochs": 2}) for kind in ("SketchedNewton", "AdaptiveSubgradient")),
    *((kind, {"loss": "square", "decay": "auto"}) for kind in ("SketchedNewton", "AdaptiveSubgradient")),
    ("SketchedNewton", {"loss": "logistic", "class_weight": "balanced"}),
    ("SketchedNewton", {"loss": "logistic", "class_weight": {"a": 3.0}}),
]


def name_of(model):
    kind, parameters = model
    return "-".join([kind if isinstance(kind, str) else kind.__name__, *map(str, parameters.values())])


def stream(n=150, *, of_labels, n_classes=2, seed=0):
    """Rows of which a third have weight 0, with values 1000 times as large, classes and columns of their own."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, 6)) * (rng.random((n, 6)) < 0.7)
    rows[:, 5] = 0.0
    scores = rows[:, :3] @ rng.standard_normal((3, n_classes)) + 0.3 * rng.standard_normal((n, n_classes))
    weights = rng.integers(1, 4, n) * (rng.random(n) > 1 / 3)
    weights[0], bad = 0.0, weights == 0
    rows[bad] = 1000 * rng.standard_normal((bad.sum(), 6))
    y = np.array(list("abcd"))[scores.argmax(axis=1)] if of_labels else scores[:, 0]
    y[bad] = "d" if of_labels else 1e6
    return rows, y, weights.astype(float)


def in_form(rows, form, first=0):
    if form == "dense":
        return rows
    if form == "table":
        pd = pytest.importorskip("pandas")
        return pd.DataFrame(rows, columns=[f"x{j}" for j in range(rows.shape[1])])
    if form == "names":
        return [{f"x{j}": value for j, value in enumerate(row) if value} for row in rows.tolist()]
    return sparse.csr_array(rows)


def made(model, form):
    kind, parameters = model
    return kind(**parameters, **({"open_columns": True} if form == "open" else {}))


def taken(rows, form, chosen):
    return [rows[i] for i in chosen] if form == "names" else rows.iloc[chosen] if form == "table" else rows[chosen]


def of_labels(model):
    return model[1]["loss"] in LABELS


def takes(model, form):
    sparse_form = model[1].get("method") != "ada_full" and model[1].get("penalty") != "l1"
    return sparse_form or form in ("dense", "table")


each_model_in_each_form = pytest.mark.parametrize(
    ("model", "form"),
    [
        pytest.param(model, form, id=f"{name_of(model)}-{form}")
        for model in MODELS
        for form in FORMS
        if takes(model, form)
    ],
)


@each_model_in_each_form
def test_a_row_of_weight_0_leaves_the_model_as_it_was(model, form):
    """Bitwise, whether rows come in one batch, in some, or one at a time; the other rows get the same scores."""
    for n_classes in (2, 3) if of_labels(model) and not model[1].get("penalty") else (2,):
        rows, y, weights = stream(of_labels=of_labels(model), n_classes=n_classes)
        rows, kept = in_form(rows, form), np.flatnonzero(weights)
        alone = made(model, form).update(taken(rows, form, kept), y[kept], sample_weight=weights[kept])
        expected = alone.to_bytes()
        for step in (len(y), 7, 1):
            other, scores = made(model, form), []
            for first in range(0, len(y), step):
                places = range(first, min(first + step, len(y)))
                some = taken(rows, form, places)
                other.update(some, y[list(places)], sample_weight=weights[list(places)])
                scores.append(other.last_scores)
            assert other.to_bytes() == expected, (step, n_classes)
            assert other.n_rows == len(kept)
            if step == len(y):
                assert np.array_equal(scores[0][kept], alone.last_scores, equal_nan=True)
                assert np.isnan(scores[0][weights == 0]).all()


@each_model_in_each_form
def test_weights_of_1_are_none(model, form):
    rows, y, weights = stream(of_labels=of_labels(model))
    kept = np.flatnonzero(weights)
    rows, y = taken(in_form(rows, form), form, kept), y[kept]
    without, ones, single = (made(model, form) for _ in range(3))
    without.update(rows, y)
    ones.update(rows, y, sample_weight=np.ones(len(y)))
    for i in range(len(y)):
        single.update(taken(rows, form, [i]), y[[i]], sample_weight=1.0 if i % 2 else None)
    assert np.array_equal(without.coef, ones.coef) and np.array_equal(without.coef, single.coef)
    assert np.array_equal(without.last_scores, ones.last_scores)


@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_only_ratios_of_weights_matter(model):
    """Weights in units of a power of two give the same bits; in other units nearly so, and rows learn as before."""
    rows, y, weights = stream(of_labels=of_labels(model))
    base = made(model, "dense").update(rows, y, sample_weight=weights)
    for unit in (2.0**-60, 2.0**20, 2.0**60):
        other = made(model, "dense")
        for first in range(0, len(y), 40):
            batch = slice(first, first + 40)
            other.update(rows[batch], y[batch], sample_weight=unit * weights[batch])
        assert np.array_equal(other.coef, base.coef) and np.array_equal(other.intercept, base.intercept)
        back = fs.from_bytes(other.to_bytes())
        for one in (other, back):  # what a file keeps is enough to go on
            one.update(rows[:30], y[:30], sample_weight=unit * weights[:30])
        assert np.array_equal(other.coef, back.coef)


@pytest.mark.parametrize("model", ESTIMATORS, ids=name_of)
@pytest.mark.parametrize("form", ["dense", "csr"])
def test_estimators(model, form):
    """``fit`` leaves out rows of weight 0 in everything, epochs and validation too, and only ratios matter to it."""
    kind, parameters = model
    make = getattr(estimators, kind + ("Classifier" if of_labels(model) else "Regressor"))
    rows, y, weights = stream(600, of_labels=of_labels(model))
    rows, kept = in_form(rows, form), np.flatnonzero(weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = [
            make(**parameters).fit(rows, y, sample_weight=weights),
            make(**parameters).fit(rows[kept], y[kept], sample_weight=weights[kept]),
            make(**parameters).fit(rows, y, sample_weight=2.0**30 * weights),
        ]
        ones = [make(**parameters).fit(rows[kept], y[kept], sample_weight=w) for w in (None, np.ones(len(kept)))]
    for other in fitted[1:]:
        assert np.array_equal(fitted[0].coef_, other.coef_) and fitted[0].n_iter_ == other.n_iter_
        assert fitted[0].n_samples_seen_ == other.n_samples_seen_ == len(kept) * other.n_iter_
    if of_labels(model):
        assert np.array_equal(fitted[0].classes_, ["a", "b"])
    assert np.array_equal(ones[0].coef_, ones[1].coef_)
    with pytest.raises(ValueError, match="[Ss]ample.weight.* (positive|non-zero)"):
        make(**parameters).fit(rows, y, sample_weight=np.zeros(600))
    more = {"classes": ["a", "b", "d"]} if of_labels(model) else {}
    whole = make(**parameters).partial_fit(rows, y, sample_weight=weights, **more)
    without = make(**parameters).partial_fit(rows[kept], y[kept], sample_weight=weights[kept], **more)
    assert np.array_equal(whole.coef_, without.coef_) and whole.n_samples_seen_ == len(kept)


def test_a_class_of_weight_0_is_left_out():
    rows, y, _ = stream(of_labels=True, n_classes=3)
    kept = y != "c"
    for kind in (fs.SketchedNewton, fs.AdaptiveSubgradient):
        model = kind(class_weight={"c": 0.0}).update(rows, y)
        other = kind(class_weight={"c": 0.0}).update(rows[kept], y[kept])
        assert model.to_bytes() == other.to_bytes() and "c" not in model.classes
    make = estimators.SketchedNewtonClassifier
    one = make(class_weight={"c": 0.0}).fit(rows, y)
    assert np.array_equal(one.classes_, sorted(set(y))) and "c" not in one.predict(rows)


@pytest.mark.parametrize("kind", [fs.SketchedNewton, fs.AdaptiveSubgradient])
def test_a_refused_batch_changes_nothing(kind):
    """Also where the row that is refused comes after rows of weight 0: the message counts all rows."""
    rows, y, weights = stream(of_labels=False)
    model = kind(loss="square", scale=None, fit_intercept=False).update(rows, y, sample_weight=weights)
    before = model.to_bytes()
    bad = rows[:4].copy()
    bad[3] = 1e200
    with pytest.raises(FloatingPointError, match=rf"in row {model.n_rows + 4}\b") as caught:
        model.update(bad, y[:4], sample_weight=[0, 1, 0, 1])
    assert "alpha0" not in str(caught.value) and "take" not in str(caught.value)
    assert model.to_bytes() == before
    with pytest.raises(ValueError, match="the sum of all weights so far must be below"):
        model.update(rows[:2], y[:2], sample_weight=1.7e308)
    with pytest.raises(ValueError, match="finite"):  # what is not learned from is looked at all the same
        model.update(np.full((1, 6), np.nan), y[:1], sample_weight=0.0)
    assert model.to_bytes() == before


def test_errors_name_parameters_that_were_given():
    rows, y = np.full((3, 2), 1e160), np.arange(3.0)
    for model, word in (
        (fs.SketchedNewton(loss="square", scale=None, alpha0=1.0), "alpha0"),
        (fs.AdaptiveSubgradient(loss="square", scale=None, learning_rate=1.0), "a smaller learning_rate"),
        (fs.AdaptiveSubgradient(loss="square", scale=None, delta=1.0), "a larger delta"),
    ):
        with pytest.raises(FloatingPointError, match=f"take .*{word}"):
            model.update(rows, y)
    for model in (fs.SketchedNewton(loss="square", scale=None), fs.AdaptiveSubgradient(loss="square", scale=None)):
        with pytest.raises(FloatingPointError, match="divide the rows or the targets by a constant"):
            model.update(rows, y)


def test_amounts_as_weights():
    """Weights of 2e5 to 2e7 fit as well as the same weights divided by their mean, in a stream too."""
    rng = np.random.default_rng(0)
    coef = np.array([1.0, -2.0, 0.0, 0.5])
    rows = rng.standard_normal((3000, 4))
    y = rows @ coef + 0.1 * rng.standard_normal(3000)
    weights = np.exp(rng.uniform(np.log(2e5), np.log(2e7), 3000))
    for loss in ("square", "huber", "absolute"):
        for kind in ("SketchedNewton", "AdaptiveSubgradient"):
            make, model = getattr(estimators, kind + "Regressor"), getattr(fs, kind)
            errors = [
                np.abs(make(loss=loss).fit(rows, y, sample_weight=weights).coef_ - coef).max(),
                np.abs(make(loss=loss).fit(rows, y, sample_weight=weights / weights.mean()).coef_ - coef).max(),
                np.abs(model(loss=loss).update(rows, y, sample_weight=weights).coef - coef).max(),
            ]
            assert abs(errors[0] - errors[1]) < 1e-6, (loss, kind, errors)
            assert errors[2] < 0.1, (loss, kind, errors)


@pytest.mark.parametrize("sums", [[1.0], [-1.0, 3], ["a", 1], [1.0, 10**6], 3, [float("inf"), 3], [1.0, True]])
def test_damaged_sums_of_weights_are_refused(sums):
    rows, y, weights = stream(of_labels=False)
    model = fs.SketchedNewton(loss="square").update(rows, y, sample_weight=weights)
    assert fs.from_bytes(model.to_bytes())._model_state.weight_sums == model._model_state.weight_sums
    with pytest.raises((fs.StateError, TypeError, ValueError)):
        fs.from_bytes(_bytes_with(model, sums))


def _bytes_with(model, sums):
    state, arrays = model._state()
    state["weights"] = sums
    model._state = lambda: (state, arrays)
    return model.to_bytes()
