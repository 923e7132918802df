"""Walks over kept users against products of matrices, and which users are kept."""

import warnings

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.data.files import _state as state_files
from fastsketch.recommending.ranking import ndcg_at, user_split
from fastsketch.ridge import _held_out as held_out
from tests.helpers import same_state, tol
from tests.reliability import states

GROUPS, EACH = 60, 4


def tails(seed=0, n=500, dtype=np.float64):
    """Draw CSR rows of users with some items of a few of many small groups: more tastes than a sketch has rows."""
    rng = np.random.default_rng(seed)
    likes = np.repeat(rng.random((n, GROUPS)) < 3 / GROUPS, EACH, axis=1)
    had = (likes & (rng.random(likes.shape) < 0.6)) | (rng.random(likes.shape) < 0.003)
    had[:, 7] = False  # an item that nobody has
    return sparse.csr_array((had * rng.integers(1, 4, had.shape)).astype(dtype))


def walks(rows, weights, popularity_power=0.2):
    """Return the weights W (items, items) of walks from items to users and on to items, none of its own."""
    x = rows.toarray().astype(np.float64)
    x, weights = x[x.any(axis=1)], weights[x.any(axis=1)]
    q = x / np.sqrt((x**2).sum(axis=1, keepdims=True))
    d, g = weights @ (q > 0), weights @ q**2
    known = d > 0
    to_users = (q * weights[:, np.newaxis]).T / np.where(known, d, 1.0)[:, np.newaxis] * (d.sum() / g.sum())
    damped = np.where(known, np.where(known, d / d[known].mean(), 1.0) ** -popularity_power, 0.0)
    out = to_users @ (q * damped)
    np.fill_diagonal(out, 0.0)
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("power, popularity_power, decay", [(0.5, 0.2, 1.0), (0.0, 0.0, 1.0), (0.5, 0.4, 0.999)])
def test_scores_are_those_of_the_sketch_and_of_walks(dtype, power, popularity_power, decay):
    rows, given = tails(dtype=dtype), np.random.default_rng(1).random(500) + 0.5
    settings = {"activity_power": power, "popularity_power": popularity_power, "decay": decay, "dtype": dtype}
    model, alone = (fs.SketchedEASE(6, kept_events=kept, **settings) for kept in (10_000, 0))
    for start in range(0, 500, 130):
        part = slice(start, start + 130)
        model.update(rows[part], given[part])
        alone.update(rows[part], given[part])
    weight = model.facts()["walk_weight"]
    assert weight > 0 == alone.facts()["walk_weight"]
    wanted = walks(rows, given * decay ** np.arange(499, -1, -1.0), popularity_power)
    scores = model.decision_block(rows) - alone.decision_block(rows)
    assert np.abs(scores - weight * (rows @ wanted)).max() < tol(dtype, 100 * weight)
    # answers are of these scores
    scores = np.where(model.popularity > 0, model.decision_block(rows).astype(float), -np.inf)
    for seen in (True, False):
        here = np.where(rows.toarray() > 0, -np.inf, scores) if seen else scores
        found = model.recommend(rows, 3, exclude_seen=seen, exclude=rows[::-1])
        here = np.where(rows[::-1].toarray() > 0, -np.inf, here)
        some = np.diff(rows.indptr) > 0
        assert np.array_equal(found.items[some], np.argsort(-here, axis=1, kind="stable")[some, :3])
    one = np.where(
        np.eye(rows.shape[1]) + (model.popularity == 0), -np.inf, model.decision_block(np.eye(rows.shape[1]))
    )
    assert np.array_equal(model.similar_items([3, 9], 2).items, np.argsort(-one, axis=1, kind="stable")[[3, 9], :2])
    assert (model.similar_items([7], 2).items == -1).all()
    user = int(np.argmax(some))
    why = model.explain(rows[[user]], 11)
    assert why.contributions.sum() == pytest.approx(model.decision_block(rows[[user]])[0, 11], abs=tol(dtype, 1000))


def test_walks_find_what_a_sketch_has_no_room_for_and_are_left_where_they_add_nothing():
    split = user_split(tails(n=2000), users=300, shown=0.6)
    model, alone = (fs.SketchedEASE(6, kept_events=kept).update(split.train) for kept in (10_000, 0))
    with warnings.catch_warnings():  # the walks hold what the sketch has lost
        warnings.simplefilter("error")
        gain = ndcg_at(model.recommend(split.shown, 20).items, split.hidden)
    with pytest.warns(UserWarning, match="sketch_size=6 is short"):
        gain = gain - ndcg_at(alone.recommend(split.shown, 20).items, split.hidden)
    assert gain.mean() > 5 * gain.std() / len(gain) ** 0.5
    rng = np.random.default_rng(0)
    taste = rng.random((1000, 3)) ** 4 @ rng.random((3, 60)) ** 3
    common = fs.SketchedEASE(32).update(sparse.csr_array((rng.random(taste.shape) < taste).astype(float)))
    assert common.facts()["walk_weight"] == 0


@pytest.mark.parametrize("kept_events", [0, 300, 10_000])
@pytest.mark.parametrize("decay", [1.0, 0.97])
def test_users_are_kept_whatever_the_batches(kept_events, decay):
    rows = tails()
    settings = {"kept_events": kept_events, "decay": decay, "reservoir_size": 30, "dtype": "float64"}
    whole, parts = fs.SketchedEASE(6, **settings).update(rows), fs.SketchedEASE(6, **settings)
    for start, stop in ((0, 1), (1, 7), (7, 8), (8, 150), (150, 151), (151, 500)):
        parts.update(rows[start:stop])
        parts = fs.from_bytes(parts.to_bytes()) if stop % 2 else parts
    assert same_state(whole, parts)
    users = whole._decayed_retained_users()
    events = sum(part.rows.nnz for part in users)
    assert events <= kept_events and (events > 200) == (kept_events > 0)
    one, two = (fs.SketchedEASE(6, **settings).update(part) for part in (rows[:200], rows[200:]))
    merged = [first.copy().merge(second)._decayed_retained_users() for first, second in ((one, two), (two, one))]
    if kept_events:
        (mine,), (theirs,) = merged
        assert np.array_equal(mine.key, theirs.key)
        assert np.allclose(mine.weight, theirs.weight)
        assert mine.rows.nnz <= kept_events
    assert one.fade(0.5)._decayed_square_sums().sum() > 0


def test_items_that_come_later_move_the_users_kept():
    rows = tails(n=200)
    names = np.array([f"i{j}" for j in range(rows.shape[1])])
    table = [{i: names[row.indices].tolist() for i, row in enumerate(part)} for part in (rows[:90], rows[90:])]
    one = fs.SketchedEASE(6).update(table[0]).update(table[1])
    two = fs.SketchedEASE(6).update(table[0]).merge(fs.SketchedEASE(6).update(table[1]))
    assert list(one.item_ids) == list(two.item_ids)
    assert sum(part.rows.nnz for part in one._decayed_retained_users()) + one._held.rows.nnz > 0.9 * rows.nnz
    counts = [
        sum(np.asarray(part.rows.sum(axis=0)) for part in (*m._decayed_retained_users(), m._held)) for m in (one, two)
    ]
    assert np.array_equal(*counts)


@pytest.mark.parametrize("rows", [np.ones((1, 5)), np.ones((400, 5)), np.eye(400, 5), np.zeros((400, 5))])
def test_one_user_users_of_all_items_and_of_one(rows):
    model = fs.SketchedEASE(4).update(rows)
    assert model.facts()["walk_weight"] == 0
    assert (model.recommend(np.ones((2, 5)), 3).items == -1).all()
    mixed = fs.SketchedEASE(4).update(np.vstack([tails(n=400).toarray(), np.ones((1, GROUPS * EACH))]))
    assert (mixed.recommend(np.ones((1, GROUPS * EACH)), 3).items == -1).all()
    assert np.isfinite(mixed.decision_block(np.eye(GROUPS * EACH))).all()


@pytest.mark.parametrize("name", ["kept_indices", "kept_data", "kept_key", "kept_weight", "kept_came", "kept_indptr"])
def test_a_file_whose_users_could_not_be_is_refused(name):
    about, arrays = states.read(fs.SketchedEASE(6, reservoir_size=20).update(tails()).to_bytes())
    changed = {**arrays, name: arrays[name].copy()}
    changed[name][-1] = 0 if name == "kept_key" else -1
    with pytest.raises(fs.StateError):
        fs.from_bytes(state_files.pack(about, changed))


@pytest.mark.parametrize("size", [1, 2, 6, 9])
def test_a_row_that_comes_alone_is_exchanged_as_one_among_many(size):
    """The rows of the least keys stay, in their order; what leaves is what a look at all of them says."""
    rng = np.random.default_rng(size)
    for _ in range(50):
        held = np.sort(rng.integers(0, 40, min(size, 6), np.uint64))
        key, r = rng.integers(0, 40, 3, np.uint64), min(size, 6)
        able = np.array([False, True, False])
        given = r + np.arange(3)
        kept = held_out.sample_bottom_k(held, key, able, size=size, sketch_sources=given)
        every = np.concatenate([held, key])
        if r < size:
            wanted, leaves = np.append(np.arange(r), r + 1), -1
        elif key[1] < held[-1]:
            leaves = r - 1
            wanted = np.append(np.delete(np.arange(r), leaves), r + 1)
        else:
            wanted, leaves = np.arange(r), r + 1
        assert sorted(kept) == sorted(wanted) and (np.diff(every[kept].astype(int)) >= 0).all()
        assert given.tolist() == [r, leaves, r + 2]


def test_rows_taken_and_stacked_are_those_of_scipy():
    rows = sparse.random_array((40, 30), density=0.1, format="csr", rng=np.random.default_rng(0))
    where = np.random.default_rng(1).integers(0, 40, 60)
    for got, wanted in (
        (held_out.take_csr_rows(rows, where), rows[where]),
        (held_out.take_csr_rows(rows, where[:0]), rows[where[:0]]),
        (held_out.stack_csr([rows[:7], rows[7:7], rows[7:]]), rows),
    ):
        assert got.shape == wanted.shape
        for name in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(got, name), getattr(wanted, name))
