"""Recall of a quantizer by bytes."""

import numpy as np

import fastsketch as fs


def rows_of(n, d, seed=0):
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return (rng.standard_normal((n, d)) * np.arange(1, d + 1) ** -0.5) @ turn


def test_a_basis_of_all_directions_serves_no_worse():
    """From 8 bits a feature on the basis spans all: a code is about few of its directions all the same."""
    rows, queries = np.split(rows_of(3200, 64, seed=1), [3000])
    truth = np.argsort(((queries[:, np.newaxis] - rows) ** 2).sum(axis=2), axis=1)[:, :10]
    recalls = []
    for n_bytes in (8, 10):  # 56 and 72 bits for 64 features
        model = fs.SketchQuantizer(n_bytes).update(rows)
        found = model.search(queries, model.encode(rows), k=10)[1]
        recalls.append(np.mean([len(np.intersect1d(f, t)) for f, t in zip(found, truth, strict=True)]))
    assert recalls[1] > recalls[0]
