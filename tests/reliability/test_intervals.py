"""The intervals of ``spectrum`` against eigenvalues of A'A from sums in long double, on the streams of the certificate.

Every method, float32 and float64, after merges in trees, weights, decay, fading, centring, saving and loading. The
comparison allows only for its own rounding. Whether it would see a fault is tried with two that are put in.
"""

import numpy as np
import pytest

from fastsketch.sketching import _spectrum
from tests.reliability.figures import report
from tests.reliability.test_certificate import LONG, UNIT, learned

pytestmark = pytest.mark.skipif(np.finfo(LONG).nmant < 60, reason="long double is no longer than double here")


def outside(twin, low, high):
    """How far an eigenvalue of A'A lies outside its interval, relative to ||A||_F^2; positive is a violation."""
    sketch, d = twin.sketch, twin.rows.shape[1]
    gram, square, doubt = twin.truth(center=sketch.center)
    scale = max(float(square), 4 * float(doubt) / UNIT) or 1.0
    values = np.linalg.eigvalsh((gram / LONG(scale)).astype(np.float64))[::-1]
    r = len(low)
    # those that are not listed: at most the certificate of FD
    rest = (sketch.shrinkage + sketch._read().rounding) / scale
    low, high = np.append(low / scale, np.zeros(d - r)), np.append(high / scale, np.full(d - r, rest))
    own = 4 * (len(twin.rows) + d) * UNIT + float(np.finfo(np.float64).eps) * d * float(values[0])
    return float(max((low - values).max(), (values - high).max())) - own


def test_intervals_against_an_oracle_in_long_double(amount):
    n = amount(60, 2000)
    beyond = misplaced = 0
    widths = []
    for case in range(n):
        twin, words = learned(case)
        values, vectors, low, high = twin.sketch.spectrum()
        beyond += (off := outside(twin, low, high)) > 0
        ordered = (np.diff(values) <= 0).all() and (low <= values).all() and (values <= high).all()
        turned = np.abs(vectors @ vectors.T - np.eye(len(vectors))).max(initial=0.0)
        misplaced += int(not ordered or turned > 1e-12)
        if len(low) and low[0] > 0:
            widths.append(high[0] / low[0] - 1)
        if off > 0:
            print(f"\n{words}: {off:.3g}")
    report(
        "intervals of eigenvalues against long double",
        f"{n:,} streams",
        also={"median width of the first": f"{np.median(widths):.2g} of it"},
        beyond_their_interval=beyond,
        estimates_out_of_place=misplaced,
    )


def narrowed(twin):
    """The intervals, narrower by a hundredth of their width on both sides."""
    _, _, low, high = twin.sketch.spectrum()
    return low + 0.01 * (high - low), high - 0.01 * (high - low)


def test_a_narrower_interval_is_seen():
    seen = {}
    for case in range(60):
        twin, _ = learned(case)
        off = outside(twin, *narrowed(twin))
        seen[twin.sketch.method] = seen.get(twin.sketch.method, 0) + (off > 0)
    assert all(seen.values()), seen  # in every method


def test_an_interval_without_its_allowance_for_rounding_is_seen(monkeypatch):
    monkeypatch.setattr(_spectrum, "allowance", lambda dtype, rounding, longest: 0.0)
    seen = 0
    for case in range(60):
        twin, _ = learned(case)
        if twin.sketch.dtype == np.float32:
            _, _, low, high = twin.sketch.spectrum()
            seen += outside(twin, low, high) > 0
    assert seen >= 3
