"""Metrics against other libraries, against their definitions written out, and on input that is none."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from fastsketch.recommending import ranking
from tests.helpers import tol

LISTS = [[3, 1, 0, 7, 5], [2, 9, 4, 8, 6], [0, 1, 2, 3, 4], [9, 8, 7, 6, 5], [5, 0, 9, 2, 7]]
ITEMS = [[1, 5, 8], [2, 3, 4, 5, 6, 7, 8, 9], [7], [6, 7, 8, 9], [0, 2]]
METRICS = (
    ranking.precision_at,
    ranking.recall_at,
    ranking.ndcg_at,
    ranking.average_precision_at,
    ranking.reciprocal_rank_at,
)
# pytrec_eval-terrier 0.5.11 (trec_eval), measures P, recall, ndcg_cut, map_cut and recip_rank, scores 10 - place;
# torchmetrics 1.9.0 has the same precision, recall, NDCG and reciprocal rank (retrieval_*, top_k).
TREC = {
    3: [
        [0.333333333333, 1.0, 0.0, 1.0, 0.333333333333],
        [0.333333333333, 0.375, 0.0, 0.75, 0.5],
        [0.296081910966, 1.0, 0.0, 1.0, 0.386852807235],
        [0.166666666667, 0.375, 0.0, 0.75, 0.25],
        [0.5, 1.0, 0.0, 1.0, 0.5],
    ],
    5: [
        [0.4, 1.0, 0.0, 0.8, 0.4],
        [0.666666666667, 0.625, 0.0, 1.0, 1.0],
        [0.477623703503, 1.0, 0.0, 1.0, 0.650920929807],
        [0.3, 0.625, 0.0, 1.0, 0.5],
        [0.5, 1.0, 0.0, 1.0, 0.5],
    ],
}


def stored(lists, n_items):
    """Return a list of items per user as CSR."""
    indptr = np.cumsum([0, *map(len, lists)])
    return sparse.csr_array((np.ones(indptr[-1]), np.concatenate(lists).astype(int), indptr), (len(lists), n_items))


@pytest.mark.parametrize("k", [3, 5])
def test_values_of_trec_eval(k):
    relevant = stored(ITEMS, 10)
    n = np.array([len(items) for items in ITEMS])
    for metric, wanted in zip(METRICS, TREC[k], strict=True):
        found = metric(LISTS, relevant, k=k)
        if metric is ranking.average_precision_at:
            found = found * np.minimum(k, n) / n
        assert found == pytest.approx(wanted, abs=1e-11), metric.__name__


def test_values_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    for m, n in ((1, 2), (7, 5), (30, 40)):
        scores, truth = rng.permuted(np.tile(np.arange(n), (m, 1)), axis=1), rng.random((m, n)) < 0.3
        truth[np.arange(m), rng.integers(0, n, m)] = True
        lists = np.argsort(-scores, axis=1)
        for k in {1, 2, n // 2 or 1, n}:
            wanted = [metrics.ndcg_score(truth[[i]], scores[[i]], k=k) for i in range(m)]
            assert ranking.ndcg_at(lists, truth, k=k) == pytest.approx(wanted, abs=tol(float, 1))
        wanted = [metrics.label_ranking_average_precision_score(truth[[i]], scores[[i]]) for i in range(m)]
        assert ranking.average_precision_at(lists, truth) == pytest.approx(wanted, abs=tol(float, 1))
        labels = truth.astype(int)
        for k in {1, n // 2 or 1}:
            named = np.zeros((m, n), int)
            np.put_along_axis(named, lists[:, :k], 1, axis=1)
            for metric, score in (
                (ranking.precision_at, metrics.precision_score),
                (ranking.recall_at, metrics.recall_score),
            ):
                wanted = [score(labels[i], named[i]) for i in range(m)]
                assert metric(lists, truth, k=k) == pytest.approx(wanted, abs=tol(float, 1))


def by_definition(items, relevant, k):
    """Compute the five metrics of one list."""
    hits = [item in relevant for item in items[:k]]
    n, total, rank = len(relevant), sum(hits), [r for r, hit in enumerate(hits, 1) if hit]
    if not n:
        return [np.nan] * 5
    ideal = sum(1 / np.log2(r + 1) for r in range(1, min(k, n) + 1))
    return [
        total / k,
        total / n,
        sum(1 / np.log2(r + 1) for r in rank) / ideal,
        sum(sum(hits[:r]) / r for r in rank) / min(k, n),
        1 / rank[0] if rank else 0.0,
    ]


@st.composite
def rankings(draw):
    """Draw (lists (users, c), relevant items of each user, number of items)."""
    n = draw(st.integers(1, 12))
    c = draw(st.integers(1, 14))
    users = draw(st.integers(1, 6))
    lists = np.full((users, c), -1)
    relevant = []
    for user in range(users):
        found = draw(st.permutations(range(n)))[: draw(st.integers(0, min(n, c)))]
        lists[user, : len(found)] = found
        relevant.append(draw(st.sets(st.integers(0, n - 1))))
    return lists, relevant, n


@given(rankings(), st.data())
def test_definitions(case, data):
    lists, relevant, n = case
    k = data.draw(st.integers(1, lists.shape[1]))
    held = stored([sorted(items) for items in relevant], n)
    wanted = np.array([by_definition(line.tolist(), items, k) for line, items in zip(lists, relevant, strict=True)])
    values = np.stack([metric(lists, held, k=k) for metric in METRICS], axis=1)
    assert np.allclose(values, wanted, rtol=0, atol=tol(float, 1), equal_nan=True)
    known = values[~np.isnan(values)]
    assert ((known >= 0) & (known <= 1 + tol(float, 1))).all()
    assert ranking.coverage_at(lists, n, k=k) == len(set(lists[:, :k].ravel().tolist()) - {-1}) / n
    # values, and zeros that are stored, change nothing
    dense = held.toarray()
    weights = data.draw(st.sampled_from([-2.0, 0.5, 1e300]))
    zeros = sparse.csr_array((np.ones(dense.size), np.tile(np.arange(n), len(lists)), np.arange(len(lists) + 1) * n))
    zeros.data = weights * dense.ravel()
    for other in (dense.astype(bool), zeros, sparse.coo_array(dense)):
        again = np.stack([metric(lists, other, k=k) for metric in METRICS], axis=1)
        assert np.array_equal(values, again, equal_nan=True)


@given(rankings())
def test_the_best_list_has_one_and_a_hit_further_up_is_no_worse(case):
    _, relevant, n = case
    held = stored([sorted(items) for items in relevant], n)
    best = np.array([[*items, *(set(range(n)) - items)] for items in relevant])
    for k in range(1, n + 1):
        for metric in (ranking.ndcg_at, ranking.average_precision_at, ranking.reciprocal_rank_at):
            one = metric(best, held, k=k)
            assert np.allclose(one[~np.isnan(one)], 1, rtol=0, atol=tol(float, 1))
        one = ranking.recall_at(best, held, k=k, capped=True)
        assert np.array_equal(one[~np.isnan(one)], np.ones(int((~np.isnan(one)).sum())))
        worst = best[:, ::-1]
        for metric in METRICS:
            assert not (metric(worst, held, k=k) > metric(best, held, k=k) + tol(float, 1)).any()


def test_summary():
    relevant = stored([*ITEMS, []], 10)
    lists = [*LISTS, [0, 1, 2, 3, 4]]
    found = ranking.evaluate(lists, relevant, k=3)
    values = ranking.ndcg_at(lists, relevant, k=3)
    assert np.isnan(values[-1])
    assert found.ndcg == (pytest.approx(np.nanmean(values)), pytest.approx(np.nanstd(values, ddof=1) / 5**0.5), 5)
    assert found.coverage == 9 / 10
    assert ranking.mean_of([]).n_users == 0
    assert np.isnan(ranking.mean_of([]).mean)
    assert np.isnan(ranking.mean_of([1.0, np.nan]).standard_error)
    assert ranking.mean_of([1.0, 2.0]) == (1.5, pytest.approx(0.5), 2)
    nobody = ranking.evaluate(lists, sparse.csr_array((6, 10)))
    assert nobody.recall.n_users == 0
    assert np.isnan(nobody.recall.mean)


def test_bad_input_is_named():
    relevant = stored(ITEMS, 10)
    bad = [
        ([0, 1], {}, ValueError, "recommended must have shape"),
        ([[0.0, 1.0]] * 5, {}, TypeError, "recommended must hold integers"),
        ([[]] * 5, {}, ValueError, "at least one item"),
        ([[1, 2]] * 4, {}, ValueError, "same users, got 4 and 5"),
        ([[1, 2]] * 4 + [[1, 10]], {}, IndexError, "user 4 has 10"),
        ([[1, -2]] * 5, {}, IndexError, "user 0 has -2"),
        (np.full((5, 1), 2**63, np.uint64), {}, IndexError, "user 0 has 9223372036854775808"),
        ([[1, 2]] * 3 + [[4, 4], [1, 2]], {}, ValueError, "user 3 has 4 twice"),
        ([[1, 2]] * 5, {"k": 3}, ValueError, "k must be at most the 2"),
        ([[1, 2]] * 5, {"k": 0}, ValueError, "k must be at least 1"),
        ([[1, 2]] * 5, {"k": 1.0}, TypeError, "k must be an integer"),
    ]
    for lists, more, error, match in bad:
        for metric in METRICS:
            with pytest.raises(error, match=match):
                metric(lists, relevant, **more)
    with pytest.raises(IndexError, match="user 0 has 3"):
        ranking.coverage_at([[3]], 3)
    with pytest.raises(TypeError, match="capped must be"):
        ranking.recall_at(LISTS, relevant, capped=1)
    for wrong in (np.full((5, 10), np.nan), sparse.csr_array(np.full((5, 10), np.nan))):
        with pytest.raises(ValueError, match="relevant must be finite"):
            ranking.ndcg_at(LISTS, wrong)
    with pytest.raises(ValueError, match="relevant is not a consistent"):
        relevant.indices[0] = 10
        ranking.ndcg_at(LISTS, relevant)


# -- the best items of scores ------------------------------------------------------------------------------------------
@given(st.data())
def test_top_items(data):
    users, n, k = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 8)), data.draw(st.integers(1, 10))
    seed = data.draw(st.integers(0, 1000))
    rng = np.random.default_rng(seed)
    scores = rng.integers(-2, 3, (users, n)).astype(float)
    scores[rng.random(scores.shape) < 0.1] = -np.inf
    scores[rng.random(scores.shape) < 0.1] = np.nan
    scores[rng.random(scores.shape) < 0.1] = np.inf
    seen = rng.random((users, n)) < 0.3
    allow = None if data.draw(st.booleans()) else rng.permutation(n)[: rng.integers(0, n + 1)]
    one = data.draw(st.booleans())
    if one:
        scores[:] = scores[0]
    found = ranking.top_items(scores[0] if one else scores, k, exclude=sparse.csr_array(seen), allow=allow)
    assert found.shape == (users, k)
    for user in range(users):
        left = [
            j for j in range(n) if not seen[user, j] and (allow is None or j in allow) and scores[user, j] > -np.inf
        ]
        wanted = sorted(left, key=lambda j: (-scores[user, j], j))[:k]
        assert found[user].tolist() == wanted + [-1] * (k - len(wanted))


def test_top_items_refuses():
    scores = np.ones((2, 3))
    for call, error, match in [
        (lambda: ranking.top_items(scores, 0), ValueError, "n must be"),
        (lambda: ranking.top_items("a"), TypeError, "scores must hold"),
        (lambda: ranking.top_items(np.ones((1, 1, 1))), ValueError, "scores must have shape"),
        (lambda: ranking.top_items(scores, exclude=scores), TypeError, "exclude must be"),
        (lambda: ranking.top_items(scores, exclude=sparse.csr_array((2, 4))), ValueError, "exclude must have shape"),
        (lambda: ranking.top_items(scores, allow=[0, 3, -1]), IndexError, r"allow must lie in \[0, 3\), got -1, 3"),
        (lambda: ranking.top_items(scores, allow=[0.5]), TypeError, "allow must be integers"),
        (lambda: ranking.top_items(scores, allow=[True]), TypeError, "np.flatnonzero"),
        (lambda: ranking.top_items(scores, allow=[[1]]), ValueError, "allow must be a vector"),
    ]:
        with pytest.raises(error, match=match):
            call()
    assert ranking.top_items([3, 1, 2], 2).tolist() == [[0, 2]]
    assert ranking.top_items(scores, 2, allow=[]).tolist() == [[-1, -1]] * 2
