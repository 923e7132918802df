"""EASERecommender against fs.SketchedEASE and scikit-learn's checks."""

import inspect
import pickle

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")
import sklearn  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import Binarizer  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

import fastsketch as fs  # noqa: E402
from fastsketch.data import Triples  # noqa: E402
from fastsketch.recommending.ranking import ndcg_at  # noqa: E402
from fastsketch.sklearn import EASERecommender  # noqa: E402
from tests.helpers import same_state  # noqa: E402

NOT_WITH_DECAY = {
    name: "decay counts rows: repeated ones make the others older (and three rows of a sketch are few)"
    for name in ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data")
}


@parametrize_with_checks(
    [
        EASERecommender(),
        EASERecommender(ridge=2.0),
        EASERecommender(32, ridge=1.0, method="rfd", activity_power=0.0),
        EASERecommender(3, decay=0.99, random_state=None),
    ],
    expected_failed_checks=lambda estimator: {} if estimator.decay == 1.0 else NOT_WITH_DECAY,
)
def test_estimator_check(estimator, check):
    check(estimator)


def users(n=400, items=80, seed=0):
    """Draw (rows of users CSR who like one fifth of the items each, which of the items each likes)."""
    rng = np.random.default_rng(seed)
    taste = rng.integers(5, size=(n, 1)) == np.arange(items) % 5
    return sparse.csr_array((rng.random((n, items)) < np.where(taste, 0.5, 0.05)).astype(float)), taste


X, TASTE = users()


def test_it_is_the_model():
    ours = EASERecommender(20, random_state=5).fit(X)
    model = fs.SketchedEASE(20, seed=5, dtype="float64").update(X)
    assert same_state(ours.model_, model)
    parts = EASERecommender(20, random_state=5)
    for start in range(0, 400, 90):
        parts.partial_fit(X[start : start + 90])
    assert (parts.n_samples_seen_, parts.n_features_in_) == (400, 80)
    assert np.allclose(parts.popularity_, model.popularity)
    assert ours.ridge_ == model.facts()["ridge"] > 0
    assert np.array_equal(ours.decision_function(X[:9]), model.decision_block(X[:9]))
    for options in ({}, {"exclude_seen": False}, {"allow": [3, 4, 5, 60]}, {"exclude": X[5:14]}):
        found, expected = ours.recommend(X[:9], 6, **options), model.recommend(X[:9], 6, **options)
        assert np.array_equal(found.items, expected.items)
        assert np.array_equal(found.scores, expected.scores, equal_nan=True)
    again = pickle.loads(pickle.dumps(ours))
    assert np.array_equal(again.decision_function(X), ours.decision_function(X))


def test_the_dtype_is_that_of_the_rows():
    model = EASERecommender(20, ridge=5.0).fit(X.astype(np.float32))
    assert same_state(model.model_, fs.SketchedEASE(20, ridge=5.0, dtype="float32").update(X))
    assert model.decision_function(X[:3]).dtype == np.float32
    assert EASERecommender(20).fit((X > 0).astype(np.int8)).model_.resolved["dtype"] == np.float64


def test_dense_rows_are_sparse_rows():
    dense, wide = EASERecommender(20, ridge=5.0).fit(X.toarray()), EASERecommender(20, ridge=5.0).fit(X)
    assert same_state(dense.model_, wide.model_)
    assert np.array_equal(dense.recommend(X[:5].toarray()).items, wide.recommend(X[:5]).items)
    assert dense.score(X.toarray()) == wide.score(X)


def test_names_and_defaults_are_those_of_the_model():
    theirs = {name: p.default for name, p in inspect.signature(fs.SketchedEASE).parameters.items()}
    mine = {name: p.default for name, p in inspect.signature(EASERecommender).parameters.items()}
    assert mine.pop("random_state") == theirs.pop("seed")
    theirs.pop("dtype")  # that of X
    assert mine == theirs
    model = clone(EASERecommender(9, ridge=3.0, activity_power=0.25))
    assert model.get_params()["activity_power"] == 0.25


def test_fit_forgets_and_partial_fit_does_not():
    model = EASERecommender(10, ridge=1.0).fit(X)
    model.fit(X[:, :30])
    assert (model.n_samples_seen_, model.n_features_in_) == (400, 30)
    model.partial_fit(X[:7, :30])
    assert model.n_samples_seen_ == 407
    with pytest.raises(ValueError, match="ridge is 2.0 but learning began with ridge=1.0"):
        model.set_params(ridge=2.0).partial_fit(X[:, :30])
    before = model.set_params(ridge=1.0).n_samples_seen_
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X)
    assert model.n_samples_seen_ == before


def test_the_score_is_ndcg_of_what_was_hidden():
    """Hide one of five items of each row: by hand, with the list that is recommended without it."""
    rows, _ = users(60, 40, seed=3)
    model = EASERecommender(16, ridge=5.0).fit(X[:, :40])
    five = sparse.csr_array(rows.toarray() * (np.cumsum(rows.toarray(), axis=1) <= 5))
    five.eliminate_zeros()
    five = five[np.flatnonzero(np.diff(five.indptr) == 5)]
    possible = []  # the NDCG of each user for each item that may be the hidden one
    for i in range(five.shape[0]):
        row = five[[i]].toarray()
        values = []
        for item in np.flatnonzero(row[0]):
            shown, hidden = row.copy(), np.zeros_like(row)
            shown[0, item], hidden[0, item] = 0, 1
            values.append(ndcg_at(model.recommend(shown, 20).items, hidden)[0])
        possible.append(values)
    low, high = np.mean([[min(values), max(values)] for values in possible], axis=0)
    assert low < model.score(five) < high
    assert model.score(five) == model.score(five) == EASERecommender(16, ridge=5.0).fit(X[:, :40]).score(five)
    alone = [model.score(five[[i]]) for i in range(4)]
    assert all(any(np.isclose(value, one) for one in values) for value, values in zip(alone, possible, strict=False))
    assert EASERecommender(16, ridge=5.0, random_state=1).fit(X[:, :40]).score(five) != model.score(five)
    # users with one item or none do not count, explicit zeros are none
    more = sparse.vstack([five, sparse.csr_array((3, 40)), sparse.csr_array(np.eye(2, 40))], format="csr")
    more.data[-1] = 0
    assert low < model.score(more) < high
    with pytest.raises(ValueError, match="two items"):
        model.score(np.eye(3, 40))


def test_weights_of_the_score_and_of_the_fit():
    weights = np.r_[np.ones(200), np.zeros(200)]
    model = EASERecommender(20, ridge=5.0).fit(X)
    assert model.score(X, sample_weight=np.full(400, 3.0)) == pytest.approx(model.score(X))
    assert model.score(X, sample_weight=weights) != model.score(X)
    weighted = EASERecommender(80, ridge=5.0).fit(X, sample_weight=weights)
    halved = EASERecommender(80, ridge=5.0).fit(X[:200])
    assert np.allclose(weighted.decision_function(X), halved.decision_function(X))
    with pytest.raises(ValueError, match="sample_weight"):
        model.fit(X, sample_weight=np.ones(3))
    with pytest.raises(ValueError, match="[Nn]egative"):
        model.fit(X, sample_weight=-np.ones(400))


def test_a_grid_search_over_users():
    paths = {"ridge": [0.1, 30.0, 1e9], "sketch_size": [4, 20]}
    search = GridSearchCV(EASERecommender(), paths, cv=3).fit(X[:300])
    assert search.best_params_["sketch_size"] == 20 and search.best_params_["ridge"] < 1e9
    items = search.best_estimator_.recommend(X[300:], 5).items
    assert np.take_along_axis(TASTE[300:], items, axis=1).mean() > 0.9
    popular = cross_val_score(EASERecommender(4, ridge=1e9), X, cv=3).mean()
    assert cross_val_score(EASERecommender(20), X, cv=3).mean() > popular + 0.1


def test_weights_are_routed():
    with sklearn.config_context(enable_metadata_routing=True):
        model = EASERecommender(20).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(model, {"ridge": [3.0, 30.0]}, cv=2)
        search.fit(X, sample_weight=np.arange(400.0))
        plain = GridSearchCV(EASERecommender(20), {"ridge": [3.0, 30.0]}, cv=2).fit(X)
        assert not np.allclose(search.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"])


def test_the_last_step_of_a_pipeline():
    counts = X * 3.0
    clipped = make_pipeline(Binarizer(), EASERecommender(20)).fit(counts)
    assert same_state(clipped[-1].model_, EASERecommender(20).fit(X).model_)
    assert clipped.score(counts) == EASERecommender(20).fit(X).score(X)


@pytest.mark.parametrize(
    "parameters",
    [
        {"sketch_size": 1},
        {"ridge": 0.0},
        {"method": "x"},
        {"activity_power": 2.0},
        {"decay": 0.0},
        {"reservoir_size": -1},
    ],
)
def test_bad_parameters_are_named(parameters):
    with pytest.raises((TypeError, ValueError), match=next(iter(parameters))):
        EASERecommender(**parameters).fit(X)


def test_bad_rows():
    with pytest.raises(ValueError, match="Negative values"):
        EASERecommender().fit(-X)
    with pytest.raises(ValueError, match="NaN"):
        EASERecommender().fit(X.toarray() * np.nan)
    with pytest.raises(TypeError, match="did you mean 'ridge'"):
        EASERecommender(rigde=1.0)
    model = EASERecommender(4, ridge=1.0).fit(X)
    assert (model.recommend(X[:1], 500).items[0, 80:] == -1).all()
    assert (model.recommend(sparse.csr_array((1, 80)), 3).items >= 0).all()  # a user without items: the popular ones
    with pytest.raises(IndexError, match="allow"):
        model.recommend(X[:1], allow=[80])


def test_tables_by_ids():
    rows = sparse.csr_array((np.random.default_rng(0).random((120, 30)) < 0.2).astype(np.float32))
    users, items = rows.nonzero()
    table = Triples([f"user {i}" for i in users], [f"item {j}" for j in items])
    model = EASERecommender(16).fit(table)
    plain = EASERecommender(16).fit(table.matrix().astype(np.float32))
    names = list(table.item_ids)
    assert list(model.item_ids_) == names
    assert plain.item_ids_ is None
    assert model.recommend(table, 3).items.tolist() == [
        [names[j] for j in line] for line in plain.recommend(table.matrix(), 3).items
    ]
    assert np.array_equal(model.decision_function(table), plain.decision_function(table.matrix()))
    assert model.score(table) == plain.score(table.matrix())
    model.partial_fit({"somebody": ["new", "item 3"]})
    assert (model.n_features_in_, model.n_samples_seen_) == (31, 121)
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"user": [1, 2], "item": [1, 2], "n": [1.0, 2.0]})
    with pytest.raises(ValueError, match="may be a table of users"):
        EASERecommender(4).fit(frame)
    assert EASERecommender(4).fit(Triples.of(frame)).n_features_in_ == 2
