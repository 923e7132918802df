"""SketchedEASE against the formula with items x items matrices, and what a stream may do to it."""

import gzip
import re
import warnings

import numpy as np
import pytest
import scipy
from scipy import sparse
from scipy.io import loadmat

import fastsketch as fs
from fastsketch import reference
from fastsketch.data.files import _state as state_files
from fastsketch.recommending import _item_weights
from fastsketch.ridge import _held_out as held_out
from tests.helpers import same_state, tol
from tests.reliability import states

ITEMS = 40


def users(seed=0, n=300, items=ITEMS, dtype=np.float64):
    """Draw CSR rows of users with tastes of their own, popular items first."""
    rng = np.random.default_rng(seed)
    taste = rng.random((n, 4)) ** 4 @ rng.random((4, items)) ** 3
    likely = np.linspace(1.2, 0.2, items) * taste
    return sparse.csr_array((rng.random((n, items)) < likely).astype(dtype) * rng.integers(1, 4, (n, items)))


def gram(rows, weights):
    dense = rows.toarray().astype(np.float64)
    return dense.T @ (dense * weights[:, np.newaxis])


def powers(rows, power):
    squares = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
    return np.where(squares > 0, squares, 1.0) ** -power


def apart(model, rows, weights):
    """Return the largest difference of scores from those of weights (items, items)."""
    return np.abs(model.decision_block(rows) - rows @ weights).max()


# -- against the reference -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["isvd", "rfd"])
@pytest.mark.parametrize("power", [0.0, 0.5])
def test_with_as_many_rows_as_items_it_is_ease(method, power):
    rows = users()
    given = np.random.default_rng(1).random(300) + 0.5
    for dropout in (0.0, 0.25):
        parameters = {"activity_power": power, "dropout": dropout, "dtype": "float64"}
        model = fs.SketchedEASE(ITEMS + 2, method=method, ridge=2.0, **parameters)
        model.update(rows[:100], given[:100]).update(rows[100:], given[100:])
        whole = gram(rows, given * powers(rows, power))
        # each event forgotten with probability p: the diagonal p / (1 - p) times more
        exact = reference.ease(whole + dropout / (1 - dropout) * np.diag(np.diag(whole)), 2.0)
        assert apart(model, rows, exact) < 1e-12
    assert np.allclose(model.popularity, np.diag(gram(rows, given * powers(rows, power))), rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", ["isvd", "rfd"])
@pytest.mark.parametrize("n", [300, 12])
def test_weights_are_those_of_the_reference(method, dtype, n):
    rows = users(n=n)
    rows = rows[np.diff(rows.indptr) > 0]  # others never reach the sketch
    model = fs.SketchedEASE(12, method=method, ridge=2.0, activity_power=0.0, dropout=0.0, dtype=dtype).update(rows)
    sketch = fs.FrequentDirections(12, method=method, solver="gram", dtype=dtype).update(rows)
    squares = np.diag(gram(rows, np.ones(rows.shape[0])))
    wanted = reference.sketched_ease(sketch.sketch(), squares, ridge=2.0, lost=sketch.shrinkage)
    assert apart(model, rows, wanted) < tol(dtype, 100)
    assert model.decision_block(rows).dtype == dtype


def test_dense_rows_and_other_formats_are_the_same():
    rows = users()
    models = [fs.SketchedEASE(12).update(form) for form in (rows, rows.toarray(), rows.tocsc(), rows.tocoo())]
    assert all(same_state(models[0], model) for model in models[1:])
    one = models[0].recommend(rows[[0]].toarray().ravel(), 3)
    assert np.array_equal(one.items, models[0].recommend(rows[[0]], 3).items)
    if tuple(map(int, scipy.__version__.split(".")[:2])) >= (1, 15):  # which has sparse arrays of one dimension
        assert np.array_equal(one.items, models[0].recommend(rows[0], 3).items)


# -- streams -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("decay", [1.0, 0.97, 0.1])
def test_batches_do_not_matter(decay):
    rows = users()
    rows = rows.tolil()
    rows[[7, 8, 120]] = 0  # users without events age what came before
    rows = sparse.csr_array(rows)
    whole = fs.SketchedEASE(12, decay=decay, reservoir_size=30, dtype="float64").update(rows)
    parts = fs.SketchedEASE(12, decay=decay, reservoir_size=30, dtype="float64")
    for start, stop in ((0, 1), (1, 7), (7, 8), (8, 150), (150, 300)):
        parts.update(rows[start:stop])
        parts = fs.from_bytes(parts.to_bytes())
    assert parts.to_bytes() == whole.to_bytes()
    assert np.array_equal(whole.popularity, parts.popularity)
    assert np.array_equal(whole.decision_block(rows), parts.decision_block(rows))


@pytest.mark.parametrize("reservoir_size", [0, 25, 500])
def test_decay_and_fading_are_weights(reservoir_size):
    rows = users()
    parameters = {"activity_power": 0.0, "dropout": 0.0, "dtype": "float64", "reservoir_size": reservoir_size}
    parameters["kept_events"] = 0
    model = fs.SketchedEASE(ITEMS + 2, decay=0.99, **parameters)
    model.update(rows[:40]).update(rows[40:200]).fade(0.5).update(rows[200:])
    weights = 0.99 ** np.arange(299, -1, -1.0) * np.where(np.arange(300) < 200, 0.5, 1.0)
    assert np.allclose(model.popularity, np.diag(gram(rows, weights)), rtol=1e-12)
    exact = reference.ease(gram(rows, weights), model.facts()["ridge"])
    assert apart(model, rows, exact) < 1e-11


@pytest.mark.parametrize("decay", [1.0, 0.9, 0.1])
def test_merges_are_as_one_pass(decay):
    rows = users()
    parameters = {"activity_power": 0.0, "dropout": 0.0, "dtype": "float64", "reservoir_size": 20, "decay": decay}
    parameters["kept_events"] = 0
    one, two = (fs.SketchedEASE(ITEMS + 2, **parameters).update(part) for part in (rows[:180], rows[180:]))
    other = two.copy().merge(one)
    one.merge(two)
    assert one.n_rows == 300 and len(one._held) == 20
    assert np.array_equal(one._held.key, other._held.key)  # which are held out does not depend on the order
    assert (one._held.rows != other._held.rows).nnz == 0
    weights = np.concatenate([decay ** np.arange(179, -1, -1.0), decay ** np.arange(119, -1, -1.0)])
    wanted = reference.ease(gram(rows, weights), one.facts()["ridge"])
    assert apart(one, rows, wanted) < 1e-10 and apart(other, rows, wanted) < 1e-10


@pytest.mark.parametrize("strength", [1.0, 2.0])
def test_merges_in_any_order_hold_out_the_same_users(strength):
    """Few items, so that many users in the same place have as many of them, or the same."""
    rows = users(items=6)
    others = rows * 2.0 if strength == 2.0 else rows[:, ::-1].tocsr()
    one, two = (fs.SketchedEASE(12, reservoir_size=50, activity_power=0.0).update(part) for part in (rows, others))
    assert not np.isin(one._held.key, two._held.key).all() or strength == 2.0
    both = one.copy().merge(two)._held, two.copy().merge(one)._held
    assert np.array_equal(both[0].key, both[1].key)
    assert np.array_equal(both[0].rows.toarray(), both[1].rows.toarray())


def test_merging_into_an_empty_model_takes_all():
    model = fs.SketchedEASE(12).update(users())
    assert same_state(fs.SketchedEASE(12).merge(model), model)
    assert same_state(model.copy().merge(fs.SketchedEASE(12)), model)


def test_users_held_out_are_a_uniform_sample():
    """Count each of 300 places over 200 seeds: as chance has it; a second part with the same seed differs."""
    rows = users()
    able = np.flatnonzero(np.diff(rows.indptr) >= 2)
    counts = np.zeros(300)
    for seed in range(200):
        key = held_out.sampling_keys(rows, 0, seed)
        counts[able[np.argsort(key[able])[:100]]] += 1
    expected = 200 * 100 / len(able)
    assert (counts[able] > expected - 6 * expected**0.5).all() and (counts[able] < expected + 6 * expected**0.5).all()
    mine, theirs = held_out.sampling_keys(rows, 0, 0), held_out.sampling_keys(users(1), 0, 0)
    assert abs(np.corrcoef(mine.astype(float), theirs.astype(float))[0, 1]) < 0.2


def test_users_of_a_large_batch_are_held_out_as_in_small_ones():
    rows = users(n=10_000)
    batches = (rows[start : start + 1000] for start in range(0, 10_000, 1000))
    at_once, one_by_one = fs.SketchedEASE(8).update(rows), fs.SketchedEASE(8)
    for batch in batches:
        one_by_one.update(batch)
    assert same_state(at_once, one_by_one)


# -- the ridge -----------------------------------------------------------------------------------------------------
def test_the_ridge_is_chosen_on_users_held_out():
    rows = users(n=1000)
    model = fs.SketchedEASE(12, dtype="float64").update(rows)
    facts = model.facts()
    path = facts["ridge_path"]
    assert path["n_users"] == 200 and path["ridge"] == facts["ridge"] == model.resolved["ridge"]
    best = int(np.argmax(path["scores"]))
    taken = path["ridges"].index(path["ridge"])
    assert np.all(np.diff(path["ridges"]) > 0) and 0 < path["standard_errors"][best] < 0.05
    assert path["scores"][best] - path["scores"][taken] < path["standard_errors"][best]
    # the users are learned from all the same
    fixed = fs.SketchedEASE(ITEMS + 2, ridge=facts["ridge"], dtype="float64").update(rows)
    chosen = fs.SketchedEASE(ITEMS + 2, dtype="float64", kept_events=0).update(rows)
    chosen.select_ridge(users(5), [facts["ridge"]])
    assert np.abs(fixed.decision_block(rows) - chosen.decision_block(rows)).max() < 1e-11


class Users:
    """Figures of ten users at ridges of 3 sqrt(10)^step units, as a function of the step."""

    def __init__(self, figure):
        self.figure, self.steps = figure, []

    def scores(self, ridge):
        step = round(2 * np.log10(ridge / 3.0))
        self.steps.append(step)
        return np.array([self.figure(step, user) for user in range(10)])


def test_a_path_ends_where_ridges_are_worse_again():
    trial = Users(lambda step, user: 1.0 - 0.01 * (step - 4) ** 2)
    path = _item_weights.search_ridge(trial, 1.0)
    assert path.ridge == pytest.approx(3.0 * 10.0**2) and max(trial.steps) == 5 and len(set(trial.steps)) == 7
    # no better by more than chance has it: the middle
    wild = Users(lambda step, user: 0.001 * step * (step < 3) + 0.1 * np.sin(7 * step + user))
    assert _item_weights.search_ridge(wild, 1.0).ridge == pytest.approx(3.0)
    # nor does it go on for ever
    assert _item_weights.search_ridge(Users(lambda step, user: step), 1.0).ridge <= 1e6
    assert _item_weights.evaluate_ridges(Users(lambda step, user: 0.5), [1.0, 7.0, 2.0]).ridge == 7.0


def test_few_users_choose_no_ridge():
    model = fs.SketchedEASE(12).update(users(n=60))
    facts = model.facts()
    assert "ridge_path" not in facts and facts["ridge"] == pytest.approx(
        3 * model.popularity[model.popularity > 0].mean()
    )


def test_the_ridge_follows_the_units():
    rows = users(n=600)
    one, other = (fs.SketchedEASE(12, dtype="float64").update(rows * c) for c in (1.0, 64.0))
    assert other.facts()["ridge"] == pytest.approx(64.0 * one.facts()["ridge"])  # of power 1/2
    assert np.array_equal(one.recommend(rows).items, other.recommend(rows).items)


def test_select_ridge_overrides_and_is_saved():
    rows = users(n=600)
    model = fs.SketchedEASE(12).update(rows)
    before = model.to_bytes()
    path = model.select_ridge(users(3), [1.0, 1e3, 1e6])
    assert np.array_equal(path.ridges, [1.0, 1e3, 1e6]) and path.n_users > 250
    assert model.resolved["ridge"] == model.copy().update(rows).resolved["ridge"] == path.ridge
    assert model.facts()["ridge"] == path.ridge and model.to_bytes() != before
    again = fs.from_bytes(model.to_bytes())
    assert again.facts() == model.facts()
    assert model.select_ridge(users(3)).scores.max() >= path.scores.max() - 0.02
    positive = "positive numbers"
    for wrong, message in (([], positive), ([0.0], positive), ([1.0, -1.0], positive), ([np.nan], "finite")):
        with pytest.raises(ValueError, match=message):
            model.select_ridge(users(3), wrong)
    with pytest.raises(ValueError, match="two items at least"):
        model.select_ridge(sparse.csr_array(np.eye(ITEMS)))


def test_scores_of_a_path_are_ndcg_at_20_of_the_hidden_items():
    rows, others, ridges = users(n=600), users(3), [2.0, 500.0]
    path = fs.SketchedEASE(ITEMS + 2, dtype="float64").update(rows).select_ridge(others, ridges)
    able = np.flatnonzero(np.diff(others.indptr) >= 2)
    held = held_out.HeldOut(others[able], np.ones(len(able)), held_out.sampling_keys(others, 0, 0)[able], able)
    shown, hidden = _item_weights.split_items(held, 0.2)
    gains = 1 / np.log2(np.arange(2, 22))
    ideal = np.cumsum(gains)[np.minimum(np.diff(hidden.indptr), 20) - 1]
    for ridge, score, error in zip(ridges, path.scores, path.standard_errors, strict=True):
        model = fs.SketchedEASE(ITEMS + 2, dtype="float64", ridge=ridge).update(rows)
        hits = np.take_along_axis(hidden.toarray() > 0, model.recommend(shown, 20).items, axis=1)
        ndcg = hits @ gains / ideal
        assert score == pytest.approx(ndcg.mean(), abs=1e-12)
        assert error == pytest.approx(ndcg.std(ddof=1) / len(able) ** 0.5)


def test_hidden_items_are_a_fifth_and_never_all():
    rows = users()
    rows = rows[np.diff(rows.indptr) >= 2]
    held = held_out.HeldOut(rows, np.ones(rows.shape[0]), held_out.sampling_keys(rows, 0, 0), np.arange(rows.shape[0]))
    shown, hidden = _item_weights.split_items(held, 0.2)
    assert ((shown + hidden) != rows).nnz == 0 and shown.nnz + hidden.nnz == rows.nnz
    number = np.diff(hidden.indptr)
    assert number.min() >= 1 and np.diff(shown.indptr).min() >= 1
    assert np.array_equal(number, np.maximum(1, np.rint(0.2 * np.diff(rows.indptr))))


def test_every_item_is_as_likely_to_be_hidden():
    n, items = 4000, 16
    rows = sparse.csr_array(np.ones((n, items)))
    held = held_out.HeldOut(rows, np.ones(n), held_out.sampling_keys(rows, 0, 0), np.arange(n))
    hidden = _item_weights.split_items(held, 0.25)[1].toarray()
    often = hidden.mean(axis=0)  # 0.25, with a deviation of 0.007
    assert (abs(often - 0.25) < 0.035).all()
    together = hidden.T @ hidden / n  # two of one user: 0.25 * 3 / 15
    assert (abs(together - 0.05)[~np.eye(items, dtype=bool)] < 0.02).all()


# -- all or nothing ------------------------------------------------------------------------------------------------
def test_a_refused_or_interrupted_update_changes_nothing(monkeypatch):
    rows = users()
    model = fs.SketchedEASE(12, reservoir_size=20).update(rows[:100])
    before = model.to_bytes()
    bad = rows[100:].copy()
    bad.data[-1] = -1
    with pytest.raises(ValueError):
        model.update(bad)
    assert model.to_bytes() == before

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fs.FrequentDirections, "_absorb", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.update(rows[100:])
    assert model.to_bytes() == before
    with monkeypatch.context() as patch:
        patch.setattr(fs.FrequentDirections, "fade", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fade(0.5)
    assert model.to_bytes() == before


def test_rows_are_not_changed():
    rows = users()
    rows.data[3] = 0.0  # stored, and no event
    copies = rows.data.copy(), rows.indices.copy(), rows.indptr.copy()
    model = fs.SketchedEASE(12).update(rows)
    model.recommend(rows, exclude=rows), model.decision_block(rows), model.explain(rows[[0]], 3)
    assert all(np.array_equal(*pair) for pair in zip(copies, (rows.data, rows.indices, rows.indptr), strict=True))


@pytest.mark.parametrize("name", [None, "squares", "held_key", "held_data"])
def test_a_file_whose_sketch_or_reservoir_could_not_be_is_refused(name):
    about, arrays = states.read(fs.SketchedEASE(12, reservoir_size=20, seed=3).update(users()).to_bytes())
    names = [name] if name else [one for one in arrays if one.startswith("sketch_") and arrays[one].dtype.kind == "f"]
    names = [one for one in names if arrays[one].size]
    assert names
    for one in names:
        changed = {key: array.copy() for key, array in arrays.items()}
        changed[one][(0,) * changed[one].ndim] = np.nan if changed[one].dtype.kind == "f" else 2**64 - 1
        with pytest.raises(fs.StateError):
            fs.from_bytes(state_files.pack(about, changed))


# -- a sketch that is short --------------------------------------------------------------------------------------------
def catalogue(n_items=300, n_users=900):
    """Users' rows of a dense catalogue: many tastes, each of them weak."""
    rng = np.random.default_rng(0)
    tastes = rng.standard_normal((n_users, 60)) @ rng.standard_normal((60, n_items))
    return sparse.csr_array((tastes > np.quantile(tastes, 0.8)).astype(float))


def said(model, rows):
    """Warnings of a read-out, and of two more."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.recommend(rows[:2], 5), model.facts(), model.copy().update(rows[:1]).facts()
    return [str(one.message) for one in caught]


def test_a_sketch_that_is_short_for_its_items_names_the_size_that_would_do():
    rows = catalogue()
    (message,) = said(fs.SketchedEASE(16, ridge=30.0).update(rows), rows)
    size = int(
        re.search(r"sketch_size=16 is short for these 300 items.* the guarantee of sketch_size=(\d+)", message)[1]
    )
    assert 16 < size <= 301
    assert not said(fs.SketchedEASE(size, ridge=30.0).update(rows), rows)
    assert not said(fs.SketchedEASE(16, ridge=1e6).update(rows), rows)  # which is more than was lost
    assert not said(fs.SketchedEASE(301).update(rows), rows)


@pytest.mark.long
def test_on_films_a_sketch_is_short_where_it_ranks_worse(dataset):
    """NDCG@20 of new users: MovieLens 1M .429, .433, .434 with 256, 512, 1,024 rows; 100k .425 with 256 and all."""
    with gzip.open(dataset("ml-100k/u.data.gz"), "rt") as lines:
        user, film, *_ = np.loadtxt(lines, dtype=int).T
    few = sparse.csr_array((np.ones(len(user)), (user - 1, film - 1)))
    assert not said(fs.SketchedEASE().update(few), few)
    many = sparse.csr_array(loadmat(dataset("ml-1m/movielens1m.mat"))["data"])
    many.data[:] = 1.0
    with pytest.warns(UserWarning, match="sketch_size=256 is short"):
        fs.SketchedEASE().update(many).facts()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fs.SketchedEASE(1024).update(many).facts()
