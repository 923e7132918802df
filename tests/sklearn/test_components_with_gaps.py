"""SketchedPCA(missing="em"): components of rows with gaps."""

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")
from sklearn.decomposition import PCA  # noqa: E402

import fastsketch as fs  # noqa: E402
from fastsketch.sklearn import LowRankCompleter, SketchedPCA  # noqa: E402

D = 8


def rows(n=2000, share=0.2, seed=0):
    """(rows of three factors and noise, the same with gaps)."""
    rng = np.random.default_rng(seed)
    whole = rng.standard_normal((n, 3)) * [5, 3, 2] @ rng.standard_normal((3, D)) + 0.5 * rng.standard_normal((n, D))
    whole += np.linspace(-20, 100, D)
    return whole, np.where(rng.random(whole.shape) < share, np.nan, whole)


def test_the_covariance_is_that_of_em():
    _, X = rows()
    pca, completer = SketchedPCA(missing="em").fit(X), LowRankCompleter().fit(X)
    found = completer.model_.gaussian()
    covariance = found.raw * np.outer(found.scale, found.scale)
    n = len(X)
    np.testing.assert_allclose(pca.get_covariance(), covariance * n / (n - 1), rtol=1e-8)
    np.testing.assert_allclose(pca.mean_, completer.location_, rtol=1e-9)
    np.testing.assert_allclose(pca.var_, completer.scale_**2, rtol=1e-9)
    values, vectors = np.linalg.eigh(covariance)
    np.testing.assert_allclose(pca.explained_variance_, values[::-1] * n / (n - 1), rtol=1e-8)
    np.testing.assert_allclose(np.abs(np.sum(pca.components_[:3] * vectors.T[::-1][:3], axis=1)), 1, atol=1e-8)
    assert pca.n_samples_seen_ == n and pca.n_filled_ == np.isnan(X).sum() and pca.n_passes_ == completer.n_iter_


def test_components_are_near_those_of_the_whole_rows():
    """Filled by means, the first variance is a share of the gaps too small; EM is not."""
    whole, X = rows()
    exact = PCA(3).fit(whole)
    ours = SketchedPCA(3, missing="em").fit(X)
    by_means = PCA(3).fit(np.where(np.isnan(X), np.nanmean(X, axis=0), X))
    # a variance of n rows is uncertain by a share of sqrt(2 / n)
    assert np.abs(ours.explained_variance_ / exact.explained_variance_ - 1).max() < 2 * np.sqrt(2 / len(X))
    assert by_means.explained_variance_[0] / exact.explained_variance_[0] < 0.9
    cosines = np.abs(np.sum(ours.components_ * exact.components_, axis=1))
    assert cosines.min() > 0.999


def test_gaps_of_new_rows_are_filled_by_their_conditional_means():
    whole, X = rows()
    pca = SketchedPCA(3, missing="em").fit(X)
    spread = np.sqrt(pca.explained_variance_)
    error = np.sqrt(np.mean(((pca.transform(X) - pca.transform(whole)) / spread) ** 2, axis=0))
    assert error.max() < 0.35  # filled by means: more than 0.4 in each
    np.testing.assert_allclose(pca.transform(np.full((1, D), np.nan)), 0.0, atol=1e-9)


def test_nothing_is_certain_where_entries_were_filled(tmp_path):
    whole, X = rows()
    pca = SketchedPCA(3, missing="em").fit(X)
    more = SketchedPCA(3, missing="em").fit(whole)
    pca.save(tmp_path / "pca.fsk")
    merged = SketchedPCA(3, missing="em").fit(whole).merge(pca)
    for model in (pca, SketchedPCA.load(tmp_path / "pca.fsk"), merged):
        assert model.n_filled_ == np.isnan(X).sum()
        for name in ("explained_variance_interval_", "explained_variance_ratio_certified_", "error_bound_"):
            assert not hasattr(model, name) and hasattr(more, name)
            with pytest.raises(AttributeError, match="entries were missing, and were filled"):
                getattr(model, name)
    assert np.array_equal(SketchedPCA.load(tmp_path / "pca.fsk").transform(X), pca.transform(X))
    pca.partial_fit(whole)
    assert pca.n_samples_seen_ == 4000 and not hasattr(pca, "error_bound_")
    assert hasattr(pca.fit(whole), "error_bound_") and pca.n_filled_ == 0


def test_without_gaps_it_is_as_without_em():
    whole, _ = rows(300)
    ours, plain = SketchedPCA(3, missing="em").fit(whole), SketchedPCA(3).fit(whole)
    assert np.array_equal(ours.components_, plain.components_) and ours.solver_ == plain.solver_
    x = sparse.csr_array(whole)
    assert np.array_equal(SketchedPCA(3, missing="em").fit(x).components_, SketchedPCA(3).fit(x).components_)


def test_a_source_and_scaled_columns(tmp_path):
    _, X = rows(400)
    names = [f"c{j}" for j in range(D)]
    lines = [",".join("" if np.isnan(v) else repr(float(v)) for v in row) for row in X]
    (tmp_path / "rows.csv").write_text("\n".join([",".join(names), *lines]) + "\n")
    source = SketchedPCA(3, missing="em").fit(fs.open_rows(tmp_path / "rows.csv"))
    array = SketchedPCA(3, missing="em").fit(X)
    np.testing.assert_allclose(source.explained_variance_, array.explained_variance_, rtol=1e-8)
    assert list(source.feature_names_in_) == names and source.n_filled_ == array.n_filled_
    units = 10.0 ** np.linspace(-4, 4, D)
    plain, other = (SketchedPCA(3, missing="em", scale=True).fit(X * u) for u in (np.ones(D), units))
    np.testing.assert_allclose(plain.explained_variance_, other.explained_variance_, rtol=1e-7)


def test_what_em_does_not_take():
    whole, X = rows(100)
    with pytest.raises(ValueError, match="NaN"):
        SketchedPCA(3).fit(X)
    with pytest.raises(ValueError, match="NaN"):
        SketchedPCA(3, missing="em").fit(whole).partial_fit(X)
    with pytest.raises(ValueError, match="sample_weight must be None where entries are missing"):
        SketchedPCA(3, missing="em").fit(X, sample_weight=np.ones(100))
    with pytest.raises(ValueError, match="max_memory=100 is too small for missing='em'"):
        SketchedPCA(3, missing="em", max_memory=100).fit(X)
    with pytest.raises(ValueError, match="missing must be"):
        SketchedPCA(3, missing="mean").fit(whole)
    X[:, 2] = np.nan
    with pytest.raises(ValueError, match="column 2 has no observed entry"):
        SketchedPCA(3, missing="em").fit(X)
    # finite where a column is constant or twice there
    X[:, 2], X[:, 3] = 5.0, X[:, 4]
    assert np.isfinite(SketchedPCA(3, missing="em").fit(X).transform(X)).all()


@pytest.mark.parametrize("missing", ["error", "em"])
@pytest.mark.parametrize("method", ["fit", "partial_fit", "transform", "score", "refine"])
def test_a_refusal_of_nan_names_missing_em_and_what_takes_it(missing, method):
    whole, X = rows(100)
    pca = SketchedPCA(3, missing=missing).fit(whole)
    before = pca.components_.copy()
    if missing == "em" and method in ("fit", "transform"):  # of dense rows these take gaps
        X = sparse.csr_array(X)
    with pytest.raises(ValueError, match="Input X contains NaN: with missing='em' fit takes dense rows"):
        getattr(pca, method)(X)
    np.testing.assert_array_equal(pca.components_, before)
