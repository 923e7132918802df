"""Columns whose scale moves: a trend, two trends, one that stops, a counter that is reset, values that were rounding.

The peer is a linear regression by stochastic gradient descent of standardised columns and a standardised target, as
river has it (StandardScaler, TargetStandardScaler, LinearRegression with its defaults).
"""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs

MODELS = [
    *(
        (kind, {"loss": loss})
        for kind in (fs.SketchedNewton, fs.AdaptiveSubgradient)
        for loss in ("square", "huber", "absolute")
    ),
    *((kind, {"loss": "square", "decay": "auto"}) for kind in (fs.SketchedNewton, fs.AdaptiveSubgradient)),
]
MORE = [
    (fs.SketchedNewton, {"loss": "square", "blend": False}),
    (fs.SketchedNewton, {"loss": "square", "sketch_size": 3}),
    (fs.SketchedNewton, {"loss": "huber", "decay": 0.99}),
    (fs.SketchedNewton, {"loss": "square", "method": "rfd", "curvature": "loss"}),
    *(
        (fs.AdaptiveSubgradient, {"loss": "square", "method": method})
        for method in ("ada_fd", "ada_full", "ada_diag", "ogd")
    ),
    (fs.AdaptiveSubgradient, {"loss": "huber", "decay": 0.99, "sketch_size": 3}),
]
FORMS = ("dense", "names", "csr")


def each_model_in(*forms):
    """Parametrize by all models in the given forms of rows; "ada_full" has no sparse form."""
    return pytest.mark.parametrize(
        ("model", "form"),
        [
            pytest.param(model, form, id=f"{name_of(model)}-{form}")
            for model in (*MODELS, *MORE)
            for form in forms
            if form == "dense" or model[1].get("method") != "ada_full"
        ],
    )


def name_of(model):
    return "-".join([model[0].__name__, *map(str, model[1].values())])


def stream(kind, n, seed):
    """Return rows and targets with noise of deviation 5."""
    rng, i = np.random.default_rng(seed), np.arange(n)
    steps = {"stops": np.minimum(i, n // 2), "reset": i % (n // 3)}.get(kind, i)
    columns, y = [(1000.0 if kind == "reset" else 711_500.0) + 30 * steps], 112 + 374 * steps / n
    if kind == "two":
        other = rng.standard_normal(n)
        columns.append(1e9 + 86_400.0 * i + 3e5 * other)
        y = y + 10 * other
    return np.stack(columns, axis=1), y + 5 * rng.standard_normal(n)


def in_form(rows, form):
    if form == "names":
        return [{f"x{j}": value for j, value in enumerate(row)} for row in rows.tolist()]
    return sparse.csr_array(np.hstack([rows, np.zeros((len(rows), 9))])) if form == "csr" else rows


def last_fifth(scores, y):
    errors = np.abs(scores - y)[1:]
    return errors[-(len(errors) // 5) :].mean()


def peer(rows, y):
    n, d = rows.shape
    w, b, scores = np.zeros(d), 0.0, np.zeros(n)
    mean, spread, of_y, spread_of_y = np.zeros(d), np.zeros(d), 0.0, 0.0
    for t in range(n):
        deviation = np.sqrt(spread_of_y / max(t, 1))
        z = _standardised(rows[t], mean, spread, t)
        scores[t] = (w @ z + b) * deviation + of_y
        away = rows[t] - mean
        mean = mean + away / (t + 1)
        spread = spread + away * (rows[t] - mean)
        away_y = y[t] - of_y
        of_y += away_y / (t + 1)
        spread_of_y += away_y * (y[t] - of_y)
        z, deviation = _standardised(rows[t], mean, spread, t + 1), np.sqrt(spread_of_y / (t + 1))
        slope = 2 * (w @ z + b - ((y[t] - of_y) / deviation if deviation > 0 else 0.0))
        w, b = w - 0.01 * slope * z, b - 0.01 * slope
    return scores


def _standardised(row, mean, spread, n):
    deviations = np.sqrt(spread / max(n, 1))
    return np.where(deviations > 0, (row - mean) / np.where(deviations > 0, deviations, 1.0), 0.0)


@pytest.mark.parametrize("kind", ["trend", "two", "stops", "reset"])
@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_errors_are_those_of_a_standardised_regression(model, kind):
    """Rows come in batches, which give the bits of single rows (below)."""
    for n, most in ((144, 1.3), (1000, 1.1)):
        errors, of_peer = {form: [] for form in FORMS}, []
        for seed in range(20 if n < 1000 else 5):
            rows, y = stream(kind, n, seed)
            of_peer.append(last_fifth(peer(rows, y), y))
            for form, found in errors.items():
                one = model[0](**model[1]).update(in_form(rows, form), y)
                found.append(last_fifth(one.last_scores, y))
        for form, found in errors.items():
            assert np.mean(found) <= most * np.mean(of_peer), (n, form, np.mean(found), np.mean(of_peer))


@each_model_in(*FORMS)
def test_any_split_and_any_resume_has_the_same_bits(model, form):
    rows, y = stream("two", 150, 0)
    rows[60:70, 0], rows[70:, 0] = 1e-3 * rows[60:70, 0], 1e7 * rows[70:, 0]
    rows = in_form(rows, form)
    expected = None
    for step in (150, 17, 1):
        one, scores = model[0](**model[1]), []
        for first in range(0, 150, step):
            one.update(rows[first : first + step], y[first : first + step])
            scores.append(one.last_scores)
            one = fs.from_bytes(one.to_bytes()) if first % 3 == 0 else one
        found = one.to_bytes(), np.concatenate(scores)
        expected = expected or found
        assert found[0] == expected[0] and np.array_equal(found[1], expected[1])
    scores = one.predict(rows)
    assert np.isfinite(scores).all()
    if form != "names":
        assert np.allclose(rows @ one.coef + one.intercept, scores, rtol=1e-5, atol=1e-5 * np.abs(scores).max())


@each_model_in("dense", "names")
def test_a_scale_that_moves_changes_no_answer(model, form):
    """Weights are expressed in the new scale: the same rows get the same scores, to rounding."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((600, 3))
    y = rows @ [1.0, -2.0, 0.5] + 7 + 0.1 * rng.standard_normal(600)
    one = model[0](**model[1]).update(in_form(rows, form), y)
    other = one.copy()
    other._model_state = kept = one._model_state.copied()
    kept.enlarge_arrays()
    # as if the present scale had been found when the columns varied less, or more
    kept.inputs.steady[0, :3] += [0.1, 0.0, -0.3]
    kept.inputs.steady[1, :3] = np.array([1.0, 0.6, 1.9]) * kept.inputs.steady[1, :3].mean()
    before = other.predict(in_form(rows, form))
    kept._rescale()
    other._coef = None
    assert np.abs(other.predict(in_form(rows, form)) - before).max() <= 1e-9 * np.abs(before).max()
    other.update(in_form(rows, form), y)
    assert np.isfinite(other.predict(in_form(rows, form))).all()


@each_model_in("dense", "names")
@pytest.mark.parametrize("tiny", [0.0, 1e-17, 1e-300, 1e-9])
def test_first_values_that_are_rounding_set_no_scale(model, form, tiny):
    """A column of 1e-17 in the first rows, beside values of 1 later, is learned nearly as one of zeros."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((400, 2))
    rows[:20, 1] *= tiny
    y = rows @ [1.0, 2.0] + 0.1 * rng.standard_normal(400)
    made = [{"a": a, "b": b} for a, b in rows.tolist()] if form == "names" else rows
    one = model[0](**model[1]).update(made, y)
    assert last_fifth(one.last_scores, y) < (0.6 if model[1].get("method") == "ogd" else 0.25)


def test_a_constant_column_with_rounding_is_none():
    rng = np.random.default_rng(0)
    rows = np.stack([rng.standard_normal(300), 0.1 + 1e-17 * rng.integers(0, 3, 300)], axis=1)
    y = rows[:, 0] + 0.1 * rng.standard_normal(300)
    for kind in (fs.SketchedNewton, fs.AdaptiveSubgradient):
        one = kind(loss="square").update(rows, y)
        assert one.coef[1] == 0.0 and abs(one.coef[0] - 1) < 0.1


@pytest.mark.parametrize("kind", [fs.SketchedNewton, fs.AdaptiveSubgradient])
def test_a_column_that_some_row_lacks(kind):
    """A row that lacks a column counts as one of its mean, and is learned from without harm to the others."""
    rng = np.random.default_rng(0)
    rows = [{"date": 1e6 + 30 * i, "x": rng.standard_normal(), f"word{i % 7}": 1.0} for i in range(500)]
    y = np.array([row["x"] + (row["date"] - 1e6) / 3000 for row in rows]) + 0.1 * rng.standard_normal(500)
    one = kind(loss="square").update(rows, y)
    before = one.predict(rows[-50:])
    one.update({"x": 0.0}, 2.5)
    assert abs(one.last_scores[0] - 2.5) < 1.5
    assert np.abs(one.predict(rows[-50:]) - before).mean() < 0.5
    assert fs.from_bytes(one.to_bytes()).update(rows, y).to_bytes() == one.update(rows, y).to_bytes()


def test_refused_rows_leave_no_trace():
    rows, y = stream("two", 100, 0)
    for kind in (fs.SketchedNewton, fs.AdaptiveSubgradient):
        for form in FORMS:
            given, one = in_form(rows, form), kind(loss="square")
            one.update(given[:50], y[:50])
            before = one.to_bytes()
            bad = rows[:4].copy()
            bad[1] *= 1e4
            bad[3] = 1e200
            with pytest.raises(FloatingPointError):
                one.update(in_form(bad, form), y[:4])
            assert one.to_bytes() == before
