"""Alarms of a monitor: as rare as it says where nothing changes, soon where something does, and explained."""

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.signal import lfilter

import fastsketch as fs
from fastsketch.data import StateError
from fastsketch.streams._evidence import EXPONENTS, accumulated, bets, conformal, likeliest_begin

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
def test_p_values_are_ranks():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 5, (60, 2)).astype(float)
    for k in range(60):
        p = conformal(scores[:k], scores[k], 3, 0)
        above = (scores[:k] > scores[k]).sum(axis=0)
        equal = (scores[: k + 1] == scores[k]).sum(axis=0)
        assert np.all(above / (k + 1) < p)
        assert np.all(p < (above + equal) / (k + 1))


def test_p_values_of_what_is_exchangeable_are_uniform_and_independent():
    scores = np.random.default_rng(1).integers(0, 9, (2000, 1)).astype(float)  # with ties
    p = np.array([conformal(scores[:k], scores[k], 0, 0)[0] for k in range(2000)])
    assert stats.kstest(p, "uniform").pvalue > 0.01
    assert abs(stats.spearmanr(p[1:], p[:-1]).statistic) < 0.08


def test_bets_are_fair_and_sums_are_what_they_say():
    from scipy.integrate import quad

    for e in range(len(EXPONENTS)):
        assert quad(lambda p, e=e: bets(np.array([p]))[0, e], 0, 1)[0] == pytest.approx(1, abs=1e-6)
    p = np.random.default_rng(0).random((30, 3))
    evidence = np.zeros((3, len(EXPONENTS)))
    for row in p:
        evidence = accumulated(evidence, row)
    # R_n = sum over i of the product of the bets from i on
    won = bets(p)
    assert evidence == pytest.approx(sum(np.prod(won[i:], axis=0) for i in range(30)))
    scores = np.random.default_rng(0).random(24)
    assert likeliest_begin(scores + np.repeat([0, 1], [20, 4])) == 20


# -- alarms ------------------------------------------------------------------------------------------------------------
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
    assert alarm.columns[0].before < alarm.columns[0].after
    before, after = monitor.sides
    assert before.n_rows == 4_000
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
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((15_000, 3))
    rows[12_000:, 2] *= 2
    alarm = fs.DriftMonitor(every=100).update(pandas.DataFrame(rows, columns=["a", "b", "c"])).alarms[0]
    assert alarm.columns[0].column == "c"
    errors = rng.random((15_000, 1)) < np.where(np.arange(15_000) < 12_000, 0.1, 0.2)[:, np.newaxis]
    assert fs.DriftMonitor(every=100).update(errors.astype(float)).alarms[0].columns[0].column == 0


def test_sparse_rows_are_as_dense_ones():
    rows = changed("variance", np.random.default_rng(2), 17_000, 14_000) * (np.arange(17_000) % 3 > 0)[:, np.newaxis]
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


def test_a_change_of_what_was_constant_is_seen():
    rows = np.ones((8_000, 3))
    rows[6_000:, 1] = np.random.default_rng(0).random(2_000)
    assert fs.DriftMonitor(every=50).update(rows).alarms[0].columns[0].column == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_rows", 205), ("start", 7), ("sizes", [1, 3, 0, 0, 0]), ("dtype", "int8"), ("alarms", [[5, 9, "means", []]])],
)
def test_a_foreign_state_is_refused(name, value):
    monitor = fs.DriftMonitor(every=10, reference=10).update(np.random.default_rng(0).random((205, 3)))
    state, arrays = monitor._state()
    monitor._validate(state, arrays)
    with pytest.raises((ValueError, TypeError)):
        monitor._validate({**state, name: value}, arrays)
    with pytest.raises((ValueError, TypeError)):
        monitor._validate(state, {**arrays, "scale": 0 * arrays["scale"]})
    assert issubclass(StateError, ValueError)


def crafted_states():
    """Yield (what, state, arrays) of a monitor that has alarmed and is armed anew, each with one thing wrong."""
    rng = np.random.default_rng(0)
    rows = np.vstack([rng.random((1200, 3)), 9 + rng.random((700, 3))])
    monitor = fs.DriftMonitor(every=10, reference=10, run_length=100, sketch_size=4).update(rows)
    assert monitor.alarms and monitor.armed
    state, arrays = monitor._state()
    monitor._validate(state, arrays)
    n = sum(state["sizes"])

    def of(n_rows, dtype=np.float64, d=3):
        block = fs.FrequentDirections(4, method="tfd", center=True).update(rng.random((n_rows, d)).astype(dtype))
        return np.frombuffer(block.to_bytes(), np.uint8)

    for what, block, place in [
        ("dtype", of(10, np.float32), 2),
        ("rows", of(9), 2),
        ("rows", of(11), 2),
        ("rows", of(10), 1),
        ("rows", of(99), n - 2),
        ("rows", of(15), n - 1),
        ("rows", of(90), n - 1),
        ("columns", of(10, d=4), 2),
        ("rows", of(10), 0),
    ]:
        yield what, state, {**arrays, f"block{place}": block}
    yield "without an alarm", state, {**arrays, "evidence": np.full_like(arrays["evidence"], 300.0)}
    yield "evidence", state, {**arrays, "evidence": arrays["evidence"][:2]}
    yield "evidence", state, {**arrays, "evidence": arrays["evidence"].astype(np.float32)}
    yield "scores", state, {**arrays, "scores": arrays["scores"][:-1]}
    yield "location", state, {**arrays, "location": arrays["location"][:-1]}
    alarm = state["alarms"][0]
    yield "in order", {**state, "alarms": [[monitor.n_rows, *alarm[1:]]]}, arrays


def test_crafted_states_are_refused():
    monitor = fs.DriftMonitor(every=10, reference=10, run_length=100, sketch_size=4)
    for what, state, arrays in crafted_states():
        with pytest.raises((ValueError, TypeError), match=what):
            monitor._validate(state, arrays)


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
    with pytest.raises(ValueError, match=r"4,000,000 columns: .* 38\.1 GiB"):
        monitor.update(sparse.csr_array((1, 4_000_000)))
    assert monitor.n_rows == 0 and monitor.n_features is None


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.float16, np.float32, np.longdouble])
def test_first_rows_of_any_dtype_leave_later_ones_as_they_are(dtype):
    rows = changed("mean", np.random.default_rng(2), 9_000, 6_000)
    monitor = fs.DriftMonitor(every=50).update(np.zeros((1, rows.shape[1]), dtype))
    monitor = fs.from_bytes(monitor.to_bytes()).update(rows)
    assert [alarm.columns[0].column for alarm in monitor.alarms] == [3]


def test_alarms_by_ties_alone_name_no_column():
    monitor = fs.DriftMonitor(every=20, reference=10, run_length=100).update(np.zeros((8_000, 2)))
    assert monitor.alarms and all(alarm.columns == () for alarm in monitor.alarms)


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
