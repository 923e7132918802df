"""Rows with names: encoding, learning and reading tables, against scikit-learn, river, pandas and the csv module."""

import csv
import time

import numpy as np

import fastsketch as fs
from bench_tools import few, least, rival, table
from fastsketch.data import NameHash, TableRows, Vocabulary

# Six numbers and eight categories a row, as in the census table that a9a was made of.
CATEGORIES = (9, 16, 7, 15, 6, 5, 2, 42)


def people(n, seed=0):
    """(rows as dicts, labels 0 and 1) of a generated table."""
    rng = np.random.default_rng(seed)
    numbers = np.round(rng.gamma(2.0, 1.0, (n, 6)), 2)
    words = np.column_stack([(k * rng.random(n) ** 2).astype(int) for k in CATEGORIES])
    effects = [rng.standard_normal(k) for k in CATEGORIES]
    score = (numbers - 2) @ rng.standard_normal(6) / 3 + sum(e[w] for e, w in zip(effects, words.T, strict=True)) / 2
    labels = (rng.random(n) < 1 / (1 + np.exp(1 - score))).astype(int)
    known = [[f"word{j}" for j in range(k)] for k in CATEGORIES]
    rows = [
        {f"n{j}": value for j, value in enumerate(a)} | {f"c{j}": known[j][w] for j, w in enumerate(b)}
        for a, b in zip(numbers.tolist(), words.tolist(), strict=True)
    ]
    return rows, labels.tolist()


def names(args):
    """Rows/s of dicts."""
    n = few(5_000 if args.quick else 30_000, 300)
    rows, labels = people(n)
    _encode(rows)
    _learn(rows, labels)
    _read(args, rows, labels)


def _rates(cases, n, repeats=5):
    return {name: n / best for name, best in least(cases, repeats).items()}


def _show(name, title, rates, first, repeats=5):
    lines = [[what, f"{rate:,.0f}", f"{rates[first] / rate:.2f}"] for what, rate in rates.items()]
    table(lines, [title, "rows/s", f"{first} is faster by"], name, runs=f"the least of {repeats} in turn")


def _encode(rows):
    from sklearn.feature_extraction import DictVectorizer, FeatureHasher

    kept, hasher = Vocabulary(), FeatureHasher(2**18)
    kept.encode(rows)
    assert abs(NameHash(18).encode(rows) - hasher.transform(rows)).max() == 0
    hashing = {
        "NameHash(18)": lambda: NameHash(18).encode(rows),
        "FeatureHasher(2**18)": lambda: hasher.transform(rows),
    }
    _show("hashed", "14 names a row, hashed", _rates(hashing, len(rows)), "NameHash(18)")
    known = DictVectorizer().fit(rows)
    kinds = {
        "Vocabulary, known names": lambda: kept.encode(rows),
        "Vocabulary, new": lambda: Vocabulary().encode(rows),
        "DictVectorizer.transform": lambda: known.transform(rows),
        "DictVectorizer.fit_transform": lambda: DictVectorizer().fit_transform(rows),
    }
    _show("kept", "14 names a row, kept", _rates(kinds, len(rows)), "Vocabulary, known names")


def _learn(rows, labels):
    n, few = len(rows), len(rows) // 10
    numbered = Vocabulary().encode(rows)
    targets = np.array(labels)

    def one_by_one(model):
        for row, label in zip(rows[:few], labels[:few], strict=True):
            model.update(row, label)

    for make in (fs.SketchedNewton, lambda size: fs.AdaptiveSubgradient(size, method="ada_diag")):
        make(20).update(rows[:100], labels[:100]), make(20).update(numbered[:100], targets[:100])
    plain = {"fit_intercept": False, "scale": None, "calibrate": False}
    cases = {
        "SketchedNewton(20), dicts": lambda: fs.SketchedNewton(20).update(rows, labels),
        "SketchedNewton(20, hash_bits=18), dicts": lambda: fs.SketchedNewton(20, hash_bits=18).update(rows, labels),
        "SketchedNewton(20), CSR": lambda: fs.SketchedNewton(20).update(numbered, targets),
        "ada_diag, dicts": lambda: fs.AdaptiveSubgradient(method="ada_diag").update(rows, labels),
        "ada_diag, CSR": lambda: fs.AdaptiveSubgradient(method="ada_diag").update(numbered, targets),
        "plain ada_diag, dicts": lambda: fs.AdaptiveSubgradient(method="ada_diag", **plain).update(rows, labels),
        "plain ada_diag, CSR": lambda: fs.AdaptiveSubgradient(method="ada_diag", **plain).update(numbered, targets),
    }
    rates = _rates(cases, n, 3)
    single = {
        "SketchedNewton(20), a dict at a time": lambda: one_by_one(fs.SketchedNewton(20)),
        "ada_diag, a dict at a time": lambda: one_by_one(fs.AdaptiveSubgradient(method="ada_diag")),
    }
    rates |= _rates(single, few, 3)
    rates |= _rivers(rows[:few], labels[:few])
    _show("learning", "learning", rates, "SketchedNewton(20), dicts", "3 (river: 1)")


def _rivers(rows, labels):
    if rival("river") is None:
        return {}
    from river import compose, linear_model, optim, preprocessing

    def learn(make):
        model = make()
        start = time.process_time()
        for row, label in zip(rows, labels, strict=True):
            model.learn_one(row, label)
        return len(rows) / (time.process_time() - start)

    def regression():
        encoded = compose.SelectType(str) | preprocessing.OneHotEncoder()
        return (encoded + compose.SelectType(float)) | linear_model.LogisticRegression(optim.AdaGrad(0.1))

    # without its encoder: words put together before, which is not timed
    flat = [
        {(f"{k}={v}" if isinstance(v, str) else k): 1.0 if isinstance(v, str) else v for k, v in row.items()}
        for row in rows
    ]
    alone = linear_model.LogisticRegression(optim.AdaGrad(0.1))
    start = time.process_time()
    for row, label in zip(flat, labels, strict=True):
        alone.learn_one(row, label)
    return {
        "river LogisticRegression, learn_one, words put together before": len(rows) / (time.process_time() - start),
        "river OneHotEncoder | LogisticRegression, learn_one": learn(regression),
    }


def _read(args, rows, labels):
    path = args.scratch / "people.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*rows[0], "label"])
        writer.writerows([*row.values(), label] for row, label in zip(rows, labels, strict=True))

    def ours():
        return sum(len(part) for part, _, _ in TableRows(path, label="label").chunks())

    def by_csv():
        with path.open(newline="") as file:
            return [{k: float(v) if k[0] == "n" else v for k, v in row.items()} for row in csv.DictReader(file)]

    cases = {"TableRows": ours, "csv.DictReader and float": by_csv}
    if pandas := rival("pandas"):
        cases["pandas.read_csv, to_dict"] = lambda: pandas.read_csv(path).to_dict("records")
    _show("reading", "a csv table of 14 columns", _rates(cases, len(rows), 3), "TableRows", 3)
    path.unlink()
