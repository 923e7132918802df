"""The methods of the GLRL paper's tables: each reaches what its problem allows."""

import contextlib

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.reference.baselines import ADMML1, AISImpute, AltMin, WibergL1


def problem(m=40, n=30, rank=2, share=0.6, seed=0, outliers=0.0):
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    seen = rng.random((m, n)) < share
    o = truth + (rng.random((m, n)) < outliers) * 10 * rng.standard_normal((m, n))
    rows, columns = np.nonzero(seen)
    return truth, seen, sparse.csr_array(sparse.coo_array((o[seen], (rows, columns)), shape=(m, n)))


def scores(model, shape):
    rows, columns = np.indices(shape).reshape(2, -1)
    return model.decision_function(rows, columns).reshape(shape)


@pytest.mark.parametrize(
    "model", [AISImpute(0.1, tol=1e-9, max_iterations=2000), AltMin(2, ridge=1e-3, tol=1e-9, max_iterations=2000)]
)
def test_they_complete_a_low_rank_matrix(model):
    truth, _, x = problem()
    assert np.abs(scores(model.fit(x), truth.shape) - truth).max() < 0.15
    f = [line["objective"] for line in model.history]
    assert f[-1] < 0.2 * f[0]


def test_ais_impute_solves_its_convex_problem():
    """Optimality: the gradient lies in penalty times the subdifferential of the nuclear norm."""
    truth, seen, x = problem(rank=3)
    model = AISImpute(2.0, tol=1e-12, max_iterations=3000).fit(x)
    z = scores(model, truth.shape)
    g = np.where(seen, z - x.toarray(), 0.0)
    u, s, vt = np.linalg.svd(z)
    r = int((s > 1e-6 * s[0]).sum())
    assert np.allclose(u[:, :r].T @ -g @ vt[:r].T, 2.0 * np.eye(r), atol=1e-3)
    assert np.linalg.norm(g, 2) <= 2.0 + 1e-3


def test_labels():
    truth, seen, x = problem(m=80, n=60, share=0.7)
    x.data = np.sign(x.data)
    for model in (AISImpute(1.0, loss="logistic"), AltMin(2, loss="logistic", ridge=0.1)):
        z = scores(model.fit(x), truth.shape)
        assert np.mean(np.sign(z[~seen]) == np.sign(truth[~seen])) > 0.85
        p = model.predict_proba([0, 1], [2, 3])
        assert ((p > 0) & (p < 1)).all()
        assert np.array_equal(model.predict([0, 1], [2, 3]), np.where(p > 0.5, 1.0, -1.0))


def test_methods_of_the_absolute_loss_ignore_outliers():
    truth, seen, x = problem(m=20, n=15, share=0.9, outliers=0.05)
    for model in (WibergL1(2, max_iterations=15), ADMML1(1.0, tol=1e-9, max_iterations=2000)):
        z = scores(model.fit(x), truth.shape)
        assert np.median(np.abs(z - truth)) < 0.1
    f = [line["objective"] for line in WibergL1(2, max_iterations=5).fit(x).history]
    assert (np.diff(f) <= 1e-9).all()


def test_bad_input():
    with pytest.raises(ValueError, match="at least one"):
        AltMin(2).fit(sparse.csr_array((3, 3)))
    with pytest.raises(ValueError, match="rank"):
        WibergL1(0)
    with pytest.raises(ValueError, match="penalty"):
        AISImpute(-1.0)
    for call, error, match in (
        (lambda: AltMin(2).predict([0], [0]), ValueError, "call fit first"),
        (lambda: AltMin(2).fit(problem()[2]).predict([40], [0]), IndexError, "rows must lie in"),
        (lambda: AltMin(2).fit(problem()[2]).predict_proba([0], [0]), ValueError, "loss='logistic' alone"),
        (lambda: AltMin(2, loss="logistic").fit(problem()[2]), ValueError, "labels"),
    ):
        with pytest.raises(error, match=match):
            call()
    stopped = AltMin(2).fit(problem()[2], callback=lambda line: True)
    assert len(stopped.history) == 1


@pytest.mark.parametrize(
    "model",
    [
        AISImpute(0.3, loss="logistic", biases=True, tol=1e-9, max_iterations=1000),
        AISImpute(0.3, biases=True, tol=1e-9, max_iterations=1000),
        AltMin(2, biases=True, bias_ridge=0.5, ridge=0.1, max_iterations=2000),
        AltMin(2, loss="logistic", biases=True, ridge=0.1, max_iterations=2000),
        ADMML1(1.0, biases=True, tol=1e-9, max_iterations=1000),
        WibergL1(2, biases=True, max_iterations=4),
    ],
    ids=lambda model: f"{type(model).__name__}-{model.parameters.get('loss', 'absolute')}",
)
def test_biases_are_those_of_a_low_rank_model_and_predictions_have_them(model):
    truth, seen, x = problem(m=25, n=18, share=0.7)
    rng = np.random.default_rng(1)
    level = 1.5 + rng.standard_normal((25, 1)) + rng.standard_normal(18)
    x.data += level[seen]
    loss = model._loss_name()
    if loss == "logistic":
        x.data = np.where(x.data > 0, 1.0, -1.0)
    z = scores(model.fit(x), truth.shape)
    other = fs.LowRankModel(0, loss=loss, ridge=1.0, bias_ridge=model.bias_ridge).fit(x)
    for mine, theirs in zip(model.bias_terms(), other.bias_terms(), strict=True):
        assert np.allclose(mine, theirs, rtol=1e-12, atol=1e-12)
    assert model.resolved["bias_ridge"] == other.resolved["bias_ridge"]
    level, row, column = model.bias_terms()
    a, b = model.factors()
    assert np.allclose(z, level + row[:, None] + column + a @ b.T, rtol=1e-12)
    # for a row or column never seen the biases of the other answer
    found = model.decision_function([-1, 3, -1], [2, -1, -1])
    assert np.allclose(found, [level + column[2], level + row[3], level])
    # what was fitted is the scores with the biases in them: the objective is that of z, and a bias alone is worse
    if loss == "absolute":
        return
    value = (lambda z: np.logaddexp(0, -x.data * z)) if loss == "logistic" else (lambda z: 0.5 * (z - x.data) ** 2)
    penalty = (
        0.3 * np.linalg.svd(a @ b.T, compute_uv=False).sum()
        if isinstance(model, AISImpute)
        else 0.05 * other.facts()["penalty"] * ((a**2).sum() + (b**2).sum())
    )
    assert np.isclose(model.history[-1]["objective"], value(z[seen]).sum() + penalty, rtol=1e-9)
    assert model.history[-1]["objective"] < value((level + row[:, None] + column)[seen]).sum()


def test_biases_help_where_rows_and_columns_have_levels():
    truth, seen, x = problem(rank=1, share=0.3)
    rng = np.random.default_rng(1)
    level = 3.0 + 2 * rng.standard_normal((40, 1)) + 2 * rng.standard_normal(30)
    x.data += level[seen]
    for make in (lambda biases: AISImpute(3.0, biases=biases), lambda biases: AltMin(1, ridge=1.0, biases=biases)):
        plain, with_biases = (
            np.abs(scores(make(biases).fit(x), truth.shape) - truth - level)[~seen].mean() for biases in (False, True)
        )
        assert with_biases < 0.9 * plain


@pytest.mark.parametrize(
    "model",
    [
        AISImpute(0.5, max_iterations=5),
        AISImpute(0.5, max_iterations=5, biases=True, loss="logistic"),
        AltMin(2, loss="logistic", max_iterations=3),
        AltMin(2, max_iterations=3, biases=True, bias_ridge=0.7),
        ADMML1(1.0, max_iterations=4),
        WibergL1(2, max_iterations=1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_refused_or_interrupted_fit_loses_nothing(model):
    truth, _, x = problem(m=12, n=9, share=0.8)
    x.data = np.sign(x.data)
    model.fit(x)
    assert (model.shape, len(model.history) <= model.max_iterations + isinstance(model, WibergL1)) == ((12, 9), True)
    # what has never been seen has no score but that of biases
    assert np.array_equal(model.decision_function([-1, 0], [0, -1]) != 0.0, [model.biases, model.biases])
    _, row, column = model.bias_terms()
    assert (row.shape, column.shape) == ((12,), (9,)) and (model.biases or not (row.any() or column.any()))
    before, history = scores(model, truth.shape), model.history
    with pytest.raises(ValueError, match="finite"):
        model.fit(np.array([[1.0, np.inf]]))
    with pytest.raises(ZeroDivisionError):
        model.fit(x, callback=lambda line: 1 / 0)
    assert np.array_equal(scores(model, truth.shape), before) and model.history == history


def test_alternating_steps_over_squares_that_are_infinite_end():
    x = sparse.csr_array(np.full((6, 5), 1e272))
    with np.errstate(all="ignore"), contextlib.suppress(np.linalg.LinAlgError):  # as LAPACK has it
        AltMin(2, max_iterations=3).fit(x)


@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_alternating_steps_do_not_depend_on_the_scale_of_the_data(scale):
    truth, _, x = problem(m=25, n=18, share=0.7)
    for options in ({}, {"ridge": 0.3, "biases": True}):
        one, other = (AltMin(2, max_iterations=40, **options).fit(c * x) for c in (1.0, scale))
        assert np.allclose(scores(other, truth.shape), scale * scores(one, truth.shape), rtol=1e-9, atol=1e-9 * scale)
