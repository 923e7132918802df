"""Sets, splits, measures and choices of parameters of recommenders, for `headline` and `catalogues`.

Events are ratings of 4 and 5 stars as ones. Kinds of splits:

- random: a fifth of all ratings is held out, by several seeds;
- users: a part of the users is not trained on; four fifths of the events of each are shown, by several seeds;
- published: Gowalla's check-ins as LightGCN splits them, all users asked.

Whoever has events among the held-out ratings is asked for 20 items that have no rating among those shown. Parameters
are chosen on validation events alone, of the same kind within the first split's training part, by NDCG@20: of factor
models nine combinations of weight and ridge first, then a climb along the values of each parameter in turn until both
neighbours of every value are worse; "end" marks what lies at an end of its values. One thread for everybody.
"""

import time
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy import sparse

from bench_data import located, signed_links
from fastsketch.recommending.ranking import ndcg_at, recall_at
from fastsketch.recommending.ranking._splits import row_indices
from lowrank.choice import climb
from lowrank.sets import ratings_of
from recommending.methods import TOP

ASKED = 4000  # users asked about at most, where there are more


class Entries(NamedTuple):
    """Ratings or links; those of `events` are what is recommended."""

    rows: np.ndarray
    columns: np.ndarray
    stars: np.ndarray
    shape: tuple

    def part(self, chosen):
        return Entries(*(held[chosen] for held in self[:3]), self.shape)

    def ratings(self):
        return _csr(self.stars, self.rows, self.columns, self.shape)

    def events(self):
        likes = self.part(self.stars >= 4)
        return _csr(np.ones(len(likes.rows), np.float32), likes.rows, likes.columns, self.shape)


class Split(NamedTuple):
    """train and stars: CSR of those trained on; users: the rows asked about, None if they are not rows of train.

    shown, seen and hidden have a row for each of them: events, all ratings, events held out. entries: those of train.
    """

    train: sparse.csr_array
    stars: sparse.csr_array
    users: np.ndarray | None
    shown: sparse.csr_array
    seen: sparse.csr_array
    hidden: sparse.csr_array
    entries: Entries

    @staticmethod
    def matrix(x):
        """For packages that know scipy's matrices alone."""
        return sparse.csr_matrix((x.data, x.indices.astype(np.int32), x.indptr.astype(np.int32)), x.shape)


def _csr(values, rows, columns, shape):
    return sparse.csr_array(sparse.coo_array((values.astype(np.float32), (rows, columns)), shape=shape))


# -- data and splits ---------------------------------------------------------------------------------------------------
def entries_of(name):
    """Entries of a set, or None with a word about where it comes from."""
    if name in ("Epinions", "Slashdot"):
        lines = signed_links(name)
        if lines is None:
            return None
        lines = lines[lines[:, 2] > 0]
        for _ in range(2):
            for side in (0, 1):  # users and whom they trust with five links at least
                lines = lines[np.bincount(lines[:, side])[lines[:, side]] >= 5]
        keys = np.unique(lines[:, 0] * (lines[:, 1].max() + 1) + lines[:, 1], return_index=True)[1]
        rows, columns = (np.unique(lines[keys, side], return_inverse=True)[1] for side in (0, 1))
        shape = (int(rows.max()) + 1, int(columns.max()) + 1)
        return Entries(rows, columns, np.full(len(rows), 5, np.float32), shape)
    if name == "Gowalla":
        train = published("train")
        if train is None:
            return None
        stars = np.full(train.nnz, 5, np.float32)
        return Entries(row_indices(train), train.indices, stars, train.shape)
    found = ratings_of(name)
    if found is None:
        return None
    return Entries(*found[:3], tuple(int(size) for size in found[3]))


def published(part):
    """CSR of a part of Gowalla, or None."""
    path = located("Gowalla", f"gowalla/{part}.npz", "Gowalla as LightGCN splits it")
    return None if path is None else sparse.csr_array(sparse.load_npz(path)).astype(np.float32)


def split_of(entries, kind, seed):
    rng = np.random.default_rng(seed)
    if kind == "users":
        return _without_users(entries, rng)
    if kind == "published":
        train, hidden = entries.events(), published("test")
        users = np.flatnonzero((np.diff(hidden.indptr) > 0) & (np.diff(train.indptr) > 0))
        return Split(train, train, users, train[users], train[users], hidden[users], entries)
    held = rng.random(len(entries.rows)) < 0.2
    inside, outside = entries.part(~held), entries.part(held)
    return _asked(inside.events(), inside.ratings(), outside.events(), inside, rng)


def _asked(train, stars, hidden, entries, rng):
    users = np.flatnonzero((np.diff(hidden.indptr) > 0) & (np.diff(train.indptr) > 0))
    if len(users) > ASKED:
        users = np.sort(rng.choice(users, ASKED, replace=False))
    return Split(train, stars, users, train[users], stars[users], hidden[users], entries)


def _without_users(entries, rng):
    """A sixth of the users is held out; of what each of them likes, four fifths are shown."""
    likes = np.bincount(entries.rows[entries.stars >= 4], minlength=entries.shape[0])
    many = np.flatnonzero(likes >= 5)
    out = np.zeros(entries.shape[0], bool)
    out[rng.choice(many, min(1000, len(many) // 6), replace=False)] = True
    inside, others = entries.part(~out[entries.rows]), entries.part(out[entries.rows])
    held = rng.random(len(others.rows)) < 0.2
    shown, hidden = others.part(~held), others.part(held)
    users = np.flatnonzero(np.diff(hidden.events().indptr))
    left = np.flatnonzero(~out)
    return Split(
        inside.events()[left],
        inside.ratings()[left],
        None,
        shown.events()[users],
        shown.ratings()[users],
        hidden.events()[users],
        inside._replace(rows=np.searchsorted(left, inside.rows), shape=(len(left), entries.shape[1])),
    )


# -- measures ----------------------------------------------------------------------------------------------------------
def measured(split, items):
    """(ndcg, recall) at 20 of every user asked about."""
    return ndcg_at(items, split.hidden, k=TOP), recall_at(items, split.hidden, k=TOP)


def tuned(method, splits):
    """Parameters chosen on validation splits, and words about the choice."""
    kept = [{"tuning": True} for _ in splits]

    def score(parameters):
        return (-np.mean([one(split, held, parameters) for split, held in zip(splits, kept, strict=True)]),)

    def one(split, held, parameters):
        fitted = method.fit(split, held, **parameters)
        return np.nanmean(measured(split, fitted.recommend(split))[0])

    began = time.process_time()
    starts = [
        {**method.start, **dict(zip(method.coarse, values, strict=True))} for values in product(*method.coarse.values())
    ]
    best, (error,), tried = climb(method.grids, score, starts)
    words = ", ".join(
        f"{name} {value:g}" + (" (end)" if value in (method.grids[name][0], method.grids[name][-1]) else "")
        for name, value in best.items()
    )
    grid = "; ".join(f"{name} {values[0]:g} .. {values[-1]:g} ({len(values)})" for name, values in method.grids.items())
    return best, [words, f"{-error:.4f}", tried, f"{time.process_time() - began:.0f}", grid]


# -- choices and comparisons -------------------------------------------------------------------------------------------
def choose(name, kind, entries, methods):
    """[(label, method, parameters)] to measure and the lines of the table of choices."""
    train = split_of(entries, kind, 0).entries
    within = [split_of(train, "random" if kind == "published" else kind, 100)]
    chosen, lines = [], []
    for method in methods:
        if name not in method.sets or kind not in method.kinds:
            continue
        if method.absent():
            lines.append([method.name, f"absent: pip install {method.needs}", "", "", "", ""])
            continue
        if method.asis is not None:
            chosen.append((f"{method.name}, as it comes", method, method.asis))
        if method.grids:
            best, words = tuned(method, within)
            lines.append([method.name, *words])
            chosen.append((f"{method.name}, tuned" if method.asis is not None else method.name, method, best))
            print(name, kind, method.name, *words[:4], flush=True)
        elif method.asis is None:
            chosen.append((method.name, method, {}))
    return chosen, lines


class Result(NamedTuple):
    ndcg: list  # (users,) of each split
    recall: list
    fit: list  # seconds
    answer: list  # ms a user
    bytes: list


def _paired(one, other):
    """(mean, standard error) of the differences of users, over all splits."""
    gap = np.concatenate([np.subtract(a, b) for a, b in zip(one, other, strict=True)])
    gap = gap[~np.isnan(gap)]
    splits = len(one)  # the same users in every split: errors as of one split's number of users
    return gap.mean(), gap.std(ddof=1) / np.sqrt(len(gap) / splits)


def compared(result, ours, words, splits):
    """Return the cells of lists: NDCG and recall, and the difference from ours."""
    means = [[np.nanmean(values) for values in held] for held in (result.ndcg, result.recall)]
    cells = [f"{np.mean(held):.4f}" + (f" +- {np.std(held):.4f}" if splits > 1 else "") for held in means]
    error = np.mean([np.nanstd(v, ddof=1) / np.sqrt(np.sum(~np.isnan(v))) for v in result.ndcg])
    gap = "" if result is ours else "{:+.4f} +- {:.4f}".format(*_paired(result.ndcg, ours.ndcg))
    return {
        f"NDCG@20, +- over {splits} splits" if splits > 1 else "NDCG@20": cells[0],
        "error over users": f"{error:.4f}",
        f"less {words}": gap,
        "Recall@20": cells[1],
    }
