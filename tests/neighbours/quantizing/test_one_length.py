"""Rows of one length: inner products and cosines are as good as distances, as they say the same."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import fastsketch as fs

D = 96


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((100, D))
    out = centres[rng.integers(100, size=6000)] + rng.standard_normal((6000, D)) * np.linspace(1.0, 0.2, D)
    return (out / np.linalg.norm(out, axis=1, keepdims=True)).astype("f4")


@pytest.fixture(scope="module")
def encoder(rows):
    return fs.SketchQuantizer(16).update(rows).encoder()


def recall(found, truth):
    return np.mean([len(np.intersect1d(f, t)) / 10 for f, t in zip(found, truth, strict=True)])


def test_products_find_what_distances_find(rows, encoder):
    queries, codes = rows[:200].astype(float), encoder.encode(rows)
    truth = np.argsort(-(queries @ rows.T), axis=1, kind="stable")[:, :10]
    by = {metric: encoder.search(3 * queries, codes, metric=metric) for metric in ("inner_product", "cosine")}
    near = recall(encoder.search(queries, codes)[1], truth)
    plain = recall(np.argsort(-(queries @ encoder.decode(codes).T), axis=1)[:, :10], truth)
    assert near > plain + 0.02  # or there would be nothing to gain
    for found in by.values():
        assert abs(recall(found[1], truth) - near) < 0.005
    assert np.array_equal(by["inner_product"][1], by["cosine"][1])
    np.testing.assert_allclose(by["inner_product"][0], 3 * by["cosine"][0], rtol=1e-6)
    true = np.take_along_axis(queries @ rows.T, by["cosine"][1], axis=1)
    assert np.abs(by["cosine"][0] - true).mean() < 0.1


@pytest.mark.parametrize(("metric", "larger"), [("inner_product", 64), ("cosine", 1)])
def test_the_unit_of_the_rows_moves_products_alone(rows, encoder, metric, larger):
    scaled, codes = fs.SketchQuantizer(16).update(64 * rows).encoder(), encoder.encode(rows)
    assert np.array_equal(scaled.encode(64 * rows), codes)
    values, found = encoder.search(rows[:20], codes, metric=metric)
    again = scaled.search(rows[:20], codes, metric=metric)
    assert np.array_equal(again[1], found)
    np.testing.assert_allclose(again[0], larger * values, rtol=1e-5)


@pytest.mark.parametrize("metric", ["inner_product", "cosine"])
def test_a_query_of_zero_is_as_far_from_all(rows, encoder, metric):
    queries = rows[:4].copy()
    queries[1] = 0
    codes = encoder.encode(rows)
    values, found = encoder.search(queries, codes, metric=metric)
    assert (values[1] == 0).all() and np.array_equal(found[1], np.arange(10))
    for i in (0, 2, 3):
        alone = encoder.search(queries[i], codes, metric=metric)
        assert np.array_equal(alone[0][0], values[i]) and np.array_equal(alone[1][0], found[i])
    sparse = encoder.search(csr_matrix(queries), codes, metric=metric)
    assert np.array_equal(sparse[1], found)


def test_the_length_is_kept_with_the_encoder(rows, encoder, tmp_path):
    assert encoder.norm * encoder.length == pytest.approx(1, abs=1e-3)
    model = fs.SketchQuantizer(16).update(rows).anchor()
    model.save(tmp_path / "m.fsk")
    assert fs.load(tmp_path / "m.fsk").encoder().norm == model.encoder().norm is not None
    assert fs.SketchQuantizer(16).update(rows * np.linspace(1, 2, len(rows))[:, None]).encoder().norm is None


@pytest.mark.parametrize("metric", ["euclidean", "inner_product", "cosine"])
@pytest.mark.parametrize("lengths", ["one", "many"])
def test_answers_are_the_same_for_any_split_of_the_queries(rows, metric, lengths, amount):
    given = rows if lengths == "one" else rows * np.linspace(1, 3, len(rows), dtype="f4")[:, None]
    encoder = fs.SketchQuantizer(16).update(given).encoder()
    codes, queries = encoder.encode(given), given[:37]
    values, found = encoder.search(queries, codes, metric=metric)
    for step in amount((5, 16), (1, 2, 5, 16)):
        for start in range(0, 37, step):
            part = slice(start, start + step)
            some = encoder.search(queries[part], codes, metric=metric)
            assert np.array_equal(some[0], values[part]) and np.array_equal(some[1], found[part])
