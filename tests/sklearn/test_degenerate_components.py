"""SketchedPCA where directions have no variance, and where more components are asked for than there are rows."""

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")
from sklearn.decomposition import PCA  # noqa: E402

from fastsketch.sklearn import SketchedPCA  # noqa: E402

RNG = np.random.default_rng(0)
RANK, D = 3, 8
ROWS = RNG.standard_normal((60, RANK)) @ RNG.standard_normal((RANK, D))  # rank 3, and one constant column
ROWS[:, 5] = 2.0
OTHERS = RNG.standard_normal((40, D))  # with variance along every direction
FORMS = {
    "float64": np.asarray,
    "float32": lambda rows: rows.astype(np.float32),
    "csr": sparse.csr_array,
}


@pytest.mark.parametrize("unit", [1e-15, 1.0, 1e8])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("solver", ["auto", "gram", "svd", "exact"])
def test_whitened_directions_without_variance_are_zero(solver, method, form, unit):
    rows, others = FORMS[form](ROWS * unit), FORMS[form](OTHERS * unit)
    model = getattr(SketchedPCA(6, whiten=True, solver=solver, sketch_size=9), method)(rows)
    reference = PCA(RANK, whiten=True, svd_solver="full").fit(ROWS)
    tolerance = 2e-3 if form == "float32" else 1e-6
    for given, plain in ((rows, ROWS), (others, OTHERS)):
        out = model.transform(given)
        assert out.shape == (plain.shape[0], 6)
        assert not out[:, RANK:].any()  # scikit-learn's PCA divides rounding by rounding here: up to 1e24
        assert np.allclose(np.abs(out[:, :RANK]), np.abs(reference.transform(plain)), atol=tolerance, rtol=tolerance)
    assert np.allclose(model.inverse_transform(model.transform(rows)), ROWS * unit, rtol=1e-3, atol=1e-3 * unit)


def test_rows_that_do_not_differ_and_one_row():
    for rows in (np.full((5, 4), 7.0), np.ones((1, 4))):
        model = SketchedPCA(1, whiten=True).fit(rows)
        assert not model.transform(np.eye(4)).any()
