"""Kernels get aligned memory whatever lies at the public door: what is not aligned is copied."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch._core.validation import in_place
from fastsketch._kernels.linalg import hadamard
from fastsketch._kernels.sketching import dense
from fastsketch.sketching import _hadamard
from tests.helpers import papers


def unaligned(array):
    """The same entries one byte off."""
    out = np.frombuffer(bytearray(b"x" + array.tobytes()), np.uint8)[1:].view(array.dtype).reshape(array.shape)
    assert not out.flags.aligned
    return out


def test_in_place_copies_only_what_must_be_copied():
    array = np.arange(6.0).reshape(2, 3)
    assert in_place(array, np.float64) is array
    for other in (unaligned(array), array[:, ::-1], array.astype(np.float32), np.asfortranarray(array)):
        found = in_place(other, np.float64)
        assert found.flags.aligned and found.flags.c_contiguous and np.array_equal(found, other)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernels_see_aligned_rows_alone(dtype, monkeypatch):
    rows, seen = np.random.default_rng(0).standard_normal((64, 16)).astype(dtype), []

    def watched(original):
        def call(first, *more):
            seen.append(first.flags.aligned)
            return original(first, *more)

        return call

    monkeypatch.setattr(_hadamard.kernel, "fwht_columns", watched(hadamard.fwht_columns))
    monkeypatch.setattr(dense, "scan", watched(dense.scan))
    assert np.array_equal(fs.sketching.fwht(unaligned(rows)), fs.sketching.fwht(rows.copy()))
    fs.FrequentDirections(4, solver="gram").update(unaligned(rows))
    assert seen == [True] * len(seen) and len(seen) >= 2


def test_sparse_rows_and_online_models_take_what_is_not_aligned():
    rows = sparse.csr_array(np.random.default_rng(0).standard_normal((40, 8)) * (np.arange(8) % 3 == 0))
    odd = rows.copy()
    odd.data = unaligned(rows.data)
    y = np.sign(rows.toarray()[:, 0])
    for make in (lambda: fs.FrequentDirections(3, solver="gram"), lambda: papers.SketchedNewton(3)):
        more = (y,) if make().__class__ is fs.SketchedNewton else ()
        one, two = make().update(rows, *more), make().update(odd, *more)
        assert one.to_bytes() == two.to_bytes()
    dense_rows = rows.toarray()
    one, two = papers.SketchedNewton(3).update(dense_rows, y), papers.SketchedNewton(3).update(unaligned(dense_rows), y)
    assert one.to_bytes() == two.to_bytes()
