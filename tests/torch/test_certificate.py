"""The certificate of sketches on a device, on streams of thousands of shrinks."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fastsketch.torch import FrequentDirections  # noqa: E402

N_SHRINKS = 3000
# Ratios of the largest singular value to the smallest, or to all others.
RATIOS = (1.0, 10.0, 300.0, 1e3, 1e4, 1e5)
SHAPES = ("geometric", "one", "half")


def scales(d, ratio, shape):
    """Scales of the directions of a stream: falling by a factor, one large, or half of them large."""
    if shape == "geometric":
        return ratio ** -np.linspace(0, 1, d)
    return np.where(np.arange(d) < (1 if shape == "one" else d // 2), 1.0, 1 / ratio)


def stream(seed, d, n):
    """Rows of one of 200 streams: spectra by ratio and shape, turned or not, with a mean or not, in order of length or
    not, and of one sign or not.
    """
    rng = np.random.default_rng(seed)
    ratio, shape = RATIOS[seed % len(RATIOS)], SHAPES[seed // len(RATIOS) % len(SHAPES)]
    rows = rng.standard_normal((n, d))
    if seed % 5 == 0:
        np.abs(rows, out=rows)
    rows *= scales(d, ratio, shape)
    if seed % 2:
        rows @= np.linalg.qr(rng.standard_normal((d, d)))[0]
    if seed % 4 == 2:
        rows = rows[np.argsort(np.linalg.norm(rows, axis=1))]
    return rows + (rng.standard_normal(d) if seed % 7 == 3 else 0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("first", range(0, 200, 50))
@pytest.mark.covering(1)
def test_no_error_exceeds_its_certificate(amount, dtype, first):
    """Sums of the rows are in long double, the sketch's own in float64: neither rounds to the size of the allowance."""
    size, b = 5, 5
    for seed in range(first + 1, first + 1 + amount(1, 50)):
        center, d = bool(seed % 3), 40 if seed % 25 else 600
        method = "rfd" if seed % 11 % 2 else "fd"
        rows = torch.from_numpy(stream(seed, d, N_SHRINKS * b)).to(dtype)
        sketch = FrequentDirections(size, method=method, center=center, buffer_size=b, dtype=dtype)
        for part in rows.split(4096):
            sketch.update(part)
        true = rows.numpy().astype(np.longdouble if d < 100 else np.float64)
        true -= true.mean(axis=0) if center else 0.0
        gram = true.T @ true
        reading = sketch.to_fastsketch()
        short = reading.singular_values.astype(np.float64)[:, None] * reading.components.astype(np.float64)
        off = (gram - short.T.astype(gram.dtype) @ short.astype(gram.dtype)).astype(np.float64)
        error = np.linalg.norm(off - sketch.alpha * np.eye(d), 2)
        # a product of n terms in float64 is off by at most n / 2 units of the sum of squares
        slack = 0.0 if d < 100 else len(rows) / 2 * 2.3e-16 * np.trace(gram)
        assert error <= sketch.error_bound + slack, (seed, error / sketch.error_bound)
        values = np.linalg.eigvalsh(gram.astype(np.float64))[::-1]
        top = sketch.spectrum()
        rounding = 1e-15 * d * values[0] + slack
        assert (top.low.numpy() <= values[: len(top.low)] + rounding).all(), seed
        assert (values[: len(top.low)] <= top.high.numpy() + rounding).all(), seed
