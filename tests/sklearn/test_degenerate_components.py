"""SketchedPCA where directions have no variance, and where more components are asked for than there are rows."""

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")
from sklearn.decomposition import PCA  # noqa: E402

from fastsketch.data.sources._arrays import ArraySource  # noqa: E402
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


# -- more components than rows or columns ------------------------------------------------------------------------------
class Uncounted(ArraySource):
    """Rows from memory that do not say beforehand how many they are."""

    def __init__(self, rows):
        super().__init__(rows)
        self.n_rows = None


@pytest.mark.parametrize("form", [*FORMS.values(), ArraySource, Uncounted])
@pytest.mark.parametrize("solver", ["auto", "gram", "svd", "exact"])
@pytest.mark.parametrize(("n", "d"), [(5, 8), (1, 4), (5, 400), (40, 8)])
def test_more_components_than_rows_or_columns(n, d, solver, form):
    rows = np.random.default_rng(0).standard_normal((n, d))
    model = SketchedPCA(1, solver=solver).fit(ROWS)
    answers = model.transform(ROWS)
    for method in ("fit", "partial_fit"):
        for wanted in (d + 1, 10**6, 2**31, 10**30):  # as with scikit-learn's PCA
            with pytest.raises(ValueError, match=f"n_components={wanted} must not exceed n_features={d}"):
                getattr(SketchedPCA(wanted, solver=solver), method)(form(rows))
    with pytest.raises(ValueError, match=f"n_components={d + 1} must not exceed n_features={d}"):
        model.set_params(n_components=d + 1).fit(form(rows))
    assert np.array_equal(model.transform(ROWS), answers)  # as it was
    for method in ("fit", "partial_fit"):
        wanted = min(n + 2, d)
        model = getattr(SketchedPCA(wanted, solver=solver), method)(form(rows))
        assert model.components_.shape == (wanted, d)
        assert np.allclose(model.components_ @ model.components_.T, np.eye(wanted), atol=1e-5)
        assert np.allclose(model.explained_variance_[n - 1 :], 0, atol=1e-5) or wanted < n  # n rows differ along n - 1
        assert np.isfinite(model.transform(rows)).all()
        assert SketchedPCA(solver=solver).fit(form(rows)).n_components_ == min(n, d)


@pytest.mark.parametrize("form", FORMS.values())
@pytest.mark.parametrize("solver", ["auto", "gram", "svd", "exact"])
def test_partial_fit_completes_what_later_rows_may_fill(solver, form):
    rows = np.random.default_rng(0).standard_normal((30, 8))
    model = SketchedPCA(5, solver=solver).partial_fit(form(rows[:2]))
    assert model.components_.shape == (5, 8)
    assert np.allclose(model.components_ @ model.components_.T, np.eye(5), atol=1e-5)
    assert np.allclose(model.explained_variance_[1:], 0, atol=1e-5)  # two rows differ along one direction
    assert np.isfinite(model.transform(rows)).all()
    model.partial_fit(form(rows[2:]))
    reference = PCA(5, svd_solver="full").fit(rows)
    assert np.allclose(model.explained_variance_, reference.explained_variance_, rtol=1e-4)
    with pytest.raises(ValueError, match="n_components=9 must not exceed n_features=8"):
        SketchedPCA(9, solver=solver).partial_fit(form(rows))
