"""Answers of SketchedEASE against all scores, and what it refuses."""

from contextlib import nullcontext

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from tests.recommending.test_sketched_ease import ITEMS, users


@pytest.fixture(scope="module", params=["float32", "float64"])
def model(request):
    rows = users().tolil()
    rows[:, [5, 9]] = 0  # items without events
    return fs.SketchedEASE(12, dtype=request.param).update(sparse.csr_array(rows))


def active(seed, n):
    """Draw users, none of them without an item that the model knows."""
    rows = users(seed, n).tolil()
    rows[:, 0] = 1.0
    return sparse.csr_array(rows)


def wanted(scores, open_items, n):
    """Return (items, scores) by a full sort."""
    z = np.where(open_items, scores.astype(float), -np.inf)
    order = np.argsort(-z, axis=1, kind="stable")[:, :n]
    best = np.take_along_axis(z, order, 1)
    return np.where(best > -np.inf, order, -1), np.where(best > -np.inf, best, np.nan)


def check(found, items, scores):
    assert found.items.dtype == np.int64 and found.scores.dtype == np.float64
    assert np.array_equal(np.isnan(found.scores), found.items < 0)
    assert np.allclose(found.scores, scores, atol=2e-6, equal_nan=True)
    assert (found.items == items).mean() > 0.99  # but for ties by rounding


@pytest.mark.parametrize("exclude_seen", [True, False])
@pytest.mark.parametrize("allow", [None, [3, 1, 3, 30, 5, 31, 2]])
@pytest.mark.parametrize("excluded", [False, True])
def test_recommend(model, exclude_seen, allow, excluded):
    rows = active(2, 50)
    exclude = users(3, 50) if excluded else None
    free = np.ones((50, ITEMS), bool)
    free[:, [5, 9]] = False
    if allow is not None:
        free &= np.isin(np.arange(ITEMS), allow)
    if exclude_seen:
        free &= rows.toarray() == 0
    if excluded:
        free &= exclude.toarray() == 0
    for n in (1, 4, 60):
        found = model.recommend(rows, n, exclude_seen=exclude_seen, exclude=exclude, allow=allow)
        items, scores = wanted(model.decision_block(rows), free, ITEMS)
        pad = ((0, 0), (0, max(0, n - ITEMS)))
        items, scores = np.pad(items, pad, constant_values=-1), np.pad(scores, pad, constant_values=np.nan)
        assert found.items.shape == (50, n)
        check(found, items[:, :n], scores[:, :n])


def test_more_than_there_are(model):
    found = model.recommend(active(2, 3), 60)
    for i, row in enumerate(active(2, 3).toarray()):
        left = (row[model.popularity > 0] == 0).sum()
        assert (found.items[i, :left] >= 0).all() and (found.items[i, left:] == -1).all()
    assert (model.recommend(users(2, 3), 4, allow=[]).items == -1).all()
    assert model.recommend(users(2, 3)[:0], 4).items.shape == (0, 4)


def test_a_row_without_known_items_gets_the_most_popular(model):
    rows = np.zeros((3, ITEMS))
    rows[1, [5, 9]] = 1.0  # items that nobody has had
    rows[2, 0] = 1.0
    found = model.recommend(rows, 6, exclude=sparse.csr_array(np.eye(3, ITEMS)))
    popular = np.argsort(-model.popularity, kind="stable")
    assert np.array_equal(found.items[0], popular[popular != 0][:6])
    assert np.array_equal(found.items[1], popular[popular != 1][:6])
    assert (found.scores[:2] == 0).all() and (found.scores[2] != 0).all()
    allowed = popular[np.isin(popular, [7, 3, 20])]
    assert np.array_equal(model.recommend(rows[:1], 3, allow=[7, 3, 20]).items, [allowed])


def test_items_without_events_score_zero_and_are_not_recommended(model):
    rows = active(2, 20)
    assert (model.decision_block(rows)[:, [5, 9]] == 0).all()
    assert not np.isin(model.recommend(rows, 60, exclude_seen=False).items, [5, 9]).any()
    assert not np.isin(model.similar_items(np.arange(ITEMS), 60).items, [5, 9]).any()
    assert (model.similar_items([5], 3).items == -1).all()


def test_contributions_add_up(model):
    rows = users(2, 20)
    scores = model.decision_block(rows)
    for row in (0, 3):
        for item in (0, 5, int(rows[[row]].indices[0])):
            items, given = model.explain(rows[[row]], item)
            assert set(items) == set(rows[[row]].indices) - {item}
            assert given.sum() == pytest.approx(scores[row, item], abs=2e-6)
            assert (np.diff(given) <= 0).all()
    nothing = model.explain(np.zeros(ITEMS), 3)
    assert nothing.items.shape == nothing.contributions.shape == (0,)


def test_similar_items_have_the_largest_weights(model):
    weights = model.decision_block(np.eye(ITEMS))  # each item alone
    np.fill_diagonal(weights, -np.inf)
    open_items = np.ones((ITEMS, ITEMS), bool)
    open_items[:, [5, 9]] = open_items[[5, 9]] = False
    np.fill_diagonal(open_items, False)
    items, scores = wanted(weights, open_items, 7)
    check(model.similar_items(np.arange(ITEMS), 7), items, scores)


@pytest.mark.usefixtures("threaded_blas")
def test_threads_give_the_same_bits(model):
    rows = users(2, 300)
    answers = []
    for n in (1, 3):
        with fs.thread_limit(n):
            again = fs.from_bytes(model.to_bytes())
            answers.append((again.decision_block(rows), *again.recommend(rows)))
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*answers, strict=True))


@pytest.mark.usefixtures("threaded_blas")
def test_threads_give_the_same_similar_items():
    model = fs.SketchedEASE(64, ridge=1.0).update(users(items=3000))
    answers = []
    for n in (1, 2):
        with fs.thread_limit(n):
            answers.append((*model.similar_items(np.arange(3000)), *model.explain(np.ones(3000), 5)))
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*answers, strict=True))


# -- what is refused -------------------------------------------------------------------------------------------------
def spoiled(value):
    rows = users(2, 20).astype(float)
    rows.data[rows.indptr[7]] = value
    return rows


@pytest.mark.parametrize(
    ("value", "message"),
    [(-2.0, "not be negative: row 7 holds -2.0 in column"), (np.nan, "be finite: row 7 holds nan in column")]
    + [(np.inf, "be finite: row 7 holds inf in column")],
)
def test_events_that_are_none_are_named(model, value, message):
    rows = spoiled(value)
    message += f" {rows.indices[rows.indptr[7]]}"
    for call in (model.copy().update, model.recommend, model.decision_block, model.copy().select_ridge):
        with pytest.raises(ValueError, match=f"rows must {message}"):
            call(rows)
    with pytest.raises(ValueError, match=r"rows must .* row 7"):
        fs.SketchedEASE(4).update(rows.toarray())


@pytest.mark.parametrize(("dtype", "scale"), [("float64", 1e160), ("float64", 1e-300), ("float32", 1e38)])
def test_numbers_whose_products_have_no_range_are_refused(dtype, scale):
    model = fs.SketchedEASE(4, dtype=dtype).update(users(0, 30))
    before = model.to_bytes()
    with pytest.raises(ValueError, match=f"lie between .* as {dtype}: row 0 holds"):
        model.update(users(0, 30) * scale)
    assert model.to_bytes() == before


@pytest.mark.parametrize("weight", [1e300, 1e-300])
def test_weights_that_leave_the_range_are_refused(weight):
    with pytest.raises(ValueError, match="sample_weight leaves the range of float32: row 0 has"):
        fs.SketchedEASE(4).update(users(0, 30), weight)


@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e60), ("float64", 1e280)])
def test_weights_are_taken_up_to_the_square_of_the_largest_number(dtype, most):
    rows = users(0, 1)
    squares = float((rows.toarray() ** 2).sum())
    for weight, taken in ((0.9 * most, True), (1.1 * most, False), (1.1 / most, True), (0.9 / most, False)):
        with nullcontext() if taken else pytest.raises(ValueError, match="sample_weight leaves the range"):
            fs.SketchedEASE(4, activity_power=0.0, dtype=dtype).update(rows, weight / squares)


@pytest.mark.parametrize(("dtype", "scale"), [("float32", 1e29), ("float32", 1e-29), ("float64", 1e139)])
def test_large_and_small_numbers_rank_as_others_do(dtype, scale):
    rows = users(0, 300)
    expected = fs.SketchedEASE(8, dtype=dtype).update(rows).recommend(rows[:20], 3).items
    found = fs.SketchedEASE(8, dtype=dtype).update(rows * scale).recommend(rows[:20] * scale, 3).items
    assert (found == expected).mean() > 0.95  # but for ties that rounding breaks


def test_what_float32_cannot_hold_is_named():
    with pytest.raises(ValueError, match="lie between 1e-30 and 1e\\+30 as float32: row 0 holds 1e\\+300 in column 1"):
        fs.SketchedEASE(4).update([[0.0, 1e300]])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m.update(users(0, 3, ITEMS + 1)), ValueError, "must have 40 columns as the rows before, got 41"),
        (lambda m: m.recommend(users(0, 3, ITEMS - 1)), ValueError, "must have 40 columns"),
        (lambda m: m.recommend(users(0, 3), 0), ValueError, "n must be at least 1"),
        (lambda m: m.recommend(users(0, 3), allow=[1, 40, -1, 99]), IndexError, r"in \[0, 40\), got -1, 40, 99"),
        (lambda m: m.recommend(users(0, 3), allow=[0.5]), TypeError, "allow must be integers"),
        (lambda m: m.recommend(users(0, 3), allow=np.ones(ITEMS, bool)), TypeError, "np.flatnonzero"),
        (lambda m: m.recommend(7), ValueError, "a row a user: they have no ids here, got 7"),
        (lambda m: m.recommend(users(0, 3), allow=[[1]]), ValueError, "allow must be a vector"),
        (lambda m: m.recommend(users(0, 3), exclude=[1]), TypeError, "exclude must be a scipy.sparse matrix"),
        (lambda m: m.recommend(users(0, 3), exclude=users(0, 4)), ValueError, r"rows, \(3, 40\), got \(4, 40\)"),
        (lambda m: m.recommend(users(0, 3), exclude_seen=1), TypeError, "exclude_seen must be True or False"),
        (lambda m: m.explain(users(0, 1), 40), IndexError, "item must lie in .* got 40"),
        (lambda m: m.explain(users(0, 1), -1), IndexError, "item must lie in"),
        (lambda m: m.explain(users(0, 1), 1.5), TypeError, "item must be an integer"),
        (lambda m: m.explain(users(0, 2), 1), ValueError, "row must be one row, got 2"),
        (lambda m: m.similar_items([3, 77]), IndexError, "items must lie in .* got 77"),
        (lambda m: m.select_ridge(users(), [1.0, 1e301]), ValueError, r"at most 1e\+300, got \[1.0, 1e\+301\]"),
        (lambda m: m.fade(0.0), ValueError, "factor must lie in"),
        (lambda m: m.update(users(0, 3), [1.0]), ValueError, "sample_weight must have one entry for each of the 3"),
        (lambda m: m.merge(fs.SketchedEASE(13)), ValueError, "sketch_size"),
    ],
)  # fmt: skip
def test_wrong_calls_are_named(model, call, error, message):
    tried = model.copy()
    before = tried.to_bytes()
    with pytest.raises(error, match=message):
        call(tried)
    assert tried.to_bytes() == before


@pytest.mark.parametrize("name", ["recommend", "decision_block", "select_ridge"])
def test_a_model_without_rows_says_so(name):
    with pytest.raises(ValueError, match="has seen no rows: call update first"):
        getattr(fs.SketchedEASE(4), name)(users(0, 2))
    with pytest.raises(ValueError, match="call update first"):
        fs.SketchedEASE(4).popularity  # noqa: B018


def test_empty_rows_only_count():
    rows = users()
    model = fs.SketchedEASE(12).update(rows)
    other = model.copy().update(np.zeros((3, ITEMS)))
    assert other.n_rows == model.n_rows + 3
    assert np.array_equal(other.decision_block(rows), model.decision_block(rows))
    nobody = fs.SketchedEASE(12).update(np.zeros((3, ITEMS)))
    assert (nobody.decision_block(rows) == 0).all() and (nobody.recommend(rows, 3).items == -1).all()
    assert fs.from_bytes(nobody.to_bytes()).n_features == ITEMS


def test_duplicates_are_added_up():
    twice = sparse.coo_array(([1.0, 1.0, 1.0], ([0, 0, 0], [3, 3, 4])), shape=(1, ITEMS))
    once = sparse.csr_array(([2.0, 1.0], ([0, 0], [3, 4])), shape=(1, ITEMS))
    one, two = (fs.SketchedEASE(12).update(rows) for rows in (twice, once))
    assert one.to_bytes() == two.to_bytes()


@pytest.mark.parametrize("scale", [1e-15, 1e15])
def test_units_far_from_one(scale):
    rows = users(2, 200)
    one, far = (fs.SketchedEASE(12, ridge=r).update(rows * c) for r, c in ((3.0, 1.0), (3.0 * scale, scale)))
    assert np.allclose(one.decision_block(rows), far.decision_block(rows), atol=1e-4)
