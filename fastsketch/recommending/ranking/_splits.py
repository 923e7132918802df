"""Splits of (users, items) matrices into training and test events.

The stored entries of X (users, items), scipy.sparse, are events, including stored zeros. Duplicate entries are added up
and rows are sorted, so that a split depends on the entries of X and on the seed, but not on the storage. Every event is
in exactly one part, with its value and dtype. Parts are CSR arrays. Which test events are relevant is up to the caller,
for example ``test >= 4``.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.random import Key, raw_numbers
from fastsketch._core.sparse import as_csr
from fastsketch._core.validation import as_array, as_integer, as_real, as_seed, is_sparse

Indices = NDArray[np.intp]


class Split(NamedTuple):
    """Result of a split of events into training and test events.

    Both have the shape of X.

    Attributes
    ----------
    train : scipy.sparse CSR (users, items)
        Events to learn from.
    test : scipy.sparse CSR (users, items)
        Events to evaluate recommendations on.

    Examples
    --------
    A split is a tuple, which can be unpacked:

    >>> from scipy import sparse
    >>> from fastsketch.recommending import ranking
    >>> train, test = ranking.leave_one_out(sparse.csr_array([[1, 1, 1], [1, 0, 1]]))
    >>> train.nnz, test.nnz, train.shape == test.shape
    (3, 2, True)
    """

    train: Any
    test: Any


class TimeSplit(NamedTuple):
    """Result of a split of events by time: earlier events to learn from, and later events to test on.

    Both have the shape of X.

    Attributes
    ----------
    train : scipy.sparse CSR (users, items)
        Events up to `time`.
    test : scipy.sparse CSR (users, items)
        Later events.
    time : number or datetime64
        Time of the last event of train.

    Examples
    --------
    >>> from scipy import sparse
    >>> from fastsketch.recommending import ranking
    >>> split = ranking.time_split(sparse.csr_array([[1, 1], [1, 1]]), [2001, 2004, 2002, 2003], share=0.5)
    >>> int(split.time), split.test.toarray().tolist()  # the events of 2003 and 2004
    (2002, [[0, 1], [0, 1]])
    """

    train: Any
    test: Any
    time: Any


class UserSplit(NamedTuple):
    """Result of a split of users: training users, and test users with shown and hidden events.

    Attributes
    ----------
    train : scipy.sparse CSR (m - h, items)
        All events of the training users.
    shown : scipy.sparse CSR (h, items)
        Shown events of the h test users.
    hidden : scipy.sparse CSR (h, items)
        Hidden events of the same users.
    train_users : (m - h,) array of intp
        Rows of the training users in X, ascending.
    users : (h,) array of intp
        Rows of the test users in X.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from fastsketch.recommending import ranking
    >>> split = ranking.user_split(sparse.csr_array(np.ones((10, 5))), users=2)
    >>> split.train.shape, split.shown.shape, split.hidden.shape
    ((8, 5), (2, 5), (2, 5))
    >>> sorted([*split.train_users.tolist(), *split.users.tolist()]) == list(range(10))
    True
    """

    train: Any
    shown: Any
    hidden: Any
    train_users: Indices
    users: Indices


def random_split(X: Any, share: float = 0.2, *, seed: int = 0) -> Split:
    """Split all events at random into training and test events.

    All events of a user with few events may be held out, or none of them; metrics of the latter are NaN.

    Parameters
    ----------
    X : scipy.sparse (users, items)
        Stored entries are events.
    share : float in (0, 1), default 0.2
        round(share nnz) events are held out, at least one and not all.
    seed : int, default 0
        Seed of the random choice.

    Returns
    -------
    Split
        (train, test), CSR of the shape of X.

    Raises
    ------
    TypeError, ValueError
        If X is not sparse or has fewer than two events, or share is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from fastsketch.recommending import ranking
    >>> X = sparse.csr_array(np.arange(1.0, 21.0).reshape(4, 5))
    >>> train, test = ranking.random_split(X, 0.25)
    >>> train.nnz, test.nnz
    (15, 5)
    >>> bool(((train + test) != X).nnz == 0)  # every event is in exactly one part
    True
    """
    csr = _as_event_array(X)
    is_test = np.zeros(csr.nnz, bool)
    is_test[_smallest_keys(_random_keys(seed, 0, csr.nnz), _count_from_share(share, csr.nnz, "events"))] = True
    return split_entries(csr, is_test)


def leave_one_out(X: Any, seed: int = 0, *, times: ArrayLike | None = None) -> Split:
    """Hold out one event of every user for testing.

    It is the newest one if `times` are given, else a random one.

    The event of a user with a single event is not held out. Among events of equal time that of the last item is the
    newest.

    Parameters
    ----------
    X : scipy.sparse (users, items)
        Stored entries are events.
    seed : int, default 0
        Seed of the random choice; ignored with times.
    times : (nnz,) array of numbers or datetime64, optional
        Time of each event, in the order of X.data. X must then be CSR, CSC or COO without duplicates.

    Returns
    -------
    Split
        (train, test), CSR of the shape of X.

    Raises
    ------
    TypeError, ValueError
        If X is not sparse, or times are not one finite moment for each event.

    Examples
    --------
    The newest event of the first user is that of item 0. The second user has only one event.

    >>> from scipy import sparse
    >>> from fastsketch.recommending import ranking
    >>> X = sparse.csr_array([[1, 1, 1], [0, 1, 0]])
    >>> split = ranking.leave_one_out(X, times=[2026, 2024, 2025, 2026])
    >>> split.train.toarray().tolist(), split.test.toarray().tolist()
    ([[0, 1, 1], [0, 1, 0]], [[1, 0, 0], [0, 0, 0]])
    """
    csr, event_times = (_as_event_array(X), None) if times is None else _with_times(X, times)
    seed = as_seed(seed)
    users = row_indices(csr)
    order = np.lexsort((_random_keys(seed, 1, csr.nnz), users) if event_times is None else (event_times, users))
    has_several = np.diff(csr.indptr) > 1
    is_test = np.zeros(csr.nnz, bool)
    is_test[order[csr.indptr[1:][has_several] - 1]] = True
    return split_entries(csr, is_test)


def time_split(X: Any, times: ArrayLike, *, share: float = 0.2) -> TimeSplit:
    """Split events into training and test parts by time, and return both: the newest events of all are for testing.

    A model in use also learns from earlier events and is asked about later ones.

    Events of equal time are in the same part, so that the test part may be smaller than the share. Users without
    earlier events have empty rows in train, those without later events in test.

    Parameters
    ----------
    X : scipy.sparse (users, items), CSR, CSC or COO
        Stored entries are events; without duplicates.
    times : (nnz,) array of numbers or datetime64
        Time of each event, in the order of X.data.
    share : float in (0, 1), default 0.2
        At most round(share nnz) events are held out.

    Returns
    -------
    TimeSplit
        (train, test, time): CSR of the shape of X, and the time of the last event of train.

    Raises
    ------
    TypeError, ValueError
        If X is not sparse, times are not one finite time for each event, or the newest events all have the time of the
        last event of train.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from fastsketch.recommending import ranking
    >>> X = sparse.csr_array([[1, 1], [1, 1]])
    >>> days = np.array(["2026-03-01", "2026-03-04", "2026-03-02", "2026-03-03"], "datetime64[D]")
    >>> train, test, day = ranking.time_split(X, days, share=0.25)
    >>> str(day), test.toarray().tolist()  # the one event after the third of March
    ('2026-03-03', [[0, 1], [0, 0]])
    """
    csr, event_times = _with_times(X, times)
    n_test = _count_from_share(share, csr.nnz, "events")
    last_train_time = np.sort(event_times)[csr.nnz - n_test - 1]
    is_test = event_times > last_train_time
    if not is_test.any():
        raise ValueError(f"times: the newest {n_test} of {csr.nnz} events are all of one moment, {last_train_time}")
    return TimeSplit(*split_entries(csr, is_test), last_train_time)


def user_split(X: Any, users: float = 0.2, *, shown: float = 0.8, seed: int = 0) -> UserSplit:
    """Hold out some users for testing, and split their events into shown and hidden ones.

    Parameters
    ----------
    X : scipy.sparse (users, items)
        Stored entries are events.
    users : float in (0, 1) or int, default 0.2
        Share (float) or number of users to hold out. Only users with at least two events are held out.
    shown : float in (0, 1), default 0.8
        Share of the events of each test user that are shown, at least one and not all.
    seed : int, default 0
        Seed of the random choice of users and of events.

    Returns
    -------
    UserSplit
        (train, shown, hidden, train_users, users).

    Raises
    ------
    TypeError, ValueError
        If X is not sparse, a share is out of range, or too few users have two events.

    Examples
    --------
    The way to measure lists for users whom the model has never seen:

    >>> import numpy as np
    >>> from scipy import sparse
    >>> import fastsketch as fs
    >>> from fastsketch.recommending import ranking
    >>> liked = np.kron(np.eye(2), np.ones((20, 6)))  # users of one half of the items, users of the other
    >>> train, shown, hidden, _, _ = ranking.user_split(sparse.csr_array(liked), users=8, shown=0.5)
    >>> items = fs.SketchedEASE(4).update(train).recommend(shown, 3).items
    >>> ranking.recall_at(items, hidden).tolist()  # three events of each are hidden, and all are found
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    csr = _as_event_array(X)
    seed = as_seed(seed)
    eligible_users = np.flatnonzero(np.diff(csr.indptr) > 1)
    m = csr.shape[0]
    is_count = isinstance(users, (int, np.integer)) and not isinstance(users, bool)
    n_test_users = (
        as_integer(users, "users", 1, max(m, 2)) if is_count else _count_from_share(users, m, "users", name="users")
    )
    if n_test_users > len(eligible_users):
        raise ValueError(
            f"users: {n_test_users} are to be held out, and {len(eligible_users)} of {m} have two events or more"
        )
    shown = as_real(shown, "shown", 0.0, 1.0, low_open=True, high_open=True)
    test_users = np.sort(eligible_users[_smallest_keys(_random_keys(seed, 2, m)[eligible_users], n_test_users)])
    train_users = np.setdiff1d(np.arange(m, dtype=np.intp), test_users)
    return UserSplit(csr[train_users], *split_shown_hidden(csr, test_users, shown, seed), train_users, test_users)


def split_shown_hidden(csr: Any, users: Indices, shown: float, seed: int) -> Split:
    """Split the events of the given users at random. Return (shown, hidden) CSR matrices.

    `shown` is the share of shown events. Users must have at least two events: at least one is shown and one hidden.
    """
    events, n_events = csr[users], np.diff(csr.indptr)[users]
    keys = _random_keys(seed, 3, csr.nnz)[np.isin(row_indices(csr), users)]
    return split_entries(
        events, ~select_smallest_in_rows(events, keys, np.clip(np.rint(shown * n_events), 1, n_events - 1))
    )


# -- events ------------------------------------------------------------------------------------------------------------
def _as_event_array(X: Any) -> Any:
    """Return X, which must be sparse, as a CSR array with sorted rows and without duplicates."""
    if not is_sparse(X):
        raise TypeError(f"X must be a scipy.sparse matrix, got {type(X).__name__}")
    return _as_array(as_csr(X, "X"))


def _as_array(csr: Any) -> Any:
    from scipy import sparse

    return sparse.csr_array((csr.data, csr.indices, csr.indptr), shape=csr.shape)


def _with_times(X: Any, times: ArrayLike) -> tuple[Any, NDArray[Any]]:
    """Return X as CSR with sorted rows, and an array with the time of each of its entries in the same order."""
    if not is_sparse(X):
        raise TypeError(f"X must be a scipy.sparse matrix, got {type(X).__name__}")
    if X.format not in ("csr", "csc", "coo"):
        raise TypeError(f"X must be CSR, CSC or COO to go with times, got {X.format}")
    csr = as_csr(X, "X", sum_duplicates=False, numbered=True)
    event_times = as_array(times, "times")
    if event_times.dtype.kind not in "fiuM":
        raise TypeError(f"times must be real numbers or datetime64, got dtype {event_times.dtype}")
    if event_times.shape != (len(X.data),):
        raise ValueError(f"times must be one for each of the {len(X.data)} entries of X, got shape {event_times.shape}")
    invalid = np.isnat(event_times) if event_times.dtype.kind == "M" else ~np.isfinite(event_times)
    if invalid.any():
        raise ValueError(f"times must be finite: that of entry {int(np.argmax(invalid))} is not")
    order = csr.data
    return _as_array(type(csr)((np.asarray(X.data)[order], csr.indices, csr.indptr), shape=csr.shape)), event_times[
        order
    ]


def row_indices(csr: Any) -> Indices:
    """Return the row index of every stored entry of a CSR matrix, (nnz,)."""
    indptr = csr.indptr
    return np.arange(csr.shape[0], dtype=np.intp).repeat(indptr[1:] - indptr[:-1])


def select_smallest_in_rows(csr: Any, keys: NDArray[np.uint64], n_selected: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return a mask (nnz,) of a CSR matrix's stored entries: in row i, the n_selected[i] entries of smallest keys.

    keys has shape (nnz,). Return a mask (nnz,).
    """
    row = row_indices(csr)
    selected = np.zeros(csr.nnz, bool)
    selected[np.lexsort((keys, row))] = np.arange(csr.nnz) - csr.indptr[row] < n_selected[row]
    return selected


def split_entries(csr: Any, is_test: NDArray[np.bool_]) -> Split:
    """Return (training, test) CSR matrices: the stored entries where `is_test` is False, and where it is True."""
    return Split(_select_entries(csr, ~is_test), _select_entries(csr, is_test))


def _select_entries(csr: Any, keep: NDArray[np.bool_]) -> Any:
    """Return a CSR matrix of the same shape with only those stored entries where `keep` is True."""
    ends = np.concatenate([[0], np.cumsum(keep)])[csr.indptr]
    return type(csr)((csr.data[keep], csr.indices[keep], ends), shape=csr.shape)


# -- choice ------------------------------------------------------------------------------------------------------------
def _random_keys(seed: int, stream: int, n: int) -> NDArray[np.uint64]:
    """Return n random 64-bit integers, by which users or events are split. Different `stream` numbers give independent
    integers.
    """
    return raw_numbers(as_seed(seed), Key.SPLIT, 0, stream, n)


def _smallest_keys(keys: NDArray[np.uint64], number: int) -> Indices:
    """Return the indices of the `number` smallest keys."""
    return np.argsort(keys, kind="stable")[:number]


def _count_from_share(share: float, n: int, unit: str, *, name: str = "share") -> int:
    """Return a share of n as a count from 1 to n - 1; ValueError if n is less than 2.

    `unit` says in the message what is counted.
    """
    share = as_real(share, name, 0.0, 1.0, low_open=True, high_open=True)
    if n < 2:
        raise ValueError(f"X must hold two {unit} or more to be split, got {n}")
    return min(max(round(share * n), 1), n - 1)
