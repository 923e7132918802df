"""LowRankModel as it comes against biases tuned alone: stars, few stars of each user, signed links."""

from functools import partial

import numpy as np
from scipy import sparse

import fastsketch as fs
from bench_tools import rival, spread, table
from lowrank.choice import Comparison, Way, chosen, less, seconds_of
from lowrank.sets import GENERATED, few_of_each, halves, links_of, ratings_of, tenths
from store import Parts

RANKS, BIASES = (4, 6, 8, 10, 14, 20), (0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0)
UNITS = (0.4, 0.5, 0.6, 0.75, 1.0, 1.3)  # ridges of LowRankModel, in noise levels
CMFREC = {"k": RANKS, "ridge": (6.0, 8.0, 11.0, 15.0, 20.0), "bias_ridge": (0.5, 1.0, 2.0, 4.0, 8.0)}
BASE, TRIADS = "biases alone, tuned", "logistic regression on degrees and triads"
STARS = {
    "ML-100K, 5 a user": ("ML-100K", few_of_each),
    "ML-1M, 5 a user": ("ML-1M", few_of_each),
    "ML-100K": ("ML-100K", halves),
    "ML-1M": ("ML-1M", halves),
    "ML-100K, 40 a user": ("ML-100K", partial(few_of_each, many=40)),
    "ML-1M, 40 a user": ("ML-1M", partial(few_of_each, many=40)),
    "generated stars, 40 a user": (GENERATED, partial(few_of_each, many=40)),
}
DENSE = "generated signs, 90 a row"
LINKS = "bitcoin-OTC", "Slashdot", DENSE, "Epinions"
CODES = 8  # of an edge between two users: positive, negative or none, each way
TUNED = {"rank": RANKS, "ridge": UNITS, "bias_ridge": (1.0, 3.0, 5.0)}
PAIRS = 2.0 ** np.arange(1, CODES + 1)[:, np.newaxis] * 3.0 ** np.arange(1, CODES + 1)


def biases(args):
    """RMSE of stars, errors of signs in %: five splits, with differences split by split from biases alone, tuned."""
    parts, splits, tables = Parts(args), 2 if args.quick else 5, {}
    for name in [*list(STARS)[::2], *LINKS[:1]] if args.quick else [*STARS, *LINKS]:
        if not args.sets or any(name.startswith(some) for some in args.sets.split(",")):
            # tables of their own: --sets Epinions --join
            of = "main" if name in STARS else "Epinions" if name == "Epinions" else "signs"
            tables.setdefault(of, []).extend(parts.of(name, _of_set, name, splits))
    head = ["set", "method", "RMSE, or errors in %", f"less {BASE}", "error of that", "s, processor", "chosen"]
    for name, lines in tables.items():
        table(lines, head, name, runs=f"{splits} splits, mean +- standard deviation; seconds: mean")


def _of_set(name, splits):
    """Return a line for each method on one set; none where its file is absent."""
    known, cut = STARS.get(name, (name, tenths))
    found = ratings_of(known) if name in STARS else links_of(GENERATED if name == DENSE else known, shared=True)
    return [] if found is None else list(_compared(name, found, cut(found, splits), splits))


def _compared(name, found, cuts, splits):
    values = found[2]
    signs = values.min() < 0
    plain = {"loss": "logistic" if signs else "square", "dtype": "float32"}
    defaults = {"ridge": 1.0 if signs else "learned", "bias_ridge": 2.0 if signs else 3.0}

    def measure(z, train, test):
        if signs:
            often = np.sign(values[train].mean())  # of pairs without a score
            return [100 * float(np.mean(np.where(z == 0, often, np.sign(z)) != values[test]))]
        return [float(np.sqrt(np.mean((np.clip(z, 1, 5) - values[test]) ** 2)))]

    def fit(x, rank, **options):
        return fs.LowRankModel(rank, **plain, **options).fit(x).decision_function

    ways = [
        Way(BASE, lambda x, **o: fit(x, 0, **o), {"bias_ridge": BIASES}),
        Way("LowRankModel, nothing chosen", lambda x: fit(x, 10, **defaults)),
        Way("LowRankModel, as it comes", lambda x: fit(x, 10)),
    ]
    if signs:
        square = fs.LowRankModel(10, dtype="float32")
        ways.append(Way("LowRankModel, as it comes, square loss", lambda x: square.fit(x).decision_function))
        ways += [] if name == DENSE else [Way(TRIADS, link_scores)]
    else:
        ways += [
            Way("LowRankModel, ridge tuned", lambda x, **o: fit(x, **o), TUNED, once=name.startswith("ML-1M")),
        ]
        if rival("cmfrec"):
            ways.append(Way("cmfrec, 15 iterations", cmfrec, CMFREC, once=name.startswith("ML-1M")))
    results = Comparison(found, lambda _: values, measure).run(ways, cuts)
    for label, result in results.items():
        apart = np.array([a[0] - b[0] for a, b in zip(result.errors, results[BASE].errors, strict=True)])
        pair = "" if label == BASE else less(result, results[BASE], 0)
        error = "" if label == BASE else f"{apart.std(ddof=1) / np.sqrt(splits):.4f}"
        yield [name, label, spread([e[0] for e in result.errors]), pair, error, seconds_of(result)[0], chosen(result)]


def cmfrec(x, ridge, bias_ridge, **options):
    """Fit cmfrec with 15 iterations, and return its predictions.

    Exact solutions instead of conjugate gradients are faster at these ranks, and more accurate.
    """
    from cmfrec import CMF

    # of the biases of users and of items, the factors of both, and of side information
    penalties = [bias_ridge, bias_ridge, ridge, ridge, ridge, ridge]
    model = CMF(lambda_=penalties, niter=15, use_cg=False, nthreads=1, use_float=True, verbose=False, **options)
    return model.fit(sparse.coo_matrix(x)).predict


# -- signs by what is known of both users (Leskovec, Huttenlocher, Kleinberg, WWW 2010) --------------------------------
def link_scores(x):
    """Scores of pairs by a logistic regression on degrees and triads, learned from the links of x."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    links = sparse.coo_array(x)
    known = Links(links)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    model.fit(known.features(*links.coords, links.data), links.data)
    return lambda rows, columns: model.decision_function(known.features(rows, columns, np.zeros(len(rows))))


class Links:
    """Signed links: degrees of every user, and the kinds of links between two of them."""

    def __init__(self, links):
        n, (rows, columns) = links.shape[0], links.coords
        positive = links.data > 0
        degree = [np.bincount(ids[which], minlength=n) for ids in (rows, columns) for which in (positive, ~positive)]
        self.degree = np.stack(degree).astype(float)  # out +, out -, in +, in -
        kinds = np.where(positive, 1, 2)  # of a link out of the row's user; times 3 of one into it
        both = sparse.coo_array(
            (np.concatenate([kinds, 3 * kinds]), (np.concatenate([rows, columns]), np.concatenate([columns, rows]))),
            shape=links.shape,
        )
        codes = both.tocsr()
        self.one, self.two = codes.astype(float), codes.astype(float)
        self.one.data, self.two.data = 2.0**codes.data, 3.0**codes.data

    def features(self, rows, columns, own):
        """Features (k, 23) of pairs; own: the sign of the pair where it is one of the links, which is then left out."""
        out = self.degree[:2, rows] - [own > 0, own < 0]
        into = self.degree[2:, columns] - [own > 0, own < 0]
        triads = np.vstack([self._triads(rows[k : k + 20_000], columns[k : k + 20_000]) for k in _starts(len(rows))])
        shared = triads.sum(axis=1)
        return np.log1p(np.column_stack([*out, *into, out.sum(axis=0), into.sum(axis=0), shared, triads]))

    def _triads(self, rows, columns):
        """Ways (k, 16) between two users by a third: the sign and direction of both links."""
        found = self.one[rows].multiply(self.two[columns]).tocoo()
        order = np.argsort(PAIRS, axis=None)
        which = order[np.searchsorted(PAIRS.ravel()[order], found.data)]
        counts = np.bincount(found.coords[0] * CODES**2 + which, minlength=len(rows) * CODES**2)
        ways = np.array(
            [[code % 3 == 1, code % 3 == 2, code // 3 == 1, code // 3 == 2] for code in range(1, CODES + 1)]
        )
        return counts.reshape(len(rows), CODES**2) @ np.kron(ways, ways)


def _starts(n):
    return range(0, max(n, 1), 20_000)
