"""Small floats of a code: every number, rounding to nearest, saturation; the bytes of a code."""

import numpy as np
import pytest

from fastsketch.neighbours.codes._code_factors import NOTHING, Minifloat
from fastsketch.neighbours.codes._layout import MAX_TABLES, Layout

KINDS = [(1, 1, 1.0), (1, 4, 0.37), (1, 8, 3.0), (2, 9, 2.0**-64), (2, 11, 0.1), (2, 16, 1e-20)]


def kind(n_bytes, mantissa_bits, unit):
    return Minifloat(n_bytes, mantissa_bits, float(np.float32(unit)))


@pytest.mark.parametrize("what", KINDS)
def test_every_number_comes_back(what):
    small = kind(*what)
    u = np.arange(small.largest + 1)
    values = small.values(u)
    assert values[0] == np.float32(small.unit)
    assert (np.diff(values) > 0).all() and np.isfinite(values).all()
    assert np.array_equal(small.nearest_integers(values), u)
    # the definition
    bits = (u.astype(np.uint32) << np.uint32(23 - small.mantissa_bits)) + np.uint32(127 << 23)
    assert np.array_equal(values, np.float32(small.unit) * bits.view(np.float32))
    data = small.encode(values)
    assert data.shape == (len(u), small.n_bytes) and data.dtype == np.uint8
    assert np.array_equal(data.astype(int) @ (256 ** np.arange(small.n_bytes)), u)
    assert np.array_equal(small.decode(data), values)


@pytest.mark.parametrize("what", KINDS)
def test_to_nearest_and_saturating(what):
    small = kind(*what)
    values = small.values(np.arange(small.largest + 1)).astype(np.float64)
    given = np.exp(np.random.default_rng(0).uniform(np.log(values[0]), np.log(values[-1]), 3000))
    error = np.abs(small.values(small.nearest_integers(given)) - given)
    at = np.clip(np.searchsorted(values, given), 1, len(values) - 1)
    best = np.minimum(np.abs(values[at] - given), np.abs(values[at - 1] - given))
    assert (error <= best + 4 * np.finfo(np.float32).eps * given).all()
    assert (error <= given * 2.0 ** -(small.mantissa_bits + 1) * (1 + 1e-5)).all()
    assert np.array_equal(small.nearest_integers([0, -1, -np.inf, values[0] / 2]), [0] * 4)
    assert np.array_equal(small.nearest_integers([values[-1] * 1.5, np.inf, 3e38, 1e300]), [small.largest] * 4)


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        ((3,), "n_bytes"),
        ((1, 0), "mantissa_bits"),
        ((1, 9), "mantissa_bits"),
        ((2, 8), "mantissa_bits"),
        ((2, 17), "mantissa_bits"),
        ((1, 4, 0.0), "unit"),
        ((1, 4, float("nan")), "unit"),
        ((1, 4, 0.1), "unit must be a float32"),
        ((2, 9, 4.0), "largest number finite"),
    ],
)
def test_what_is_no_number_format(bad, match):
    with pytest.raises(ValueError, match=match):
        Minifloat(*bad)


@pytest.mark.parametrize("n_tables", [1, 2, 7, 8])
@pytest.mark.parametrize(
    "factors", [(NOTHING, NOTHING), (Minifloat(1, 4), NOTHING), (Minifloat(2, 9), Minifloat(1, 5))]
)
def test_the_bytes_of_a_code(n_tables, factors):
    rng = np.random.default_rng(1)
    layout = Layout(n_tables, *factors)
    nibbles = rng.integers(0, 16, (20, n_tables)).astype(np.uint8)
    values = [f.values(rng.integers(0, f.largest + 1, 20)) for f in factors]
    codes = layout.pack(nibbles, *values)
    assert codes.shape == (20, layout.width)
    assert layout.width == -(-n_tables // 2) + sum(f.n_bytes for f in factors)
    assert np.array_equal(layout.nibbles(codes), nibbles)
    assert codes[3, 0] == nibbles[3, 0] + (16 * nibbles[3, 1] if n_tables > 1 else 0)
    for found, value, f in zip((layout.offsets(codes), layout.scales(codes)), values, factors, strict=True):
        assert (found is None) if f.n_bytes == 0 else np.array_equal(found, value)
    assert Layout.of_state(layout.state()) == layout


@pytest.mark.parametrize("bad", [None, {}, {"n_tables": 0}, {"n_tables": 2, "offset": [1], "scale": [0, 0, 1.0]}])
def test_what_is_no_layout(bad):
    with pytest.raises(ValueError):
        Layout.of_state(bad)


@pytest.mark.parametrize("wrong", [-1, 9, 1 << 40, "1", None])
def test_what_has_no_bytes_has_no_wild_mantissa(wrong):
    with pytest.raises((TypeError, ValueError), match="mantissa_bits must"):
        Minifloat(0, wrong)


def test_a_code_has_as_many_tables_as_kernels_can_count():
    assert Layout(MAX_TABLES).nibble_bytes == MAX_TABLES // 2
    for wrong in (0, MAX_TABLES + 1):
        with pytest.raises(ValueError, match="n_tables must be"):
            Layout(wrong)
