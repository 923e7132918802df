"""What a row costs in batches of one row up to a thousand, of each model that learns as rows come."""

import numpy as np
from scipy import sparse

import fastsketch as fs
from bench_papers import PLAIN
from bench_tools import few, least, rival, table
from fastsketch import papers

SIZES = (1, 2, 5, 10, 50, 200, 1000)
REPEATS = 7
D, COLUMNS, NONZEROS = 100, 1000, 10


def batches(args):
    """Microseconds a row by rows of a batch."""
    n, rng = few(1000, 20), np.random.default_rng(0)
    sizes = [*(size for size in SIZES if size < n), n]
    dense = rng.standard_normal((n, D))
    places = np.sort(rng.permuted(np.tile(np.arange(COLUMNS), (n, 1)), axis=1)[:, :NONZEROS])
    starts = np.arange(0, n * NONZEROS + 1, NONZEROS, dtype=np.int32)
    csr = sparse.csr_array((rng.standard_normal(n * NONZEROS), places.ravel().astype(np.int32), starts))
    csr.resize(n, COLUMNS)
    events = sparse.csr_array((np.ones(n * NONZEROS), csr.indices, starts), shape=csr.shape)
    labels = (rng.random(n) < 0.5).astype(int)
    models = {
        "FrequentDirections(20)": _updates(fs.FrequentDirections(20), dense),
        "FrequentDirections(20), CSR": _updates(fs.FrequentDirections(20), csr),
        "SketchHash(32)": _updates(fs.SketchHash(32), dense),
        "SketchedNewton, the paper's RFD0": _updates(papers.rfd_son(10), dense, 2 * labels - 1),
        "SketchedNewton()": _updates(fs.SketchedNewton(), dense, labels),
        "SketchedNewton(), CSR": _updates(fs.SketchedNewton(), csr, labels),
        "ADA-FFD, as in the paper": _updates(fs.AdaptiveSubgradient(10, **PLAIN), dense, labels),
        "AdaptiveSubgradient()": _updates(fs.AdaptiveSubgradient(), dense, labels),
        "AdaptiveSubgradient(), CSR": _updates(fs.AdaptiveSubgradient(), csr, labels),
        "SketchedEASE()": _updates(fs.SketchedEASE(), events),
        **_of_others(dense, csr, labels),
    }
    lines = []
    for name, cut in models.items():
        runs = {size: cut(size) for size in sizes}
        runs[n]()  # so that all have seen columns and labels
        found = least({str(size): run for size, run in runs.items() if run}, REPEATS)
        each = [f"{found[str(size)] / n * 1e6:.1f}" if str(size) in found else "" for size in sizes]
        lines.append([name, *each, f"{(found['1'] - found[str(n)]) / n * 1e6:.1f}" if "1" in found else ""])
        print(*lines[-1], flush=True)
    heads = ["model", *(f"{size:,}" for size in sizes), "one row above the longest batch"]
    table(lines, heads, "main", runs=f"the least of {REPEATS} in turn")


def _updates(model, rows, labels=None, learn="update", **settings):
    """Return how to get from a size of batches to what learns all rows in such batches, which are cut before."""

    def cut(size):
        parts = []
        for start in range(0, rows.shape[0], size):
            stop = start + size
            parts.append((rows[start:stop], *(() if labels is None else (labels[start:stop],))))
        update = getattr(model, learn)

        def run():
            for part in parts:
                update(*part, **settings)

        return run

    return cut


def _of_others(dense, csr, labels):
    from sklearn.decomposition import IncrementalPCA
    from sklearn.linear_model import SGDClassifier

    pca, both = _updates(IncrementalPCA(20), dense, learn="partial_fit"), np.unique(labels)
    out = {
        "scikit-learn IncrementalPCA(20)": lambda size: pca(size) if size >= 20 else None,
        "scikit-learn SGDClassifier()": _updates(SGDClassifier(), dense, labels, "partial_fit", classes=both),
        "scikit-learn SGDClassifier(), CSR": _updates(SGDClassifier(), csr, labels, "partial_fit", classes=both),
    }
    if rival("river"):
        from river import linear_model, optim, preprocessing

        names = [f"x{j}" for j in range(csr.shape[1])]
        full = [dict(zip(names, row, strict=False)) for row in dense.tolist()]
        some = [
            {names[j]: v for j, v in zip(row.indices.tolist(), row.data.tolist(), strict=True)}
            for row in (csr[[i]] for i in range(len(full)))
        ]
        scaled = preprocessing.StandardScaler() | linear_model.LogisticRegression(optim.AdaGrad())
        out["river LogisticRegression(), dicts of 100"] = _by_dict(linear_model.LogisticRegression(), full, labels)
        out["river StandardScaler, AdaGrad, dicts of 100"] = _by_dict(scaled, full, labels)
        out["river LogisticRegression(), dicts of 10"] = _by_dict(linear_model.LogisticRegression(), some, labels)
        out["SketchedNewton(), dicts of 10"] = _updates(fs.SketchedNewton(), _List(some), labels)
    return out


class _List(list):
    """Rows as dicts, with what `_updates` asks of an array."""

    @property
    def shape(self):
        return (len(self),)


def _by_dict(model, rows, labels):
    def learn():
        for row, label in zip(rows, labels.tolist(), strict=True):
            model.learn_one(row, label)

    return lambda size: learn if size in (1, len(rows)) else None
