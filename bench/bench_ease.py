"""What item weights are read out of a sketch by, on validation parts of training data: EASE, svds, read-outs, ridges.

Nothing here looks at a test part: a fifth of the entries, or of the users, is left out first and never used.
"""

import sys

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import svds

import fastsketch as fs
from bench_lowrank_sets import ratings_of
from bench_tools import few, table

DEPTH = 20
SIZES = (64, 128, 256)
COLUMNS = ["read-out", *(f"l = {size}" for size in SIZES)]
# In units of the mean sum of squares of a column.
RIDGES = (0.3, 1.0, 3.0, 10.0, 30.0)
USERS = 800  # that a figure is a mean of


# -- data --------------------------------------------------------------------------------------------------------------
def power_law(groups=40, seed=5):
    """Users with tastes for some groups of items; popularity and activity by power laws."""
    rng = np.random.default_rng(seed)
    n_users, n_items = few(6000, 600), few(4000, 400)
    popularity = (1.0 + np.arange(n_items)) ** -0.8
    group = rng.integers(groups, size=n_items)
    active = np.minimum(5 + rng.pareto(1.2, n_users) * 8, 400).astype(int)
    rows, columns = [], []
    for user, k in enumerate(active):
        likely = popularity * (0.05 / groups + rng.dirichlet(np.full(groups, 0.06))[group])
        columns.append(np.unique(rng.choice(n_items, size=k, p=likely / likely.sum())))
        rows.append(np.full(len(columns[-1]), user))
    entries = np.concatenate(rows), np.concatenate(columns)
    return sparse.csr_array((np.ones(len(entries[0])), entries), shape=(n_users, n_items))


def events_of(name):
    """CSR of 1 for every rating of 4 or more, or of the generated set; None where the file is absent."""
    if name == "power law":
        return power_law()
    found = ratings_of(name)
    if found is None:
        return None
    rows, columns, stars, shape = found
    good = stars >= 4
    return sparse.csr_array((np.ones(int(good.sum())), (rows[good], columns[good])), shape=shape)


def parted(x, rng, share):
    """(the others, this share of the entries)."""
    entries, chosen = x.tocoo(), rng.random(x.nnz) < share
    out = []
    for part in (~chosen, chosen):
        places = entries.coords[0][part], entries.coords[1][part]
        out.append(sparse.csr_array((entries.data[part], places), shape=x.shape))
    return out


class Validation:
    """Rows to learn from; of some users what is shown, and what is to be found."""

    def __init__(self, x, kind, seed):
        rng = np.random.default_rng(seed)
        if kind == "entries":
            self.rows, hidden = parted(parted(x, rng, 0.2)[0], rng, 0.2)
            shown = self.rows
        else:
            users = rng.permutation(x.shape[0])
            first, second = int(0.64 * len(users)), int(0.8 * len(users))
            self.rows = x[np.sort(users[:first])]
            shown, hidden = parted(x[np.sort(users[first:second])], rng, 0.2)
        able = np.flatnonzero((np.diff(hidden.indptr) > 0) & (np.diff(shown.indptr) > 0))
        able = np.sort(rng.permutation(able)[:USERS])
        self.shown = shown[able]
        self._hidden = hidden[able].toarray() > 0
        self._seen = self.shown.nonzero()
        self._discount = 1.0 / np.log2(np.arange(2.0, DEPTH + 2.0))
        ideal = np.concatenate([[0.0], np.cumsum(self._discount)])
        self._ideal = ideal[np.minimum(self._hidden.sum(axis=1), DEPTH)]

    def ndcg(self, scores):
        """Mean NDCG@20 of scores (users, items), which are used up."""
        scores[self._seen] = -np.inf
        best = np.argpartition(-scores, DEPTH, axis=1)[:, :DEPTH]
        order = np.argsort(-np.take_along_axis(scores, best, 1), axis=1, kind="stable")
        found = np.take_along_axis(self._hidden, np.take_along_axis(best, order, 1), 1)
        return float(((found * self._discount).sum(axis=1) / self._ideal).mean())


# -- formulas ----------------------------------------------------------------------------------------------------------
def woodbury(shown, vt, squares, d):
    """Scores (users, items) of items that a row has not, from P = (V' diag(squares) V + diag(d))^-1."""
    w, root = vt / d, np.sqrt(squares)
    inner = np.eye(len(root)) + root[:, np.newaxis] * (w @ vt.T) * root
    e = np.linalg.solve(np.linalg.cholesky(inner), root[:, np.newaxis] * w)
    return ((shown @ e.T.astype(np.float32)) @ e.astype(np.float32)) / (1.0 / d - np.einsum("ij,ij->j", e, e)).astype(
        np.float32
    )


def lowered(squares, lost):
    """Each less what the smallest of them is, if as much has been lost."""
    return np.maximum(squares - min(squares[-1], lost), 0.0)


def read_outs(rows, columns, size):
    """{name: (vt, squares, d without the ridge)} of CSR rows whose columns have these sums of squares."""

    def back(vt, squares):
        return np.maximum(columns - (vt**2).T @ squares, 0.0)

    def both(name, vt, squares, lost):
        low = lowered(squares, lost)
        yield name, (vt, squares, 0.0)
        yield f"{name}, diagonal", (vt, squares, back(vt, squares))
        yield f"{name}, level and diagonal", (vt, low, back(vt, low))

    def of(sketch):
        return sketch.components.astype(np.float64), sketch.singular_values.astype(np.float64) ** 2

    _, s, vt = svds(rows.astype(np.float32), size)
    order = np.argsort(-s)
    yield from both("svds", vt[order].astype(np.float64), s[order].astype(np.float64) ** 2, np.inf)
    sketches = {
        name: fs.FrequentDirections(size, method=name, solver="gram", dtype="float32").update(rows)
        for name in ("isvd", "rfd", "tfd")
    }
    yield from both("isvd", *of(sketches["isvd"]), sketches["isvd"].shrinkage)
    vt, squares = of(sketches["rfd"])
    yield "rfd, midpoint", (vt, squares, sketches["rfd"].alpha)
    yield "rfd, truncation", (vt, squares, 0.0)
    yield "rfd, diagonal", (vt, squares, back(vt, squares))
    found = sketches["tfd"].spectrum()
    yield "tfd, ledger", (found.vectors, np.maximum(found.values, 0.0), 0.0)
    yield "tfd, ledger, diagonal", (found.vectors, found.values, back(found.vectors, found.values))
    yield from both("second pass", *of(sketches["isvd"].refine(rows)), np.inf)


def ease(args):
    """NDCG@20 on validation parts of every read-out at its best ridge, and of the ridge that SketchedEASE chooses."""
    names = ("power law",) if args.quick else ("ML-1M", "ML-100K", "power law")
    for name in names:
        x = events_of(name)
        if x is None:
            continue
        for kind in ("entries", "users"):
            for power in (0.0, 0.5):
                found = {}
                seeds = 1 if args.quick or name == "power law" else 2
                for seed in range(seeds):
                    _compare(Validation(x, kind, seed), power, found)
                lines = [(what, *_means(values)) for what, values in found.items()]
                label = f"{name} {kind} {power:g}".lower().replace(" ", "-").replace(".", "")
                note = f"{name}, held-out {kind}, activity_power {power:g}: NDCG@{DEPTH} @ ridge."
                table(lines, COLUMNS, label, runs=f"{seeds} split{'s, mean' if seeds > 1 else ''}", note=note)
                sys.stdout.flush()


def _means(values):
    """For each size the mean of the figures, and the ridges."""
    for size in SIZES:
        figures, ridges = zip(*values.get(size, [(np.nan, np.nan)]), strict=True)
        yield f"{np.mean(figures):.4f} @ {' '.join(f'{ridge:.2g}' for ridge in ridges)}" if size in values else ""


def _compare(validation, power, found):
    rows, shown = validation.rows, validation.shown.astype(np.float32)
    weights = np.maximum(np.asarray(rows.multiply(rows).sum(axis=1)).ravel(), 1.0) ** -power
    weighted = sparse.csr_array(sparse.diags_array(np.sqrt(weights)) @ rows)
    columns = np.asarray(weighted.multiply(weighted).sum(axis=0)).ravel()
    unit = columns[columns > 0].mean()

    def note(what, size, scores):
        best = max((validation.ndcg(scores(ridge * unit)), ridge) for ridge in RIDGES)
        found.setdefault(what, {}).setdefault(size, []).append(best)

    gram = (weighted.T @ weighted).toarray()

    def exact(ridge):
        p = np.linalg.inv(gram + ridge * np.eye(len(gram)))
        return -(shown @ p.astype(np.float32)) / np.diag(p).astype(np.float32)

    for size in SIZES:
        if size == SIZES[0]:
            note("EASE", size, exact)
        for what, (vt, squares, d) in read_outs(weighted, columns, size):
            note(what, size, lambda ridge: woodbury(shown, vt, squares, np.zeros(len(columns)) + d + ridge))  # noqa: B023
        model = fs.SketchedEASE(size, activity_power=power).update(rows)
        value = validation.ndcg(model.decision_block(shown))
        found.setdefault("SketchedEASE", {}).setdefault(size, []).append((value, model.facts()["ridge"] / unit))
