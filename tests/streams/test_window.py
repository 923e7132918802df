"""A window is the model of its latest blocks: their rows alone, their certificate, at a bounded cost, kept in files."""

import datetime
import time
import tracemalloc
import zoneinfo

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.data import StateError
from fastsketch.streams import _window

HOUR = np.timedelta64(1, "h")


def stream(seed, n=2000, d=20):
    """Rows (n, d) that jump half way."""
    rng = np.random.default_rng(seed)
    scales = np.arange(1, d + 1) ** -0.7
    return rng.standard_normal((n, d)) * np.where(np.arange(n)[:, np.newaxis] < n // 2, scales, scales[::-1])


def sketch(**parameters):
    return fs.FrequentDirections(8, **{"method": "tfd", "solver": "gram", **parameters})


def latest(rows, blocks, every):
    """The rows of a window, by what a window is."""
    return rows[max(0, ((len(rows) - 1) // every - blocks + 1) * every) :]


# -- the merges of blocks --------------------------------------------------------------------------------------------
class Order:
    """What remembers in which order it was merged."""

    def __init__(self, tree):
        self.tree = tree

    def merge(self, other):
        self.tree = (self.tree, other.tree)
        return self

    def items(self, tree=None):
        tree = self.tree if tree is None else tree
        return [tree] if isinstance(tree, int) else [item for part in tree for item in self.items(part)]


def left(numbers):
    tree, *rest = numbers
    for number in rest:
        tree = (tree, number)
    return tree


def right(numbers):
    *rest, tree = numbers
    for number in reversed(rest):
        tree = (number, tree)
    return tree


@pytest.mark.parametrize("n_blocks", range(1, 12))
def test_the_order_of_merges_depends_on_the_numbers_of_blocks_alone(monkeypatch, n_blocks):
    """It decides the bits: a chunk that ends is merged from its end, one that begins from its beginning."""
    monkeypatch.setattr(_window, "from_bytes", lambda content: Order(int(content)))
    rng, length = np.random.default_rng(n_blocks), -(-n_blocks // 2)
    for end in range(200):
        held = [number for number in range(max(0, end - n_blocks), end) if rng.random() < 0.7]
        parts = _window.merge_blocks({number: b"%d" % number for number in held}, end, n_blocks)
        assert [item for part in parts for item in part.items()] == held
        first = (end - n_blocks) // length
        chunks = [[number for number in held if number // length == first + k] for k in range(3)]
        wanted = [(right, left, left)[k](chunk) for k, chunk in enumerate(chunks) if chunk]
        assert [part.tree for part in parts] == wanted


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_closed_block_holds_its_rows_and_no_buffer(dtype):
    """Of W blocks the window holds what its file holds, and the buffer of the block being filled."""
    size, d, blocks = 16, 1500, 12
    model = fs.FrequentDirections(size, method="tfd", solver="gram", dtype=dtype)
    rows = np.random.default_rng(0).standard_normal((blocks * 60, d)).astype(dtype)
    window = fs.Window(model, blocks, every=60)
    tracemalloc.start()
    try:
        for start in range(0, len(rows), 40):
            window.update(rows[start : start + 40])
        window.model  # noqa: B018 (nothing is left of the merges)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    one = 2 * size * d * rows.itemsize  # the rows of a sketch are fewer than two for each of its size
    assert held < len(window.to_bytes()) + 3 * one
    assert len(window.to_bytes()) < (blocks * 1.1) * one


def test_a_window_that_is_never_asked_merges_nothing(monkeypatch):
    monkeypatch.setattr(fs.FrequentDirections, "merge", None)
    assert fs.Window(sketch(), 4, every=50).update(stream(0)).n_rows == 2000


# -- rows ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("every", [70, 128])
@pytest.mark.parametrize("blocks", [2, 3, 4, 9])
def test_the_model_is_one_of_the_latest_rows(blocks, every, center):
    rows = stream(1)
    for solver, method in (("gram", "fd"), ("exact", "rfd")):
        window = fs.Window(sketch(method=method, solver=solver, center=center), blocks=blocks, every=every)
        for start in range(0, 2000, 190):
            window.update(rows[start : start + 190])
            own = latest(rows[: start + 190], blocks, every)
            own = own - own.mean(axis=0) if center else own
            model = window.model
            assert model.n_rows == len(own) <= blocks * every
            assert model.squared_norm == pytest.approx((own**2).sum())
            error = np.linalg.eigvalsh(own.T @ own - model.sketch().T @ model.sketch())
            rounding = 1e-9 * model.squared_norm
            assert -rounding <= error[0] and error[-1] <= model.shrinkage + rounding
            if solver == "exact":
                assert np.allclose(model.gram(), own.T @ own, atol=rounding)


def test_the_certificate_is_never_violated(amount):
    for seed in range(amount(20, 300)):
        rng = np.random.default_rng(seed)
        d, size, blocks, every = rng.integers([3, 2, 2, 5], [40, 12, 7, 90])
        n = int(rng.integers(1, 900))
        rows = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-2, 2, (1, d))
        rows[rng.integers(n) :] *= 10.0 ** rng.uniform(-3, 3)
        method = rng.choice(["fd", "rfd", "pfd", "tfd", "isvd"])
        template = fs.FrequentDirections(int(size), method=str(method), solver=str(rng.choice(["gram", "svd", "auto"])))
        window = fs.Window(template, blocks=int(blocks), every=int(every))
        for piece in np.array_split(rows, rng.integers(1, 9)):
            window.update(piece)
            if window.n_rows:
                own, model = latest(rows[: window.n_rows], int(blocks), int(every)), window.model
                b = model.sketch()
                error = np.linalg.norm(own.T @ own - b.T @ b - model.alpha * np.eye(int(d)), 2)
                assert error <= model.error_bound
                top = model.spectrum()
                true = np.linalg.eigvalsh(own.T @ own)[::-1][: len(top.low)]
                assert (top.low <= true).all() and (true <= top.high).all()


def test_batches_of_any_size_give_the_same_bits():
    rows, weights = stream(2, 1100), np.random.default_rng(0).random(1100)
    one = fs.Window(sketch(), 4, every=100).update(rows, sample_weight=weights)
    many = fs.Window(sketch(), 4, every=100)
    for row, weight in zip(rows[:300], weights, strict=False):
        many.update(row, sample_weight=weight)
    many.update(rows[300:950], sample_weight=weights[300:950])
    assert many.model.n_rows == 350  # asking changes nothing
    many.update(fs.open_rows(rows[950:]), sample_weight=weights[950:])
    assert many.model.to_bytes() == one.model.to_bytes()
    assert many.to_bytes() == one.to_bytes()


@pytest.mark.parametrize(
    "model", [fs.SketchHash(4, block_rows=50), fs.SketchQuantizer(4, block_rows=50), fs.SketchedEASE(5)]
)
def test_any_model_that_merges(model):
    rows = np.abs(stream(3, 900))
    window = fs.Window(model, blocks=3, every=200).update(rows)
    assert type(window.model) is type(model) and window.model.n_rows == 500
    parts = [model._for_part(2 + k).update(part) for k, part in enumerate(np.split(rows[400:], [200, 400]))]
    whole = fs.merge(parts)
    if isinstance(model, fs.SketchedEASE):
        assert np.allclose(window.model.popularity, whole.popularity)
    else:  # whose merges are the same bits in any order
        assert np.array_equal(window.model.encode(rows), whole.encode(rows))


def test_an_estimator_of_the_window():
    pytest.importorskip("sklearn")
    from fastsketch.sklearn import SketchedPCA

    window = fs.Window(fs.FrequentDirections(16, method="tfd", center=True), blocks=3, every=200).update(stream(4))
    pca, own = SketchedPCA.from_model(window.model, n_components=3), latest(stream(4), 3, 200)
    true = np.linalg.eigvalsh(np.cov(own.T))[::-1][:3]
    assert np.allclose(pca.explained_variance_, true, rtol=1e-8)


def test_the_model_is_the_callers_own():
    window = fs.Window(sketch(), 3, every=100).update(stream(5, 250))
    for n in (0, 1, 150):
        window.update(stream(6, n))
        before = window.to_bytes()
        window.model.update(stream(7, 500))
        assert window.to_bytes() == before
    empty = fs.Window(sketch(), 3)
    assert empty.model.update(stream(5)).n_rows == 2000 and empty.model.n_rows == 0


def test_names_of_columns_go_to_the_model():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(stream(8, 300, 3), columns=["x", "y", "z"])
    window = fs.Window(sketch(), 3, every=100).update(table)
    assert window.model.feature_names == window.feature_names == ("x", "y", "z")
    assert {model.feature_names for model in window.block_models.values()} == {("x", "y", "z")}
    with pytest.raises(ValueError, match="it was 'x'"):
        window.update(table.rename(columns={"x": "w"}))
    with pytest.raises(ValueError, match="x"):
        window.model.update(table.rename(columns={"x": "w"}))


# -- refused, and then as before ---------------------------------------------------------------------------------------
def test_what_is_refused_leaves_the_window_as_it_was():
    for _ in range(2):
        window = fs.Window(sketch(), 3, every=100).update(stream(9, 250))
        before = window.to_bytes()
        for at in (10, 49, 50, 330):
            bad = stream(10, 400)
            bad[at, 3] = np.nan
            with pytest.raises(ValueError, match=rf"row {at} holds a NaN"):
                window.update(bad)
            assert window.to_bytes() == before
        with pytest.raises(ValueError, match="20 columns"):
            window.update(np.ones((200, 3)))
        with pytest.raises(ValueError, match="one entry for each"):
            window.update(stream(10, 200), sample_weight=np.ones(3))
        with pytest.raises(ValueError, match="row 150"):
            window.update(stream(10, 200), sample_weight=np.where(np.arange(200) == 150, -1.0, 1.0))
        assert window.to_bytes() == before


def test_an_interrupt_leaves_the_window_as_it_was(monkeypatch):
    window = fs.Window(sketch(), 3, every=100).update(stream(9, 250))
    before, calls = window.to_bytes(), []
    learn = fs.FrequentDirections.update

    def interrupted(self, rows, *more):
        calls.append(len(rows))
        if len(calls) == last:
            raise KeyboardInterrupt
        return learn(self, rows, *more)

    monkeypatch.setattr(fs.FrequentDirections, "update", interrupted)
    for last, n in ((1, 10), (1, 500), (3, 500)):  # noqa: B007  the function above reads it
        calls.clear()
        with pytest.raises(KeyboardInterrupt):
            window.update(stream(10, n))
        assert window.to_bytes() == before


@pytest.mark.parametrize(
    ("model", "error", "says"),
    [
        (fs.FrequentDirections(4, decay=0.9), ValueError, "forgets in the place of a decay"),
        (fs.SketchedNewton(4), TypeError, "merges, got a SketchedNewton"),
        (fs.LowRankModel(4), TypeError, "merges, got a LowRankModel"),
        (fs.GroupSketches(4), TypeError, "learns from rows"),
        (fs.FrequentDirections, TypeError, "got the class FrequentDirections"),
        (fs.FrequentDirections(4).update(np.eye(4)), ValueError, "seen no rows, got one of 4"),
        (None, TypeError, "got a NoneType"),
        ({"a": 1}, TypeError, "got a dict"),
    ],
)
def test_models_that_no_window_takes(model, error, says):
    with pytest.raises(error, match=says):
        fs.Window(model)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"blocks": 1}, "blocks must be at least 2"),
        ({"every": 0}, "every must be at least 1"),
        ({"every": "0h"}, "every must be a number of rows, or a time"),
        ({"every": "1 fortnight"}, "every must be a number of rows, or a time"),
    ],
)
def test_parameters_out_of_range(given, says):
    with pytest.raises(ValueError, match=says):
        fs.Window(sketch(), **given)
    with pytest.raises(TypeError, match="every must be an integer"):
        fs.Window(sketch(), every=1.5)


# -- time ------------------------------------------------------------------------------------------------------------
def timed(blocks=3, every="1h", **more):
    return fs.Window(sketch(), blocks=blocks, every=every, **more)


def test_blocks_of_time_hold_the_rows_of_their_time():
    rng, rows = np.random.default_rng(0), stream(11, 900)
    # with gaps of many hours, and before 1970 too
    seconds = np.cumsum(rng.exponential(300, 900) + (rng.random(900) < 0.01) * rng.exponential(40000, 900)) - 90000
    window = timed()
    for start, stop in ((0, 1), (1, 500), (500, 501), (501, 900)):
        window.update(rows[start:stop], by=seconds[start:stop])
        hours = seconds[:stop] // 3600
        own = rows[:stop][hours > hours[-1] - 3]
        assert window.model.n_rows == len(own)
        assert window.model.squared_norm == pytest.approx((own**2).sum())


def test_times_of_every_type_are_the_same():
    rows, moments = stream(12, 40), np.datetime64("2024-03-30T22:00") + np.arange(40) * np.timedelta64(10, "m")
    zone = datetime.timezone(datetime.timedelta(hours=2))
    aware = [moment.astype(datetime.datetime).replace(tzinfo=datetime.UTC) for moment in moments.astype("M8[us]")]
    kinds = [
        moments,
        moments.astype("datetime64[ns]"),
        moments.astype("datetime64[s]").astype(np.int64),
        moments.astype("datetime64[s]").astype(float),
        moments.astype(str),
        np.array([str(moment) + "Z" for moment in moments], object),
        moments.astype("M8[us]").astype(datetime.datetime),
        np.array([moment.astimezone(zone) for moment in aware], object),
        [moment.astimezone(zone).isoformat() for moment in aware],
    ]
    wanted = timed().update(rows, by=kinds[0])
    assert wanted.model.n_rows == 16  # 02:00 to 04:30
    for kind in kinds:
        assert timed().update(rows, by=kind).to_bytes() == wanted.to_bytes()


def test_a_column_of_times(tmp_path):
    path = tmp_path / "rows.csv"
    times = np.datetime64("2024-01-01T00:00") + np.arange(50) * np.timedelta64(7, "m")
    rows = stream(13, 50, 2)
    lines = [f"{t},{a!r},{b!r}" for t, (a, b) in zip(times, rows.tolist(), strict=True)]
    path.write_text("time,x,y\n" + "\n".join(lines) + "\n", encoding="ascii")
    window = timed().update(path, by="time")
    assert window.feature_names == ("x", "y") and window.n_features == 2
    assert np.array_equal(window.model.sketch(), timed().update(rows, by=times).model.sketch())
    weighed = timed().update(fs.open_rows(path, beside="time"), sample_weight=np.full(50, 2.0))
    assert weighed.model.total_weight == pytest.approx(2 * window.model.n_rows)
    before = window.to_bytes()
    with pytest.raises(ValueError, match=r"rows\.csv.*block that begins at 2024-01-01T00:00.*sort rows by time"):
        window.update(path, by="time")
    with pytest.raises(ValueError, match="nothing"):
        window.update(path, by="nothing")
    lines[20] = "," + lines[20].partition(",")[2]
    path.write_text("time,x,y\n" + "\n".join(lines) + "\n", encoding="ascii")
    with pytest.raises(ValueError, match=r"rows\.csv, line 22.*no time"):
        timed().update(path, by="time")
    assert window.to_bytes() == before


def test_a_table_with_a_column_of_times():
    pandas = pytest.importorskip("pandas")
    times = pandas.date_range("2024-01-01", periods=40, freq="10min", tz="Europe/Berlin")
    table = pandas.DataFrame({"when": times, "x": np.arange(40.0), "y": 1.0})
    window = timed().update(table, by="when")
    assert window.feature_names == ("x", "y") and window.model.n_rows == 16
    plain = timed().update(table[["x", "y"]], by=times)
    assert plain.to_bytes() == window.to_bytes()


@pytest.mark.parametrize(
    ("by", "error", "says"),
    [
        (None, ValueError, "by must give the times"),
        (np.arange(3) * 3600, ValueError, "one time for each of the 4 rows"),
        ([0.0, 1.0, np.nan, 2.0], ValueError, "row 2 has no time"),
        (np.array(["2024-01-01T00:00", "NaT", "NaT", "NaT"], "M8[s]"), ValueError, "row 1 has no time"),
        (["2024-01-01", None, "2024-01-02", "2024-01-03"], ValueError, "row 1 has no time"),
        (["2024-01-01", "yesterday", "", ""], ValueError, "row 1 has the time 'yesterday', which is not ISO 8601"),
        ([0, 7200, 3599, 7200], ValueError, "row 2 is of the block that begins at 1970-01-01T00:00"),
        ([1e300, 0, 0, 0], ValueError, "row 0 has no time"),
        (np.ones(4, bool), TypeError, "by must hold times"),
        ([datetime.date(2024, 1, 1)] * 4, TypeError, "row 0 has the time"),
    ],
)
def test_times_that_are_none(by, error, says):
    window = timed()
    with pytest.raises(error, match=says):
        window.update(np.eye(4), by=by)
    assert window.n_rows == 0 and window.n_features is None
    with pytest.raises(ValueError, match="by belongs to blocks of time"):
        fs.Window(sketch()).update(np.eye(4), by=np.arange(4))


def test_a_clock_that_is_set_back():
    """Local times of the hour that comes twice go back; in UTC they do not."""
    local = np.datetime64("2024-10-27T02:00") + np.array([0, 30, 59, 10, 40, 60]) * np.timedelta64(1, "m")
    window = timed(every="30min")
    with pytest.raises(ValueError, match="row 3 .*take times in UTC"):
        window.update(np.eye(6), by=local)
    utc = local + np.array([-2, -2, -2, -1, -1, -1]) * HOUR
    assert timed(blocks=9, every="30min").update(np.eye(6), by=utc).model.n_rows == 6
    # set on: half an hour without rows
    assert timed(blocks=2).update(np.eye(2), by=[0, 3 * 3600]).model.n_rows == 1
    # within a block rows may come in any order
    assert timed().update(np.eye(3), by=[100, 50, 3599]).update(np.eye(3), by=[3, 2, 1]).model.n_rows == 6


@pytest.mark.parametrize("day", ["2024-03-31", "2024-10-27"])
def test_a_clock_that_jumps_at_daylight_saving(day):
    """With its zone it is that of UTC: blocks are an hour long, whatever the clock on the wall says."""
    try:
        berlin = zoneinfo.ZoneInfo("Europe/Berlin")
    except zoneinfo.ZoneInfoNotFoundError:
        pytest.skip("no data of time zones")
    first = datetime.datetime.fromisoformat(day).replace(tzinfo=berlin).astimezone(datetime.UTC)
    moments = [first + datetime.timedelta(minutes=20 * k) for k in range(18)]
    local = [moment.astimezone(berlin) for moment in moments]
    assert len({moment.utcoffset() for moment in local}) == 2
    window = timed(blocks=4).update(np.eye(18), by=local)
    assert window.model.n_rows == 12
    assert window.to_bytes() == timed(blocks=4).update(np.eye(18), by=moments).to_bytes()


def test_time_that_passes_without_rows():
    window = timed().update(np.eye(3), by=[0, 3600, 7200])
    assert window.model.n_rows == 3
    assert window.copy().update(np.eye(3)[:1], by=[3 * 3600]).model.n_rows == 3
    assert window.copy().update(np.eye(3)[:1], by=[4 * 3600]).model.n_rows == 2
    later = window.copy().update(np.eye(3)[:1], by=[1e11])  # thousands of years
    assert later.model.n_rows == 1 and len(later.block_models) == 1


def test_a_day_of_seconds_without_rows_takes_no_time():
    """Linear in their number: copies of all blocks for each of them took half a minute."""
    window = fs.Window(sketch(), blocks=100_000, every="1s").update(np.eye(3), by=[0, 1, 2])
    start = time.process_time()
    assert window.update(np.eye(3), by=[86_400, 99_999, 100_001]).model.n_rows == 4
    assert time.process_time() - start < 2


# -- blocks that are kept ----------------------------------------------------------------------------------------------
def test_a_block_is_forgotten_by_its_name():
    rows = stream(14, 950)
    window = fs.Window(sketch(solver="exact"), blocks=4, every=200).update(rows)
    assert {begin: model.n_rows for begin, model in window.block_models.items()} == {
        200: 200, 400: 200, 600: 200, 800: 150,
    }  # fmt: skip
    own = np.vstack([rows[200:400], rows[600:]])
    assert np.allclose(window.forget(450).model.gram(), own.T @ own)
    assert 400 not in window.block_models
    more = stream(15, 500)
    window.update(more)
    own = np.vstack([rows[800:], more])
    assert np.allclose(window.model.gram(), own.T @ own)
    window.forget(1449)  # the block being filled
    assert window.model.n_rows == 600 and window.update(more[:60]).model.n_rows == 660
    for begin in (100, 5000):
        with pytest.raises(ValueError, match="holds no block at"):
            window.forget(begin)


def test_a_block_of_time_is_forgotten_by_any_moment_of_it():
    window = timed().update(np.eye(3), by=[0, 3600, 7200])
    assert list(window.block_models) == [np.datetime64(3600 * k, "s") for k in range(3)]
    assert window.forget("1970-01-01T01:59").model.n_rows == 2
    with pytest.raises(ValueError, match="holds no block at"):
        window.forget("1970-01-01T01:59")


# -- files, jobs -------------------------------------------------------------------------------------------------------
def test_a_resume_gives_the_same_bits(tmp_path):
    rows, times = stream(16, 700), np.arange(700) * 61.0
    for every, by in ((30, None), ("20min", times)):
        window = fs.Window(sketch(), 5, every=every)
        more = [{} if by is None else {"by": part} for part in np.split(times, [333])]
        window.update(rows[:333], **more[0]).save(tmp_path / "window.fsk")
        again = fs.load(tmp_path / "window.fsk")
        assert repr(again) == repr(window) and again.facts() == window.facts()
        assert window.model.to_bytes() == again.model.to_bytes()
        wanted = window.update(rows[333:], **more[1])
        assert again.update(rows[333:], **more[1]).to_bytes() == wanted.to_bytes()
        assert wanted.copy().to_bytes() == wanted.to_bytes()


def test_a_stream_that_ends_inside_a_block_goes_on(tmp_path):
    fs.Window(sketch(), 3, every=100).update(stream(17, 200)[:130]).save(tmp_path / "a.fsk")
    again = fs.load(tmp_path / "a.fsk").update(stream(17, 200)[130:])
    assert again.to_bytes() == fs.Window(sketch(), 3, every=100).update(stream(17, 200)).to_bytes()


def test_a_job_with_checkpoints(tmp_path):
    np.save(tmp_path / "rows.npy", stream(18, 3000))
    window = fs.run(fs.Window(sketch(), 3, every=400), tmp_path / "rows.npy", checkpoint=tmp_path / "done")
    model = window.model
    assert model.n_rows == 1000
    assert model.to_bytes() == fs.Window(sketch(), 3, every=400).update(stream(18, 3000)).model.to_bytes()


def test_files_that_are_none():
    window = fs.Window(sketch(), 3, every=50).update(stream(19, 333))
    state, arrays = window._state()
    for change in (
        {"n_rows": -1},
        {"number": None},
        {"number": "x"},
        {"opened": 0},
        {"blocks": [5, 4]},
        {"blocks": [99, 100]},
        {"blocks": state["blocks"][:-1]},
        {"form": [1, 2]},
        {"form": [0]},
        {"n_features": 7},
    ):
        with pytest.raises((ValueError, TypeError, LookupError)):
            fs.Window(**window.parameters)._validate({**state, **change}, arrays)
    for other in (
        fs.SketchHash(4).update(np.eye(4)),
        fs.FrequentDirections(5).update(stream(19, 9)),
        sketch(alpha0=0.0),
    ):
        wrong = {**arrays, "model0": np.frombuffer(other.to_bytes(), np.uint8)}
        with pytest.raises(ValueError, match="window|holds a 'SketchHash', expected FrequentDirections"):
            fs.Window(sketch(center=True), 3, every=50)._validate(state, wrong)
    with pytest.raises(StateError):
        fs.Window(**window.parameters)._validate(state, {**arrays, "model0": np.zeros(9, np.uint8)})


def test_rows_of_another_dtype_are_taken_as_the_first_ones():
    rows = np.random.default_rng(0).standard_normal((40, 6))
    for first, then in ((np.float64, np.float32), (np.float32, np.float64)):
        window = fs.Window(fs.FrequentDirections(4), 4, every=10)
        window.update(rows[:15].astype(first)).update(rows[15:].astype(then))
        window = fs.from_bytes(window.to_bytes()).update(rows[:5].astype(then))
        whole = fs.Window(fs.FrequentDirections(4), 4, every=10)
        whole.update(np.vstack([rows[:15].astype(first), rows[15:].astype(then), rows[:5].astype(then)]).astype(first))
        assert window.model.resolved["dtype"] == first and window.to_bytes() == whole.to_bytes()


@pytest.mark.parametrize("every", ["999999999d", 1 << 70])
def test_blocks_that_are_too_long(every):
    with pytest.raises(ValueError, match="every must be"):
        fs.Window(fs.FrequentDirections(4), every=every)


def test_times_out_of_range():
    window = fs.Window(fs.FrequentDirections(4), every="1h")
    with pytest.raises(ValueError, match="row 1 has a time out of range"):
        window.update(np.ones((2, 3)), by=np.array([0, 1 << 60], "M8[D]"))
    with pytest.raises(TypeError, match="masked array"):
        window.update(np.ones((2, 3)), by=np.ma.array([0.0, 1.0], mask=[0, 1]))
    assert window.n_rows == 0


@pytest.mark.parametrize("model", [fs.SketchHash(4), fs.SketchQuantizer(4)])
def test_weights_of_a_model_that_takes_none_are_refused(model):
    window = fs.Window(model, 2, every=50).update(stream(10, 60))
    before = window.to_bytes()
    with pytest.raises(TypeError, match=f"^sample_weight must be left out: a {type(model).__name__} learns without"):
        window.update(stream(10, 60), sample_weight=np.ones(60))
    assert window.to_bytes() == before
