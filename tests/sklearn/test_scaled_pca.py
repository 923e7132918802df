"""SketchedPCA(scale=True) against scikit-learn's PCA of standardised columns."""

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")
from sklearn.decomposition import PCA  # noqa: E402

import fastsketch as fs  # noqa: E402
from fastsketch.sklearn import SketchedPCA  # noqa: E402

FORMS = pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])


def rows_of(n, d):
    rng = np.random.default_rng([n, d])
    rows = (rng.standard_normal((n, 4)) * [6, 5, 4, 3]) @ rng.standard_normal((4, d)) + rng.standard_normal((n, d))
    return (rows + 2) * np.geomspace(1e-4, 1e4, d)


def agrees(ours, rows, *, rtol=1e-8):
    """Compare all that is read, and return whether variances lie in their intervals."""
    mean, scale = rows.mean(axis=0), rows.std(axis=0)
    standard = (rows - mean) / scale
    theirs = PCA(3, svd_solver="full").fit(standard)
    expected = theirs.transform(standard)
    assert np.allclose(ours.explained_variance_, theirs.explained_variance_, rtol=rtol)
    assert np.allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_, rtol=rtol)
    assert np.allclose(np.abs(ours.transform(rows)), np.abs(expected), atol=100 * rtol * np.abs(expected).max())
    back = theirs.inverse_transform(expected) * scale + mean
    assert np.all(np.abs(ours.inverse_transform(ours.transform(rows)) - back) <= 100 * rtol * scale * len(scale))
    assert np.allclose(ours.mean_, mean) and np.allclose(ours.scale_, scale) and np.allclose(ours.var_, scale**2)
    assert np.allclose(ours.score(rows), theirs.score(standard) - np.log(scale).sum(), rtol=1e-6)
    outer = np.outer(scale, scale)
    assert np.allclose(ours.get_covariance() / outer, theirs.get_covariance(), atol=100 * rtol)
    assert np.allclose(ours.get_precision() * outer, theirs.get_precision(), atol=1000 * rtol)
    low, high = ours.explained_variance_interval_.T
    return np.all((low <= theirs.explained_variance_ * (1 + 1e-9)) & (theirs.explained_variance_ * (1 - 1e-9) <= high))


@FORMS
@pytest.mark.parametrize(("n", "d", "solver"), [(500, 20, "exact"), (40, 300, "rows")])
def test_fit_is_exact(n, d, solver, form, tmp_path):
    rows = rows_of(n, d)
    ours = SketchedPCA(3, scale=True).fit(form(rows))
    assert ours.solver_ == solver and agrees(ours, rows)
    ours.save(tmp_path / "pca.fsk")
    assert agrees(SketchedPCA.load(tmp_path / "pca.fsk"), rows)
    assert ours.transform(form(rows)).shape == (n, 3)


@FORMS
@pytest.mark.parametrize("memory", [1e9, 2e7])
def test_streams_and_merges_are_exact_as_long_as_they_keep_products_or_rows(memory, form, tmp_path):
    """With little memory a stream of wide rows keeps the rows themselves, not products of columns."""
    rows = rows_of(60, 900)
    options = {"scale": True, "max_memory": memory}
    ours = SketchedPCA(3, **options)
    for start in range(0, 60, 7):
        ours.partial_fit(form(rows[start : start + 7]))
    assert ours.solver_ == ("exact" if memory == 1e9 else "rows") and agrees(ours, rows)
    parts = [SketchedPCA(3, **options).partial_fit(form(part)) for part in (rows[:25], rows[25:])]
    merged = parts[0].merge(parts[1])
    merged.save(tmp_path / "pca.fsk")
    for model in (merged, SketchedPCA.load(tmp_path / "pca.fsk")):
        assert model.solver_ == ours.solver_ and agrees(model, rows)


@pytest.mark.parametrize("solver", ["gram", "svd"])
def test_files_and_further_passes(solver, tmp_path):
    rows = rows_of(500, 20)
    np.save(tmp_path / "rows.npy", rows)
    assert agrees(SketchedPCA(3, scale=True).fit(tmp_path / "rows.npy"), rows)
    ours = SketchedPCA(3, scale=True, solver=solver, sketch_size=12).fit(tmp_path / "rows.npy")
    assert agrees(ours, rows, rtol=1e-2)
    assert agrees(ours.refine(tmp_path / "rows.npy").refine(rows), rows)
    auto = SketchedPCA(3, scale=True, sketch_size=12, max_memory=1e3)
    for source in (tmp_path / "rows.npy", rows):
        assert auto.fit(source).solver_ == "gram" and auto.n_passes_ > 1 and agrees(auto, rows, rtol=1e-4)


def test_a_sketch_goes_on_and_merges():
    rows = rows_of(500, 20)
    options = {"scale": True, "solver": "gram", "sketch_size": 21}
    fitted = SketchedPCA(3, **options).fit(rows[:300])
    for model in (
        SketchedPCA(3, **options).fit(rows[:300]).partial_fit(rows[300:]),
        SketchedPCA(3, **options).partial_fit(rows[:300]).partial_fit(rows[300:]),
        fitted.merge(SketchedPCA(3, **options).fit(rows[300:])),
    ):
        standard = (rows - rows.mean(axis=0)) / model.scale_  # by scales of some of the rows
        theirs = PCA(3, svd_solver="full").fit(standard)
        assert model.n_samples_seen_ == 500
        assert np.allclose(model.explained_variance_, theirs.explained_variance_, rtol=1e-9)
        assert np.allclose(np.abs(model.transform(rows)), np.abs(theirs.transform(standard)), atol=1e-6)
        ratio = model.scale_ / rows.std(axis=0)
        assert ratio.min() > 0.5 and ratio.max() < 2


@pytest.mark.parametrize("solver", ["exact", "gram"])
@pytest.mark.parametrize("number", [0.0, 0.1])
@FORMS
def test_constant_columns_have_no_part(number, solver, form):
    rows = rows_of(500, 20)
    rows[:, 4] = number
    others = np.arange(20) != 4
    ours = SketchedPCA(3, scale=True, solver=solver, sketch_size=21).fit(form(rows))
    without = SketchedPCA(3, scale=True, solver=solver, sketch_size=20).fit(form(rows[:, others]))
    assert np.allclose(np.abs(ours.transform(form(rows))), np.abs(without.transform(form(rows[:, others]))), atol=1e-6)
    assert np.allclose(ours.components_[:, 4], 0, atol=1e-9)
    assert np.allclose(ours.inverse_transform(ours.transform(rows))[:, 4], number)


def test_what_cannot_be_scaled_is_refused():
    rows = rows_of(500, 20)
    sketch = fs.FrequentDirections(8, solver="gram", center=True).update(rows)
    with pytest.raises(ValueError, match="scale=True needs an exact sum"):
        SketchedPCA.from_model(sketch, n_components=3, scale=True)
    exact = fs.FrequentDirections(8, solver="exact", center=True).update(rows)
    assert agrees(SketchedPCA.from_model(exact, n_components=3, scale=True), rows)
    with pytest.raises(ValueError, match="scale=True is not for jobs that sketch"):
        fs.run(SketchedPCA(3, scale=True, solver="gram"), rows)
    assert agrees(fs.run(SketchedPCA(3, scale=True), rows), rows)
    few, many = (SketchedPCA(3, scale=True).fit(rows_of(n, 300)) for n in (8, 900))
    before = many.explained_variance_
    with pytest.raises(ValueError, match="one has an exact sum, the other a sketch of scaled columns"):
        many.merge(few)
    assert np.array_equal(many.explained_variance_, before)
    with pytest.raises(ValueError, match="other has scale=False, this estimator True"):
        many.merge(SketchedPCA(3).fit(rows_of(8, 300)))
    for bad in ({"scale": 1}, {"scale": True, "scale_rows": 0}):
        with pytest.raises((TypeError, ValueError), match="scale"):
            SketchedPCA(3, **bad).fit(rows)
    assert SketchedPCA(3).fit(rows).scale_ is None
