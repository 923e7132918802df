"""SketchedPCA by every way: against scikit-learn's PCA, its intervals, its model of costs, and what it keeps."""

import io
import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import eigsh

pytest.importorskip("sklearn")
from sklearn.decomposition import PCA, IncrementalPCA  # noqa: E402

import fastsketch as fs  # noqa: E402
from fastsketch.sketching._exact_products import BLOCK_BYTES  # noqa: E402
from fastsketch.sklearn import SketchedPCA, _sketched_pca  # noqa: E402
from fastsketch.sklearn._routes import FitProblem, by_columns, by_krylov, by_rows, choose, sums_in_stream  # noqa: E402
from tests.helpers import stream  # noqa: E402

WAYS = {"rows": "rows", "columns": "exact", "sketch": "gram"}
RNG = np.random.default_rng(0)
X = stream("signal", RNG, 90, 70) + np.linspace(0, 5, 70)
SPARSE = RNG.standard_normal((90, 70)) * (RNG.random((90, 70)) < 0.1) * np.linspace(5, 1, 70)


def through(monkeypatch, way):
    """Make solver="auto" go one way."""
    monkeypatch.setattr(_sketched_pca, "choose", lambda *_, **__: way)
    monkeypatch.setattr(_sketched_pca, "cheapest_exact", lambda *_, **__: None)


def truth(rows, weights=None):
    """Return all eigenvalues of the covariance of dense rows, descending."""
    w = np.ones(len(rows)) if weights is None else weights
    moved = (rows - w @ rows / w.sum()) * np.sqrt(w)[:, np.newaxis]
    return np.linalg.svd(moved.astype(np.float64), compute_uv=False) ** 2 / (w.sum() - 1)


def holds(model, eigenvalues):
    low, high = model.explained_variance_interval_.T
    real = eigenvalues[: len(low)]
    return (low <= real * (1 + 1e-12)).all() and (real <= high * (1 + 1e-12)).all()


# -- exact ways ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", ["C", "F", "strided", "csr"])
@pytest.mark.parametrize("way", ["rows", "columns"])
@pytest.mark.parametrize("shape", [(90, 70), (40, 70), (90, 7)])
def test_exact_ways_are_pca(monkeypatch, way, layout, dtype, shape):
    through(monkeypatch, way)
    rows = (SPARSE if layout == "csr" else X)[: shape[0], : shape[1]].astype(dtype)
    given = {
        "C": lambda: rows,
        "F": lambda: np.asfortranarray(rows),
        "strided": lambda: np.repeat(rows, 2, axis=1)[:, ::2],
        "csr": lambda: sparse.csr_matrix(rows),
    }[layout]()
    before = given.copy()
    ours = SketchedPCA(4).fit(given)
    theirs = PCA(4, svd_solver="full").fit(rows.astype(np.float64))
    assert ours.solver_ == WAYS[way] and ours.n_passes_ == 1
    rtol = 1e-6 if dtype == np.float32 else 1e-9
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_", "noise_variance_"):
        assert np.allclose(getattr(ours, name), getattr(theirs, name), rtol=rtol, atol=rtol), name
    assert np.allclose(ours.components_, theirs.components_, atol=2e-5 if dtype == np.float32 else 1e-8)  # signs too
    assert np.allclose(ours.var_, rows.astype(np.float64).var(axis=0), rtol=10 * rtol)
    assert ours.components_.dtype == ours.transform(rows).dtype == dtype
    assert holds(ours, truth(rows.astype(np.float64)))
    assert ours.error_bound_ < 1e-9 * ours.singular_values_[0] ** 2
    assert not (abs(given - before) > 0).sum()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(90, 70), (40, 70), (90, 12)])
def test_lanczos_steps_with_sparse_rows_are_pca(monkeypatch, shape, weighted, dtype):
    through(monkeypatch, "pairs")
    rows = SPARSE[: shape[0], : shape[1]].astype(dtype)
    weights = np.arange(shape[0]) % 3.0 if weighted else None
    again = rows if weights is None else np.repeat(rows, weights.astype(int), axis=0)
    ours = SketchedPCA(4).fit(sparse.csr_array(rows), sample_weight=weights)
    theirs = PCA(4, svd_solver="full").fit(again.astype(np.float64))
    assert ours.solver_ == "arpack" and ours.n_passes_ == 1
    rtol = 1e-6 if dtype == np.float32 else 1e-9
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_"):
        assert np.allclose(getattr(ours, name), getattr(theirs, name), rtol=rtol, atol=rtol), name
    assert np.allclose(ours.components_, theirs.components_, atol=2e-5 if dtype == np.float32 else 1e-8)
    assert np.allclose(ours.var_, again.astype(np.float64).var(axis=0), rtol=10 * rtol)
    assert holds(ours, truth(again.astype(np.float64)))
    width = np.diff(ours.explained_variance_interval_, axis=1).ravel()
    assert (width < (1e-6 if dtype == np.float32 else 1e-9) * ours.explained_variance_[0]).all()
    # the certificate is that of k rows; the stream goes on from them
    moved = again.astype(np.float64) - again.mean(axis=0, dtype=np.float64)
    b = ours.sketch_.sketch()
    assert np.linalg.norm(moved.T @ moved - b.T @ b, 2) <= ours.sketch_.error_bound * (1 + 1e-6)
    ours.partial_fit(sparse.csr_array(rows))
    assert holds(ours, truth(np.vstack([again, rows]).astype(np.float64)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ascending", [True, False])
def test_a_block_krylov_method_with_sparse_rows_is_pca_within_tol(monkeypatch, ascending, weighted, dtype):
    through(monkeypatch, "krylov")
    rng = np.random.default_rng(0)
    # 2,100 columns are more than the kernel multiplies at a time
    dense = (rng.standard_normal((240, 40)) * np.arange(1, 41) ** -0.5) @ rng.standard_normal((40, 2100)) + 30.0
    dense = np.where(rng.random(dense.shape) < 0.1, dense, 0.0).astype(dtype)
    rows = sparse.csr_array(dense)
    if not ascending:
        for i in range(len(dense)):
            part = slice(rows.indptr[i], rows.indptr[i + 1])
            rows.indices[part], rows.data[part] = rows.indices[part][::-1].copy(), rows.data[part][::-1].copy()
        rows.has_sorted_indices = False
    weights = np.arange(240) % 3.0 if weighted else None
    ours = SketchedPCA(4, tol=1e-6, sketch_size=200).fit(rows, sample_weight=weights)
    values = truth(dense.astype(np.float64), weights)
    assert ours.solver_ == "krylov" and ours.n_passes_ == 1 and ours.converged_
    rtol = 1e-6 if dtype == np.float64 else 2e-6  # tol, and the rounding of a float32 variance
    assert np.allclose(ours.explained_variance_, values[:4], rtol=rtol, atol=0)
    assert holds(ours, values)
    width = np.diff(ours.explained_variance_interval_, axis=1).ravel()
    assert (width < 1e-5 * values[0]).all()
    # the certificate is that of four rows
    w = np.ones(240) if weights is None else weights
    moved = (dense.astype(np.float64) - ours.sketch_.mean) * np.sqrt(w)[:, np.newaxis]
    b = ours.sketch_.sketch()
    error = eigsh(moved.T @ moved - b.T @ b, 1, return_eigenvectors=False)
    assert abs(error[0]) <= ours.sketch_.error_bound * (1 + 1e-6)


def test_a_block_krylov_method_that_does_not_converge_gives_way_to_a_sketch(monkeypatch):
    def pick(problem, *, pairs=False, **_):
        return "krylov" if pairs else "rows"

    through(monkeypatch, "krylov")
    monkeypatch.setattr(_sketched_pca, "choose", pick)
    # all eigenvalues of the identity but one are the same: blocks are filled up with other directions
    ours = SketchedPCA(20).fit(sparse.eye_array(60, format="csr"))
    assert ours.solver_ == "krylov" and np.allclose(ours.explained_variance_, 1 / 59)
    monkeypatch.setattr(_sketched_pca, "krylov_steps", lambda _: 16)
    assert SketchedPCA(20).fit(sparse.csr_array(SPARSE)).solver_ == "rows"


@pytest.mark.parametrize("multiplicity", [17, 20, 40])
@pytest.mark.parametrize("spread", [0.0, 1e-6])
@pytest.mark.parametrize("k", [16, 18, 30])
def test_a_block_krylov_method_finds_eigenvalues_of_a_multiplicity_above_its_block(
    monkeypatch, k, spread, multiplicity
):
    through(monkeypatch, "krylov")
    squares = 5.0 * 0.97 ** np.arange(200)
    squares[:multiplicity] = 6.0 * (1.0 - spread * np.linspace(0, 1, multiplicity))
    roots, at = np.sqrt(squares), np.arange(200)
    # rows come in pairs of opposite signs, so that the mean is 0 and the eigenvalues of A'A are twice the squares
    rows = sparse.csr_array((np.r_[roots, -roots], (np.r_[2 * at, 2 * at + 1], np.r_[at, at])), shape=(400, 200))
    ours, values = SketchedPCA(k).fit(rows), 2 * squares / 399
    assert ours.solver_ == "krylov" and ours.converged_
    assert np.allclose(ours.explained_variance_, values[:k], rtol=1e-4, atol=0) and holds(ours, values)
    # the certificate holds also for the next eigenvalue
    dense, b = rows.toarray(), ours.sketch_.sketch()
    error = np.linalg.norm(dense.T @ dense - b.T @ b, 2)
    assert error * (1 - 1e-12) <= ours.sketch_.error_bound <= error * (1 + 1e-2)


@pytest.mark.parametrize("k", [3, 10, 20])
@pytest.mark.parametrize("rank", [0, 1, 5])
def test_a_block_krylov_method_with_fewer_dimensions_than_components(monkeypatch, rank, k):
    through(monkeypatch, "krylov")
    rows = np.zeros((90, 70))
    rows[np.arange(40), np.arange(40) % max(rank, 1)] = np.arange(1.0, 41.0) if rank else 0.0
    ours, values = SketchedPCA(k).fit(sparse.csr_array(rows)), truth(rows)
    assert ours.solver_ == "krylov" and ours.converged_ and holds(ours, values)
    assert np.allclose(ours.explained_variance_, values[:k], rtol=1e-10, atol=1e-10 * values[0])
    assert np.abs(ours.components_ @ ours.components_.T - np.eye(k)).max() < 1e-12 or rank == 0


def test_where_steps_find_no_end_another_way_is_taken(monkeypatch):
    asked = []

    def pick(problem, *, pairs=False, **_):
        asked.append(pairs)
        return "pairs" if pairs else "rows"

    monkeypatch.setattr(_sketched_pca, "choose", pick)
    monkeypatch.setattr(_sketched_pca, "sparse_pairs", lambda *_: None)
    ours = SketchedPCA(4).fit(sparse.csr_array(SPARSE))
    assert asked == [True, False] and ours.solver_ == "rows"
    # equal rows of the identity: all eigenvalues but one are the same, and one vector sees one of them
    monkeypatch.undo()
    through(monkeypatch, "pairs")
    monkeypatch.setattr(_sketched_pca, "choose", pick)
    ours = SketchedPCA(3).fit(sparse.eye_array(60, format="csr"))
    assert np.allclose(ours.explained_variance_, 1 / 59)


def test_refine():
    ours = SketchedPCA(4, solver="gram").partial_fit(X[:50]).partial_fit(X[50:])
    before = ours.explained_variance_interval_
    again = ours.refine(X)
    assert again is ours and ours.n_passes_ == 2
    true = truth(X)[:4]
    assert np.abs(ours.explained_variance_ / true - 1).max() < 0.01 and holds(ours, true)
    assert (np.diff(ours.explained_variance_interval_) <= np.diff(before)).all()
    with pytest.warns(UserWarning, match="not the same rows"):
        assert ours.refine(X[:50]).n_passes_ == 2
    for bad in (X[:, :-1], "absent.npy"):
        kept = ours.sketch_
        with pytest.raises((ValueError, OSError)):
            ours.refine(bad)
        assert ours.sketch_ is kept and ours.n_passes_ == 2
    exact = SketchedPCA(4, solver="exact").fit(X).refine(X)
    assert exact.n_passes_ == 1


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("way", WAYS)
def test_weights_count_rows(monkeypatch, way, layout):
    through(monkeypatch, way)
    rows = X if layout == "dense" else SPARSE
    counts = np.random.default_rng(1).integers(0, 4, len(rows))
    weighted = SketchedPCA(3, sketch_size=60).fit(
        rows if layout == "dense" else sparse.csr_array(rows), sample_weight=counts
    )
    repeated = PCA(3, svd_solver="full").fit(np.repeat(rows, counts, axis=0))
    for name in ("components_", "explained_variance_", "noise_variance_", "mean_"):
        assert np.allclose(getattr(weighted, name), getattr(repeated, name), rtol=1e-3, atol=1e-3), name
    assert np.allclose(weighted.var_, np.repeat(rows, counts, axis=0).var(axis=0))
    halves = SketchedPCA(3, solver="exact").partial_fit(rows[:50], sample_weight=counts[:50])
    halves.partial_fit(rows[50:], sample_weight=counts[50:])
    assert np.allclose(halves.explained_variance_, repeated.explained_variance_)
    assert np.allclose(halves.var_, weighted.var_)
    for bad in (-counts, counts[:5], counts * np.nan, 0 * counts):
        with pytest.raises(ValueError, match="sample_weight"):
            SketchedPCA(3).fit(rows, sample_weight=bad)


@pytest.mark.parametrize("scale", [1e-170, 1e-140, 1e-30, 1e30, 1e150])
@pytest.mark.parametrize("way", WAYS)
def test_any_magnitude(monkeypatch, way, scale):
    through(monkeypatch, way)
    plain, scaled = SketchedPCA(3).fit(X), SketchedPCA(3).fit(X * scale)
    # where squares vanish, passes end sooner
    assert np.allclose(scaled.components_, plain.components_, atol=1e-4 if scale == 1e-170 else 1e-7)
    if scale == 1e-170:  # squares are below what a double can hold
        return
    assert np.allclose(scaled.explained_variance_ratio_, plain.explained_variance_ratio_)
    assert np.allclose(scaled.singular_values_, plain.singular_values_ * scale, rtol=1e-7, atol=0)


@pytest.mark.parametrize("power", [-98, -90, -60, 60, 85, 90, 98, 140])
@pytest.mark.parametrize("way", [*WAYS, "krylov"])
def test_intervals_at_any_magnitude_of_rows_and_of_weights(monkeypatch, way, power):
    """The bound of the rounding errors is kept as its square, which is a fourth power of the entries."""
    through(monkeypatch, way)
    rows = sparse.csr_array(SPARSE) if way == "krylov" else SPARSE
    options = {"tol": 1e-3, "sketch_size": 60}
    plain = SketchedPCA(3, **options).fit(rows).explained_variance_interval_
    scaled = SketchedPCA(3, **options).fit(rows * 10.0**power)
    assert np.allclose(scaled.explained_variance_interval_ / 10.0**power / 10.0**power, plain, rtol=1e-6, atol=0)
    # variances are divided by max(1, weight - 1)
    weighted = SketchedPCA(3, **options).fit(rows, sample_weight=np.full(90, 10.0 ** (2 * power)))
    factor = 89.0 / 90.0 if power > 0 else 89.0 * 10.0 ** (2 * power)
    assert np.allclose(weighted.explained_variance_interval_ / factor, plain, rtol=1e-6, atol=0)
    standard, moved = (SketchedPCA(3, scale=True, solver="exact").fit(SPARSE * s) for s in (1.0, 10.0**power))
    assert np.allclose(moved.explained_variance_, standard.explained_variance_)


@pytest.mark.parametrize("solver", ["auto", "gram", "svd", "exact"])
@pytest.mark.parametrize("matrix", [np.asarray, np.asfortranarray, sparse.csr_array])
def test_rows_whose_squares_overflow_are_refused(solver, matrix):
    model = SketchedPCA(3, solver=solver).partial_fit(X[:60])
    before = model.explained_variance_
    refused = pytest.raises(ValueError, match=r"squares of the rows, weighted, must not sum up to more than 1e\+306")
    for call in (model.partial_fit, model.fit):
        for rows, weights in ((1e160 * X, None), (X, np.full(len(X), 1e306))):
            with refused:
                call(matrix(rows), sample_weight=weights)
    with refused:
        SketchedPCA(3, solver=solver).partial_fit(matrix(1e151 * X)).partial_fit(matrix(3e152 * X))
    assert model.n_samples_seen_ == 60 and np.array_equal(model.explained_variance_, before)
    assert not np.isinf(SketchedPCA(3, solver=solver).fit(matrix((1e15 * X).astype(np.float32))).singular_values_).any()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "rows", [np.ones((6, 5)), np.zeros((6, 5)), np.eye(5)[[0, 0, 1, 1]], X[:1], 1e8 + X[:6] * 1e-3]
)
def test_rows_with_little_in_them(monkeypatch, way, rows):
    through(monkeypatch, way)
    model = SketchedPCA(3).fit(rows)
    real = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False) ** 2 / max(1, len(rows) - 1)
    real = np.pad(real, (0, 3))[:3]
    assert np.allclose(model.explained_variance_, real, rtol=1e-6, atol=1e-9)
    assert np.allclose(model.components_ @ model.components_.T, np.eye(3), atol=1e-12)
    assert np.isfinite(model.explained_variance_ratio_).all() and np.isfinite(model.explained_variance_interval_).all()


def test_fit_and_stream_agree_and_fit_can_be_continued():
    whole = SketchedPCA(4).fit(X)
    parts = SketchedPCA(4).partial_fit(X[:33]).partial_fit(X[33:])
    after = SketchedPCA(4).fit(X[:33]).partial_fit(X[33:])
    for model in (parts, after):
        assert model.n_samples_seen_ == 90 and holds(model, truth(X))
        assert np.allclose(model.mean_, whole.mean_) and np.allclose(model.var_, whole.var_)
    assert np.allclose(parts.explained_variance_, whole.explained_variance_)


@pytest.mark.parametrize("way", WAYS)
def test_a_view_is_never_stale(monkeypatch, way):
    through(monkeypatch, way)
    model = SketchedPCA(3).fit(X[:60])
    before = model.explained_variance_
    assert np.array_equal(before, model.explained_variance_)
    model.partial_fit(X[60:])
    assert not np.array_equal(before, model.explained_variance_)
    model.sketch_.fade(0.25)
    assert model.singular_values_[0] < 0.6 * model.explained_variance_[0] ** 0.5 * 90**0.5


# -- intervals -------------------------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore:explained_variance_ is not accurate")
@pytest.mark.parametrize("method", ["tfd", "rfd", "fd", "pfd", "cfd", "isvd"])
@pytest.mark.parametrize("kind", ["signal", "noise"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_intervals_hold_and_estimates_lie_in_them(monkeypatch, method, kind, dtype):
    rows = stream(kind, np.random.default_rng(2), 300, 60).astype(dtype)
    real = truth(rows.astype(np.float64))
    through(monkeypatch, "sketch")
    for options in ({"solver": "gram"}, {"solver": "svd"}, {}):
        for data in (rows, sparse.csr_matrix(rows)):
            model = SketchedPCA(5, sketch_size=8, method=method, **options).fit(data)
            assert holds(model, real), options
            low, high = model.explained_variance_interval_.T
            ours = model.explained_variance_.astype(np.float64)
            assert (low <= ours * (1 + 1e-6)).all() and (ours <= high * (1 + 1e-6)).all()
            errors = np.abs(model.singular_values_.astype(float) ** 2 - real[:5] * 299)
            assert errors.max() <= model.error_bound_ * (1 + 1e-6) + 1e-5 * real[0]
            assert model.explained_variance_ratio_certified_.sum() <= real[:5].sum() / real.sum() + 1e-9


def test_intervals_where_the_sketch_has_fewer_rows_than_components():
    model = SketchedPCA(6, sketch_size=7, solver="gram").partial_fit(X[:3])
    assert holds(model, np.pad(truth(X[:3]), (0, 3)))
    model.partial_fit(X[3:])
    assert holds(model, truth(X))


@pytest.mark.filterwarnings("ignore:explained_variance_ is not accurate")
def test_more_passes_while_a_variance_moves(monkeypatch):
    through(monkeypatch, "sketch")
    rows = stream("noise", np.random.default_rng(3), 600, 80)
    real = truth(rows)
    one = SketchedPCA(3, solver="gram").fit(rows)
    more = SketchedPCA(3).fit(rows)
    errors = [np.abs(model.explained_variance_ / real[:3] - 1).max() for model in (one, more)]
    assert 2 <= more.n_passes_ <= 8 and one.n_passes_ == 1 and errors[1] < errors[0] / 100
    assert SketchedPCA(3, sketch_size=81).fit(rows).n_passes_ == 1  # nothing was lost


@pytest.mark.filterwarnings("ignore:explained_variance_ is not accurate")
def test_passes_are_those_of_the_rows_that_were_read(monkeypatch, tmp_path):
    through(monkeypatch, "sketch")
    rows = stream("noise", np.random.default_rng(3), 600, 80)
    passes = SketchedPCA(3).fit(rows).n_passes_
    model = SketchedPCA(3, max_memory=0).fit(fs.open_rows(rows))
    assert model.n_passes_ == passes >= 2
    model.save(tmp_path / "m.fsk")
    assert SketchedPCA.load(tmp_path / "m.fsk").n_passes_ == passes
    assert SketchedPCA.from_model(model.sketch_, n_components=3).n_passes_ == 1
    assert SketchedPCA(3, max_memory=0).partial_fit(rows).n_passes_ == 1
    assert model.merge(SketchedPCA(3, max_memory=0).fit(rows)).n_passes_ == 1
    assert model.partial_fit(rows).refine(np.vstack([rows, rows, rows])).n_passes_ == 2


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_a_flat_spectrum_is_read_exactly_where_memory_allows(monkeypatch, kind):
    monkeypatch.setattr(_sketched_pca, "choose", lambda *_, **__: "sketch")
    rows = np.random.default_rng(0).standard_normal((2_000, 1_200))
    weights = np.random.default_rng(1).choice([1.0, 2.0], 2_000)
    model = SketchedPCA(10).fit(sparse.csr_array(rows) if kind == "csr" else rows, sample_weight=weights)
    assert (model.solver_, model.n_passes_) == ("exact", 1)
    assert np.allclose(model.explained_variance_, truth(rows, weights)[:10], rtol=1e-9)
    with pytest.warns(UserWarning, match="is not accurate to tol=0.0001"):
        assert SketchedPCA(10, max_memory=0).fit(rows, sample_weight=weights).solver_ == "gram"


def test_a_flat_spectrum_is_said_not_to_be_exact(monkeypatch):
    through(monkeypatch, "sketch")
    rows = np.random.default_rng(0).standard_normal((2_000, 1_200))
    for given in (rows, fs.open_rows(rows)):
        with pytest.warns(
            UserWarning, match=r"is not accurate to tol=0.0001: after pass 8, the last, .*solver='exact'"
        ) as caught:
            model = SketchedPCA(10, max_memory=0).fit(given)
        assert caught[0].filename == __file__
        # a Ritz value is nearer than its residual
        assert np.abs(model.explained_variance_ / truth(rows)[:10] - 1).max() < 0.05


# -- tol and passes ---------------------------------------------------------------------------------------------------
def decaying(exponent=-0.5, n=600, d=900):
    return np.random.default_rng(6).standard_normal((n, d)) * np.arange(1, d + 1) ** exponent


@pytest.mark.parametrize("kind", ["dense", "float32", "csr", "source"])
@pytest.mark.parametrize("exponent", [-0.35, -0.5, -1.0])
def test_variances_are_as_accurate_as_tol_asks(monkeypatch, kind, exponent):
    through(monkeypatch, "sketch")
    rows = decaying(exponent)
    rows = rows.astype(np.float32).astype(float)
    real = truth(rows)[:4]
    given = {"float32": rows.astype(np.float32), "csr": sparse.csr_array(rows), "source": fs.open_rows(rows)}
    before = 1
    for tol in (1e-1, 1e-4, 1e-8):
        model = SketchedPCA(4, tol=tol, max_memory=0).fit(given.get(kind, rows))
        error = np.abs(model.explained_variance_.astype(float) / real - 1)
        assert model.converged_ and model.residuals_.shape == (4,) and (model.residuals_ < 0.1).all()
        assert error.max() <= tol + (1e-6 if kind == "float32" else 0.0)
        assert before <= model.n_passes_ <= 8
        assert holds(model, truth(rows))
        before = model.n_passes_


def test_passes_end_where_they_are_told_to(monkeypatch, tmp_path):
    through(monkeypatch, "sketch")
    rows = decaying()
    real, errors = truth(rows)[:4], []
    for passes in (1, 2, 3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = SketchedPCA(4, tol=1e-12, passes=passes, solver="gram").fit(rows)
        assert model.n_passes_ == passes and not model.converged_
        assert np.isnan(model.residuals_).all() == (passes == 1)
        assert any(f"after pass {passes}" in str(each.message) for each in caught) == (passes > 1)
        errors.append(np.abs(model.explained_variance_ / real - 1).max())
        model.save(tmp_path / "m.fsk")
        again = SketchedPCA.load(tmp_path / "m.fsk")
        assert np.array_equal(again.residuals_, model.residuals_, equal_nan=True) and not again.converged_
    assert errors[2] < errors[1] / 10 < errors[0] / 100
    more = pickle.loads(pickle.dumps(model)).partial_fit(rows[:5])
    assert np.isnan(more.residuals_).all() and not more.converged_
    assert SketchedPCA(4, solver="gram").fit(rows).n_passes_ == 1


def test_tol_of_zero_is_exact_where_memory_allows():
    rows = decaying(n=1_000, d=1_200)
    model = SketchedPCA(4, sketch_size=12, tol=0).fit(rows)
    assert model.solver_ == "rows" and model.converged_ and not model.residuals_.any()
    assert np.allclose(model.explained_variance_, truth(rows)[:4], rtol=1e-12)
    assert SketchedPCA(4, sketch_size=12).fit(rows).solver_ == "gram"


def test_components_of_fewer_rows_and_of_equal_rows_have_converged(monkeypatch):
    through(monkeypatch, "sketch")
    for rows in (X[:3], np.ones((50, 70)), np.outer(np.arange(50.0), np.ones(70))):
        model = SketchedPCA(5, sketch_size=6).fit(rows)
        assert model.converged_ and np.isfinite(model.explained_variance_).all()
        assert holds(model, np.pad(truth(rows), (0, 3)))


class Told(type(fs.open_rows(np.zeros((1, 1))))):
    """Rows in memory that count how often they are read, and are others from some reading on."""

    def told(self, *, changes_at=None, stops_at=None, repeatable=True):
        self.n_read, self.changes_at, self.stops_at, self.repeatable = 0, changes_at, stops_at, repeatable
        return self

    def read(self, start_row=0):
        self.n_read += 1
        if self.n_read == self.stops_at:
            raise KeyboardInterrupt
        for rows, position in super().read(start_row):
            yield rows * (2.0 if self.changes_at is not None and self.n_read >= self.changes_at else 1.0), position


def told(rows, **options):
    source = fs.open_rows(rows)
    source.__class__ = Told
    return source.told(**options)


def test_a_source_is_read_as_often_as_passes_says():
    rows = decaying()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for passes in (1, 2, 3):
            source = told(rows)
            model = SketchedPCA(4, max_memory=0, tol=1e-12, passes=passes).fit(source)
            assert source.n_read == model.n_passes_ == passes and not model.converged_
    source = told(rows)
    model = SketchedPCA(4, max_memory=0).fit(source)
    assert source.n_read == model.n_passes_ > 1 and model.converged_
    assert model.explained_variance_ == pytest.approx(truth(rows)[:4], rel=1e-4)


def test_a_source_that_comes_once_is_read_once_and_not_twice():
    rows = decaying()
    source = told(rows, repeatable=False)
    with pytest.raises(ValueError, match="passes=2, but .* comes once: save its rows to a file, or take passes=1"):
        SketchedPCA(4, max_memory=0, passes=2).fit(source)
    assert source.n_read == 0
    for passes in (None, 1):
        model = SketchedPCA(4, max_memory=0, passes=passes).fit(told(rows, repeatable=False))
        assert model.n_passes_ == 1 and not model.converged_ and np.isnan(model.residuals_).all()


def test_a_source_that_changes_between_passes_is_one_pass_with_a_warning():
    rows = decaying()
    with pytest.warns(UserWarning, match="these are not the same rows"):
        model = SketchedPCA(4, max_memory=0).fit(told(rows, changes_at=2))
    assert model.n_passes_ == 1 and not model.converged_ and holds(model, truth(rows))


def test_an_interrupt_between_passes_leaves_what_was_learned_before():
    rows = decaying()
    model = SketchedPCA(4, max_memory=0, passes=1).fit(rows)
    before = model.components_
    with pytest.raises(KeyboardInterrupt):
        model.set_params(passes=None).fit(told(decaying(-1.0), stops_at=2))
    assert np.array_equal(model.components_, before) and model.n_passes_ == 1


def test_bad_tol_and_passes():
    for name, bad in [("tol", -1.0), ("tol", np.nan), ("tol", "1"), ("passes", 0), ("passes", 1.5), ("passes", "2")]:
        with pytest.raises((TypeError, ValueError), match=name):
            SketchedPCA(3, **{name: bad}).fit(X)


def test_memory_that_cannot_be_had_is_refused_before_a_row_is_read(monkeypatch):
    asked = []

    def empty(n, dtype):
        asked.append(n)
        raise MemoryError

    source = fs.open_rows(decaying(n=60))
    monkeypatch.setattr(type(source), "__iter__", lambda self: pytest.fail("a row was read"))
    monkeypatch.setattr(_sketched_pca.np, "empty", empty)
    with pytest.raises(MemoryError, match="sketch_size=20 rows and 900 columns takes .* GB with passes=None"):
        SketchedPCA(5, max_memory=0).fit(source)
    with pytest.raises(MemoryError, match="passes=1"):
        SketchedPCA(5, max_memory=0, passes=1).fit(source)
    assert asked == [8 * 20 * 900 * 22, 8 * 20 * 900 * 12]


# -- few rows of a stream ---------------------------------------------------------------------------------------------
WIDE = np.random.default_rng(5).standard_normal((60, 3000)) * np.arange(1, 3001) ** -0.5


def few(monkeypatch, *parts, weights=None, **options):
    """Return an estimator that has learned parts of WIDE, where sums of columns are beyond its memory."""
    monkeypatch.setattr(_sketched_pca, "sums_in_stream", lambda *_, **__: False)
    model = SketchedPCA(5, **options)
    for part in parts:
        rows = part if not isinstance(part, slice) else WIDE[part]
        model.partial_fit(rows, sample_weight=None if weights is None else weights[part])
    return model


@pytest.mark.parametrize("kind", ["dense", "float32", "csr", "weights"])
def test_few_rows_of_a_stream_are_exact(monkeypatch, tmp_path, kind):
    parts: list = [slice(0, 1), slice(1, 33), slice(33, 60)]
    counts = np.random.default_rng(0).integers(0, 3, 60).astype(float) if kind == "weights" else None
    rows = np.where(np.abs(WIDE) > 0.05, WIDE, 0)
    given = {"csr": sparse.csr_array(rows), "float32": WIDE.astype(np.float32)}.get(kind, WIDE)
    model = few(monkeypatch, *(parts if kind == "weights" else [given[part] for part in parts]), weights=counts)
    real = truth(np.asarray(rows if kind == "csr" else given, np.float64), counts)
    assert model.solver_ == "rows" and model.n_passes_ == 1
    assert np.allclose(model.explained_variance_, real[:5], rtol=1e-5 if kind == "float32" else 1e-10)
    assert np.ptp(model.explained_variance_interval_, axis=1).max() < 1e-4 * real[0]
    assert holds(model, real)
    assert model.refine(WIDE).n_passes_ == 1  # nothing is read
    model.save(tmp_path / "pca.fsk")
    for again in (SketchedPCA.load(tmp_path / "pca.fsk"), pickle.loads(pickle.dumps(model))):
        assert again.solver_ == "rows"
        assert np.array_equal(again.components_, model.components_)
        more = again.partial_fit(given[:9])
        assert np.array_equal(more.components_, few_more(model, given[:9]).components_)


def few_more(model, rows):
    return pickle.loads(pickle.dumps(model)).partial_fit(rows)


def test_rows_are_kept_no_longer_than_they_are_few(monkeypatch):
    model = few(monkeypatch, slice(0, 60))
    assert model._stream is not None
    model._stream.size = 70  # as of rows that are more expensive
    plain = few(monkeypatch, slice(0, 60), slice(0, 20), solver="gram")
    model.partial_fit(WIDE[:20])
    assert model.solver_ == "gram" and model._stream is None
    assert np.array_equal(model.components_, plain.components_)  # the bits of the sketch, which has learned all along
    assert few(monkeypatch, slice(0, 60), max_memory=1e6).solver_ == "gram"
    assert few(monkeypatch, slice(0, 60), max_memory=1e9).fit(WIDE[:, :50]).partial_fit(WIDE[:, :50])._stream is None


def test_rows_that_are_not_all_do_not_count(monkeypatch):
    """As after an interrupt between the sketch and what is kept beside it."""
    model, plain = few(monkeypatch, slice(0, 60)), few(monkeypatch, slice(0, 60), solver="gram")
    model.sketch_.update(WIDE[:7])
    assert np.array_equal(model.components_, plain.partial_fit(WIDE[:7]).components_)


def test_few_rows_merge(monkeypatch):
    one, two = few(monkeypatch, slice(0, 25)), few(monkeypatch, slice(25, 60))
    merged = few(monkeypatch, slice(0, 25)).merge(two)
    assert merged.solver_ == "rows" and merged.n_samples_seen_ == 60
    assert np.allclose(merged.explained_variance_, truth(WIDE)[:5], rtol=1e-10)
    two._stream.size = 50
    assert one.merge(two).solver_ == "gram" and one._stream is None


# -- the number of components ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("way", WAYS)
def test_a_share_of_the_variance(monkeypatch, way, share):
    through(monkeypatch, way)
    ours, theirs = SketchedPCA(share, sketch_size=None if way == "rows" else 71).fit(X), PCA(share).fit(X)
    assert ours.n_components_ == theirs.n_components_ == len(ours.components_) == ours.transform(X).shape[1]
    assert np.allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_)
    assert ours.explained_variance_ratio_certified_.sum() > share - 1e-9
    assert ours.get_feature_names_out().shape == (ours.n_components_,)


def test_a_share_of_a_matrix_that_is_taken_apart_bit_by_bit():
    rows = RNG.standard_normal((400, 300))
    for share in (0.3, 0.99):
        ours = SketchedPCA(share, sketch_size=8, solver="exact").fit(rows)
        assert ours.n_components_ == PCA(share, svd_solver="full").fit(rows).n_components_


def test_a_sketch_that_is_too_small_for_the_share_says_so():
    rows = stream("noise", np.random.default_rng(3), 600, 80)
    with pytest.warns(UserWarning, match=r"n_components=0.9: \d+ components, all that sketch_size=9 holds"):
        model = SketchedPCA(0.9, sketch_size=9, solver="gram").fit(rows)
    assert 1 <= model.n_components_ <= 8
    assert model.explained_variance_ratio_certified_.sum() < model.explained_variance_ratio_.sum() < 0.9


def test_a_share_needs_two_rows():
    with pytest.raises(ValueError, match=r"n_components=0\.5 needs at least two rows"):
        SketchedPCA(0.5).fit(X[:1])
    model = SketchedPCA(0.5, solver="gram").partial_fit(X[:1])
    with pytest.raises(ValueError, match=r"n_components=0\.5 needs at least two rows"):
        model.components_  # noqa: B018
    assert len(model.partial_fit(X[1:2]).components_) == 1


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.5, 1.5, np.nan, "mle", 0, -1, True, 71])
def test_bad_numbers_of_components(bad):
    with pytest.raises((TypeError, ValueError), match="n_components"):
        SketchedPCA(bad).fit(X)


@pytest.mark.parametrize("shape", [(90, 70), (40, 70), (90, 7), (1, 3)])
def test_none_keeps_all(shape):
    rows = X[: shape[0], : shape[1]]
    model = SketchedPCA().fit(rows)
    assert model.n_components_ == min(shape)
    assert np.allclose(model.explained_variance_.sum(), rows.var(axis=0, ddof=min(1, len(rows) - 1)).sum())
    assert np.allclose(model.inverse_transform(model.transform(rows)), rows)


# -- the model of costs ----------------------------------------------------------------------------------------------
def test_an_exact_way_is_taken_where_it_takes_no_more_operations_than_a_randomized_svd():
    most = {"max_memory": 1e9}
    for n, d, k, way in [
        (200, 10_000, 10, "rows"),
        (800, 50_000, 10, "rows"),
        (1_000, 50_000, 10, "sketch"),
        (20_000, 784, 10, "columns"),
        (20_000, 784, 32, "columns"),
        (8_000, 2_048, 10, "sketch"),
        (8_000, 2_048, 50, "columns"),
        (1_560, 617, 32, "columns"),
        (20_000, 8_000, 10, "sketch"),
        (100_000, 4_096, 10, "sketch"),
    ]:
        assert choose(FitProblem(n, d, k, 2 * k + 10), **most) == way, (n, d, k)
    text = FitProblem(15_935, 62_061, 10, 30, stored=1.27e6, row_steps=2.8e8, column_steps=5.7e8)
    assert choose(text, **most) == "sketch"
    assert choose(text, pairs=True, **most) == "pairs"
    assert choose(text._replace(k=2_000), pairs=True, **most) == "sketch"
    # 24 bytes of each entry are more than max_memory: a block Krylov method, which copies none
    cells = FitProblem(60_000, 20_000, 50, 110, itemsize=4, stored=7.5e7, row_steps=1e11, column_steps=1e12)
    assert choose(cells, pairs=True, **most) == "krylov" and by_krylov(cells).bytes < 2.5e8
    assert choose(cells, pairs=True, max_memory=1e8) == choose(cells, pairs=True, exact=True, **most) == "sketch"
    flat = FitProblem(50_000, 300, 10, 30, stored=5.8e5, row_steps=1.3e7, column_steps=3.3e9)
    assert choose(flat, **most) == choose(flat, pairs=True, **most) == "columns"


def test_the_model_keeps_within_memory():
    for n, d in [(300, 20_000), (20_000, 2_000), (3_000, 3_000)]:
        p = FitProblem(n, d, 10, 30)
        for limit in (0.0, 1e6, 1e7, 1e8, 1e9):
            way = choose(p, max_memory=limit)
            assert way == "sketch" or {"rows": by_rows, "columns": by_columns}[way](p).bytes <= limit
        assert choose(p, max_memory=0.0) == "sketch"
        assert min(by_rows(p).bytes, by_columns(p).bytes) > 8 * min(n, d) ** 2
    assert sums_in_stream(FitProblem(200, 2_000, 10, 30), max_memory=1e9)
    assert not sums_in_stream(FitProblem(200, 2_000, 10, 30), max_memory=1e7)
    assert not sums_in_stream(FitProblem(200, 7_000, 10, 30), max_memory=1e9)
    assert not sums_in_stream(FitProblem(200, 2_000, 10, 30, stored=200 * 20), max_memory=1e9)
    assert SketchedPCA(3, max_memory=0).fit(X).solver_ == "gram"
    assert SketchedPCA(3, max_memory=0).partial_fit(X).solver_ == "gram"
    for bad in (-1, np.nan, "1 GB", None):
        with pytest.raises((TypeError, ValueError), match="max_memory"):
            SketchedPCA(3, max_memory=bad).fit(X)


@pytest.mark.covering(1)
@pytest.mark.filterwarnings("ignore:explained_variance_ is not accurate")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("way", "shape"), [("rows", (500, 20_000)), ("columns", (12_000, 900)), ("sketch", (4_000, 3_000))]
)
def test_peak_memory_is_what_the_model_says(monkeypatch, way, shape, dtype):
    through(monkeypatch, way)
    rows = np.random.default_rng(4).standard_normal(shape, dtype=np.float32).astype(dtype)
    p = FitProblem(*shape, 5, 20, rows.itemsize)
    # of a sketch: its buffers, and of eight passes the directions and their products
    sketched = 8.0 * p.d * (3 * p.size + 2 * 256 + 8 * p.size + 2 * 7 * (p.k + 10)) + 6 * BLOCK_BYTES
    said = {"rows": by_rows(p).bytes, "columns": by_columns(p).bytes, "sketch": sketched}[way]
    SketchedPCA(2).fit(rows[:50, :50])  # what is imported once
    tracemalloc.start()
    try:
        SketchedPCA(5).fit(rows).components_  # noqa: B018
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= said and peak < rows.nbytes, (peak, said)


# -- likelihoods and whitening ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("k", [1, 4, 70])
def test_likelihoods(k):
    rows = np.vstack([X, X[::-1] + 0.1 * RNG.standard_normal(X.shape)])
    ours, theirs = SketchedPCA(k).fit(rows), PCA(k, svd_solver="full").fit(rows)
    assert np.allclose(ours.score_samples(rows), theirs.score_samples(rows), rtol=1e-4)
    assert np.allclose(ours.score_samples(sparse.csr_array(rows)), ours.score_samples(rows))
    assert np.isclose(ours.score(rows), theirs.score(rows), rtol=1e-4)
    assert np.allclose(ours.get_covariance(), theirs.get_covariance())
    assert np.allclose(ours.get_precision() @ ours.get_covariance(), np.eye(70), atol=1e-6)


def test_a_singular_covariance_has_no_likelihood():
    exact = SketchedPCA(3).fit(np.eye(9)[:3])
    with pytest.raises(ValueError, match="singular"):
        exact.score(X[:2, :9])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_whitened_data_come_back(monkeypatch, way, dtype):
    through(monkeypatch, way)
    rows = X.astype(dtype)
    white, plain = SketchedPCA(6, whiten=True).fit(rows), SketchedPCA(6).fit(rows)
    z = white.transform(rows)
    assert np.allclose(np.cov(z.T), np.eye(6), atol=1e-2)
    tolerance = 1e-3 if dtype == np.float32 else 1e-9
    assert np.allclose(white.inverse_transform(z), plain.inverse_transform(plain.transform(rows)), atol=tolerance)
    assert np.allclose(white.get_covariance(), plain.get_covariance(), atol=1e-5)


# -- what it keeps ---------------------------------------------------------------------------------------------------
def same(one, two):
    for name in ("components_", "explained_variance_", "explained_variance_interval_", "mean_", "var_"):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name
    for name in ("n_components_", "n_samples_seen_", "solver_", "n_passes_", "error_bound_", "n_features_in_"):
        assert getattr(one, name) == getattr(two, name), name
    assert one.get_params() == two.get_params()


@pytest.mark.parametrize("components", [3, 0.6])
@pytest.mark.parametrize("way", WAYS)
def test_files_and_pickles(monkeypatch, tmp_path, way, components):
    through(monkeypatch, way)
    model = SketchedPCA(components, sketch_size=60, whiten=True).fit(X.astype(np.float32))
    model.save(tmp_path / "pca.fsk")
    same(model, SketchedPCA.load(tmp_path / "pca.fsk"))
    same(model, pickle.loads(pickle.dumps(model)))
    again = SketchedPCA.load(tmp_path / "pca.fsk").partial_fit(X[:20].astype(np.float32))
    same(again, model.partial_fit(X[:20].astype(np.float32)))
    with pytest.raises(ValueError, match="method"):
        again.set_params(method="fd").partial_fit(X)


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "pca.fsk"
    SketchedPCA(3).fit(X).save(path)
    about, arrays = fs.data.files._state.read(path)
    for name, array in {
        "learned": np.array([99.0, 1.0, 0.0]),
        "dtype": np.zeros(0, np.int32),
        "shift": np.zeros(3),
        "weight": np.array([-1.0]),
        "sketch": np.zeros(5, np.uint8),
    }.items():
        with pytest.raises(fs.StateError, match="not consistent"):
            SketchedPCA.load(io.BytesIO(fs.data.files._state.pack(about, {**arrays, name: array})))


@pytest.mark.parametrize("one", WAYS)
@pytest.mark.parametrize("two", WAYS)
def test_estimators_that_went_different_ways_merge(monkeypatch, one, two):
    through(monkeypatch, one)
    first = SketchedPCA(3).fit(X[:50])
    through(monkeypatch, two)
    second = SketchedPCA(3).fit(X[50:])
    kept = second.explained_variance_
    first.merge(second)
    real = truth(X)
    assert holds(first, real) and first.n_samples_seen_ == 90
    assert np.allclose(first.mean_, X.mean(axis=0)) and np.allclose(first.var_, X.var(axis=0))
    assert np.array_equal(kept, second.explained_variance_)
    assert np.abs(first.explained_variance_ / real[:3] - 1).max() < (1e-10 if one == two == "columns" else 0.2)
    first.partial_fit(X)
    assert holds(first, truth(np.vstack([X, X])))


def test_merging_needs_the_same_parameters():
    model = SketchedPCA(3).fit(X)
    for other in (SketchedPCA(4).fit(X), SketchedPCA(3, method="fd").fit(X), SketchedPCA(3).fit(X[:, :9])):
        with pytest.raises(ValueError, match="other has"):
            model.merge(other)
    with pytest.raises(TypeError, match="other must be"):
        model.merge(PCA(3))
    assert model.n_samples_seen_ == 90
    same(SketchedPCA(3).merge(model), model)


@pytest.mark.parametrize("method", ["tfd", "rfd"])
def test_from_a_sketch(method):
    sketch = fs.FrequentDirections(16, method=method, center=True, solver="gram").update(X)
    model = SketchedPCA.from_model(sketch, n_components=4)
    assert holds(model, truth(X)) and model.n_samples_seen_ == 90 and model.components_.shape == (4, 70)
    assert np.allclose(model.mean_, X.mean(axis=0))
    with pytest.raises(AttributeError, match="var_"):
        model.var_  # noqa: B018
    model.partial_fit(X)
    assert sketch.n_rows == 90 and model.n_samples_seen_ == 180
    assert SketchedPCA.from_model(sketch, n_components=0.5).n_components_ >= 1
    for bad in (fs.FrequentDirections(16).update(X), fs.FrequentDirections(16, center=True)):
        with pytest.raises(ValueError, match="must have"):
            SketchedPCA.from_model(bad)
    with pytest.raises(ValueError, match="sketch_size=16 must be larger than n_components=16"):
        SketchedPCA.from_model(sketch, n_components=16)


def test_attributes_have_the_meaning_of_incremental_pca():
    ours, theirs = SketchedPCA(5, whiten=True).fit(X), IncrementalPCA(5, whiten=True).fit(X)
    for name in (
        "components_",
        "explained_variance_",
        "explained_variance_ratio_",
        "singular_values_",
        "mean_",
        "var_",
    ):
        assert np.allclose(getattr(ours, name), getattr(theirs, name), atol=1e-8), name
    assert ours.n_samples_seen_ == theirs.n_samples_seen_ and ours.n_components_ == theirs.n_components_
    assert np.isclose(ours.noise_variance_, theirs.noise_variance_)
    assert np.allclose(ours.transform(X), theirs.transform(X))
    assert ours.set_output(transform="default").transform(X).shape == (90, 5)


def test_set_params_that_cannot_be_followed():
    model = SketchedPCA(3).fit(X)
    for name, value in {"n_components": 4, "sketch_size": 99, "max_memory": 1.0, "solver": "gram"}.items():
        changed = pickle.loads(pickle.dumps(model)).set_params(**{name: value})
        with pytest.raises(ValueError, match=name):
            changed.partial_fit(X)
    model.set_params(whiten=True).partial_fit(X)


def test_a_share_that_is_not_certain_warns():
    rows = np.random.default_rng(1).standard_normal((600, 120)) * 0.9 ** np.arange(120)
    with pytest.warns(UserWarning, match="components by estimates"):
        model = SketchedPCA(0.8, solver="gram", sketch_size=12).fit(rows)
        assert model.n_components_ < 12
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert SketchedPCA(0.8).fit(rows).n_components_ == PCA(0.8).fit(rows).n_components_


def test_from_a_sketch_that_has_grown():
    rows = stream("signal", np.random.default_rng(1), 600, 120)
    sketch = fs.FrequentDirections(tolerance=0.02, center=True, method="tfd", solver="gram").update(rows)
    model = SketchedPCA.from_model(sketch, n_components=5)
    assert model.sketch_size == sketch.resolved["sketch_size"] > 5
    assert model.explained_variance_.shape == (5,)


def test_solver_says_what_has_lost_something(monkeypatch):
    through(monkeypatch, "rows")
    first = SketchedPCA(3, sketch_size=9).fit(X[:40])
    assert first.solver_ == "rows"
    monkeypatch.undo()
    second = SketchedPCA(3, sketch_size=9, solver="auto").partial_fit(X[40:])
    assert second.solver_ == "exact"
    assert first.merge(second).solver_ == "gram"
    again = SketchedPCA(3, solver="gram").partial_fit(X).refine(X)
    assert again.n_passes_ == 2 and again.partial_fit(X[:5]).n_passes_ == 1


def test_float32_variances_lie_in_their_intervals():
    rows = X.astype(np.float32)
    model = SketchedPCA(5).fit(rows)
    low, high = model.explained_variance_interval_.T
    assert (low <= model.explained_variance_).all() and (model.explained_variance_ <= high).all()


@pytest.mark.parametrize("scale", [1e-150, 1e120])
def test_var_after_a_fit_of_numbers_near_the_ends_of_the_range(scale):
    X = np.random.default_rng(0).standard_normal((120, 6)) + 2.0
    model = SketchedPCA(2, solver="exact").fit(X[:80] * scale).partial_fit(X[80:] * scale)
    assert np.allclose(model.var_ / scale / scale, X.var(axis=0))


# -- what messages say -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("bad", ["mle", True, [3]])
def test_numbers_of_components_that_are_none(bad):
    with pytest.raises(TypeError, match=r"n_components must be an integer, a share in \(0, 1\) or None, got"):
        SketchedPCA(bad).fit(X)


@pytest.mark.parametrize("parameters", [{"sketch_size": 20}, {"sketch_size": 71}, {"tolerance": 0.02}])
def test_from_a_sketch_without_a_number_of_components(tmp_path, parameters):
    sketch = fs.FrequentDirections(center=True, solver="gram", **parameters).update(X)
    size = sketch.resolved["sketch_size"]
    model = SketchedPCA.from_model(sketch)
    assert model.n_components_ == min(size - 1, 70) and model.components_.shape == (model.n_components_, 70)
    assert holds(model, truth(X))
    assert SketchedPCA.from_model(sketch, n_components=min(size - 1, 70)).n_components_ == model.n_components_
    model.save(tmp_path / "p.fsk")
    assert SketchedPCA.load(tmp_path / "p.fsk").partial_fit(X).n_components_ == model.n_components_
    few = fs.FrequentDirections(20, center=True, solver="gram").update(X[:5])
    assert SketchedPCA.from_model(few).n_components_ == 5


def test_a_variance_of_zero_is_named():
    rows = np.column_stack([X[:, :5], np.zeros(len(X))])
    with pytest.raises(ValueError, match="singular: a variance is 0"):
        SketchedPCA(6).fit(rows).score(rows)
    assert np.isfinite(SketchedPCA(4).fit(rows).score(rows))


@pytest.mark.parametrize("whiten", [False, True])
def test_inverse_transform_names_widths(whiten):
    model = SketchedPCA(4, whiten=whiten).fit(X)
    with pytest.raises(ValueError, match=r"X must have n_components_=4 columns, got shape \(90, 70\)"):
        model.inverse_transform(X)
    back = model.inverse_transform(model.transform(X))
    assert back.shape == X.shape
    assert np.allclose(model.inverse_transform(model.transform(X).tolist()), back)


def test_estimators_of_sketches_that_do_not_agree_do_not_merge():
    one, two = (
        SketchedPCA.from_model(
            fs.FrequentDirections(12, method="tfd", center=True, solver="gram", beta=beta).update(X), n_components=3
        )
        for beta in (0.3, 0.6)
    )
    with pytest.raises(ValueError, match="beta"):
        one.merge(two)


# -- uncertain variances -----------------------------------------------------------------------------------------------
def flat_and_falling():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((1000, 100))
    return rows, rows * np.arange(1, 101) ** -1.5


@pytest.mark.parametrize("solver", ["gram", "svd"])
def test_variances_that_one_pass_does_not_know_are_said_once(solver):
    flat, falling = flat_and_falling()
    with pytest.warns(UserWarning, match=r"far off in 3 of 3 components: .* or a sketch_size above 16") as caught:
        pca = SketchedPCA(3, solver=solver).fit(flat)
        _ = pca.explained_variance_, pca.explained_variance_ratio_, pca.singular_values_, pca.transform(flat)
    assert len(caught) == 1
    low, high = pca.explained_variance_interval_.T
    assert (high - low > pca.explained_variance_).all()
    stream = SketchedPCA(3, solver=solver)
    for part in np.split(flat, 4):
        stream.partial_fit(part)
    with pytest.warns(UserWarning, match="may be far off") as caught:
        _ = stream.explained_variance_, stream.explained_variance_
    assert len(caught) == 1
    # nothing is said where intervals are narrow, where the rows were read again, or where the answer is exact
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for answer in (
            SketchedPCA(3, solver=solver, sketch_size=30).fit(falling),
            SketchedPCA(3, solver=solver, sketch_size=110).fit(flat),
            stream.refine(flat),
            SketchedPCA(3).fit(flat),
            SketchedPCA(3, solver="exact").fit(flat),
            SketchedPCA(3, solver=solver).fit(np.zeros((50, 100))),
            SketchedPCA(3, solver=solver).fit(flat * 1e-170),
        ):
            assert np.isfinite(answer.explained_variance_).all()


def test_a_sketch_size_without_bound_is_refused():
    with pytest.raises(ValueError, match="sketch_size must be below"):
        SketchedPCA(2, sketch_size=10**400).fit(np.eye(5))


class SparseChunks(fs.data.Source):
    """A source of CSR rows as they are, a chunk at a time."""

    name, sparse, dtype, repeatable = "cells", True, np.dtype(np.float64), True

    def __init__(self, chunks):
        self.parts, self.n_features = chunks, chunks[0].shape[1]
        self.n_rows = sum(chunk.shape[0] for chunk in chunks)

    def read(self, start_row=0):
        yield from ((chunk, 0) for chunk in self.parts)


def unsorted(rows):
    """CSR rows with descending indices, and each entry stored as two halves."""
    csr = sparse.csr_array(rows)
    order = np.concatenate([np.arange(b - 1, a - 1, -1) for a, b in zip(csr.indptr, csr.indptr[1:], strict=False)])
    data, indices = np.repeat(csr.data[order] / 2, 2), np.repeat(csr.indices[order], 2)
    return sparse.csr_array((data, indices, 2 * csr.indptr), shape=csr.shape)


def test_a_source_of_sparse_rows_is_fitted_exactly():
    """Fails if the products of chunks miss a chunk, or take the indices of a row as sorted and unique."""
    rows = decaying(n=90, d=40) * (np.random.default_rng(0).random((90, 40)) < 0.3)
    model = SketchedPCA(4).fit(SparseChunks([unsorted(rows[:30]), unsorted(rows[30:])]))
    same = SketchedPCA(4, solver="exact").fit(sparse.csr_array(rows))
    assert model.solver_ == "exact" and model.n_samples_seen_ == 90
    np.testing.assert_allclose(model.explained_variance_, same.explained_variance_, rtol=1e-12)
    np.testing.assert_allclose(model.components_, same.components_, atol=1e-9)
    np.testing.assert_allclose(model.var_, same.var_, rtol=1e-12)
    np.testing.assert_allclose(model.mean_, same.mean_, rtol=1e-12)
    again = model.partial_fit(rows)  # learns on, as after any fit
    assert again.n_samples_seen_ == 180


def test_a_source_of_sparse_rows_with_nan_is_refused_by_row():
    rows = decaying(n=90, d=40)
    model = SketchedPCA(4).fit(rows)
    before = model.components_
    rows[50, 7] = np.nan
    with pytest.raises(ValueError, match="50.*NaN"):
        model.fit(SparseChunks([sparse.csr_array(rows[:30]), sparse.csr_array(rows[30:])]))
    assert np.array_equal(model.components_, before)


@pytest.mark.parametrize("layout", [np.array, sparse.csr_array])
def test_a_source_without_rows_is_refused(layout):
    with pytest.raises(ValueError, match="at least one row, and there is none"):
        SketchedPCA(3).fit(fs.open_rows(layout(np.zeros((0, 20)))))
