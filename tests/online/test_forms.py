"""The form of CSR rows, sparse or dense, follows the first row alone, however the stream is cut into batches."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs

N, D = 60, 40
MODELS = {
    "sketch": lambda: fs.FrequentDirections(3, solver="gram"),
    "sketch-centred": lambda: fs.FrequentDirections(3, solver="gram", center=True),
    "newton": lambda: fs.SketchedNewton(3),
    "adaptive": lambda: fs.AdaptiveSubgradient(3),
    "diagonal": lambda: fs.AdaptiveSubgradient(method="ada_diag"),
}
CUTS = ([0, 1, N], [0, 0, 7, 7, N], [0, 30, 31, N], list(range(N + 1)))


def rows_of(first, others):
    """Draw rows (60, 40) of which these shares are not zero: of the first, of the others."""
    rng = np.random.default_rng(0)
    share = np.where(np.arange(N) == 0, first, others)[:, np.newaxis]
    return rng.standard_normal((N, D)) * (np.argsort(rng.random((N, D))) < share * D)


def learned(make, batches):
    model = make()
    for rows in batches:
        if isinstance(model, fs.FrequentDirections):
            model.update(rows)
        else:
            model.update(rows, np.where(rows.sum(axis=1) > 0, 1, -1))
    return model


def is_sparse_form(model):
    return (
        model._engine.kind == "sparse" if isinstance(model, fs.FrequentDirections) else model._model_state.inputs.sparse
    )


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("first", [0.1, 0.9])
@pytest.mark.parametrize("others", [0.1, 0.9])
def test_the_first_row_decides(name, first, others):
    rows = sparse.csr_array(rows_of(first, others))
    whole = learned(MODELS[name], [rows])
    assert is_sparse_form(whole) == (first < 0.5)
    for cuts in CUTS:
        parts = [rows[start:stop] for start, stop in zip(cuts, cuts[1:], strict=False)]
        assert learned(MODELS[name], parts).to_bytes() == whole.to_bytes()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("first", [0.1, 0.9])
def test_arrays_and_csr_rows_may_follow_each_other(name, first):
    """Mix forms: the bits are those of a stream in the form of its first row."""
    dense = rows_of(first, 0.1)
    rows = sparse.csr_array(dense)
    mixed = learned(MODELS[name], [rows[:20], dense[20:40], rows[40:]])
    assert mixed.to_bytes() == learned(MODELS[name], [rows]).to_bytes()
    mixed = learned(MODELS[name], [dense[:20], rows[20:40], dense[40:]])
    assert not is_sparse_form(mixed)
    assert mixed.to_bytes() == learned(MODELS[name], [dense]).to_bytes()


def test_a_batch_that_is_refused_after_one_without_rows():
    model = fs.SketchedNewton(3).update(sparse.csr_array((0, D)), [])
    before = model.to_bytes()
    with pytest.raises(FloatingPointError, match="row 2"):
        model.update(np.outer([1.0, 1e300], np.ones(D)), ["yes", "no"])
    assert model.to_bytes() == before and model.n_features == D
    with pytest.raises(ValueError, match="40 columns"):
        model.update(np.ones((1, 3)), ["no"])
