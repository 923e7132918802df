"""LowRankCompleter and LowRankFactors: scikit-learn's checks, and the model behind them."""

import inspect

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")
from sklearn.base import clone  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

import fastsketch as fs  # noqa: E402
from fastsketch.data import Triples  # noqa: E402
from fastsketch.sklearn import LowRankCompleter, LowRankFactors  # noqa: E402


@parametrize_with_checks(
    [
        *(cls() for cls in (LowRankCompleter, LowRankFactors)),
        *(cls(3, loss="huber", sweeps=0) for cls in (LowRankCompleter, LowRankFactors)),
        LowRankFactors(2, biases=False, refine="full"),
    ]
)
def test_estimator_check(estimator, check):
    check(estimator)


def problem():
    """(truth, observed entries with NaN for the others, the same as CSR)."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 20))
    seen = rng.random(truth.shape) < 0.6
    rows, columns = np.nonzero(seen)
    x = sparse.csr_array(sparse.coo_array((truth[seen], (rows, columns)), shape=truth.shape))
    return truth, np.where(seen, truth, np.nan), x


def standardised(dense):
    """The columns less their means and divided by their deviations, as both estimators give them to the model."""
    return (dense - np.nanmean(dense, axis=0)) / np.nanstd(dense, axis=0)


def test_it_is_the_model():
    truth, dense, x = problem()
    one = LowRankFactors(3, sweeps=5, ridge=0.1, scaling=False).fit(dense)
    two = LowRankFactors(3, sweeps=5, ridge=0.1, scaling=False).fit(x)
    model = fs.LowRankModel(3, sweeps=5, ridge=0.1, scaling=False).fit(standardised(dense))
    np.testing.assert_allclose(one.components_, two.components_, atol=1e-6)
    np.testing.assert_allclose(one.components_, model.factors()[1].T, atol=1e-6)
    assert one.rank_ == model.selected_rank == 3
    filled = one.inverse_transform(one.transform(dense))
    # rows of the fit have the factors of the fit: what transform gives fills as the model predicts
    np.testing.assert_allclose((filled - one.mean_) / one.scale_, model.predict_block(np.arange(60)), atol=1e-4)
    assert np.array_equal(model.complete(), model.predict_block(np.arange(60)))
    assert np.abs(filled - truth)[np.isnan(dense)].mean() < 0.5
    assert one.transform(dense).shape == (60, 4)
    assert list(one.get_feature_names_out())[0] == "lowrankfactors0"
    with pytest.raises(ValueError, match="4 columns"):
        one.inverse_transform(np.ones((2, 3)))
    for cls in (LowRankCompleter, LowRankFactors):
        with pytest.raises(ValueError, match="infinity|inf"):
            cls(2).fit(np.where(truth > 1, np.inf, truth))


def test_a_completer_fills_what_is_missing_and_keeps_the_rest():
    truth, dense, x = problem()
    model = LowRankCompleter(3, sweeps=5, ridge=0.1, scaling=False)
    filled, seen = model.fit_transform(dense), ~np.isnan(dense)
    assert np.array_equal(filled[seen], dense[seen]) and np.isfinite(filled).all()
    complete = model.model_.complete() * model.scale_ + model.mean_
    assert np.allclose(filled[~seen], complete[~seen], atol=1e-4)
    np.testing.assert_allclose(model.transform(x), filled, atol=1e-9)
    assert np.abs(filled - truth)[~seen].mean() < 0.5
    assert list(model.get_feature_names_out([f"c{k}" for k in range(20)]))[:2] == ["c0", "c1"]
    # a new row without an entry is what the biases say of the columns
    level, _, columns = model.model_.bias_terms()
    expected = (level + columns) * model.scale_ + model.mean_
    assert np.allclose(model.transform(np.full((1, 20), np.nan)), expected)
    assert model.transform(dense[:3].astype(np.float32)).dtype == filled.dtype


def test_what_takes_too_much_memory_is_refused():
    model = fs.LowRankModel(2, ridge=0.1).fit(problem()[1])
    assert model.complete(max_memory=60 * 20 * 8).shape == (60, 20)
    with pytest.raises(
        ValueError, match=r"the 60 x 20 predictions take [\d,]+ bytes, more than max_memory=\d+: predict_block"
    ):
        model.complete(max_memory=60 * 20 * 8 - 1)
    with pytest.raises(ValueError, match="max_memory"):
        model.complete(max_memory=0)
    with pytest.raises(ValueError, match="call fit first"):
        fs.LowRankModel(2).complete()


def test_names_and_defaults_are_those_of_the_model():
    theirs = {name: p.default for name, p in inspect.signature(fs.LowRankModel).parameters.items()}
    mine = {name: p.default for name, p in inspect.signature(LowRankCompleter).parameters.items()}
    assert mine.pop("random_state") == theirs.pop("seed")
    theirs.pop("dtype")  # that of X
    of_the_gaussian = {"method": "auto", "max_features": 500, "max_iter": 10, "tol": 1e-3}
    assert {name: mine.pop(name) for name in of_the_gaussian} == of_the_gaussian
    assert mine == theirs
    factors = {name: p.default for name, p in inspect.signature(LowRankFactors).parameters.items()}
    assert factors.pop("random_state") == 0
    assert factors == theirs
    kinds = [p.kind for p in inspect.signature(LowRankCompleter).parameters.values()]
    assert all(kind is inspect.Parameter.KEYWORD_ONLY for kind in kinds[1:])


def test_random_state():
    _, dense, _ = problem()
    assert LowRankCompleter(2, random_state=5).fit(dense).model_.seed == 5
    for state in (None, np.random.RandomState(3)):
        assert 0 <= LowRankCompleter(2, random_state=state).fit(dense).model_.seed < 2**31
    seeds = [LowRankCompleter(2, random_state=np.random.RandomState(3)).fit(dense).model_.seed for _ in range(2)]
    assert seeds[0] == seeds[1]
    assert clone(LowRankCompleter(2, random_state=None)).random_state is None
    with pytest.raises(ValueError, match="random_state must be at least 0, got -1"):
        LowRankCompleter(2, random_state=-1).fit(dense)


def test_unknown_keywords_are_named():
    with pytest.raises(TypeError, match=r"LowRankCompleter\(\) has no parameter 'ridg': did you mean 'ridge'\?"):
        LowRankCompleter(ridg=1.0)


def test_tables_by_ids():
    rng = np.random.default_rng(0)
    rows, columns = np.nonzero(rng.random((30, 20)) < 0.5)
    values = rng.standard_normal(len(rows))
    table = Triples(rows, [f"item {j:02d}" for j in columns], values=values)
    model = LowRankFactors(2).fit(table)
    plain = fs.LowRankModel(2).fit(sparse.csr_array((values, (rows, columns)), shape=(30, 20)))
    assert np.array_equal(model.components_, plain.factors()[1].T) and model.scale_ is None
    assert list(model.column_ids_) == [f"item {j:02d}" for j in range(20)]
    new = {"me": {"item 03": 1.0, "unknown": 2.0}}
    expected = plain.fold_in(sparse.csr_array(([1.0], ([0], [3])), shape=(1, 20)))
    assert np.array_equal(model.transform(new), np.hstack([expected.factors, expected.biases[:, None]]))
    assert model.n_features_in_ == 20
    filled = LowRankCompleter(2).fit(table).transform({"me": {"item 03": 1.0, "unknown": 2.0}})
    assert filled.shape == (1, 20) and filled[0, 3] == 1.0


def test_columns_in_units_of_their_own_are_filled_as_standardised_ones():
    rng = np.random.default_rng(0)
    units, levels = np.geomspace(1e-4, 1e4, 12), np.linspace(-50, 3000, 12)
    plain = rng.standard_normal((300, 2)) @ rng.standard_normal((2, 12)) + 0.1 * rng.standard_normal((300, 12))
    X = levels + units * plain / plain.std(axis=0)
    gaps = rng.random(X.shape) < 0.2
    spread = X.std(axis=0)
    with_gaps = np.where(gaps, np.nan, X)
    model = LowRankCompleter(4).fit(with_gaps)
    filled = model.transform(with_gaps)
    np.testing.assert_array_equal(filled[~gaps], X[~gaps])
    # the mean of the column is 1 off
    assert np.sqrt(np.mean(((filled - X) / spread)[gaps] ** 2)) < 0.35
    np.testing.assert_allclose(model.scale_, np.nanstd(with_gaps, axis=0))
    np.testing.assert_allclose(model.mean_, np.nanmean(with_gaps, axis=0))
    # a sparse X of the same entries, and the factors
    at = np.nonzero(~gaps)
    stored = sparse.csr_array((X[at], at), shape=X.shape)
    np.testing.assert_allclose(LowRankCompleter(4).fit(stored).transform(stored), filled, rtol=1e-6)
    factors = LowRankFactors(4).fit(with_gaps)
    again = factors.inverse_transform(factors.transform(with_gaps))
    np.testing.assert_allclose((again / spread)[gaps], (filled / spread)[gaps], atol=1e-6)
    clipped = LowRankCompleter(4, clip=(0.0, 100.0)).fit(with_gaps).transform(with_gaps)
    assert clipped[gaps].min() >= 0 and clipped[gaps].max() <= 100


@pytest.mark.parametrize("cls", [LowRankCompleter, LowRankFactors])
def test_a_column_without_entries_is_refused_by_name(cls):
    X = np.random.default_rng(0).standard_normal((40, 4))
    X[:, 1] = np.nan
    with pytest.raises(ValueError, match="column 1 has no observed entry"):
        cls(2).fit(X)
    # of sparse rows, an item that nobody has: the mean of all entries
    at = np.nonzero(~np.isnan(X))
    filled = LowRankCompleter(2).fit_transform(sparse.csr_array((X[at], at), shape=X.shape))
    np.testing.assert_allclose(filled[:, 1], np.nanmean(X))


def in_units():
    """(a table of three factors in units from .001 to 1,000 with gaps, its entries without)."""
    rng = np.random.default_rng(0)
    whole = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 20)) * np.geomspace(1e-3, 1e3, 20)
    return np.where(rng.random(whole.shape) < 0.6, whole, np.nan), whole


@pytest.mark.parametrize("cls", [LowRankCompleter, LowRankFactors])
def test_units_are_saved_and_a_refused_fit_leaves_them(cls, tmp_path):
    X, _ = in_units()
    model = cls(3, clip=(-2000.0, 2000.0)).fit(X)
    before = model.transform(X)
    model.save(tmp_path / "model.fsk")
    again = cls.load(tmp_path / "model.fsk")
    np.testing.assert_array_equal(again.transform(X), before)
    np.testing.assert_array_equal(again.scale_, model.scale_)
    with pytest.raises((TypeError, ValueError)):
        model.set_params(sweeps=-1).fit(7 * X)
    np.testing.assert_array_equal(model.set_params(sweeps=4).transform(X), before)
    for clip in ("abc", (1.0,), (np.nan, 1.0), (5.0, 1.0)):
        with pytest.raises((TypeError, ValueError), match="clip"):
            cls(3, clip=clip).fit(X)


@pytest.mark.parametrize("level", [0.1, 1e6 + 0.1, -3.0, 0.0])
def test_a_column_of_one_number_is_filled_with_it(level):
    X, whole = in_units()
    spread = whole.std(axis=0)
    column = np.full(200, level)
    column[::7] = np.nan
    for options in ({"rank": 3, "sweeps": 10}, {"method": "gaussian"}):
        model = LowRankCompleter(**options).fit(np.column_stack([X, column]))
        assert model.scale_[-1] == 0
        filled = model.transform(np.column_stack([X, column]))
        assert (filled[:, -1] == level).all()
        assert (np.abs(filled[:, :-1] - whole) / spread).max() < 2


@pytest.mark.parametrize("power", [-163, 163])
def test_units_may_be_of_any_size(power):
    X, whole = in_units()
    X[:, 0] *= 10.0**power
    filled = LowRankCompleter(3, sweeps=10).fit_transform(X)
    assert np.isfinite(filled).all()
    wrong = np.abs(filled[:, 0] - whole[:, 0] * 10.0**power) / (whole[:, 0].std() * 10.0**power)
    assert wrong.max() < 2
