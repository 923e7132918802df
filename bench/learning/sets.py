"""The sets that learners are compared on: rows as people have them, any labels, five orders and splits of each.

Sets with a test part of their own (a9a, MNIST) keep it, and only the order of the training rows changes from seed to
seed; of the others the seed draws the split, 70% for training, and the order. Nothing may be chosen on test rows:
`within` splits the training rows of a task once more.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import sparse

import bench_data
from lowrank.sets import ratings_of

SPLITS = 5
SHARE = 0.7  # of the rows, for training


class Found(NamedTuple):
    """rows: CSR or dense, (n, d) float64; fixed: the set's own (rows, targets) for tests; chances: see `chances`."""

    rows: np.ndarray | sparse.csr_array
    targets: np.ndarray
    fixed: tuple | None = None
    chances: np.ndarray | None = None


class Task(NamedTuple):
    """What a learner gets: x, y in the order in which it learns; test, truth; places of both in the set's rows."""

    name: str
    x: np.ndarray | sparse.csr_array
    y: np.ndarray
    test: np.ndarray | sparse.csr_array
    truth: np.ndarray
    order: np.ndarray
    held: np.ndarray | None  # None: the set has a test part of its own

    @property
    def classes(self):
        """Sorted labels, None for real targets."""
        return np.unique(self.y) if self.name in CLASSIFIED else None


# -- reading -----------------------------------------------------------------------------------------------------------
def _whole(values):
    return values.astype(np.int64)


def _a9a():
    parts = [bench_data.svmlight(name) for name in ("a9a", "a9a.t")]
    if None in parts:
        return None
    (x, y), (test, truth) = parts
    d = max(x.shape[1], test.shape[1])
    for rows in (x, test):  # columns that one part alone has
        rows.resize((rows.shape[0], d))
    return Found(x, _whole(y), (test, _whole(truth)))


def _plain(read, *arguments):
    """A set of rows and labels without a part for tests."""

    def found():
        both = read(*arguments)
        return None if both is None else Found(both[0].astype(np.float64), _whole(both[1]))

    return found


def _halves():
    """news20, its first ten classes against the last ten, as strings."""
    found = found_of("news20")
    return None if found is None else found._replace(targets=np.where(found.targets <= 10, "first", "second"))


def _mnist():
    parts = bench_data.mnist(), bench_data.mnist("t10k")
    if None in parts:
        return None
    (rows, labels), (held, truth) = parts
    return Found(rows / 255.0, _whole(labels), (held / 255.0, _whole(truth)))


def _breast_cancer():
    from sklearn.datasets import load_breast_cancer

    return Found(*load_breast_cancer(return_X_y=True))


def _diabetes(scaled):
    def read():
        from sklearn.datasets import load_diabetes

        return Found(*load_diabetes(return_X_y=True, scaled=scaled))

    return read


def clicks(n=60_000, width=2**18, seed=0):
    """(rows, clicked, chances): hashed fields with long tails, three numbers, a tenth of clicks.

    Some 1,200 of the columns occur. chances: the probability of each click that the labels were drawn with, linear in
    the rows but for the logistic curve, so that the best possible log loss is known. The numbers are as they come in
    logs: hours 0 to 23, a count, a price.
    """
    rng = np.random.default_rng(seed)
    fields = {"site": 500, "advert": 350, "town": 200, "device": 60, "day": 7, "browser": 12, "campaign": 90}
    score, columns = np.zeros(n), []
    for size in fields.values():
        popularity = 1 / (3 + np.arange(size)) ** 1.1
        value = rng.choice(size, n, p=popularity / popularity.sum())
        columns.append(rng.choice(width - 3, size, replace=False)[value] + 3)  # columns 0 to 2 are the numbers
        score += rng.normal(0, 0.4, size)[value]
    hour = rng.integers(0, 24, n)
    visits = rng.negative_binomial(1, 0.25, n)
    price = np.round(np.exp(rng.normal(2.5, 0.8, n)), 2)
    score += 0.02 * hour + 0.06 * visits - 0.01 * price
    low, high = -10.0, 5.0
    for _ in range(60):  # the intercept at which a tenth clicks
        middle = (low + high) / 2
        low, high = (middle, high) if np.mean(1 / (1 + np.exp(-score - middle))) < 0.1 else (low, middle)
    chances = 1 / (1 + np.exp(-score - low))
    clicked = _whole(rng.random(n) < chances)
    places = np.column_stack([np.zeros(n, np.int64), np.ones(n, np.int64), np.full(n, 2), *columns])
    values = np.ones(places.shape)
    values[:, :3] = np.column_stack([hour, visits, price])
    starts = np.arange(0, places.size + 1, places.shape[1], dtype=np.int32)
    rows = sparse.csr_array((values.ravel(), places.ravel().astype(np.int32), starts), shape=(n, width))
    rows.sum_duplicates()
    rows.eliminate_zeros()
    return rows, clicked, chances


def _clicks():
    rows, clicked, chances = clicks()
    return Found(rows, clicked, None, chances)


def _heavy_tails():
    """A linear target with an offset, features of unlike scales, noise of Student's t with 2.5 degrees of freedom."""
    rng = np.random.default_rng(0)
    n, d = 20_000, 50
    x = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-1, 1, d)
    w = rng.standard_normal(d) / np.sqrt(np.mean(x**2, axis=0)) * (rng.random(d) < 0.5)
    return Found(x, 20 + 3 * x @ w + 3 * rng.standard_t(2.5, n))


def _stars():
    """ml-100k: a user and an item of each rating, as ones."""
    found = ratings_of("ML-100K")
    if found is None:
        return None
    users, items, stars, (n_users, n_items) = found
    n = len(stars)
    places = np.column_stack([users, n_users + items]).ravel().astype(np.int32)
    starts = np.arange(0, 2 * n + 1, 2, dtype=np.int32)
    rows = sparse.csr_array((np.ones(2 * n), places, starts), shape=(n, n_users + n_items))
    return Found(rows, stars.astype(np.float64))


CLASSIFIED = {
    "a9a": _a9a,
    "w8a": _plain(bench_data.svmlight, "w8a"),
    "mushrooms": _plain(bench_data.svmlight, "mushrooms"),
    "farm-ads": _plain(bench_data.farm_ads),
    "news20": _plain(bench_data.svmlight, "news20"),
    "news20 halves": _halves,
    "MNIST": _mnist,
    "madelon": _plain(bench_data.matlab, "madelon"),
    "Isolet": _plain(bench_data.matlab, "Isolet"),
    "breast cancer": _breast_cancer,
    "clicks": _clicks,
}
MEASURED = {
    "heavy tails": _heavy_tails,
    "diabetes": _diabetes(scaled=False),
    "diabetes scaled": _diabetes(scaled=True),
    "ml-100k": _stars,
}
SETS = {**CLASSIFIED, **MEASURED}


# -- splits ------------------------------------------------------------------------------------------------------------
@lru_cache(maxsize=3)
def found_of(name):
    """The whole of a set, or None with a word about where it comes from."""
    return SETS[name]()


def task_of(name, seed):
    """The task of a set and a seed, 0 to SPLITS - 1, or None where the set is absent."""
    found = found_of(name)
    if found is None:
        return None
    rows, targets, fixed, _ = found
    if sparse.issparse(rows):  # scikit-learn takes no others
        assert rows.indices.dtype == rows.indptr.dtype == np.int32
    order = np.random.default_rng(seed).permutation(rows.shape[0])
    if fixed is not None:
        return Task(name, rows[order], targets[order], *fixed, order, None)
    cut = int(SHARE * len(order))
    order, held = order[:cut], order[cut:]
    return Task(name, rows[order], targets[order], rows[held], targets[held], order, held)


def within(task, share=0.8):
    """A task of the training rows alone: learn from the first, validate on the last of them."""
    cut = int(share * len(task.order))
    x, y, order = task.x, task.y, task.order
    return Task(task.name, x[:cut], y[:cut], x[cut:], y[cut:], order[:cut], order[cut:])


def subset(task, n):
    """The task with its first n training rows."""
    return task._replace(x=task.x[:n], y=task.y[:n], order=task.order[:n])


def chances(task):
    """Probabilities that the test labels of generated clicks were drawn with, None for any other set."""
    found = found_of(task.name)
    return None if found.chances is None else found.chances[task.held]
