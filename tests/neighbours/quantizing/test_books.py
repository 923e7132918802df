"""How bits are allotted and packed, levels learned, and offsets chosen."""

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from fastsketch.neighbours.quantizing._bit_allocation import (
    N_SIZES,
    allocate_bits,
    count_missing_directions,
    pack_directions,
)
from fastsketch.neighbours.quantizing._levels import MAX_BITS, NIBBLE, Direction
from fastsketch.neighbours.quantizing._sample_neighbours import N_NEIGHBOURS, measure_recall, neighbour_statistics
from fastsketch.neighbours.quantizing._training import train_encoder


def directions_of(spread, n=400, seed=0):
    z = np.random.default_rng(seed).standard_normal((n, len(spread))) * spread
    return [Direction(z[:, j], float(s)) for j, s in enumerate(spread)]


def encoder_of(rows, n_bytes, r=None):
    mean = rows.mean(axis=0)
    centred = rows - mean
    _, s, w = np.linalg.svd(centred, full_matrices=False)
    return train_encoder(mean, w[:r].T, s[:r] / np.sqrt(len(rows)), centred, n_bytes=n_bytes)


# -- levels ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("bits", range(1, NIBBLE + 1))
def test_a_level_is_the_mean_of_what_is_nearest_to_it(bits):
    z = np.random.default_rng(bits).standard_normal(3000) ** 3
    direction = Direction(z, 1.0)
    levels = direction.levels(bits).coarse
    for _ in range(200):  # Lloyd's iteration in plain NumPy, on to its end
        cell = np.abs(z[:, np.newaxis] - levels).argmin(axis=1)
        levels = np.bincount(cell, z) / np.bincount(cell)
    error = (np.abs(z[:, np.newaxis] - levels).min(axis=1) ** 2).mean()
    found = (np.abs(z[:, np.newaxis] - direction.levels(bits).coarse).min(axis=1) ** 2).mean()
    assert found == pytest.approx(error, rel=0.1)


@pytest.mark.parametrize("bits", range(NIBBLE + 1))
def test_what_the_best_levels_of_a_normal_variable_leave(bits):
    levels = np.sqrt(3.0) * ndtri((np.arange(1 << bits) + 0.5) / (1 << bits))
    for _ in range(3000):  # equations 5 and 6 of Max (1960), in turns
        ends = np.concatenate([[-np.inf], (levels[1:] + levels[:-1]) / 2, [np.inf]])
        share, moment = np.diff(ndtr(ends)), -np.diff(np.exp(-(ends**2) / 2) / np.sqrt(2 * np.pi))
        levels = moment / share
    assert Direction(np.zeros(0), 3.0).residual_error(bits) == pytest.approx(9.0 * (1.0 - levels**2 @ share), rel=1e-4)


@pytest.mark.parametrize("bits", range(N_SIZES))
def test_levels_leave_the_error_that_bits_are_given_for(bits):
    rng, n = np.random.default_rng(0), 20_000
    z = rng.standard_normal(n) * 2.0 if bits <= NIBBLE else rng.uniform(-1.0, 3.0, n)
    direction = Direction(z, float(z.std()))
    ordered = np.sort(np.add.outer(*direction.levels(bits)).ravel())
    place = np.searchsorted((ordered[1:] + ordered[:-1]) / 2, z)
    assert ((z - ordered[place]) ** 2).mean() == pytest.approx(direction.residual_error(bits), rel=0.1)


def test_more_than_a_nibble_of_bits_are_coarse_and_fine_levels():
    for bits in range(N_SIZES):
        levels = directions_of(np.array([1.0]))[0].levels(bits)
        assert len(levels.coarse) * len(levels.fine) == 1 << bits
        assert len(levels.coarse) <= 16


@pytest.mark.parametrize("n", [0, 1, 3])
def test_the_levels_of_few_rows_are_finite(n):
    direction = Direction(np.full(n, 0.1), 1.0)
    for bits in range(N_SIZES):
        levels = direction.levels(bits)
        assert np.isfinite(levels.coarse).all() and np.isfinite(levels.fine).all()
        assert len(levels.coarse) * len(levels.fine) == 1 << bits
    assert direction.residual_error(2) > 0


# -- allotment ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("r", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("decay", [0.0, 1.0, 3.0])
def test_bits_add_up_at_every_size_and_can_be_packed(r, decay):
    directions = directions_of(np.arange(1.0, r + 1) ** -decay)
    for total in range(NIBBLE, MAX_BITS * r + 1, NIBBLE):
        bits = allocate_bits(directions, np.ones(r), total, max_bits=MAX_BITS)
        assert bits.sum() == total
        assert_packed(bits, pack_directions(bits))


@pytest.mark.parametrize("r", [4, 9])
def test_no_more_than_a_nibble_of_bits_where_that_is_asked_for(r):
    directions = directions_of(np.arange(1.0, r + 1) ** -3.0)
    for total in range(NIBBLE, NIBBLE * r + 1, NIBBLE):
        bits = allocate_bits(directions, np.ones(r), total, max_bits=NIBBLE)
        assert bits.sum() == total
        assert bits.max() <= NIBBLE
        assert all(len(block) == 1 for block in pack_directions(bits))


def assert_packed(bits, blocks):
    seen = np.zeros(len(bits), int)
    for block in blocks:
        assert len(block) in (1, 2)
        assert all(sum(part.bits for part in nibble) == NIBBLE for nibble in block)
        assert sum(part.fine for nibble in block for part in nibble) == len(block) - 1
        for part in (part for nibble in block for part in nibble):
            seen[part.direction] += part.bits
    assert np.array_equal(seen, bits)
    owners = [j for block in blocks for j in {part.direction for nibble in block for part in nibble}]
    assert len(owners) == len(set(owners))


def test_what_is_missing_says_whether_bits_can_be_packed():
    rng = np.random.default_rng(0)
    packable = 0
    for _ in range(3000):
        bits = rng.choice(N_SIZES, rng.integers(1, 30), p=rng.dirichlet(np.full(N_SIZES, 0.4)))
        if bits.sum() % NIBBLE:
            continue
        if count_missing_directions(np.bincount(bits, minlength=N_SIZES)):
            with pytest.raises(StopIteration):
                pack_directions(bits)
        else:
            assert_packed(bits, pack_directions(bits))
            packable += 1
    assert packable > 100


def test_a_direction_that_counts_for_more_has_more_bits():
    directions = directions_of(np.ones(6))
    bits = allocate_bits(directions, np.array([1.0, 1.0, 1.0, 100.0, 1.0, 1.0]), 16, max_bits=MAX_BITS)
    assert bits.argmax() == 3


# -- near rows ---------------------------------------------------------------------------------------------------------
def test_near_rows_share_what_they_are_equal_in():
    rng = np.random.default_rng(0)
    centre = np.repeat(rng.standard_normal((40, 2)) * 10, 25, axis=0)
    rows = np.column_stack([centre, rng.standard_normal((1000, 2))])
    found = neighbour_statistics(rows, rows[:, :3], rows[:, :3].std(axis=0))
    assert (found.correlation[:2] > 0.99).all()
    assert found.correlation[2] < 0.9
    assert found.correlation_outside([0, 1]) < 0.9 < found.correlation_outside([2, 3 - 1])
    true = np.sort(((rows[0, :3] - rows[1:, :3]) ** 2).sum(axis=1))[N_NEIGHBOURS - 1]
    assert ((rows[0, :3] - rows[found.nearest[0], :3]) ** 2).sum(axis=1).max() == pytest.approx(true)


@pytest.mark.parametrize("n", [0, 1, N_NEIGHBOURS, N_NEIGHBOURS + 1])
def test_nearness_of_few_rows_is_finite(n):
    rows = np.random.default_rng(n).standard_normal((n, 4))
    found = neighbour_statistics(rows, rows[:, :2], np.ones(2))
    assert np.isfinite(found.correlation).all() and np.isfinite(found.correlation_outside([0]))
    assert found.nearest.shape == (n if n > N_NEIGHBOURS else 0, N_NEIGHBOURS)


def test_recall_counts_the_near_rows_among_the_least_estimates():
    rows = np.random.default_rng(0).standard_normal((300, 5))
    near, squares = neighbour_statistics(rows, rows, rows.std(axis=0)), (rows**2).sum(axis=1)
    assert measure_recall(squares, rows, rows, near) == 1.0
    rough = rows.round()
    estimates = squares - 2.0 * rows @ rough.T
    np.fill_diagonal(estimates, np.inf)
    found = np.argsort(estimates, axis=1)[:, :N_NEIGHBOURS]
    expected = np.mean([len(set(a) & set(b)) / N_NEIGHBOURS for a, b in zip(found, near.nearest, strict=True)])
    assert measure_recall(squares, rows, rough, near) == pytest.approx(expected)


# -- encoders ----------------------------------------------------------------------------------------------------------
def test_constant_directions_and_duplicates():
    rows = np.zeros((300, 8))
    rows[:, 0] = np.repeat(np.arange(3.0), 100)
    encoder = train_encoder(rows.mean(axis=0), np.eye(8), rows.std(axis=0), rows - rows.mean(axis=0), n_bytes=6)
    assert encoder.decode(encoder.encode(rows)) == pytest.approx(rows, abs=0.05)


def test_rows_of_very_different_densities_have_a_finer_offset_than_equal_ones():
    rng = np.random.default_rng(0)
    even = rng.standard_normal((1000, 16))
    size = np.repeat([0.003, 0.03, 0.3, 3.0], 250)[:, np.newaxis]
    uneven = size * rng.standard_normal((1000, 16)) * np.linspace(2, 0.1, 16)
    assert encoder_of(uneven, 12).layout.offset.n_bytes > encoder_of(even, 4).layout.offset.n_bytes


def test_codes_without_an_offset_estimate_by_the_squares_of_their_words():
    rows = np.random.default_rng(0).standard_normal((2000, 16))
    encoder = encoder_of(rows, 4)
    assert encoder.layout.offset.n_bytes == 0
    tables = encoder.tables(rows[:5], "euclidean")
    nibbles = encoder.layout.nibbles(encoder.encode(rows))
    t = np.stack([table[np.arange(encoder.layout.n_tables), nibbles].sum(axis=1) for table in tables[0]])
    estimate = tables[1][:, np.newaxis] - 2.0 * t
    true = ((rows[:5, np.newaxis] - rows) ** 2).sum(axis=2) / encoder.length**2
    assert np.corrcoef(estimate.ravel(), true.ravel())[0, 1] > 0.7
