"""A window over ridge regression is the regression of its latest blocks: their rows and targets alone."""

import numpy as np
import pytest

import fastsketch as fs


def drawn(seed=0, n=2000, d=12, c=0):
    """Rows (n, d) and targets (n,) or (n, c) whose coefficients are others from the middle on."""
    rng = np.random.default_rng(seed)
    rows, late = rng.standard_normal((n, d)), np.arange(n)[:, np.newaxis] >= n // 2
    old, new = rng.standard_normal((2, d, max(c, 1)))
    y = np.where(late, rows @ new, rows @ old) + 0.1 * rng.standard_normal((n, max(c, 1))) + 3.0
    return rows, y if c else y[:, 0]


def latest(n, blocks, every):
    return slice(max(0, ((n - 1) // every - blocks + 1) * every), n)


def ridge(**parameters):
    return fs.SketchedRidge(**{"ridge": 2.0, **parameters})


@pytest.mark.parametrize("c", [0, 3])
@pytest.mark.parametrize("every", [90, 256])
def test_the_model_is_that_of_the_latest_rows_alone(every, c):
    rows, y = drawn(c=c)
    window = fs.Window(ridge(reservoir_size=150), blocks=5, every=every)
    weights = np.random.default_rng(1).random(2000)
    for start in range(0, 2000, 170):
        stop = min(start + 170, 2000)
        window.update(rows[start:stop], y[start:stop], sample_weight=weights[start:stop])
        own = latest(stop, 5, every)
        alone = ridge().update(rows[own], y[own], sample_weight=weights[own])
        model = window.model
        assert type(model) is fs.SketchedRidge and model.n_rows == alone.n_rows
        assert model.coef().shape == alone.coef().shape
        assert np.allclose(model.predict(rows), alone.predict(rows), rtol=0, atol=1e-9)
        assert model.total_weight == pytest.approx(alone.total_weight)


def test_of_wide_rows_it_is_off_by_what_the_sketches_lose():
    """Beside the exact answer it is as near as one sketch of the same rows, about: each loses a part of X'X."""
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((3000, 300)) * 0.97 ** np.arange(300)
    y = rows[:, :20].sum(axis=1) + 0.5 * rng.standard_normal(3000)
    own = latest(3000, 4, 500)
    exact, one = ridge().update(rows[own], y[own]), ridge(max_memory=100_000).update(rows[own], y[own])
    model = fs.Window(ridge(max_memory=100_000), 4, every=500).update(rows, y).model
    assert not model.is_exact
    off, usual = (np.std(each.predict(rows[:500]) - exact.predict(rows[:500])) for each in (model, one))
    assert off <= 2 * usual + 1e-9


def test_the_ridge_is_chosen_on_rows_of_the_window():
    rows, y = drawn(3)
    model = fs.Window(fs.SketchedRidge(), blocks=4, every=200).update(rows, y).model
    own = latest(2000, 4, 200)
    alone = fs.SketchedRidge().update(rows[own], y[own])
    assert model.score_path().n_rows == alone.score_path().n_rows == 800
    assert np.allclose(model.predict(rows), alone.predict(rows), atol=0.02)
    low, high = model.predict_interval(rows[own])
    assert 0.8 < np.mean((low <= y[own]) & (y[own] <= high)) < 0.98


def test_no_place_of_a_block_is_held_out_more_than_others():
    """Keys of rows with few targets would be the same in every block: as of hours of a day, of which some are held."""
    rng = np.random.default_rng(4)
    rows = np.tile(np.eye(24), (100, 1))  # a day is a block, and a row an hour
    labels = np.where(rng.random(2400) < 0.5, 1.0, -1.0)
    model = fs.Window(fs.SketchedRidge(reservoir_size=240), blocks=100, every=24).update(rows, labels).model
    held = np.bincount(np.vstack(model._held.rows)[:, :24].argmax(axis=1), minlength=24)
    assert held.min() >= 2 and held.max() <= 24  # 10 each, about: of four hours all hundred without


def test_batches_of_any_size_and_sources_give_the_same_bits(tmp_path):
    rows, y = drawn(5, 700)
    one = fs.Window(ridge(reservoir_size=50), 4, every=100).update(rows, y)
    many = fs.Window(ridge(reservoir_size=50), 4, every=100)
    for start, stop in ((0, 1), (1, 350), (350, 351)):
        many.update(rows[start:stop], y[start:stop])
    many = fs.from_bytes(many.to_bytes())
    np.save(tmp_path / "rest.npy", np.column_stack([rows[351:], y[351:]]))
    many.update(fs.open_rows(tmp_path / "rest.npy", beside=12))
    assert many.model.n_rows == one.model.n_rows == 400
    assert np.allclose(many.model.coef(), one.model.coef(), rtol=0, atol=1e-12)
    again = fs.from_bytes(one.to_bytes())
    assert again.model.to_bytes() == one.model.to_bytes()
    more = drawn(6, 300)
    assert again.update(*more).to_bytes() == one.update(*more).to_bytes()


def test_a_job_has_the_target_of_its_source(tmp_path):
    rows, y = drawn(7, 900)
    lines = [",".join(map(repr, [*row, target])) for row, target in zip(rows.tolist(), y.tolist(), strict=True)]
    names = ",".join([*(f"x{j}" for j in range(12)), "price"])
    (tmp_path / "rows.csv").write_text(names + "\n" + "\n".join(lines) + "\n", encoding="ascii")
    window = fs.run(fs.Window(ridge(), 3, every=200), tmp_path / "rows.csv", target="price")
    direct = fs.Window(ridge(), 3, every=200).update(tmp_path / "rows.csv", "price")
    alone = ridge().update(rows[400:], y[400:])
    for each in (window, direct):
        assert each.feature_names == tuple(f"x{j}" for j in range(12)) and each.model.n_rows == 500
        assert np.allclose(each.model.coef(), alone.coef(), rtol=0, atol=1e-9)
    assert set(direct.block_models) == {400, 600, 800}
    assert direct.forget(600).model.n_rows == 300


def test_times_and_targets_of_a_table():
    pandas = pytest.importorskip("pandas")
    rows, y = drawn(8, 90)
    times = pandas.date_range("2024-01-01", periods=90, freq="10min")
    table = pandas.DataFrame(rows, columns=[f"x{j}" for j in range(12)]).assign(when=times, price=y, count=2 * y)
    plain = fs.Window(ridge(), 3, every="1h").update(rows, y, by=times)
    assert plain.model.n_rows == 18
    for window in (
        fs.Window(ridge(), 3, every="1h").update(table.drop(columns="count"), "price", by="when"),
        fs.Window(ridge(), 3, every="1h").update(table.drop(columns=["count", "price"]), y, by="when"),
        fs.Window(ridge(), 3, every="1h").update(table.drop(columns=["count", "when"]), "price", by=times),
    ):
        assert np.array_equal(window.model.coef(), plain.model.coef()) and window.feature_names[-1] == "x11"
    both = fs.Window(ridge(), 3, every="1h").update(table, ("price", "count"), by="when")
    assert np.allclose(both.model.coef(), np.vstack([plain.model.coef(), 2 * plain.model.coef()]))


@pytest.mark.parametrize(
    ("targets", "error", "says"),
    [
        (None, TypeError, "targets must be given with rows in memory"),
        (np.ones(3), ValueError, "one for each|one entry"),
        ([[1.0], [2.0, 3.0]], ValueError, "rectangular"),
        (np.ones((150, 2)), ValueError, r"as before, got \(150, 2\)"),
        (np.where(np.arange(150) == 120, np.nan, 1.0), ValueError, "row 120 holds nan"),
        (np.ma.array(np.ones(150), mask=np.arange(150) == 3), TypeError, "a masked"),
        (np.full(150, "much"), ValueError, "row 0 holds 'much'"),
        ("price", ValueError, r"one entry, or one row, for each of the 150 rows, got shape \(\)"),
    ],
)
def test_targets_that_are_none(targets, error, says):
    rows, y = drawn(9, 300)
    window = fs.Window(ridge(), 3, every=100).update(rows[:150], y[:150])
    before = window.to_bytes()
    with pytest.raises(error, match=says):
        window.update(rows[150:], targets)
    assert window.to_bytes() == before


def test_sources_whose_targets_are_missing(tmp_path):
    np.save(tmp_path / "rows.npy", drawn(10, 50)[0])
    window = fs.Window(ridge(), 3, every=10)
    with pytest.raises(
        TypeError, match=r"targets must be given: no column of them lies beside the rows of .*rows\.npy"
    ):
        window.update(tmp_path / "rows.npy")
    with pytest.raises(ValueError, match="has no names of columns, got 'price'"):
        window.update(tmp_path / "rows.npy", "price")
    with pytest.raises(ValueError, match=r"one row, for each of the 50 rows, got shape \(49,\)"):
        window.update(tmp_path / "rows.npy", np.ones(49))
    with pytest.raises(TypeError, match="a FrequentDirections learns from rows alone"):
        fs.Window(fs.FrequentDirections(4)).update(np.eye(4), np.ones(4))
    assert window.n_rows == 0
