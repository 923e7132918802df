"""No loss depends on the unit of the targets: targets times a factor give answers times that factor."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import HuberRegressor

import fastsketch as fs
import fastsketch.sklearn as estimators

MODELS = [
    *((fs.SketchedNewton, {"loss": loss}) for loss in ("square", "huber", "absolute")),
    *((fs.SketchedNewton, {"loss": loss, "decay": decay}) for loss in ("square", "huber") for decay in (0.99, "auto")),
    (fs.SketchedNewton, {"loss": "huber", "fit_intercept": False}),
    (fs.SketchedNewton, {"loss": "huber", "sketch_size": 3}),
    *((fs.AdaptiveSubgradient, {"loss": loss}) for loss in ("square", "huber", "absolute")),
    *(
        (fs.AdaptiveSubgradient, {"loss": "huber", "method": method})
        for method in ("ada_fd", "ada_full", "ada_diag", "ogd")
    ),
    (fs.AdaptiveSubgradient, {"loss": "huber", "decay": "auto"}),
]
UNITS = (1e-9, 1e-3, 1e3, 1e9)


def name_of(model):
    return "-".join([model[0].__name__, *map(str, model[1].values())])


def stream(n=400, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, 4))
    y = rows @ [1.0, -2.0, 0.5, 3.0] + 5 + 0.3 * rng.standard_normal(n)
    y[rng.random(n) < 0.05] += 40
    return rows, y


def in_form(rows, form):
    if form == "names":
        return [{f"x{j}": value for j, value in enumerate(row)} for row in rows.tolist()]
    if form == "sparse":  # columns that most rows lack
        return sparse.csr_array(np.hstack([rows * (np.abs(rows) > 1), np.zeros((len(rows), 20))]))
    return rows


@pytest.mark.parametrize("step", [1, 400])
@pytest.mark.parametrize(
    ("model", "form"),
    [
        pytest.param(model, form, id=f"{name_of(model)}-{form}")
        for model in MODELS
        for form in ("dense", "sparse", "names")
        if form == "dense" or model[1].get("method") != "ada_full"  # which has no sparse form
    ],
)
def test_answers_have_the_unit_of_the_targets(model, form, step):
    kind, parameters = model
    rows, y = stream()
    rows, answers, errors = in_form(rows, form), [], []
    for unit in (1.0, *UNITS):
        one = kind(**parameters)
        for first in range(0, len(y), step):
            one.update(rows[first : first + step], unit * y[first : first + step])
        answers.append(one.predict(rows[:50]) / unit)
        errors.append(one.progress["mean_absolute_error"] / unit)
    for answer, error in zip(answers, errors, strict=True):
        assert np.abs(answer - answers[0]).max() <= 1e-6 * np.abs(y).max()
        assert abs(error - errors[0]) <= 1e-6 * errors[0]


@pytest.mark.parametrize("kind", ["SketchedNewtonRegressor", "AdaptiveSubgradientRegressor"])
@pytest.mark.parametrize("loss", ["square", "huber", "absolute"])
def test_estimators(kind, loss):
    rows, y = stream()
    fitted = [getattr(estimators, kind)(loss=loss).fit(rows, unit * y) for unit in (1.0, *UNITS)]
    for one, unit in zip(fitted, (1.0, *UNITS), strict=True):
        assert one.n_iter_ == fitted[0].n_iter_
        assert np.allclose(one.coef_ / unit, fitted[0].coef_, rtol=1e-6, atol=1e-9)
        assert np.isclose(one.intercept_ / unit, fitted[0].intercept_, rtol=1e-6)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("first", ["zeros", "a constant", "rounding"])
def test_the_threshold_follows_the_residuals(unit, first):
    """Rows with outliers are learned as by scikit-learn's M-estimator, also after targets that do not vary."""
    rows, y = stream(3000)
    before = {"zeros": np.zeros(50), "a constant": np.full(50, 5.0), "rounding": 5 + 1e-16 * np.arange(50)}[first]
    model = fs.SketchedNewton(loss="huber").update(rows[:50], unit * before).update(rows, unit * y)
    square = fs.SketchedNewton(loss="square").update(rows[:50], unit * before).update(rows, unit * y)
    peer = HuberRegressor().fit(rows, y)
    truth = np.array([1.0, -2.0, 0.5, 3.0, 5.0])
    error, of_square, of_peer = (
        np.abs(np.append(one.coef, one.intercept) / factor - truth).max()
        for one, factor in ((model, unit), (square, unit), (PeerModel(peer), 1.0))
    )
    assert error < 0.5 * of_square and error < 10 * of_peer + 0.1, (error, of_square, of_peer)


class PeerModel:
    def __init__(self, fitted):
        self.coef, self.intercept = fitted.coef_, fitted.intercept_
