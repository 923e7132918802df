"""Alarms of a monitor: as rare as it says where nothing changes, soon where something does, and explained."""

import io
import warnings

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.signal import lfilter

import fastsketch as fs
from fastsketch.data import StateError
from fastsketch.streams._drift_tests import (
    EARLIER_SMALLEST_VARIANCE,
    SMALLEST_VARIANCE,
    Coordinates,
    Family,
    are_dependent,
    deviation_sizes,
    deviations,
    latest_lengths,
    permutation_test,
    standardised,
)

D = 8


def stationary(kind, rng, n):
    """Rows (n, 8) whose distribution stays."""
    if kind == "t(3)":
        return rng.standard_t(3, (n, D))
    rows = rng.standard_normal((n, D)) * np.arange(1, D + 1) ** -0.6
    if kind == "AR(.8)":
        rows = lfilter([0.6], [1, -0.8], rows, axis=0)
    return {"sparse": rows * (rng.random((n, D)) < 0.03), "zeros": np.zeros((n, D))}.get(kind, rows)


def changed(kind, rng, n, at):
    """Rows (n, 8) that change from row `at` on."""
    rows = stationary("normal", rng, n)
    rows[:, 7] *= rng.random(n) < (np.arange(n) >= at) if kind == "new column" else 1.0
    late = rows[at:]
    if kind == "mean":
        late[:, 3] += 0.3
    elif kind == "variance":
        late[:, 3] *= 1.5
    elif kind == "rotation":  # of two columns of one variance
        late[:, 3] = 0.7 * late[:, 3] + np.sqrt(0.51) * late[:, 2] * (4 / 3) ** -0.6
    elif kind == "drift":
        late[:, 3] += np.linspace(0, 1, len(late))
    return rows


# -- evidence ----------------------------------------------------------------------------------------------------------
FAMILIES = (Family("columns", 0, 3, by_mean_square=False), Family("means", 3, 7, by_mean_square=True))


def test_deviations_and_sizes_are_those_of_a_plain_loop():
    rng = np.random.default_rng(0)
    z = standardised(rng.standard_normal((30, 7)))
    assert np.allclose(z.mean(axis=0), 0) and np.allclose(z.var(axis=0), 1)
    places, lengths = rng.permutation(30)[np.newaxis], latest_lengths(13)
    assert lengths.tolist() == [3, 4, 6, 9, 13]
    found = deviations(z, places, lengths)
    for i, m in enumerate(lengths.tolist()):
        # the mean of m of n numbers that are drawn without replacement, whose variance is 1 / m (n - m) / (n - 1)
        mean = np.mean([z[k] for k in range(30) if places[0, k] < m], axis=0)
        expected = mean / np.sqrt((30 - m) / 29 / m)
        assert found[0, i] == pytest.approx(expected, rel=1e-12)
        one, all_of_them = deviation_sizes(found, FAMILIES)[0, i]
        assert one == pytest.approx(stats.norm.ppf((2.0 * stats.norm.cdf(max(abs(expected[:3]))) - 1.0) ** 3))
        assert all_of_them == pytest.approx(np.mean(expected[3:] ** 2) ** (1 / 3))


def test_one_deviation_is_cut_and_what_is_constant_has_none():
    table = np.random.default_rng(0).standard_normal((40, 3))
    table[7, 0], table[:, 2] = 1e90, 0.1
    z = standardised(table)
    assert 2.0 < z[7, 0] < 4.0
    rest = np.delete(np.arange(40), 7)
    assert np.corrcoef(z[rest, 0], table[rest, 0])[0, 1] > 0.99
    assert not z[:, 2].any()


@pytest.mark.parametrize("kind", ["normal", "heavy", "few values"])
def test_of_what_is_exchangeable_a_test_says_so_as_often_as_its_level(kind, amount):
    """No arrangement of 19 is as large: in one of twenty tables."""
    n, said = amount(300, 4000), 0
    for seed in range(n):
        rng = np.random.default_rng(seed)
        table = {
            "normal": lambda rng: rng.standard_normal((26, 7)),
            "heavy": lambda rng: rng.standard_t(1, (26, 7)),
            "few values": lambda rng: rng.integers(0, 2, (26, 7)).astype(float),
        }[kind](rng)
        said += permutation_test(table, 10, FAMILIES, 19, seed, 26).n_less == 19
    assert stats.binom.ppf(0.001, n, 0.02) <= said <= stats.binom.ppf(0.999, n, 0.05)


def test_a_test_says_which_blocks_and_which_family():
    table = np.random.default_rng(0).standard_normal((60, 7))
    table[-9:, 1] += 3.0
    assert permutation_test(table, 30, FAMILIES, 999, 0, 60) == (999, 9, 0)
    table[-9:, 1] -= 3.0
    assert permutation_test(table, 30, FAMILIES, 999, 0, 60).n_less < 100
    table[-13:, 3:] += 1.2
    assert permutation_test(table, 30, FAMILIES, 999, 0, 60)[1:] == (13, 1)
    assert permutation_test(table, 2, FAMILIES, 999, 0, 60).n_less == 0
    assert permutation_test(np.zeros((60, 7)), 30, FAMILIES, 999, 0, 60).n_less == 0


@pytest.mark.parametrize(("phi", "least", "most"), [(0.0, 0, 0.04), (0.5, 0.95, 1)])
def test_dependence_is_seen_and_chance_is_not(phi, least, most, amount):
    n = amount(100, 1000)
    drawn = (lfilter([1], [1, -phi], np.random.default_rng(seed).standard_normal((60, 6)), axis=0) for seed in range(n))
    share = np.mean([are_dependent(values, 0, 60, 1) for values in drawn])
    assert least <= share <= most


@pytest.mark.parametrize("kind", [np.array, sparse.csr_array])
def test_features_are_moments(kind):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((50, 6)) * (rng.random((50, 6)) < 0.6) * 7.0
    first = fs.FrequentDirections(4, method="tfd", center=True).update(rng.standard_normal((90, 6)) * 5 + 1)
    units = Coordinates.from_sketch(first, 16)
    x = (rows - units.centre) / units.unit
    u = x @ units.directions.T
    q = len(units.directions)
    cov = np.cov(u.T, bias=True)
    expected = [
        *x.mean(axis=0),
        *np.log(x.var(axis=0) + SMALLEST_VARIANCE),
        *u.mean(axis=0),
        *cov[np.triu_indices(q)],
        np.log(x.var(axis=0).sum() - np.trace(cov) + SMALLEST_VARIANCE),
    ]
    assert units.features(kind(rows)) == pytest.approx(np.array(expected), rel=1e-10, abs=1e-12)
    assert units.ends == [6, 12, 12 + q, 12 + q + q * (q + 1) // 2, 13 + q + q * (q + 1) // 2]


# -- alarms ------------------------------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore:the rows after the alarm", "ignore:the monitor is not armed")
@pytest.mark.parametrize("kind", ["normal", "t(3)", "AR(.8)", "sparse", "zeros"])
def test_false_alarms_are_as_rare_as_stated(kind, amount):
    """Within 50 blocks a false alarm has a chance of at most 50 / 200."""
    n, alarms = amount(12, 300), 0
    for seed in range(n):
        rows = stationary(kind, np.random.default_rng(seed), 60 * 25)
        alarms += bool(fs.DriftMonitor(every=25, reference=10, run_length=200, seed=seed).update(rows).alarms)
    assert alarms <= stats.binom.ppf(0.999, n, 0.25)


def test_a_long_stationary_stream_has_no_alarm():
    rng = np.random.default_rng(0)
    assert not fs.DriftMonitor(every=50).update(rng.standard_normal((50_000, 3))).alarms


@pytest.mark.filterwarnings("ignore:the rows after the alarm")  # of what is slow and goes on
@pytest.mark.parametrize("kind", ["mean", "variance", "rotation", "drift", "new column"])
def test_a_change_is_said_soon_and_its_columns_are_named(kind):
    every, at = 100, 14_000
    rows = changed(kind, np.random.default_rng(2), 19_000, at)
    monitor = fs.DriftMonitor(every=every).update(rows[:at])
    assert monitor.armed
    assert not monitor.alarms
    monitor.update(rows[at:])
    alarm = monitor.alarms[0]
    assert alarm.row <= at + (4_000 if kind == "drift" else 2_000)
    assert at - 300 <= alarm.begin < alarm.row
    assert alarm.begin % every == alarm.row % every == 0
    assert (7 if kind == "new column" else 3) in [carried.column for carried in alarm.columns[:2]]
    what = {"mean": "mean", "drift": "mean", "rotation": "direction"}.get(kind, "variance")
    assert alarm.columns[0].what == what
    assert what == "direction" or alarm.columns[0].before < alarm.columns[0].after
    before, after = monitor.sides
    assert before.n_rows == 6_000
    comparison = fs.compare(before, after)
    assert comparison.mean_change is not None
    assert comparison.p_value is None  # the alarm chose the rows


def test_after_an_alarm_the_new_state_is_the_reference():
    rows = np.random.default_rng(0).standard_normal((60_000, 4))
    rows[20_000:40_000, 1] += 1.0
    alarms = fs.DriftMonitor(every=100).update(rows).alarms
    assert np.allclose([alarm.begin for alarm in alarms], [20_000, 40_000], atol=200)
    assert [alarm.columns[0].column for alarm in alarms] == [1, 1]


def test_names_and_a_column_of_scores():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((15_000, 3))
    rows[12_000:, 2] *= 2
    alarm = fs.DriftMonitor(every=100).update(pandas.DataFrame(rows, columns=["a", "b", "c"])).alarms[0]
    assert alarm.columns[0].column == "c"
    errors = rng.random((15_000, 1)) < np.where(np.arange(15_000) < 12_000, 0.1, 0.2)[:, np.newaxis]
    assert fs.DriftMonitor(every=100).update(errors.astype(float)).alarms[0].columns[0].column == 0


@pytest.mark.parametrize("seed", [2, 4, 5])
def test_sparse_rows_are_as_dense_ones(seed):
    """The directions span all rows: what rounding leaves outside of them is no change."""
    rows = changed("variance", np.random.default_rng(seed), 17_000, 14_000) * (np.arange(17_000) % 3 > 0)[:, np.newaxis]
    monitors = [fs.DriftMonitor(every=100).update(kind(rows)) for kind in (np.array, sparse.csr_array)]
    one, two = (monitor.alarms for monitor in monitors)
    assert [alarm[:3] for alarm in one] == [alarm[:3] for alarm in two]


def test_batches_do_not_matter_and_a_saved_monitor_goes_on(tmp_path):
    rows = changed("mean", np.random.default_rng(2), 18_000, 14_000)
    whole = fs.DriftMonitor(every=100).update(rows)
    parts = fs.DriftMonitor(every=100)
    for part in np.split(rows, [1, 37, 100, 4_050, 9_000, 14_710]):
        parts.update(part).save(tmp_path / "monitor.fsk")
        parts = fs.load(tmp_path / "monitor.fsk")
    assert whole.alarms == parts.alarms
    assert whole.to_bytes() == parts.to_bytes()


# -- bad input ---------------------------------------------------------------------------------------------------------
def test_what_is_asked_too_early_is_refused():
    monitor = fs.DriftMonitor(every=10, reference=10)
    assert (monitor.n_rows, monitor.n_features, monitor.armed, monitor.alarms) == (0, None, False, ())
    monitor.update(np.ones((42, 3)))
    with pytest.raises(ValueError, match="the reference is not full: 58 rows of 100 are missing"):
        _ = monitor.evidence
    with pytest.raises(ValueError, match="no alarm yet"):
        _ = monitor.sides
    assert monitor.update(np.ones((200, 3))).evidence < 1
    assert not monitor.rearm().armed
    assert monitor.n_rows == 242


@pytest.mark.parametrize("wrong", [np.full((30, 3), np.nan), np.ones((30, 4)), np.ones((30, 3), complex)])
def test_refused_rows_change_nothing(wrong):
    monitor = fs.DriftMonitor(every=10, reference=10).update(np.random.default_rng(0).random((105, 3)))
    before = monitor.to_bytes()
    with pytest.raises((ValueError, TypeError)):
        monitor.update(wrong)
    good_then_bad = np.ones((30, 3))
    good_then_bad[25] = np.inf
    with pytest.raises(ValueError, match="finite|NaN|inf"):
        monitor.update(good_then_bad)
    assert monitor.to_bytes() == before


@pytest.mark.parametrize(
    "parameters", [{"every": 1}, {"reference": 9}, {"run_length": 9}, {"sketch_size": 1}, {"every": 2.5}, {"window": 3}]
)
def test_parameters_out_of_range_are_refused(parameters):
    with pytest.raises((ValueError, TypeError), match=next(iter(parameters))):
        fs.DriftMonitor(**parameters)


@pytest.mark.parametrize("scale", [1e-150, 1e100, 1e140])
def test_extreme_magnitudes_are_watched_without_a_warning(scale):
    rows = changed("mean", np.random.default_rng(2), 17_000, 14_000) * scale
    assert fs.DriftMonitor(every=100).update(rows).alarms[0].columns[0].column == 3


@pytest.mark.parametrize("unit", [1e-9, 1e-6, 1e6, 1e9])
@pytest.mark.parametrize("column", [3, 0])
def test_the_unit_of_a_column_does_not_matter(unit, column):
    """A change of variance is seen in a column that is small or large beside the others."""
    rows = changed("variance", np.random.default_rng(2), 17_000, 14_000)
    expected = fs.DriftMonitor().update(rows).alarms[0]
    rows[:, column] *= unit
    alarm = fs.DriftMonitor().update(rows).alarms[0]
    assert abs(alarm.row - expected.row) <= 200 and alarm.columns[0][:2] == (3, "variance")


def test_a_monitor_of_an_earlier_version_goes_on_with_its_own_statistics():
    rows = changed("variance", np.random.default_rng(2), 17_000, 14_000)
    rows[:, 0] *= 1e-4
    monitor = fs.DriftMonitor().update(rows[:8_000])
    state, arrays = monitor._state()
    assert state.pop("smallest_variance") == SMALLEST_VARIANCE
    coordinates = monitor._history.coordinates._replace(smallest_variance=EARLIER_SMALLEST_VARIANCE)
    blocks = rows[2_000:8_000].reshape(-1, 100, D)
    arrays = {**arrays, "table": np.array([coordinates.features(block) for block in blocks])}
    earlier = fs.DriftMonitor()
    earlier._validate(state, arrays)
    earlier._restore(state, arrays)
    alarm, *others = earlier.update(rows[8_000:]).alarms
    assert 14_000 <= alarm.begin <= 14_200 and alarm.columns[0][:2] == (3, "variance") and not others
    with pytest.raises(ValueError, match=r"smallest_variance must be .*, got 0\.5"):
        earlier._validate({**state, "smallest_variance": 0.5}, arrays)


def test_a_change_of_what_was_constant_is_seen():
    rows = np.ones((8_000, 3))
    rows[6_000:, 1] = np.random.default_rng(0).random(2_000)
    assert fs.DriftMonitor(every=50).update(rows).alarms[0].columns[0].column == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_rows", 205),
        ("start", 7),
        ("span", 20),
        ("span", 30),
        ("filled", 6),
        ("tried", 10**6),
        ("sparse", True),
        ("n_features", 4),
        ("alarms", [[5, 9, "means", []]]),
    ],
)
def test_a_foreign_state_is_refused(name, value):
    monitor = fs.DriftMonitor(every=10, reference=10).update(np.random.default_rng(0).random((205, 3)))
    state, arrays = monitor._state()
    monitor._validate(state, arrays)
    with pytest.raises((ValueError, TypeError)):
        monitor._validate({**state, name: value}, arrays)
    assert issubclass(StateError, ValueError)


def crafted_arrays(monitor, arrays):
    """Yield (what, arrays) of a monitor, with one thing wrong in each."""
    rng = np.random.default_rng(0)

    def of(n_rows, d=3, size=4):
        sketch = fs.FrequentDirections(size, method="tfd", center=True, dtype=np.float64)
        return np.frombuffer(sketch.update(rng.random((n_rows, d))).to_bytes(), np.uint8)

    for what, sketch, place in [
        ("rows", of(90), 0),
        ("columns", of(100, d=4), 0),
        ("rows", of(99), 1),
        ("rows", of(81), 2),
        ("must be a", of(100, size=5), 0),
    ]:
        yield what, arrays | {f"sketch{place}": sketch}
    table = arrays["table"]
    yield "table", arrays | {"table": table[:-1]}
    yield "table", arrays | {"table": table[:, :-1]}
    yield "table", arrays | {"table": table * np.inf}
    yield "table", arrays | {"table": np.full_like(table, 1e200)}
    yield "unit", arrays | {"unit": np.zeros(1)}
    yield "watched", arrays | {"watched": arrays["watched"][::-1].copy()}
    yield "watched", arrays | {"watched": arrays["watched"] + 1}
    yield "directions", arrays | {"directions": np.zeros((9, 3))}
    yield "centre", arrays | {"centre": np.zeros(2)}
    yield "first", arrays | {"first": np.zeros((2, 3))}
    yield "rows", arrays | {"rows": arrays["rows"][:-1]}
    yield "rows", arrays | {"rows": np.full_like(arrays["rows"], np.nan)}
    yield "does not belong", arrays | {"more": np.zeros(2)}
    yield "missing", {name: array for name, array in arrays.items() if name != "sketch2"}


def test_crafted_states_are_refused():
    rng = np.random.default_rng(0)
    rows = np.vstack([rng.random((1200, 3)), 9 + rng.random((705, 3))])
    monitor = fs.DriftMonitor(every=10, reference=10, run_length=100, sketch_size=4).update(rows)
    assert monitor.alarms and monitor.armed
    state, arrays = monitor._state()
    monitor._validate(state, arrays)
    for what, wrong in crafted_arrays(monitor, arrays):
        with pytest.raises((ValueError, TypeError), match=what):
            monitor._validate(state, wrong)
    alarm = state["alarms"][0]
    with pytest.raises(ValueError, match="in order"):
        monitor._validate({**state, "alarms": [[monitor.n_rows, *alarm[1:]]]}, arrays)


def test_sparse_rows_in_a_state_are_checked():
    rows = sparse.random_array((157, 5), density=0.3, rng=np.random.default_rng(0), format="csr")
    monitor = fs.DriftMonitor(every=10, reference=10).update(rows)
    state, arrays = monitor._state()
    monitor._validate(state, arrays)
    for wrong in (
        arrays | {"rows_indices": arrays["rows_indices"] + 3},
        arrays | {"rows_indptr": arrays["rows_indptr"][1:]},
        arrays | {"rows": arrays["rows"][1:]},
        {name: array for name, array in arrays.items() if name != "rows_indptr"},
    ):
        with pytest.raises(ValueError, match="row"):
            monitor._validate(state, wrong)


def test_blocks_that_resemble_the_ones_before_them_get_longer():
    rng = np.random.default_rng(0)
    walk = lfilter([1], [1, -0.97], rng.standard_normal((60_000, 4)), axis=0)
    with pytest.warns(UserWarning, match="not armed: blocks of 20 rows resemble the ones before them, and are now 40"):
        monitor = fs.DriftMonitor(every=20).update(walk)
    assert monitor.facts()["rows_in_block"] in (80, 160, 320)
    assert monitor.armed and not monitor.alarms
    with pytest.warns(UserWarning, match="not armed: blocks of 20"):
        late = fs.DriftMonitor(every=20).update(np.cumsum(walk[:4_000], axis=0))
    with pytest.raises(ValueError, match="of 9600 are missing"):
        _ = late.evidence
    with (
        pytest.warns(UserWarning, match="blocks of 32 rows resemble .* a larger every than 2"),
        pytest.warns(UserWarning, match="not armed: blocks of 2 rows"),
    ):
        fs.DriftMonitor(every=2).update(np.cumsum(walk[:3_000], axis=0))


@pytest.mark.parametrize("seed", range(80, 100))
def test_a_monitor_that_is_armed_later_than_it_was_asked_to_says_so_once(seed):
    """Of independent rows too: of these seeds two have blocks that resemble each other by chance."""
    rows, monitor = np.random.default_rng(seed).standard_normal((12_000, 8)), fs.DriftMonitor()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for part in np.split(rows, 10):
            monitor.update(part)
    is_late = seed in (88, 99)
    assert len(caught) == is_late and monitor.armed == (not is_late)
    assert ("not_armed_because" in monitor.facts()) == ("not armed" in repr(monitor)) == is_late
    if is_late:
        assert "Nothing is compared before row 14,000" in str(caught[0].message)
        because = "2000 rows of 12000 are missing since row 2000, as blocks of 100 rows resembled the ones before them"
        loaded = fs.from_bytes(monitor.to_bytes())
        assert because in monitor.facts()["not_armed_because"] and because in repr(loaded)
        with pytest.raises(ValueError, match=because):
            _ = monitor.evidence
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert monitor.update(np.random.default_rng(0).standard_normal((2_000, 8))).armed


@pytest.mark.parametrize("at", [900, 3_300])
def test_after_a_change_within_the_reference_it_begins_again(at):
    rows = np.random.default_rng(3).standard_normal((30_000, 6))
    rows[at:, 3] += 1.0
    monitor = fs.DriftMonitor()
    with pytest.warns(UserWarning, match="not armed: blocks of 100 rows resemble the ones before them"):
        monitor.update(rows[:20_000])
    assert monitor.armed and monitor.facts()["rows_in_block"] == 200 and not monitor.alarms
    rows[20_000:, 3] -= 1.0
    (alarm,) = monitor.update(rows[20_000:]).alarms
    assert abs(alarm.begin - 20_000) <= 200


def test_rows_that_wander_have_the_longest_blocks():
    walk = np.cumsum(np.random.default_rng(4).standard_normal((30_000, 3)), axis=0)
    with pytest.warns(UserWarning):
        monitor = fs.DriftMonitor(every=10).update(walk)
    assert monitor.facts()["rows_in_block"] == 160


def test_dicts_are_rows_with_names():
    rows = changed("mean", np.random.default_rng(2), 9_000, 6_000)[:, :4]
    names = ["a", "b", "c", "d"]
    dicts = [dict(zip(names, row, strict=True)) for row in rows.tolist()]
    whole = fs.DriftMonitor(every=50).update(rows)
    named = fs.DriftMonitor(every=50).update(dicts[0])
    named.update([dict(reversed(row.items())) for row in dicts[1:]])  # in any order
    assert named.feature_names == tuple(names)
    assert [alarm[:3] for alarm in named.alarms] == [alarm[:3] for alarm in whole.alarms]
    assert named.alarms[0].columns[0].column == "d"
    before = named.to_bytes()
    for wrong in ({"a": 1.0}, [dicts[0], {**dicts[0], "e": 1.0}], [dicts[0], 3], {**dicts[0], "a": "x"}):
        with pytest.raises((ValueError, TypeError), match="row"):
            named.update(wrong)
    with pytest.raises(ValueError, match="all text"):
        fs.DriftMonitor().update({1: 2.0})
    assert named.to_bytes() == before


def test_a_reference_beyond_the_memory_is_refused_with_its_size():
    monitor = fs.DriftMonitor()
    with pytest.raises(ValueError, match=r"4,000,000 columns: .* 4\.4 GiB"):
        monitor.update(sparse.csr_array((1, 4_000_000)))
    assert monitor.n_rows == 0 and monitor.n_features is None


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.float16, np.float32, np.longdouble])
def test_first_rows_of_any_dtype_leave_later_ones_as_they_are(dtype):
    rows = changed("mean", np.random.default_rng(2), 9_000, 6_000)
    monitor = fs.DriftMonitor(every=50).update(np.zeros((1, rows.shape[1]), dtype))
    monitor = fs.from_bytes(monitor.to_bytes()).update(rows)
    assert [alarm.columns[0].column for alarm in monitor.alarms] == [3]
    fine = fs.DriftMonitor(every=50).update(np.ones((1, 2), dtype))
    assert not fine.update(1e8 + rows[:, 4:6]).alarms  # digits that a float32 has not are kept
    assert fine._held[-1][-1, 0] == 1e8 + rows[-1, 4]


def test_what_is_constant_has_no_alarm():
    assert not fs.DriftMonitor(every=20, reference=10, run_length=100).update(np.full((8_000, 2), 0.1)).alarms


def test_squares_beyond_the_range_are_refused():
    rows = np.random.default_rng(0).standard_normal((60, 3))
    monitor = fs.DriftMonitor(every=20, reference=10).update(rows)
    before = monitor.to_bytes()
    rows[50, 1] = -1e160
    with pytest.raises(ValueError, match="squares leave the range"):
        monitor.update(rows)
    assert monitor.to_bytes() == before
    with pytest.raises(ValueError, match="run_length must be below"):
        fs.DriftMonitor(run_length=10**400)


def test_the_first_rows_say_how_many_columns_there_are():
    """A vector would be one row of many columns, and never an alarm."""
    numbers = np.random.default_rng(0).standard_normal(500)
    monitor = fs.DriftMonitor(every=10, reference=10)
    with pytest.raises(ValueError, match=r"first rows must have two dimensions, got shape \(500,\): x\[:, None\]"):
        monitor.update(numbers)
    assert monitor.n_rows == 0 and monitor.update(numbers[:, None]).update(numbers[:1]).n_rows == 501


def test_a_slow_change_that_outlasts_its_alarm_leaves_the_monitor_able_to_see_the_next():
    """The reference after an alarm lies in the change: new ones begin until rows are alike, of blocks as before."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((20_000, 5))
    rows[4_000:8_000, 1] += np.linspace(0, 3, 4_000)
    rows[8_000:, 1] += 3
    rows[15_000:, 3] += 1.5
    monitor = fs.DriftMonitor(every=50, reference=40)
    with pytest.warns(UserWarning, match="the rows after the alarm at row .* go on changing"):
        monitor.update(rows)
    first, second = (alarm.row for alarm in monitor.alarms)
    assert 4_000 < first < 8_000 and 15_000 < second < 16_500
    assert monitor.facts()["rows_in_block"] == 50


def test_covariances_of_n_directions_are_compared():
    rows = np.random.default_rng(0).standard_normal((700, 9))
    for n_directions, covariances in ((1, 1), (3, 6), (16, 45)):
        monitor = fs.DriftMonitor(every=10, reference=30, sketch_size=9, n_directions=n_directions).update(rows)
        coordinates = monitor._history.coordinates
        inside = [f for f in coordinates.families if f.score == "directions"][0]
        assert inside.end - inside.begin == covariances
        assert fs.load(io.BytesIO(monitor.to_bytes()))._history.coordinates.n_directions == n_directions
    with pytest.raises(ValueError, match="n_directions"):
        fs.DriftMonitor(n_directions=0)
