"""Running metrics against scikit-learn's on the same rows, at once and in any batches."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from fastsketch._kernels.online.metrics import BINS, HALF
from fastsketch.online._metrics import start_metrics

RNG = np.random.default_rng(0)


def scored(n=4000, spread=3.0, seed=0):
    rng = np.random.default_rng(seed)
    z = spread * rng.standard_normal(n)
    y = np.where(rng.random(n) < expit(z), 1.0, -1.0)
    return z, y, rng.gamma(2.0, size=n)


def of_two(z, y, w=None, *, decay=1.0, cuts=()):
    metrics, begin = start_metrics("logistic", decay), 0
    for end in [*cuts, len(z)]:
        some = slice(begin, end)
        metrics.add(z[None, some], y[None, some], None if w is None else w[some])
        begin = end
    return metrics


def cut(z):
    """Cut log odds to seven significant bits within [2^-9, 32), of which their AUC is computed."""
    mantissa, exponent = np.frexp(np.clip(np.abs(z), 2.0**-9, np.nextafter(32, 0)))
    return np.ldexp(np.floor(mantissa * 128), exponent) * np.where(z > 0, 1, -1)


@pytest.mark.parametrize("spread", [1e-6, 1e-3, 0.3, 3.0, 30.0, 1e5])
@pytest.mark.parametrize("weighted", [False, True])
def test_two_classes(spread, weighted):
    z, y, w = scored(spread=spread)
    w = w if weighted else None
    found = of_two(z, y, w)
    assert np.isclose(
        found.summary()["accuracy"], accuracy_score(y, np.where(z > 0, 1, -1), sample_weight=w), rtol=1e-12
    )
    assert np.isclose(found.summary()["log_loss"], log_loss(y, expit(z), sample_weight=w), rtol=1e-9)
    assert np.isclose(found.auc, roc_auc_score(y, cut(z), sample_weight=w), rtol=1e-12)


@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0, 10.0])
def test_auc_is_the_exact_one_to_its_resolution(spread):
    """Cutting moves AUC by at most half of the share of pairs that it makes equal, and by far less where z is sound."""
    z, y, w = scored(20000, spread=spread)
    found, exact = of_two(z, y, w), roc_auc_score(y, z, sample_weight=w)
    sizes = found.auc_bins / found.auc_bins.sum(axis=1, keepdims=True)
    assert abs(found.auc - exact) <= 0.5 * np.sum(sizes[0] * sizes[1])
    assert abs(found.auc - exact) < 2e-4


def test_bins_are_in_order_and_as_narrow_as_said():
    z = np.sort(np.concatenate([s * np.geomspace(1e-5, 100, 20001) for s in (-1, 1)]))
    found = []
    for value in z[::50]:
        metrics = of_two(np.array([value]), np.ones(1))
        found.append(int(np.flatnonzero(metrics.auc_bins[1])[0]))
    assert (np.diff(found) >= 0).all() and found[0] == 0 and found[-1] == BINS - 1
    assert HALF - 1 in found and HALF + 1 in found
    for i in set(found) - {0, BINS - 1, HALF - 1, HALF + 1}:
        inside = z[::50][np.array(found) == i]
        assert inside.max() - inside.min() <= np.abs(inside).min() / 64 * (1 + 1e-12)


@pytest.mark.parametrize("decay", [1.0, 0.999, 0.5])
def test_any_batches_give_the_same_bits(decay):
    z, y, w = scored(3000)
    whole = of_two(z, y, w, decay=decay)
    for seed in range(5):
        cuts = np.sort(np.random.default_rng(seed).integers(0, len(z), 40))
        some = of_two(z, y, w, decay=decay, cuts=cuts)
        assert (some.metric_sums == whole.metric_sums).all() and (some.auc_bins == whole.auc_bins).all()
    one = of_two(z, y, w, decay=decay, cuts=range(1, len(z)))
    assert (one.metric_sums == whole.metric_sums).all() and (one.auc_bins == whole.auc_bins).all()


@pytest.mark.parametrize("decay", [0.999, 0.9, 0.5])
def test_decay_weighs_rows_by_age(decay):
    z, y, w = scored(3000)
    found = of_two(z, y, w, decay=decay)
    aged = w * decay ** np.arange(len(z) - 1, -1, -1.0)
    aged[aged < 1e-290] = 0  # scikit-learn's own rounding
    assert np.isclose(
        found.summary()["accuracy"], accuracy_score(y, np.where(z > 0, 1, -1), sample_weight=aged), rtol=1e-9
    )
    assert np.isclose(found.summary()["log_loss"], log_loss(y, expit(z), sample_weight=aged), rtol=1e-9)
    assert np.isclose(found.auc, roc_auc_score(y, cut(z), sample_weight=aged), rtol=1e-9)


@pytest.mark.parametrize("decay", [1.0, 0.99])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_more_classes(loss, decay):
    rng = np.random.default_rng(1)
    z, y, w = 2 * rng.standard_normal((5, 500)), rng.integers(0, 5, 500), rng.random(500)
    signs = np.array([1.0, -1, 1, 1, -1])
    metrics = start_metrics(loss, decay)
    for i in range(0, 500, 70):
        some = slice(i, i + 70)
        metrics.add(np.ascontiguousarray(z[:, some]), None, w[some], signs=list(signs), numbers=y[some])
    shown = (z * signs[:, None]).T
    p = expit(shown) if loss == "logistic" else 0.5 + 0.5 * np.clip(shown, -1, 1)
    total = p.sum(axis=1, keepdims=True)
    p = np.where(total > 0, p / np.where(total > 0, total, 1), 0.2)
    aged = w * decay ** np.arange(499, -1, -1.0)
    assert np.isclose(
        metrics.summary()["accuracy"], accuracy_score(y, shown.argmax(axis=1), sample_weight=aged), rtol=1e-10
    )
    own = np.maximum(p[np.arange(500), y], 2.0**-52)
    assert np.isclose(metrics.summary()["log_loss"], np.average(-np.log(own), weights=aged), rtol=1e-10)
    assert metrics.auc is None


def test_scores_of_squared_hinge_stand_for_halves():
    z, y, w = scored(spread=0.6)
    metrics = start_metrics("squared_hinge")
    metrics.add(z[None], y[None], w)
    p = 0.5 + 0.5 * np.clip(z, -1, 1)
    assert np.isclose(
        metrics.summary()["log_loss"], log_loss(y, np.clip(p, 2.0**-52, 1 - 2.0**-52), sample_weight=w), rtol=1e-9
    )
    assert np.isclose(metrics.auc, roc_auc_score(y, cut(z), sample_weight=w), rtol=1e-12)


def test_what_nobody_knew_and_what_is_clipped():
    metrics = start_metrics("logistic")
    z = np.array([[3.0, 3.0], [-3.0, -3.0], [5.0, -5.0]])
    metrics.add(z, None, None, signs=[1.0] * 3, numbers=np.array([2, 0]), is_new=True)
    assert metrics.summary()["accuracy"] == 0.5
    certain = of_two(np.array([1e300]), np.array([-1.0]))
    assert np.isclose(certain.summary()["log_loss"], 52 * np.log(2), rtol=1e-12)


@pytest.mark.parametrize("decay", [1.0, 0.99])
def test_real_targets(decay):
    z, y, w = RNG.standard_normal(800), RNG.standard_normal(800), RNG.random(800)
    metrics = start_metrics("square", decay)
    for i in range(0, 800, 90):
        metrics.add(z[None, i : i + 90], y[None, i : i + 90], w[i : i + 90])
    aged = w * decay ** np.arange(799, -1, -1.0)
    assert np.isclose(metrics.summary()["mean_absolute_error"], np.average(np.abs(z - y), weights=aged), rtol=1e-11)
    assert np.isclose(
        metrics.summary()["root_mean_squared_error"], np.sqrt(np.average((z - y) ** 2, weights=aged)), rtol=1e-11
    )
    assert metrics.auc is None


def test_nothing_seen_and_rows_of_weight_zero():
    metrics = start_metrics("logistic")
    metrics.add(np.ones((1, 3)), np.ones((1, 3)), np.zeros(3))
    assert set(metrics.summary().values()) == {None}
    metrics.add(np.ones((1, 3)), np.ones((1, 3)), None)
    assert metrics.summary()["accuracy"] == 1 and metrics.auc is None  # one class alone


def test_the_order_of_two_classes_does_not_matter():
    z, y, w = scored()
    assert np.isclose(of_two(-z, -y, w).auc, of_two(z, y, w).auc, rtol=1e-12)


def test_weights_at_the_edge_of_their_range():
    z, y, w = scored(100)
    for size in (1e-300, 1e300):
        found = of_two(z, y, w * size)
        assert found.summary()["accuracy"] is None or np.isclose(
            found.summary()["accuracy"], of_two(z, y, w).summary()["accuracy"], rtol=1e-9
        )
        assert found.auc is None or 0 <= found.auc <= 1


@pytest.mark.parametrize("decay", [1e-15, 1e-100, 1e-300, 5e-324])
def test_decay_at_the_edge_of_its_range(decay):
    z, y, w = scored(50)
    for some in (slice(0, 50), slice(0, 49)):
        metrics = start_metrics("logistic", decay)
        metrics.add(z[None, some], y[None, some], w[some])
        metrics.validate(metrics.saved(0))
        last = np.flatnonzero(w[some] > 0)[-1]
        if last + 1 == len(w[some]):  # the last row is all that counts
            assert np.isclose(metrics.summary()["log_loss"], np.logaddexp(0, -y[last] * z[last]), rtol=1e-9)


def test_state_comes_back_and_strangers_are_refused():
    metrics = of_two(*scored())
    arrays = {name: array.copy() for name, array in metrics.saved(0).items()}
    other = start_metrics("logistic")
    assert other.validate(arrays) == {"metric_sums", "auc_bins"}
    other.fill(arrays)
    assert other.auc == metrics.auc and other.summary()["log_loss"] == metrics.summary()["log_loss"]
    for name, entry, value in (
        ("metric_sums", 0, 0.5),
        ("metric_sums", 0, 1e200),
        ("metric_sums", 3, arrays["metric_sums"][1] * 2),
        ("metric_sums", 2, np.nan),
        ("metric_sums", 1, -1.0),
        ("auc_bins", 5, -1.0),
        ("auc_bins", 5, np.nan),
    ):
        broken = {key: array.copy() for key, array in arrays.items()}
        broken[name].reshape(-1)[entry] = value
        with pytest.raises(ValueError):
            other.validate(broken)
    with pytest.raises(ValueError):
        other.validate({**arrays, "auc_bins": np.zeros((2, 3))})
