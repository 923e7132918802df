"""Alarms when a stream changes: DriftMonitor beside river's detectors and a CUSUM, at one rate of false alarms."""

import io
import time
import zipfile
from functools import cache

import numpy as np

import bench_data
import fastsketch as fs
from bench_tools import few, rival, table

EVERY, REFERENCE, CALM, CHANGED = 100, 60, 40, 40  # rows of a block; blocks of the reference, before the change, after
D, FACTORS = 12, 3
MOST = 100_000  # the largest run_length
SEEDS = 50_000  # of the first stream: the monitor was designed on streams of other laws and seeds
LEADING = 8  # directions of the reference that row by row detectors watch; each column too, where there are 16 at most
# What ADWIN's delta is tried at: it shows no statistic.
ADWINS = 0.2 * 10.0 ** -np.array([*range(12), 15, 20, 30, 50, 80, 120, 200])


# -- streams -----------------------------------------------------------------------------------------------------------
def generated(rng, n, at, kind):
    """Twelve columns of three factors and noise, standard deviation 1 each, that change from row `at` on."""
    loadings = np.linalg.qr(rng.standard_normal((D, FACTORS + 1)))[0].T  # the last one is of no factor
    factors, late = rng.standard_normal((n, FACTORS + 1)) * [2.0, 1.6, 1.3, 0.0], np.arange(n) >= at
    noise = rng.standard_normal((n, D))
    if kind == "rotation":  # of the second factor, by twenty degrees to where there was noise alone
        turned = loadings.copy()
        turned[1] = np.cos(np.deg2rad(20)) * loadings[1] + np.sin(np.deg2rad(20)) * loadings[3]
        rows = np.where(late[:, None], factors @ turned, factors @ loadings) + noise
    else:
        factors[:, 3] = 0.7 * late * rng.standard_normal(n) if kind == "new direction" else 0.0
        rows = factors @ loadings + noise
    rows /= np.sqrt(1 + (np.array([2.0, 1.6, 1.3]) ** 2) @ loadings[:FACTORS] ** 2)
    if kind == "mean":
        rows[late, 3] += 0.3
    elif kind == "variance":
        rows[late, 3:5] *= 1.2
    elif kind == "slow drift":
        rows[late, 3] += np.linspace(0, 1, late.sum())
    return rows


@cache
def cifar():
    """Rows of 8 x 8 grey means, one pool for each of the ten classes."""
    path = bench_data.located("cifar10", "cifar10/cifar10_jpeg.zip", "CIFAR-10 as JPEG files")
    if path is None:
        return None
    from PIL import Image

    pools = {}
    with zipfile.ZipFile(path) as files:
        for name in sorted(files.namelist()):
            part, kind, file = (name.split("/") + ["", ""])[:3]
            if part == "train" and file.endswith(".jpg") and len(pools.setdefault(kind, [])) < few(1000, 20):
                grey = np.asarray(Image.open(io.BytesIO(files.read(name))).convert("L"), np.float64)
                pools[kind].append(grey.reshape(8, 4, 8, 4).mean(axis=(1, 3)).ravel())
    return [np.array(pools[kind]) for kind in sorted(pools)]


@cache
def news():
    """Rows of texts along the 32 leading directions of the ten odd groups, one pool for each of the twenty."""
    found = bench_data.svmlight("news20")
    if found is None:
        return None
    rows, labels = found
    odd = np.flatnonzero(labels % 2)
    from fastsketch.sklearn import SketchedPCA

    rows = SketchedPCA(32, sketch_size=64).fit(rows[odd]).transform(rows)
    return [rows[labels == label] for label in (*range(1, 21, 2), *range(2, 21, 2))]


@cache
def market():
    """Days of elec, 48 half hours of price and demand in New South Wales: before it joined Victoria's market, since."""
    found = bench_data.elec()
    if found is None:
        return None
    rows = found[0]
    joined = int(np.flatnonzero(rows[:, 5] != rows[0, 5])[0]) // 48 * 48 if len(np.unique(rows[:, 5])) > 1 else 0
    return [part[: len(part) // 48 * 48, 1:3].reshape(-1, 48, 2) for part in (rows[:joined], rows[joined:])]


def drawn_of(pools, before, after):
    """Return a function (rng, n, at, kind) that draws rows with replacement, after row `at` with other shares."""

    def drawn(rng, n, at, kind):
        sizes = np.array([len(pool) for pool in pools])
        shares = [np.array(w, float) / np.sum(w) for w in (before, after if kind else before)]
        which = np.concatenate([rng.choice(len(pools), m, p=p) for m, p in zip((at, n - at), shares, strict=True)])
        places = (rng.random(n) * sizes[which]).astype(int)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        return np.concatenate(pools)[starts[which] + places]

    return drawn


def laws():
    """Yield (name, kinds of change, function (rng, n, at, kind) of rows)."""
    yield "generated", ("mean", "variance", "rotation", "new direction", "slow drift"), generated
    if (pools := cifar()) is not None:
        yield "cifar10", ("five classes leave",), drawn_of(pools, [1] * 10, [1] * 5 + [0] * 5)
    if (pools := news()) is not None:
        yield "news20", ("ten other groups",), drawn_of(pools, [1] * 10 + [0] * 10, [0] * 10 + [1] * 10)
    if (pools := market()) is not None:

        def days(rng, n, at, kind):
            k = -(-n // 48)
            late = (np.arange(k) * 48 >= at) & bool(kind)
            places = [rng.integers(len(pools[side])) for side in late.astype(int)]
            return np.concatenate([pools[side][i] for side, i in zip(late.astype(int), places, strict=True)])[:n]

        yield "elec", ("a market is joined",), days


# -- detectors ---------------------------------------------------------------------------------------------------------
# Each returns a statistic for every block after the reference; there is an alarm where it is above a threshold.
def monitored(rows):
    """The logarithm of the arrangements of which none is as large; from an alarm on of more than are ever tried."""
    monitor, out = fs.DriftMonitor(every=EVERY, reference=REFERENCE, run_length=MOST), []
    for part in rows.reshape(-1, EVERY, rows.shape[1]):
        monitor.update(part)
        out.append(np.log10(max(monitor.evidence * MOST, 1)) if monitor.armed else -np.inf)
        if monitor.alarms:
            break
    out += [np.log10(MOST)] * (len(rows) // EVERY - len(out))
    return np.array(out[REFERENCE:])


def standardised(rows):
    """Rows in standard deviations of the reference, and the same of its leading directions: (n, f), (n, r)."""
    first = rows[: EVERY * REFERENCE]
    vt = np.linalg.eigh(np.cov(first.T))[1][:, ::-1][:, :LEADING]
    return tuple((x - x[: len(first)].mean(axis=0)) / x[: len(first)].std(axis=0) for x in (rows, rows @ vt))


def by_cusum(rows):
    """CUSUM (k = 1/2) of means and log variances of blocks, of each column and leading direction."""
    blocks = np.hstack(standardised(rows)).reshape(-1, EVERY, rows.shape[1] + min(LEADING, rows.shape[1]))
    z = np.hstack([blocks.mean(axis=1), np.log(blocks.var(axis=1))])
    z = (z - z[:REFERENCE].mean(axis=0)) / z[:REFERENCE].std(axis=0, ddof=1)
    up, down, out = np.zeros(z.shape[1]), np.zeros(z.shape[1]), []
    for row in z[REFERENCE:]:
        up, down = np.maximum(0, up + row - 0.5), np.maximum(0, down - row - 0.5)
        out.append(max(up.max(), down.max()))
    return np.array(out)


def watched(rows):
    """Values that detectors of a mean watch: columns and directions, at most 3 in size, and their squares."""
    columns, directions = standardised(rows)
    values = np.clip(np.hstack([columns, directions]) if columns.shape[1] <= 16 else directions, -3, 3)
    return np.hstack([values, values**2]).T.tolist()


def blocks_of(values):
    """Values of a block, for each block."""
    return (values[k : k + EVERY] for k in range(0, len(values), EVERY))


def by_adwin(rows):
    """-log10 of the largest delta with an alarm so far."""
    from river.drift import ADWIN

    out = np.full(len(rows) // EVERY - REFERENCE, -np.inf)
    for values in watched(rows):
        for delta in ADWINS:
            detector, first = ADWIN(delta=delta), None
            for k, part in enumerate(blocks_of(values)):
                found = False
                for value in part:
                    detector.update(value)
                    found = found or detector.drift_detected
                if found and k >= REFERENCE:
                    first = k - REFERENCE
                    break
            if first is None:
                break
            out[first:] = np.maximum(out[first:], -np.log10(delta))
    return out


def by_page_hinkley(rows):
    """The largest sum since its least, in standard deviations."""
    from river.drift import PageHinkley

    out = np.full(len(rows) // EVERY, -np.inf)
    for values in watched(rows):
        detector = PageHinkley(threshold=np.inf)
        for k, part in enumerate(blocks_of(values)):
            for value in part:
                detector.update(value)
            up = detector._sum_increase - detector._min_increase  # it shows no statistic
            out[k] = max(out[k], up, detector._max_decrease - detector._sum_decrease)
    return out[REFERENCE:]


def by_kswin(rows):
    """-log10 of the least p-value of a block; of one row in twenty along four directions, as a row takes .4 ms."""
    from river.drift import KSWIN

    directions, out = standardised(rows)[1][:, :4], np.full(len(rows) // EVERY, -np.inf)
    for values in directions.T.tolist():
        detector = KSWIN(alpha=0.0, seed=0)
        for k, part in enumerate(blocks_of(values)):
            for value in part[::20]:
                detector.update(value)
                if len(detector.window) == detector.window_size:
                    out[k] = max(out[k], -np.log10(max(detector.p_value, 1e-300)))
    return out[REFERENCE:]


# -- the command -------------------------------------------------------------------------------------------------------
def alarms(args):
    """Delay after changes at a threshold with no alarm on twenty calm streams; false alarms on further ones."""
    # with the threshold that each comes with; of the monitor run_length
    ways = {"DriftMonitor": (monitored, np.log10(10_000)), "CUSUM of columns, directions": (by_cusum, 5.0)}
    if rival("river"):
        ways |= {
            "river ADWIN": (by_adwin, -np.log10(0.002)),
            "river PageHinkley": (by_page_hinkley, 50.0),
            "river KSWIN": (by_kswin, -np.log10(0.005)),
        }
    n_calm, n_changed = (few(4, 2), 1) if args.quick else (20, 5)
    n, at = EVERY * (REFERENCE + CALM + CHANGED), EVERY * (REFERENCE + CALM)
    calm, delays = [], {}
    for law, kinds, rows_of in laws():
        set_on = [rows_of(np.random.default_rng(SEEDS + seed), n, at, "") for seed in range(n_calm)]
        further = [rows_of(np.random.default_rng(SEEDS + 100 + seed), n, at, "") for seed in range(n_calm)]
        changed = {
            kind: [rows_of(np.random.default_rng(SEEDS + 1000 + seed), n, at, kind) for seed in range(n_changed)]
            for kind in kinds
        }
        for name, (way, own) in ways.items():
            start = time.process_time()
            found = [way(rows) for rows in set_on]
            us = 1e6 * (time.process_time() - start) / (n * n_calm)
            limit, fresh = max(map(np.max, found)), [way(rows) for rows in further]
            false = [sum(bool((s > t).any()) for s in fresh) for t in (limit, own)]
            calm.append([law, name, *(f"{k} of {n_calm}" for k in false), f"{us:.1f}"])
            limits = {f"{name}, as it comes": own, name: limit} if way is monitored else {name: limit}
            for kind, streams in changed.items():
                series = [way(rows) for rows in streams]
                cells = {label: _delay(series, threshold) for label, threshold in limits.items()}
                delays.setdefault((law, kind), {"rows": law, "change": kind}).update(cells)
    heads = ["rows", "detector", "false alarms", "as it comes", "us/row"]
    span = f"{CALM + CHANGED} blocks of {EVERY} rows after a reference of {REFERENCE}"
    note = f"The table counts unchanged streams with an alarm in {span}; the threshold raises none on {n_calm} others."
    table(calm, heads, "calm", runs=f"{n_calm} streams", note=note)
    note = (
        "The table has the median (least to most) rows from change to alarm, and the "
        f"streams with an alarm within {EVERY * CHANGED} rows."
    )
    table(delays.values(), name="delays", runs=f"{n_changed} streams", note=note)


def _delay(series, threshold):
    """Median of rows from the change to the alarm, least and most of them, and in how many streams it came.

    A stream without an alarm, or with one before the change, counts in the median as one whose alarm is still to come.
    """
    first = [int(np.argmax(s > threshold)) if (s > threshold).any() else -1 for s in series]
    found = sorted(EVERY * (k - CALM + 1) for k in first if k >= CALM)
    middle = len(series) // 2
    median = f"{found[middle]:,}" if len(found) > middle else f"> {EVERY * CHANGED:,}"
    span = f" ({found[0]:,} to {found[-1]:,})" if found else ""
    return f"{median}{span}, {len(found)} of {len(series)}"
