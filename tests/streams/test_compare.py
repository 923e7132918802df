"""What changed is within its intervals on every stream, is named, and is significant as seldom as is said."""

import itertools
import warnings

import numpy as np
import pytest

import fastsketch as fs

METHODS = ("fd", "rfd", "pfd", "tfd", "cfd", "isvd")


def rows_of(seed, n=600, d=25):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * np.arange(1, d + 1) ** -0.6


def moments(rows, weights=None, *, center=False):
    weights = np.ones(len(rows)) if weights is None else weights
    rows = rows - np.average(rows, axis=0, weights=weights) if center else rows
    return (rows * weights[:, np.newaxis]).T @ rows / weights.sum()


def ranked(values, true):
    """The true eigenvalue that each value is said to be: from above if it is positive, else from below."""
    true = np.sort(true)
    up, down = 0, 0
    for value in values:
        if value > 0:
            up += 1
            yield true[-up]
        else:
            yield true[down]
            down += 1


def check_certified(changed, difference):
    true = np.linalg.eigvalsh(difference)
    shown = zip(changed.values, changed.low, changed.high, ranked(changed.values, true), strict=True)
    for value, low, high, expected in shown:
        assert low <= value <= high and low <= expected <= high
    along = np.einsum("ij,jk,ik->i", changed.directions, difference, changed.directions)
    assert (changed.low <= along).all() and (along <= changed.high).all()
    own = np.diag(difference)
    assert (changed.column_low <= own).all() and (own <= changed.column_high).all()
    assert np.allclose(changed.directions @ changed.directions.T, np.eye(len(changed.values)), atol=1e-6)
    assert np.allclose(changed.after - changed.before, changed.values, atol=1e-6 * np.abs(own).max())


@pytest.mark.covering(2)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("solver", ["gram", "svd", "exact"])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [6, 20, 40])
def test_intervals_hold(method, solver, center, dtype, size):
    a, b = rows_of(1).astype(dtype), (rows_of(2) * np.linspace(2, 0.5, 25) + 0.3).astype(dtype)
    weights = np.random.default_rng(0).random(600)
    setting = {"method": method, "solver": solver, "center": center}
    one = fs.FrequentDirections(size, **setting).update(a, weights)
    two = fs.FrequentDirections(11, **setting).update(b)
    changed = fs.compare(one, two, n=9)
    c_a = moments(a.astype(float), weights, center=center)
    c_b = moments(b.astype(float), center=center)
    check_certified(changed, c_b - c_a)
    vt = one.spectrum().vectors[:9] if solver == "exact" else one.components[:9].astype(float)
    outside = [1 - np.trace(vt @ c @ vt.T) / np.trace(c) for c in (c_a, c_b)]
    rounding = 1e-6 if dtype == "float32" else 1e-12  # of the directions that are read here
    assert (changed.outside[:, 0] - rounding <= outside).all() and (outside <= changed.outside[:, 1] + rounding).all()
    if center:
        assert np.allclose(changed.mean_change, b.mean(axis=0) - np.average(a, axis=0, weights=weights), atol=1e-5)
    assert fs.compare(two, one, n=9).values == pytest.approx(-changed.values)


def test_intervals_hold_on_any_stream(amount):
    for seed in range(amount(40, 600)):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(1, 60))
        sides = []
        for _ in range(2):
            rows = rng.standard_normal((int(rng.integers(1, 300)), d)) * 10.0 ** rng.uniform(-2, 2, d)
            if rng.random() < 0.3:
                rows = np.repeat(rows[:1], len(rows), axis=0)
            method = str(rng.choice(METHODS))
            one = fs.FrequentDirections(int(rng.integers(2, 20)), method=method, solver="gram").update(rows)
            sides.append((one, moments(rows)))
        check_certified(fs.compare(sides[0][0], sides[1][0], n=int(rng.integers(1, 70))), sides[1][1] - sides[0][1])


def test_a_wide_sketch_beside_the_full_difference():
    """The problem of at most 2 l dimensions has the eigenvalues of the d x d matrix that are not 0."""
    a, b = rows_of(3, 300, 400), rows_of(4, 300, 400)
    one, two = (fs.FrequentDirections(12, method="fd", solver="gram").update(rows) for rows in (a, b))
    full = two.sketch().T @ two.sketch() / 300 - one.sketch().T @ one.sketch() / 300
    true = np.linalg.eigvalsh(full)
    true = true[np.argsort(-np.abs(true))]
    changed = fs.compare(one, two, n=500)
    assert len(changed.values) == 22
    assert np.allclose(changed.values, true[:22], atol=1e-12) and np.allclose(true[22:], 0, atol=1e-12)
    assert np.allclose(changed.column_changes, np.diag(full), atol=1e-12)
    lines = str(fs.compare(one, two)).splitlines()
    assert len(lines) == 6 and "certainly in [" in lines[0] and "p =" not in lines[0]


def test_the_same_rows_have_not_changed():
    one = fs.FrequentDirections(8).update(rows_of(5))
    changed = fs.compare(one, one)
    assert np.allclose(changed.values, 0, atol=1e-12) and np.allclose(changed.angles, 0, atol=1e-7)
    zero = fs.FrequentDirections(8).update(np.zeros((5, 25)))
    assert np.allclose(fs.compare(zero, zero).outside, 0) and fs.compare(zero, one).values[0] > 0


def test_named_columns_carry_the_change():
    pandas = pytest.importorskip("pandas")
    rows = rows_of(6, 4000, 6)
    names = [f"sensor {j}" for j in range(6)]
    one = fs.FrequentDirections(8).update(pandas.DataFrame(rows, columns=names))
    two = fs.FrequentDirections(8).update(pandas.DataFrame(rows * [1, 1, 1, 3, 1, 1], columns=names))
    changed = fs.compare(one, two, n=2)
    assert changed.feature_names == tuple(names)
    assert changed.columns(1)[0][0] == changed.columns(1, change=0)[0][0] == "sensor 3"
    assert sum(share for _, share in changed.columns(9, change=0)) == pytest.approx(1)
    assert "sensor 3" in str(changed)
    assert changed.columns(1)[0][1] == pytest.approx(changed.column_changes[3])
    assert fs.compare(one, fs.FrequentDirections(8).update(rows)).feature_names == tuple(names)
    with pytest.raises(ValueError, match="the columns of b must have the columns that came before"):
        fs.compare(one, fs.FrequentDirections(8).update(pandas.DataFrame(rows, columns=names[::-1])))
    for bad in (2, -1):
        with pytest.raises(ValueError, match="change must be"):
            changed.columns(1, change=bad)


# -- significance ----------------------------------------------------------------------------------------------------
def blocks_of(rows, n_blocks=8, **setting):
    return [fs.FrequentDirections(10, **setting).update(part) for part in np.array_split(rows, n_blocks)]


def permuted(blocks_a, blocks_b, permutations):
    """P-value of the largest change by all of d x d, in plain NumPy; exact sketches."""
    blocks = [*blocks_a, *blocks_b]
    after = np.arange(len(blocks)) >= len(blocks_a)
    grams, weights = np.array([b.gram() for b in blocks]), np.array([b.total_weight for b in blocks])

    def largest(chosen):
        c = [grams[side].sum(axis=0) / weights[side].sum() for side in (chosen, ~chosen)]
        return np.abs(np.linalg.eigvalsh(c[0] - c[1])).max()

    rng = np.random.default_rng(0)
    others = np.array([largest(rng.permutation(after)) for _ in range(permutations)])
    return (1 + (others >= largest(after)).sum()) / (1 + permutations)


def test_p_values_are_those_of_the_plain_permutation_test():
    rows = rows_of(7, 1600)
    rows[800:] *= 1.0 + 0.06 * (np.arange(25) == 0)
    a, b = blocks_of(rows[:800], solver="exact"), blocks_of(rows[800:], solver="exact")
    wanted = permuted(a, b, 2000)
    assert 0.005 < wanted < 0.9
    assert fs.compare(a, b, permutations=2000).p_values[0] == pytest.approx(wanted, abs=0.04)


@pytest.mark.parametrize("setting", [{"method": "tfd", "solver": "gram"}, {"solver": "exact"}, {"center": True}])
def test_false_alarms_are_as_seldom_as_is_said(amount, setting):
    n, alarms = amount(20, 400), np.zeros(2, int)
    for seed in range(n):
        rows = rows_of(seed, 16 * 60, 25) + 2.0 * bool(setting.get("center"))
        changed = fs.compare(
            blocks_of(rows[:480], **setting), blocks_of(rows[480:], **setting), permutations=99, seed=seed
        )
        assert (np.diff(changed.p_values) >= 0).all()
        alarms += np.array([changed.p_value, changed.p_values[0]]) <= 0.1
    # a tenth, within four standard deviations
    assert (alarms <= 0.1 * n + 4 * np.sqrt(0.09 * n)).all(), alarms


def test_a_change_is_found_by_its_blocks():
    before, after = rows_of(8, 2000), rows_of(9, 2000)
    after[:, 4] *= 1.6
    windows = [fs.Window(fs.FrequentDirections(10, method="tfd", solver="gram"), blocks=8, every=250) for _ in range(2)]
    windows[0].update(before)
    windows[1].update(after)
    changed = fs.compare(*windows)
    assert changed.p_values[0] <= 0.002 and changed.p_value <= 0.004 and changed.columns(1, change=0)[0][0] == 4
    again = fs.compare(*windows, seed=0)
    assert np.array_equal(again.p_values, changed.p_values)
    # without blocks on both sides there is no chance to speak of
    assert fs.compare(windows[0].model, windows[1]).p_values is fs.compare(windows[0].model, windows[1]).p_value is None
    with pytest.warns(
        UserWarning, match="no p-values: the blocks of a have a median weight of 1000, those of b of 250"
    ):
        assert fs.compare(fs.Window(fs.FrequentDirections(4)).update(before), windows[1]).p_values is None
    assert (fs.compare(*windows, n=60).p_values[-1:] == 1).all()


@pytest.mark.parametrize("solver", ["gram", "exact"])
def test_a_change_of_little_variance_is_found(solver):
    """It is small beside the noise of what is large, and large beside its own."""
    before, after = rows_of(10, 2000), rows_of(11, 2000)
    after[:, 20] *= 2.0
    sides = [[fs.FrequentDirections(24, method="tfd", solver=solver).update(part) for part in np.split(rows, 8)]
             for rows in (before, after)]  # fmt: skip
    changed = fs.compare(*sides)
    assert changed.p_value <= 0.01
    assert "of little variance: p = 0.0" in str(changed)


def test_blocks_are_not_changed():
    sides = [blocks_of(rows_of(seed), solver="gram") for seed in (1, 2)]
    before = [block.to_bytes() for side in sides for block in side]
    fs.compare(*sides, permutations=9)
    assert [block.to_bytes() for side in sides for block in side] == before


# -- refused ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("b", "error", "says"),
    [
        (fs.FrequentDirections(8), ValueError, "b has seen no rows"),
        ([], ValueError, "b must have blocks with rows"),
        ([fs.FrequentDirections(8)], ValueError, "b must have blocks with rows"),
        (fs.Window(fs.FrequentDirections(8)), ValueError, "b has seen no rows"),
        (fs.FrequentDirections(8).update(np.eye(7)), ValueError, "n_features=25, b has 7"),
        (fs.FrequentDirections(8, center=True).update(np.eye(25)), ValueError, "center"),
        (fs.FrequentDirections(8, compressor="srht").update(np.eye(25)), ValueError, "b has a compressor"),
        (fs.FrequentDirections(8).update(np.eye(25), np.zeros(25)), ValueError, "b has seen no rows"),
        (fs.SketchHash(4).update(rows_of(1)), TypeError, "b must be a FrequentDirections, .* got a SketchHash"),
        (fs.Window(fs.SketchHash(4)).update(rows_of(1)), TypeError, "got a SketchHash"),
        (fs.FrequentDirections(8).update(rows_of(1) * 1e153), ValueError, "squares add up to .*: scale the rows"),
        (rows_of(1), TypeError, "got a ndarray"),
        (None, TypeError, "got a NoneType"),
    ],
)
def test_what_cannot_be_compared(b, error, says):
    with pytest.raises(error, match=says):
        fs.compare(fs.FrequentDirections(8).update(rows_of(1)), b)
    for wrong in ({"n": 0}, {"permutations": 0}, {"permutations": 10**12}, {"seed": -1}):
        with pytest.raises(ValueError, match="must be"):
            fs.compare(fs.FrequentDirections(8).update(rows_of(1)), fs.FrequentDirections(8), **wrong)


def test_blocks_of_other_lengths_have_no_p_values():
    rng = np.random.default_rng(0)
    short, long = ([fs.FrequentDirections(8).update(rng.standard_normal((n, 6))) for _ in range(6)] for n in (100, 130))
    with pytest.warns(UserWarning, match="median weight of 100, those of b of 130"):
        changed = fs.compare(short, long)
    assert changed.p_values is None and changed.p_value is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fs.compare(short, short).p_value == 1.0


def test_blocks_without_weight_or_variance():
    rows = np.random.default_rng(0).standard_normal((60, 5))
    blocks = [fs.FrequentDirections(4).update(rows), fs.FrequentDirections(4).update(rows, np.zeros(60))]
    assert fs.compare(blocks, blocks).p_value == 1.0
    still = [fs.FrequentDirections(4).update(np.zeros((60, 5))) for _ in range(3)]
    changed = fs.compare(still, still)
    assert changed.p_value == 1.0 and not changed.values.any()


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("solver", ["gram", "svd", "exact", "auto"])
def test_blocks_of_zeros_or_of_equal_rows_have_not_changed(solver, center):
    rows = np.random.default_rng(0).standard_normal((60, 5))
    kinds = {"zeros": np.zeros((60, 5)), "equal rows": np.ones((60, 5)), "rows": rows}
    for one, two in itertools.product(kinds, repeat=2):
        sides = [
            [fs.FrequentDirections(4, solver=solver, center=center).update(part) for part in np.split(kinds[kind], 6)]
            for kind in (one, two)
        ]
        found = fs.compare(*sides, permutations=19)
        has_changed = one != two and not (center and "rows" not in (one, two))
        assert (found.p_value <= 0.1) == has_changed
        assert len(found.p_values) == len(found.values) and ((found.p_values <= 0.1).any() == has_changed)
        window = fs.Window(fs.FrequentDirections(4, solver=solver, center=center), 6, every=10).update(kinds[one])
        assert fs.compare(window, sides[0], permutations=19).p_value == 1.0


def test_p_values_look_within_n_directions():
    rng = np.random.default_rng(0)
    before, after = rng.standard_normal((2, 4000, 12)) * np.arange(12, 0, -1)
    after[:, 11] *= 2.0  # the column of least variance
    days = [[fs.FrequentDirections(13).update(part) for part in np.split(rows, 8)] for rows in (before, after)]
    assert fs.compare(*days, n_directions=12).p_value <= 0.01
    assert fs.compare(*days, n_directions=3).p_value > 0.05
    with pytest.raises(ValueError, match="n_directions"):
        fs.compare(*days, n_directions=0)
