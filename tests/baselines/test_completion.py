"""The methods of the GLRL paper's tables: each reaches what its problem allows."""

import json
import pickle

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.baselines import ADMML1, AISImpute, AltMin, WibergL1


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
        (lambda: AISImpute(1.0, penalty=2.0), TypeError, "it is 'penalty_strength' now"),
        (lambda: AltMin(2, inner=3), TypeError, "it is 'inner_steps' now"),
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
        AISImpute(0.5, max_iterations=5),
        AltMin(2, loss="logistic", max_iterations=3),
        ADMML1(1.0, max_iterations=4),
        WibergL1(2, max_iterations=1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_they_are_kept_as_every_model_is(model, tmp_path):
    assert fs.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()
    assert repr(model).endswith("not fitted>") and model.n_features is None and model.history == []
    truth, _, x = problem(m=12, n=9, share=0.8)
    x.data = np.sign(x.data)
    model.fit(x)
    model.notes["what"] = "test"
    model.save(tmp_path / "m.fsk")
    for other in (fs.load(tmp_path / "m.fsk"), pickle.loads(pickle.dumps(model)), model.copy()):
        assert np.array_equal(scores(other, truth.shape), scores(model, truth.shape))
        assert other.history == model.history and other.parameters == model.parameters
        assert other.to_bytes() == model.to_bytes()
    facts = json.loads(json.dumps(model.facts()))
    assert (facts["kind"], facts["n_rows"], facts["n_features"]) == (type(model).__name__, 12, 9)
    assert facts["objective"] == model.history[-1]["objective"] and facts["iterations"] == len(model.history)
    assert facts["iterations"] <= model.max_iterations + isinstance(model, WibergL1)
    # what has never been seen has no score
    assert np.array_equal(model.decision_function([-1, 0], [0, -1]), [0.0, 0.0])
    state, arrays = model._state()
    with pytest.raises(ValueError, match="'b'"):
        model._validate(state, {**arrays, "b": arrays["b"][:, :0]})
    # a refused or interrupted fit loses nothing
    before = model.to_bytes()
    with pytest.raises(ValueError, match="finite"):
        model.fit(np.array([[1.0, np.inf]]))
    with pytest.raises(ZeroDivisionError):
        model.fit(x, callback=lambda line: 1 / 0)
    assert model.to_bytes() == before
