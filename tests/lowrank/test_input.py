"""Input, parameters and queries that a low-rank model refuses, by name."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.reference.baselines import ADMML1, AltMin
from tests.broken import BROKEN, whole
from tests.lowrank.problems import greedy, problem, stored


@pytest.mark.parametrize(
    ("x", "loss", "error", "match"),
    [
        (sparse.csr_array((3, 3)), "square", ValueError, "at least one observation"),
        (np.array([[1.0, np.inf], [1, 2]]), "square", ValueError, "finite"),
        (sparse.csr_array(np.array([[1.0, np.nan]])), "square", ValueError, r"entry \(0, 1\)"),
        (np.array([[1.0, 2.0]]), "logistic", ValueError, "labels -1 and"),
        (np.array([[1.0, 2.0]]), "squared_hinge", ValueError, "labels -1 and"),
        (np.array([[1.0, -2.0]]), "poisson", ValueError, "nonnegative counts"),
        (np.array([[1j, 2.0]]), "square", TypeError, "real"),
        (np.ones(3), "square", ValueError, "two dimensions"),
        (np.ma.masked_array(np.ones((2, 2))), "square", TypeError, "masked"),
        (sparse.coo_array((np.ones(2), ([0, 0], [1, 1])), shape=(2, 2)), "square", ValueError, "more than once"),
        (
            sparse.csr_array((np.ones(2), np.array([1, 1]), np.array([0, 2, 2])), shape=(2, 2)),
            "square",
            ValueError,
            "more than once",
        ),
    ],
)
def test_bad_input_is_named(x, loss, error, match):
    with pytest.raises(error, match=match):
        greedy(1, loss).fit(x)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"rank": -1}, ValueError, "rank"),
        ({"rank": 2.0}, TypeError, "rank"),
        ({"loss": "x"}, ValueError, "loss"),
        ({"refine": "x"}, ValueError, "refine"),
        ({"biases": 1}, TypeError, "biases"),
        ({"loss_parameter": 1.0}, ValueError, "loss_parameter"),
        ({"loss": "quantile", "loss_parameter": 1.0}, ValueError, "loss_parameter"),
        ({"loss": "huber", "loss_parameter": 0.0}, ValueError, "loss_parameter"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate"),
        ({"learning_rate": 1.1}, ValueError, "learning_rate"),
        ({"sweeps": -1}, ValueError, "sweeps"),
        ({"ridge": -1.0}, ValueError, "ridge"),
        ({"step_rule": "x"}, ValueError, "step_rule"),
        ({"ridg": 0.5}, TypeError, "did you mean 'ridge'"),
        ({"clip": 3}, TypeError, "clip"),
        ({"clip": (2, 1)}, ValueError, "clip"),
        ({"dtype": "int8"}, ValueError, "dtype"),
        ({"inner_tolerance": 0.0}, ValueError, "inner_tolerance"),
        ({"max_inner_rank": 0}, ValueError, "max_inner_rank"),
        ({"seed": -1}, ValueError, "seed"),
    ],
)
def test_bad_parameters_are_named(options, error, match):
    with pytest.raises(error, match=match):
        fs.LowRankModel(**{"rank": 2, **options})


def test_bad_queries_are_named():
    o, seen = problem()
    model = greedy(2)
    with pytest.raises(ValueError, match="not been fitted"):
        model.predict([0], [0])
    with pytest.raises(ValueError, match="at most min"):
        greedy(26).fit(stored(o, seen))
    model.fit(stored(o, seen))
    for call, error, match in (
        (lambda: model.predict([30], [0]), IndexError, "rows must lie in"),
        (lambda: model.predict([0], [-2]), IndexError, "columns must lie in"),
        (lambda: model.predict([0.5], [0]), TypeError, "integers"),
        (lambda: model.predict([0, 1], [0]), ValueError, "same shape"),
        (lambda: model.fold_in(np.ones((2, 24))), ValueError, "25 columns"),
        (lambda: model.fold_in(np.ones((2, 25)), axis=2), ValueError, "axis"),
        (lambda: model.recommend([0], 0), ValueError, "n must"),
        (lambda: model.predict(np.array([2**63], np.uint64), [0]), IndexError, "never seen, got 9223372036854775808"),
        (lambda: model.recommend([0], exclude=sparse.csr_array((2, 25))), ValueError, "exclude"),
        (lambda: model.recommend([0], exclude=np.ones((1, 25))), TypeError, "exclude must be a scipy.sparse"),
        (lambda: model.recommend([0], allow=[3, 25, -1]), IndexError, r"allow must lie in \[0, 25\), got -1, 25"),
        (lambda: model.recommend([0], allow=["a"]), TypeError, "allow must be integers"),
        (lambda: model.fold_in(np.ones((2, 25))).recommend(allow=[99]), IndexError, "allow must lie in"),
        (lambda: model.similar(-1), ValueError, "index"),
        (lambda: model.similar(0, axis=2), ValueError, "axis"),
        (lambda: model.add_ranks(30), ValueError, "at most min"),
        (lambda: model.fit(stored(o, seen), patience=3), ValueError, "validation"),
        (lambda: model.fit(stored(o, seen)[:, :1]), ValueError, r"min\(m, n\) = 1 for 30 rows and 1 columns, got 2"),
        (lambda: model.fit(stored(o, seen), validation=True), TypeError, "a share of the entries, .* got True"),
        (lambda: model.fit(row for row in o), TypeError, r"X must be an array, not a generator: np\.array\(list\("),
        (
            lambda: model.fit(stored(o, seen), validation=stored(o, seen & (np.arange(25) < 3))),
            ValueError,
            r"validation has \d+ entries of X, the first is entry \(0, \d\): take them out of X",
        ),
        (
            lambda: fs.LowRankModel(validation=0.1),
            TypeError,
            r"LowRankModel\(\) has no parameter 'validation': fit takes",
        ),
        (lambda: model.fit(stored(o, seen), validation=1.5), ValueError, r"validation must lie in \(0, 1\)"),
    ):
        with pytest.raises(error, match=match):
            call()
    assert greedy(1).fit(sparse.csr_array(np.array([[2.0]]))).predict([0], [0]) == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("name", BROKEN)
def test_matrices_that_are_not_consistent_are_refused(name):
    good = whole()
    model = fs.LowRankModel(2).fit(good)
    folded = model.fold_in(good)
    for call, what in (
        (lambda bad: model.fit(bad), "X"),
        (lambda bad: model.fit(good, sample_weight=bad), "sample_weight"),
        (lambda bad: model.fit(good, validation=bad), "validation"),
        (lambda bad: model.fold_in(bad), "X"),
        (lambda bad: model.recommend(np.arange(len(good.indptr) - 1), exclude=bad), "exclude"),
        (lambda bad: folded.recommend(exclude=bad), "exclude"),
        (lambda bad: AltMin(2).fit(bad), "X"),
    ):
        with pytest.raises(ValueError, match=f"^{what} is not a consistent"):
            call(BROKEN[name]())


@pytest.mark.parametrize(("dtype", "most"), [(np.float64, 1e149), (np.float32, 1e17)])
def test_squares_that_leave_the_range_are_refused(dtype, most):
    """Up to the limit all predictions are numbers; the model is as it was where X is refused."""
    o, seen = problem()
    x = stored(o, seen).astype(np.float64)
    x.data *= most / np.abs(x.data).max()
    model = greedy(2, "square").fit(x.astype(dtype))
    before = model.predict([3], [4])
    assert np.isfinite(model.complete()).all()
    for larger in (100 * x, 1e4 * x):
        with pytest.raises(
            ValueError, match=r"squares of X must not sum up to more than 1e\+(300|36) .* a value is 1e"
        ):
            model.fit(larger.astype(dtype))
    assert model.predict([3], [4]) == before


def test_too_large_for_the_method():
    with pytest.raises(ValueError, match="X is too large: the squares"):
        ADMML1(0.1).fit(np.array([[1e308, -1e308], [1e308, 1e308]]))


def test_numbers_too_large_for_float32_are_named():
    x = np.array([[1.0, 2.0], [3.0, 1e300]])
    with pytest.raises(ValueError, match=r"entry \(1, 1\) is 1e\+300 \(as float32\)"):
        fs.LowRankModel(1, dtype="float32").fit(x)
    with pytest.raises(ValueError, match=r"sample_weight must be 0 or from 1e-30 .* entry \(1, 1\) is 1e\+300"):
        fs.LowRankModel(1, dtype="float32").fit(np.ones((2, 2)), sample_weight=x)
    with pytest.raises(ValueError, match="sample_weight must have the shape of X"):
        fs.LowRankModel(1).fit(x, sample_weight=[1.0, 2.0])
    fs.LowRankModel(1).fit(x / 1e300)


@pytest.mark.parametrize("loss", ["square", "huber", "absolute", "quantile", "epsilon_insensitive"])
def test_values_whose_squares_leave_the_range_are_refused(loss):
    rng = np.random.default_rng(8)
    rows = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 8))
    rows[rng.random(rows.shape) < 0.2] = np.nan
    expected = fs.LowRankModel(2, loss=loss).fit(rows).complete()
    for unit in (2.0**-450, 2.0**450):
        found = fs.LowRankModel(2, loss=loss).fit(unit * rows).complete()
        assert np.allclose(found / unit, expected, rtol=1e-6, atol=1e-9)
    for unit, remedy in ((1e-160, "scale X up"), (1e160, "scale X down")):
        with pytest.raises(ValueError, match=f"squares of X .*{loss}.*{remedy}"):
            fs.LowRankModel(2, loss=loss).fit(unit * rows)
    assert not fs.LowRankModel(1, loss=loss).fit(np.zeros((4, 3))).complete().any()
