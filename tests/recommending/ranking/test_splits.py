"""Splits: every event in exactly one part, by the seed alone, and what they say of users with few events."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from fastsketch.recommending import ranking


def events(seed, users=9, items=7, density=0.4):
    """Draw events with values of their own, zeros stored among them; some users have none, some one."""
    rng = np.random.default_rng(seed)
    seen = rng.random((users, items)) < density
    seen[rng.integers(0, users)] = False
    seen[0, :2] = seen[1, :3] = True
    rows, columns = np.nonzero(seen)
    return sparse.csr_array((np.arange(len(rows), dtype=np.float32), (rows, columns)), shape=seen.shape)


def triples(csr, users=None):
    coo = csr.tocoo()
    users = np.arange(csr.shape[0]) if users is None else users
    return list(zip(users[coo.row].tolist(), coo.col.tolist(), coo.data.tolist(), strict=True))


def assert_partition(x, *parts):
    found = [triple for part in parts for triple in triples(*part)]
    assert sorted(found) == sorted(triples(x))
    for part in parts:
        assert part[0].dtype == x.dtype
        assert part[0].has_sorted_indices
        assert part[0].shape[1] == x.shape[1]


def every_split(x, seed):
    times = np.random.default_rng(seed).integers(0, 5, x.nnz)
    times[0] = 9
    return [
        lambda x: ranking.random_split(x, 0.3, seed=seed),
        lambda x: ranking.leave_one_out(x, seed),
        lambda x: ranking.leave_one_out(x, times=times),
        lambda x: ranking.time_split(x, times, share=0.3),
    ]


@given(st.integers(0, 10_000))
def test_every_event_is_in_exactly_one_part(seed):
    x = events(seed)
    for split in every_split(x, seed):
        one, two = split(x), split(x)
        assert_partition(x, one[:1], one[1:2])
        assert one.train.shape == one.test.shape == x.shape
        assert triples(one.train) == triples(two.train)
    for shown in (0.1, 0.5, 0.99):
        parts = ranking.user_split(x, 2, shown=shown, seed=seed)
        assert_partition(x, (parts.train, parts.train_users), (parts.shown, parts.users), (parts.hidden, parts.users))
        n, whole = np.diff(parts.shown.indptr), np.diff(x.indptr)[parts.users]
        assert len(parts.users) == 2
        assert ((n >= 1) & (n < whole)).all()
        assert np.array_equal(n, np.clip(np.rint(shown * whole), 1, whole - 1))


@given(st.integers(0, 10_000))
def test_the_way_of_storing_changes_nothing(seed):
    x = events(seed)
    rng = np.random.default_rng(seed)
    coo, order = x.tocoo(), rng.permutation(x.nnz)
    shuffled = sparse.coo_array((coo.data[order], (coo.row[order], coo.col[order])), shape=x.shape)
    for other in (shuffled, x.tocsc(), sparse.csr_matrix(x)):
        for split in (
            lambda x: ranking.random_split(x, 0.5, seed=seed),
            lambda x: ranking.leave_one_out(x, seed),
            lambda x: ranking.user_split(x, 0.3, seed=seed),
        ):
            assert [triples(part) for part in split(x)[:2]] == [triples(part) for part in split(other)[:2]]
    times = rng.integers(0, 6, x.nnz)
    times[0] = 7
    for split in (
        lambda x, t: ranking.time_split(x, t, share=0.4),
        lambda x, t: ranking.leave_one_out(x, times=t),
    ):
        assert triples(split(x, times).test) == triples(split(shuffled, times[order]).test)
    swapped = sparse.csr_array((np.arange(x.nnz), x.indices, x.indptr), shape=x.shape).tocsc()
    assert triples(ranking.time_split(x, times).test) == triples(
        ranking.time_split(x.tocsc(), times[swapped.data]).test
    )


def test_what_is_held_out():
    x = events(3, 40, 30)
    for share in (0.01, 0.2, 0.99):
        assert ranking.random_split(x, share).test.nnz == round(share * x.nnz)
    assert triples(ranking.random_split(x, seed=1).test) != triples(ranking.random_split(x, seed=2).test)
    # as many of each user as their share, about: no user or item is preferred
    hits = sum(ranking.random_split(x, 0.25, seed=seed).test.astype(bool).astype(int) for seed in range(200))
    assert np.abs(hits.toarray()[x.toarray() > 0] / 200 - 0.25).max() < 0.2
    counts = np.diff(x.indptr)
    held = ranking.leave_one_out(x, 5).test
    assert np.array_equal(np.diff(held.indptr), (counts > 1).astype(int))
    times = np.random.default_rng(0).permutation(x.nnz)
    newest = ranking.leave_one_out(x, times=times).test
    when = sparse.csr_array((times + 1, x.indices, x.indptr), shape=x.shape).toarray()
    rows, columns = newest.nonzero()
    assert np.array_equal(columns, when.argmax(axis=1)[rows])
    for share in (0.1, 0.5):
        assert len(ranking.user_split(x, share).users) == round(share * 40)


def test_one_moment_for_all():
    x = events(1, 20, 20)
    days = np.sort(np.random.default_rng(0).integers(0, 30, x.nnz)).astype("datetime64[D]")
    parts = ranking.time_split(x, days, share=0.25)
    when = sparse.csr_array((days.astype(np.int64) + 1, x.indices, x.indptr), shape=x.shape)
    last = parts.time.astype(np.int64) + 1
    assert when[parts.train.nonzero()].max() <= last < when[parts.test.nonzero()].min()
    assert 0 < parts.test.nnz <= round(0.25 * x.nnz)
    assert ranking.time_split(x, np.arange(x.nnz), share=0.25).test.nnz == round(0.25 * x.nnz)
    with pytest.raises(ValueError, match="all of one moment, 7"):
        ranking.time_split(x, np.full(x.nnz, 7))


def test_users_with_too_few_events():
    x = sparse.csr_array([[1.0, 0, 0], [0, 0, 0], [1, 1, 0]])
    assert np.diff(ranking.leave_one_out(x).test.indptr).tolist() == [0, 0, 1]
    parts = ranking.user_split(x, 1)
    assert parts.users.tolist() == [2]
    assert (parts.shown.nnz, parts.hidden.nnz, parts.train.nnz) == (1, 1, 1)
    with pytest.raises(ValueError, match="2 are to be held out, and 1 of 3 have two events"):
        ranking.user_split(x, 2)


def test_duplicates():
    twice = sparse.coo_array(([1.0, 2.0, 4.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    one = ranking.random_split(twice, 0.5)
    assert (one.train + one.test).toarray().tolist() == [[0, 3], [4, 0]]
    with pytest.raises(ValueError, match=r"X holds entry \(0, 1\) more than once"):
        ranking.time_split(twice, [1, 2, 3])


def test_bad_input_is_named():
    x = events(0)
    for call, error, match in [
        (lambda: ranking.random_split(np.eye(3)), TypeError, "X must be a scipy.sparse"),
        (lambda: ranking.time_split(np.eye(3), [1]), TypeError, "X must be a scipy.sparse"),
        (lambda: ranking.random_split(x, 0.0), ValueError, "share must lie in"),
        (lambda: ranking.random_split(x, 1), ValueError, "share must lie in"),
        (lambda: ranking.random_split(x, seed=-1), ValueError, "seed must be"),
        (lambda: ranking.random_split(sparse.csr_array((3, 3))), ValueError, "two events or more"),
        (lambda: ranking.user_split(x, 0), ValueError, "users must be at least 1"),
        (lambda: ranking.user_split(x, 9), ValueError, "users must be below 9"),
        (lambda: ranking.user_split(x, 1.0), ValueError, "users must lie in"),
        (lambda: ranking.user_split(x, shown=1.0), ValueError, "shown must lie in"),
        (lambda: ranking.user_split(x, shown=0.0), ValueError, "shown must lie in"),
        (lambda: ranking.user_split(x, True), TypeError, "users must be a real number"),
        (lambda: ranking.time_split(x.tolil(), np.ones(x.nnz)), TypeError, "CSR, CSC or COO"),
        (lambda: ranking.time_split(x, np.ones(2)), ValueError, "times must be one for each of the"),
        (lambda: ranking.time_split(x, ["a"] * x.nnz), TypeError, "times must be real numbers or datetime64"),
        (lambda: ranking.leave_one_out(x, times=np.full(x.nnz, np.nan)), ValueError, "that of entry 0 is not"),
        (lambda: ranking.leave_one_out(x, times=np.full(x.nnz, "NaT", "M8[s]")), ValueError, "that of entry 0"),
    ]:
        with pytest.raises(error, match=match):
            call()
    times = np.ones(x.nnz)
    for attribute, value in (
        ("indices", np.full(x.nnz, 99)),
        ("indices", x.indices + 0.5),
        ("indptr", None),
        ("data", None),
    ):
        broken = x.copy()
        setattr(broken, attribute, value)
        with pytest.raises(ValueError, match="X is not a consistent (csr|sparse) matrix"):
            ranking.random_split(broken)
        with pytest.raises(ValueError, match="X is not a consistent (csr|sparse) matrix"):
            ranking.time_split(broken, times)
