"""Parameters of the online learners: defaults have the documented values, and other values give other answers."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs

MODELS = (fs.SketchedNewton, fs.AdaptiveSubgradient)


def stream(n=300, d=10, density=0.25):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    return rows, rows[:, 0] - rows[:, 1] + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(("loss", "rate"), [("logistic", 1.0), ("square", 0.25)])
def test_rate_of_the_blend(kind, loss, rate):
    rows, y = stream()
    y = np.sign(y) if loss == "logistic" else y
    plain, same, other = (kind(loss=loss, blend_rate=one).update(rows, y) for one in (None, rate, 2 * rate))
    assert np.array_equal(plain.last_scores, same.last_scores)
    assert not np.allclose(plain.last_scores, other.last_scores)


@pytest.mark.parametrize("given", [{"blend": False}, {"loss": "huber"}, {"calibrate": False}])
@pytest.mark.parametrize("kind", MODELS)
def test_a_rate_without_a_blend_is_refused(kind, given):
    with pytest.raises(ValueError, match="blend_rate: with these parameters"):
        kind(blend_rate=0.5, **given)


@pytest.mark.parametrize("kind", MODELS)
def test_share_of_nonzeros_that_makes_rows_dense(kind):
    rows, y = stream(density=1.0)
    rows[:, 2:] = 0  # a fifth
    csr, labels = sparse.csr_array(rows), np.sign(y)
    default, at, below = (kind(dense_above=share).update(csr, labels) for share in (0.3, 0.2, 0.19))
    assert np.array_equal(default.last_scores, at.last_scores)
    assert not np.allclose(at.last_scores, below.last_scores)
    assert np.array_equal(below.last_scores, kind().update(rows, labels).last_scores)


@pytest.mark.parametrize(
    ("given", "share"),
    [
        ({"loss": "square"}, 0.2),
        ({"loss": "square", "curvature": "gradient"}, 3.0),
        ({"loss": "logistic"}, 0.05),
        ({"loss": "logistic", "scale": None}, 0.01),
    ],
)
def test_share_of_the_first_row(given, share):
    rows, y = stream()
    y = np.sign(y) if given["loss"] == "logistic" else y / 10
    plain, same, other = (
        fs.SketchedNewton(alpha0_share=one, blend=False, **given).update(rows, y) for one in (None, share, 2 * share)
    )
    assert np.array_equal(plain.last_scores, same.last_scores) and plain.alpha == same.alpha
    first = fs.SketchedNewton(alpha0_share=2 * share, blend=False, **given).update(rows[:1], y[:1])
    assert first.alpha == 2 * fs.SketchedNewton(blend=False, **given).update(rows[:1], y[:1]).alpha
    assert not np.allclose(plain.last_scores, other.last_scores)


def test_a_share_beside_alpha0_is_refused():
    with pytest.raises(ValueError, match="alpha0_share belongs to an alpha0 that is not given, got alpha0=1.0"):
        fs.SketchedNewton(alpha0=1.0, alpha0_share=0.1)
    with pytest.raises(ValueError, match="alpha0_share must lie in"):
        fs.SketchedNewton(alpha0_share=0.0)
