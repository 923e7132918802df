"""When a sketch is worth it: SketchHash beside components of a sample, on stationary rows and on streams."""

import time
from typing import NamedTuple

import numpy as np

import bench_data
import fastsketch as fs
from bench_data import sift5k
from bench_hashing import mean_average_precision, mnist, neighbours
from bench_sample_rivals import FirstRows, LengthSample, UniformSample
from bench_tools import few, spread, table

BITS = 64
BATCH = 2000
STATIONARY = ("MNIST", "sift5k")


class Asked(NamedTuple):
    """Queries of one kind, and which rows of the stream are right answers."""

    queries: np.ndarray
    relevant: np.ndarray  # (m, n) bool


class Stream(NamedTuple):
    """Rows in the order in which they come, and queries for the common and for the rare."""

    rows: np.ndarray
    asked: dict


# -- streams -----------------------------------------------------------------------------------------------------------
def _common(rng, n, d, groups=40):
    """Groups about centres with a decaying spectrum, in d columns: squared length about 1."""
    decay = 1 / np.sqrt(np.arange(1, d + 1))
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0].astype(np.float32)
    centres = rng.standard_normal((groups, d)) * decay
    rows = (centres[rng.integers(groups, size=n)] + rng.standard_normal((n, d)) * decay).astype(np.float32)
    rows /= np.sqrt((rows * rows).sum(axis=1).mean())
    return rows @ turn


def _with_rare(seed, n, *, length, share, kinds=20, together=False, spikes=0.0, d=256, own=128):
    """Common rows, and `kinds` rare kinds, each a `share` of the rows, `length` times as long, in columns of their own.

    Nothing but noise is in these columns otherwise. A kind has a centre and ten directions of its own; `together`: the
    rows of a kind come one after the other, a phase of the stream. `spikes` is the share of common rows to which a
    hundred times their length is added in one direction, the same for all: a sensor that clips, a field gone wrong.
    """
    rng = np.random.default_rng(seed)
    n_queries, each = 240, max(2, round(share * n))
    rows = np.zeros((n + n_queries, d + own), np.float32)
    rows[:, :d] = _common(rng, len(rows), d)
    rows[:, d:] = 0.02 * rng.standard_normal((len(rows), own), np.float32)
    spiked = rng.choice(n, round(spikes * n), replace=False)
    rows[np.ix_(spiked, np.arange(d))] += 100 * rng.standard_normal((len(spiked), 1)) @ np.full((1, d), d**-0.5)
    per_kind = n_queries // 2 // kinds
    kind_of = np.full(len(rows), -1)
    for kind in range(kinds):
        start = rng.integers(n - each)
        place = np.arange(start, start + each) if together else rng.choice(n, each, replace=False)
        place = np.concatenate([place, n + kind * per_kind + np.arange(per_kind)])
        kind_of[place] = kind
        centre = rng.standard_normal(own)
        inside = rng.standard_normal((10, own)) / np.sqrt(10)
        found = centre + rng.standard_normal((len(place), 10)) @ inside
        rows[place, d:] = (length / np.sqrt(2 * own)) * found
    queries, rows, kinds_asked = rows[n:], rows[:n], kind_of[n:]
    rare = kinds_asked >= 0
    common = queries[~rare][:100]
    return Stream(
        rows,
        {
            "common": Asked(common, neighbours(common, rows)),
            "rare": Asked(queries[rare], kinds_asked[rare][:, np.newaxis] == kind_of[:n]),
        },
    )


def _drifting(seed, n, d=384, phases=20):
    """Phases one after the other, each with rows of its own: all as long as each other."""
    rng = np.random.default_rng(seed)
    parts = [_common(rng, n // phases + 20, d, groups=5) for _ in range(phases)]
    rows, queries = np.concatenate([p[20:] for p in parts]), np.concatenate([p[:20] for p in parts])
    return Stream(rows, {"common": Asked(queries, neighbours(queries, rows))})


def _rare_digit(seed, digit):
    """MNIST in which one digit is a thousandth of the rows."""
    found = bench_data.mnist("all")
    if found is None:
        return None
    images, labels = found[0] / np.float32(255), found[1]
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(images))
    of_digit, others = order[labels[order] == digit], order[labels[order] != digit]
    kept = np.concatenate([others[200:], of_digit[200:260]])
    kept = kept[rng.permutation(len(kept))]
    rows, common, rare = images[kept], images[others[:200]], images[of_digit[:200]]
    return Stream(
        rows,
        {
            "common": Asked(common, neighbours(common, rows)),
            "rare": Asked(rare, np.broadcast_to(labels[kept] == digit, (len(rare), len(kept)))),
        },
    )


def _patches(seed, n):
    """Patches of photographs as they are, 12 x 12 in three colours: the tenth of largest contrast are the rare ones."""
    from demo.patches import Patches, photographs

    images = photographs()
    patches = Patches(images, 12)
    rng = np.random.default_rng(seed)
    places = rng.permutation(patches.n_rows)[: n + 4000]
    rows = np.concatenate([patches.at(places[i : i + 20_000]) for i in range(0, len(places), 20_000)])
    asked, rows = rows[:4000], np.ascontiguousarray(rows[4000:])
    contrast = asked.std(axis=1)
    by_contrast = np.argsort(contrast)
    rare, common = asked[by_contrast[-200:]], asked[rng.choice(by_contrast[:-400], 200, replace=False)]
    return Stream(
        rows, {name: Asked(q, neighbours(q, rows, share=0.002)) for name, q in (("common", common), ("rare", rare))}
    )


# -- what learns -------------------------------------------------------------------------------------------------------
class Sketched:
    """SketchHash with the method of a rival: update, seal, encode, nbytes."""

    def __init__(self, n_bits, seed, **options):
        self.model = fs.SketchHash(n_bits, seed=seed, **options)

    def update(self, rows):
        self.model.update(rows)

    def seal(self):
        self.model.projection  # noqa: B018  what is left to learn
        return self.model

    def nbytes(self):
        return len(self.model.to_bytes())


def learners(rotation):
    """{name: function of (n_bits, seed)}."""
    out = {"FROSH": lambda b, s: Sketched(b, s, rotation=rotation)}
    out["exact PCA"] = lambda b, s: Sketched(b, s, method="exact", rotation=rotation)
    for size in (1000, 2000, 8000):
        out[f"{size:,} rows"] = lambda b, s, k=size: UniformSample(b, k, rotation, s)
    out["2,000 by length"] = lambda b, s: LengthSample(b, 2000, rotation, s)
    out["first 2,000"] = lambda b, s: FirstRows(b, 2000, rotation, s)
    return out


def measured(make, stream, *, n_bits, seed):
    """(seconds of the processor to learn in batches, bytes of the state, {kind of query: MAP})."""
    model = make(n_bits, seed)
    start = time.process_time()
    for first in range(0, len(stream.rows), BATCH):
        model.update(stream.rows[first : first + BATCH])
    learned = model.seal()
    taken = time.process_time() - start
    found = {
        kind: mean_average_precision(learned, asked.queries, stream.rows, asked.relevant)
        for kind, asked in stream.asked.items()
    }
    return taken, model.nbytes(), found


def samples(args):
    """MAP of queries for the common and the rare, milliseconds, bytes, over seeds, in two tables."""
    n, seeds = (few(20_000, 2000), 1) if args.quick else (60_000, 2)
    streams = {
        "MNIST": lambda seed: _split(mnist(), seed),
        "sift5k": lambda seed: _split(sift5k(), seed),
        "drift, 20 phases": lambda seed: _drifting(seed, n),
        "rare 1e-3, length 1": lambda seed: _with_rare(seed, n, length=1, share=1e-3),
        "rare 1e-4, length 3": lambda seed: _with_rare(seed, n, length=3, share=1e-4),
        "rare 1e-4, length 10": lambda seed: _with_rare(seed, n, length=10, share=1e-4),
        "rare 1e-4, length 30": lambda seed: _with_rare(seed, n, length=30, share=1e-4),
        "rare phases 1e-4, length 10": lambda seed: _with_rare(seed, n, length=10, share=1e-4, together=True),
        "the same, 5% of spikes": lambda seed: _with_rare(seed, n, length=10, share=1e-4, spikes=0.05),
        "MNIST, few sevens": lambda seed: _rare_digit(seed, 7),
        "patches by contrast": lambda seed: _patches(seed, n),
    }
    only = [name for name in getattr(args, "only", "").split(",") if name]
    rows_out, streams = [], dict(list(streams.items())[: few(99, 4)])
    for name, make in streams.items():
        if only and not any(part in name for part in only):
            continue
        for rotation in ("random", "itq") if name in STATIONARY else ("itq",):
            results = {}
            for seed in range(seeds):
                stream = make(seed)
                if stream is None:
                    break
                for label, learner in learners(rotation).items():
                    results.setdefault(label, []).append(measured(learner, stream, n_bits=BITS, seed=seed))
            for label, found in results.items():
                cells = [
                    spread([f[2][kind] for f in found], 3) if kind in found[0][2] else "" for kind in ("common", "rare")
                ]
                taken, size = min(f[0] for f in found), found[0][1]
                rows_out.append([name, rotation, label, f"{1e3 * taken:,.0f}", f"{size / 1e6:.1f}", *cells])
                print(rows_out[-1], flush=True)
    columns = ["stream", "rotation", "learned from", "ms", "MB", "MAP, common", "MAP, rare"]
    runs = f"{seeds} seeds, mean +- standard deviation; milliseconds: the least"
    table(rows_out, columns, "main", runs=runs)


def _split(rows, seed):
    """Stationary rows: 200 of them as queries."""
    if rows is None:
        return None
    order = np.random.default_rng(seed).permutation(len(rows))
    queries, base = rows[order[:200]], rows[order[200:]]
    return Stream(base, {"common": Asked(queries, neighbours(queries, base))})
