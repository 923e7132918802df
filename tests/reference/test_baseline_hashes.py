"""Hashes to compare with: the interface of SketchHash, and the property that each method is known for."""

import copy
import pickle

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.reference import baselines
from tests.helpers import same_state, stream

ROWS = stream("signal", np.random.default_rng(1), 1300, 40) * np.linspace(3, 0.2, 40) + np.linspace(-5, 5, 40)


@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, sparse.csr_array])
@pytest.mark.parametrize("d", [1, 40])
def test_the_mean_of_lsh_does_not_depend_on_the_cut(kind, d):
    rows = ROWS[:, :d] * np.logspace(0, 9, len(ROWS))[:, np.newaxis]
    whole, parts = baselines.LSH(8).update(kind(rows)), baselines.LSH(8)
    for start, stop in ((0, 1), (1, 300), (300, 300), (300, len(rows))):
        parts.update(kind(rows[start:stop]))
    assert parts.to_bytes() == whole.to_bytes()


@pytest.mark.parametrize("cls", [baselines.LSH, baselines.PCAHash, baselines.ITQ, baselines.SGH])
def test_baselines_share_the_interface(cls, tmp_path):
    model = cls(12)
    with pytest.raises(ValueError, match="no rows"):
        model.encode(ROWS)
    model.update(ROWS)
    codes = model.encode(ROWS)
    assert np.array_equal(codes, np.packbits(model.decision_function(ROWS) > 0, axis=1, bitorder="little"))
    distances, found = model.search(ROWS[:20], codes, k=1, metric="hamming")
    assert (distances == 0).all()
    for metric in ("euclidean", "inner_product", "cosine"):
        distances, found = model.search(ROWS[:20], model.encode(ROWS, factors=True), k=5, metric=metric)
        assert np.isfinite(distances).all() and found.shape == (20, 5)
    assert np.array_equal(model.search(ROWS[:20], codes, k=1, rescore=ROWS, oversample=50)[1][:, 0], np.arange(20))
    model.save(tmp_path / "model.fsk")
    again = fs.load(tmp_path / "model.fsk")
    assert type(again) is cls
    assert np.array_equal(again.encode(ROWS), codes)
    assert np.array_equal(model.copy().encode(ROWS), codes)
    with pytest.raises(ValueError, match="40 columns"):
        model.encode(ROWS[:, :3])


def test_pca_codes_are_signs_of_principal_components():
    model = baselines.PCAHash(5).update(ROWS[:700]).update(ROWS[700:])
    vt = np.linalg.svd(ROWS - ROWS.mean(axis=0), full_matrices=False)[2][:5]
    values = (ROWS - ROWS.mean(axis=0)) @ vt.T
    assert np.allclose(np.abs(model.decision_function(ROWS)), np.abs(values))


def test_lsh_merges_and_keeps_its_directions():
    one = baselines.LSH(20, seed=2).update(ROWS)
    two = baselines.LSH(20, seed=2).update(ROWS[:500]).merge(baselines.LSH(20, seed=2).update(ROWS[500:]))
    assert np.allclose(one.decision_function(ROWS), two.decision_function(ROWS))
    for other, error, match in [
        (baselines.LSH(20), ValueError, "seed"),
        (baselines.LSH(8, seed=2), ValueError, "n_bits"),
        (fs.SketchHash(20), TypeError, "SketchHash"),
    ]:
        with pytest.raises(error, match=match):
            one.merge(other)


def test_sgh_preserves_neighbours_and_is_a_batch_method():
    model = baselines.SGH(24, n_bases=100).update(ROWS)
    with pytest.raises(ValueError, match="one batch"):
        model.update(ROWS)
    unit = ROWS - ROWS.mean(axis=0)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    similarity = unit[:100] @ unit.T
    distance = fs.hamming_distances(model.encode(ROWS[:100]), model.encode(ROWS))
    assert np.corrcoef(similarity.ravel(), -distance.ravel())[0, 1] > 0.7
    for options, match in [({"n_bits": 200, "n_bases": 100}, "n_bits must be at most"), ({"n_bits": 0}, "n_bits")]:
        with pytest.raises(ValueError, match=match):
            baselines.SGH(**options)
    with pytest.raises(ValueError, match="n_bases = 300"):
        baselines.SGH(8).update(ROWS[:100])


@pytest.mark.parametrize("cls", [baselines.LSH, baselines.PCAHash, baselines.ITQ, baselines.SGH])
def test_baselines_are_models(cls):
    assert same_state(cls(12).copy(), cls(12))
    model = cls(12, seed=5).update(ROWS)
    model.notes = {"from": "here"}
    for other in (model.copy(), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert same_state(other, model) and other.notes == model.notes
    assert type(model)(**model.parameters).parameters == model.parameters
    facts = model.facts()
    assert (facts["kind"], facts["n_rows"], facts["n_features"], facts["n_bits"]) == (cls.__name__, 1300, 40, 12)
    assert (model.seed, model.n_bits) == (5, 12)


@pytest.mark.parametrize("cls", [baselines.LSH, baselines.PCAHash, baselines.ITQ, baselines.SGH])
def test_a_row_that_is_not_finite_is_named(cls):
    rows = ROWS.copy()
    rows[417, 3] = np.nan
    model = cls(12)
    before = model.to_bytes()
    with pytest.raises(ValueError, match="rows must be finite: row 417 holds a NaN or an infinity"):
        model.update(rows)
    assert model.to_bytes() == before
    model.update(ROWS)
    with pytest.raises(ValueError, match="row 417 holds"):
        model.encode(rows)


def test_a_sum_that_overflows_is_refused():
    model = baselines.LSH(4).update(np.full((2, 3), 8e307))
    before = model.to_bytes()
    with pytest.raises(ValueError, match="sum of the rows must be finite"):
        model.update(np.full((2, 3), 8e307))
    assert model.to_bytes() == before


def test_settled_parameters_are_no_arguments():
    assert (baselines.PCAHash(4).method, baselines.PCAHash(4).rotation) == ("exact", None)
    assert (baselines.ITQ(4).rotation, baselines.ITQ(4).reservoir_size) == ("itq", 2**40)
    with pytest.raises(TypeError, match="no parameter 'rotation'"):
        baselines.PCAHash(4, rotation="itq")
    whole = fs.SketchHash(4, method="exact", rotation=None).update(ROWS)
    assert np.array_equal(baselines.PCAHash(4).update(ROWS).encode(ROWS), whole.encode(ROWS))


@pytest.mark.parametrize(
    ("cls", "change", "match"),
    [
        (baselines.LSH, {"sum": np.ones((2, 2))}, "expected"),
        (baselines.LSH, {"sum": np.full(40, np.nan)}, "finite"),
        (baselines.SGH, {"w": np.ones((300, 11))}, "'w'"),
        (baselines.SGH, {"bases": np.full((300, 40), np.nan)}, "finite"),
        (baselines.SGH, {"more": np.ones(3)}, "more"),
    ],
)
def test_states_that_are_not_consistent_are_refused(cls, change, match, monkeypatch):
    model = cls(12).update(ROWS)
    state, arrays = model._state()
    monkeypatch.setattr(model, "_state", lambda: (state, {**arrays, **change}))
    with pytest.raises(fs.StateError, match=match):
        fs.from_bytes(model.to_bytes())
