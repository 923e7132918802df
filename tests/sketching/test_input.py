"""Input at the public door: layouts, dtypes, magnitudes, and everything that must be refused."""

import json
import pickle

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from tests.helpers import DTYPES, METHODS, SOLVERS, same_state, stream, tol

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((70, 12))


def fresh(**options):
    return fs.FrequentDirections(5, **{"solver": "gram", **options})


LAYOUTS = {
    "C": lambda a: a.copy(),
    "F": lambda a: np.asfortranarray(a),
    "rows strided": lambda a: np.repeat(a, 2, axis=0)[::2],
    "columns strided": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "rows reversed": lambda a: a[::-1].copy()[::-1],
    "columns reversed": lambda a: a[:, ::-1].copy()[:, ::-1],
    "transposed": lambda a: a.T.copy().T,
    "list": lambda a: a.tolist(),
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "unaligned": lambda a: np.frombuffer(b"x" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape),
    "one column view": lambda a: np.pad(a, ((0, 0), (3, 4)))[:, 3:-4],
    "longdouble": lambda a: a.astype(np.longdouble),
}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_give_the_same_bits(layout, solver):
    expected = fresh(solver=solver).update(ROWS)
    assert same_state(expected, fresh(solver=solver).update(LAYOUTS[layout](ROWS)))


def test_read_only_input_is_accepted_and_no_input_is_changed():
    rows, weights = ROWS.copy(), np.linspace(0, 2, len(ROWS))
    rows.flags.writeable = weights.flags.writeable = False
    fresh(center=True).update(rows, weights)
    assert np.array_equal(rows, ROWS)
    matrix = sparse.coo_array(([1.0, 2.0, 3.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 3)).tocsr()
    doubled = sparse.csr_array((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    before = doubled.copy()
    fresh().update(doubled)
    fresh().update(matrix)
    assert np.array_equal(doubled.indices, before.indices)
    assert np.array_equal(doubled.data, before.data)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, bool, np.float16, np.float32])
def test_number_types(dtype):
    rows = (ROWS * 3).astype(dtype)
    s = fresh().update(rows)
    used = s.resolved["dtype"]
    assert used == (np.float32 if np.dtype(dtype).kind == "f" else np.float64)
    assert np.array_equal(s.sketch(), fresh().update(rows.astype(used)).sketch())


def test_the_first_batch_decides_the_dtype():
    s = fresh().update(ROWS.astype(np.float32))
    s.update(ROWS)
    assert s.sketch().dtype == np.float32
    assert fresh(dtype="float64").update(ROWS.astype(np.float32)).sketch().dtype == np.float64


@pytest.mark.parametrize(
    "kind", ["csr_array", "csr_matrix", "csc_array", "coo_array", "lil_array", "dok_array", "bsr_array", "dia_array"]
)
def test_sparse_containers(kind):
    rows = ROWS * (RNG.random(ROWS.shape) < 0.1)
    rows[0, 3:] = 0.0  # the row that decides
    expected = fresh().update(sparse.csr_array(rows))
    got = fresh().update(getattr(sparse, kind)(rows))
    assert expected._engine.kind == "sparse"
    assert np.allclose(got.gram(), expected.gram(), atol=tol(np.float64, (rows**2).sum()))


def test_sparse_and_dense_batches_mix():
    rows = ROWS * (RNG.random(ROWS.shape) < 0.1)
    expected = fresh(buffer_size=9).update(rows)
    for first, second in [(sparse.csr_array, np.asarray), (np.asarray, sparse.csr_array)]:
        got = fresh(buffer_size=9).update(first(rows[:30])).update(second(rows[30:]))
        assert np.allclose(got.gram(), expected.gram(), atol=tol(np.float64, (rows**2).sum()))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("center", [False, True])
def test_the_longest_row_and_the_largest_weight_may_come_together(kind, center):
    """What a state notes of the sizes of weighted rows is by row, whatever else is in the batch."""
    rows, weights = ROWS[:20] * (np.arange(12) < 1), 4.0 ** np.arange(20, 0, -1)
    rows *= weights[::-1, np.newaxis]
    whole, parts = fresh(center=center), fresh(center=center)
    whole.update(kind(rows), weights)
    for start, stop in ((0, 1), (1, 12), (12, 20)):
        parts.update(kind(rows[start:stop]), weights[start:stop])
    assert parts.to_bytes() == whole.to_bytes()


def test_duplicate_entries_are_summed():
    doubled = sparse.csr_array((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, 30))
    assert fresh().update(doubled).squared_norm == 9.0


def test_explicit_zeros_and_empty_rows():
    rows = sparse.csr_array((np.array([0.0, 1.0]), np.array([0, 2]), np.array([0, 1, 1, 2])), shape=(3, 40))
    s = fresh().update(rows)
    assert (s.n_rows, s.squared_norm) == (3, 1.0)
    empty = fresh().update(sparse.csr_array((200, 40)))
    assert empty.sketch().shape == (0, 40)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("power", [-1000, -500, -140, -100, -60, 60, 120, 500, 1000])
def test_magnitudes_whose_squares_leave_the_range(power, solver, kind, dtype):
    """Powers of two only move the exponent: the same sketch, scaled, though its squares overflow or vanish."""
    if dtype == np.float32:
        power = max(-100, min(120, power))  # beyond, the rows themselves leave the range
    rows = (ROWS * (RNG.random(ROWS.shape) < (0.1 if kind == "sparse" else 1))).astype(dtype)
    make = sparse.csr_array if kind == "sparse" else np.asarray
    plain = fresh(solver=solver).update(make(rows))
    scaled = fresh(solver=solver).update(make(np.ldexp(rows, power)))
    expected = np.ldexp(plain.sketch().astype(np.float64), power)
    scale = np.abs(expected).max()
    assert np.allclose(scaled.sketch().astype(np.float64) / scale, expected / scale, atol=tol(dtype, 1))
    unit = float(np.ldexp(1.0, power)) ** 2 if abs(power) <= 500 else None
    if unit:
        assert np.isclose(scaled.shrinkage, plain.shrinkage * unit, rtol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_very_different_magnitude(dtype):
    big = 1e30 if dtype == np.float32 else 1e250
    rows = ROWS.astype(dtype)
    rows[3] *= dtype(big)
    s = fresh(dtype=dtype)
    for row in rows:
        s.update(row)
    b = s.sketch().astype(np.float64) / big
    a = rows.astype(np.float64) / big
    assert np.allclose(b.T @ b, a.T @ a, atol=tol(dtype, 1) * 200)


@pytest.mark.parametrize("size, solver", [(8, "gram"), (64, "gram"), (8, "svd")])
def test_numbers_below_the_least_normal_one_count_as_zero_beside_others(size, solver):
    # products with them take a hundred times as long; beside rows of length 1 they are far below a unit of rounding
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((4 * size, 700)).astype(np.float32)
    falling = (rows * np.geomspace(1, 1e-25, 700)).astype(np.float32)
    sketch = fs.FrequentDirections(size, solver=solver, method="fd").update(falling)
    wide = falling.astype(np.float64)
    error = np.linalg.norm(wide.T @ wide - sketch.gram(), 2)
    assert error <= sketch.error_bound
    b = sketch.sketch()
    assert not ((b != 0) & (abs(b) < np.finfo(np.float32).tiny)).any()
    rows[:, ::2] = np.float32(1e-41)
    without = rows.copy()
    without[:, ::2] = 0
    one, other = (fs.FrequentDirections(size, solver=solver).update(x) for x in (rows, without))
    np.testing.assert_array_equal(one.sketch()[:, 1::2], other.sketch()[:, 1::2])
    # the mode of the processor is the thread's own again
    assert np.float32(1e-40) * np.float32(0.5) > 0


def test_subnormal_rows():
    rows = np.full((30, 6), 5e-324)
    s = fresh().update(rows)
    assert np.isclose(s.sketch()[0, 0], 5e-324 * np.sqrt(30), atol=5e-324)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (50, 1), (2, 2), (4, 50), (5, 50), (6, 50), (60, 3)])
@pytest.mark.parametrize("method", METHODS)
def test_small_shapes(shape, solver, method):
    rows = RNG.standard_normal(shape)
    s = fresh(solver=solver, method=method).update(rows)
    if min(shape) < 5:
        # fewer rows or columns than the sketch keeps: nothing is lost
        assert np.allclose(s.sketch().T @ s.sketch(), rows.T @ rows, atol=tol(np.float64, (rows**2).sum()))
        assert s.shrinkage <= tol(np.float64, (rows**2).sum())
    assert len(s.sketch()) <= 5


def test_sketch_larger_than_the_features_is_exact():
    s = fs.FrequentDirections(64).update(ROWS)
    assert (s.solver, s.resolved["solver"]) == ("auto", "exact")
    assert np.allclose(s.sketch().T @ s.sketch(), ROWS.T @ ROWS)
    assert s.error_bound < 1e-12 * s.squared_norm


def test_parameters_read_as_they_were_given():
    given = {"sketch_size": 5, "method": "pfd", "buffer_size": 3, "solver": "gram", "center": True, "dtype": "float32"}
    s = fs.FrequentDirections(**given).update(ROWS)
    assert {name: getattr(s, name) for name in given} == given
    assert (s.beta, s.alpha0, s.decay, s.compressor) == (None, 0.0, 1.0, None)
    assert s.parameters == type(s)(**s.parameters).parameters
    assert s.resolved["beta"] == 0.2
    assert s.resolved["buffer_size"] == 3
    assert fs.FrequentDirections(5).update(ROWS).resolved["solver"] == "exact"
    with pytest.raises(AttributeError, match="does not change"):
        s.sketch_size = 7


def test_unknown_keywords_name_the_nearest():
    with pytest.raises(TypeError, match="did you mean 'sketch_size'"):
        fs.FrequentDirections(sketchsize=5)
    with pytest.raises(TypeError, match="did you mean 'decay'"):
        fs.RobustFrequentDirections(5, decays=0.5)
    with pytest.raises(TypeError, match="has no parameter 'method'"):
        fs.RobustFrequentDirections(5, method="fd")
    with pytest.raises(TypeError, match=r"at most 2 positional \(sketch_size, alpha0\)"):
        fs.RobustFrequentDirections(5, 0.5, "gram")


def test_facts():
    s = fresh(center=True)
    facts = s.facts()
    assert (facts["kind"], facts["n_rows"], facts["n_features"]) == ("FrequentDirections", 0, None)
    assert (facts["singular_values"], facts["squared_norm"], facts["relative_error_bound"]) == ([], 0.0, 0.0)
    s.update(ROWS)
    facts = s.facts()
    assert (facts["n_rows"], facts["n_features"], facts["total_weight"]) == (70, 12, 70.0)
    assert (facts["solver"], facts["buffer_size"], facts["dtype"]) == ("gram", 5, "float64")
    assert (facts["alpha"], facts["error_bound"], facts["squared_norm"]) == (s.alpha, s.error_bound, s.squared_norm)
    assert facts["relative_error_bound"] == s.error_bound / s.squared_norm
    assert facts["singular_values"] == s.singular_values.tolist()
    assert json.loads(json.dumps(facts)) == facts


def test_facts_of_rows_whose_squares_leave_the_range():
    s = fresh().update(np.ldexp(ROWS, 1000))
    assert s.facts()["squared_norm"] == np.inf
    assert np.isfinite(s.facts()["singular_values"]).all()


def test_no_rows():
    s = fresh()
    assert (s.n_rows, s.n_features, s.dtype, s.mean, s.squared_norm, s.error_bound, s.alpha) == (
        0,
        None,
        None,
        None,
        0.0,
        0.0,
        0.0,
    )
    with pytest.raises(ValueError, match="no rows"):
        s.sketch()
    s.update(np.empty((0, 7)))
    assert (s.n_rows, s.n_features) == (0, 7)
    assert s.sketch().shape == (0, 7)
    with pytest.raises(ValueError, match="7 columns"):
        s.update(np.ones(8))


NAN_ROW = np.vstack([ROWS, ROWS[:1] * np.nan, ROWS])
BAD_ROWS = {
    "nan": (NAN_ROW, ValueError, "row 70 "),
    "inf": (np.vstack([ROWS, ROWS[:1] * np.inf]), ValueError, "row 70 "),
    "late nan in many slices": (np.vstack([ROWS] * 30 + [NAN_ROW]), ValueError, "row 2170 "),
    "sparse nan": (
        sparse.csr_array(np.nan_to_num(NAN_ROW, nan=np.nan) * (np.arange(141) == 70)[:, None]),
        ValueError,
        "row 70 ",
    ),
    "wrong width": (np.ones((3, 11)), ValueError, "12 columns"),
    "wrong width, one row": (np.ones(13), ValueError, "12 columns"),
    "three dimensions": (np.ones((2, 3, 12)), ValueError, "dimension"),
    "scalar": (3.0, ValueError, "dimension"),
    "complex": (ROWS + 1j, TypeError, "real numbers"),
    "object": (ROWS.astype(object), TypeError, "real numbers"),
    "text": (ROWS.astype(str), TypeError, "real numbers"),
    "dates": (np.zeros((2, 12), "M8[s]"), TypeError, "real numbers"),
    "dicts": ([{"city": "Rome", "age": 3}], TypeError, "got dicts, as the online learners take rows: DictVectorizer"),
    "ragged": ([[1.0] * 12, [2.0]], ValueError, "rectangular"),
    "masked": (np.ma.masked_less(ROWS, 0), TypeError, "masked"),
    "a generator": ((row for row in ROWS), TypeError, r"must be an array, not a generator: np\.array\(list"),
    "None": (None, (TypeError, ValueError), "rows"),
    "a string": ("rows", (TypeError, ValueError), "rows"),
    "no columns": (np.empty((3, 0)), ValueError, "at least one column"),
    "sparse complex": (sparse.csr_array(ROWS + 1j), TypeError, "real numbers"),
    "sparse width": (sparse.csr_array(np.ones((2, 5))), ValueError, "12 columns"),
    "one-dimensional sparse": (sparse.coo_array(np.ones(12)), ValueError, "two-dimensional"),
    "sparse index out of range": (None, ValueError, "column index"),
}


def bad_rows(name):
    if name == "sparse index out of range":
        rows = sparse.csr_array(np.ones((2, 12)))
        rows.indices[3] = 99
        return rows
    return BAD_ROWS[name][0]


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("name", BAD_ROWS)
def test_bad_rows_are_refused_and_change_nothing(name, kind):
    start = sparse.csr_array(ROWS * (np.abs(ROWS) > 1.8)) if kind == "sparse" else ROWS
    s = fresh(center=True).update(start)
    assert s._engine.kind == kind
    before = s.to_bytes()
    _, error, message = BAD_ROWS[name]
    with pytest.raises(error, match=message) as caught:
        s.update(bad_rows(name))
    assert str(caught.value).startswith("rows ")
    assert s.to_bytes() == before
    s.update(ROWS)  # and it works on


@pytest.mark.parametrize("name", [name for name in BAD_ROWS if "width" not in name])
def test_a_refused_first_batch_leaves_the_sketch_empty(name):
    s = fresh()
    with pytest.raises((TypeError, ValueError)):
        s.update(bad_rows(name))
    assert (s.n_rows, s.n_features) == (0, None)
    s.update(np.ones((2, 3)))
    assert s.n_features == 3


def test_overflow_in_conversion_is_named():
    with pytest.raises(ValueError, match=r"row 1 .*float32"):
        fresh(dtype="float32").update([[1.0, 2.0], [1e300, 1.0]])


@pytest.mark.parametrize(
    "weights, error",
    [
        ([-1.0] + [1.0] * 69, ValueError),
        ([np.nan] * 70, ValueError),
        ([np.inf] * 70, ValueError),
        ([1.0] * 69, ValueError),
        (np.ones((70, 1)), ValueError),
        (["a"] * 70, TypeError),
        (np.ones(70) * 1j, TypeError),
        (-2.0, ValueError),
        (np.ma.masked_less(np.ones(70), 0), TypeError),
        ([[1.0], [1.0, 2.0]], ValueError),
    ],
)
def test_bad_weights(weights, error):
    s = fresh().update(ROWS)
    before = s.to_bytes()
    with pytest.raises(error, match="^sample_weight"):
        s.update(ROWS, weights)
    assert s.to_bytes() == before


def test_one_weight_for_all_rows():
    assert same_state(fresh().update(ROWS, 4.0), fresh().update(ROWS, np.full(70, 4.0)))
    assert np.isclose(fresh().update(ROWS, 4.0).squared_norm, 4 * (ROWS**2).sum())
    assert fresh().update(ROWS, 0.0).squared_norm == 0.0


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"sketch_size": 1}, ValueError, "sketch_size must be at least 2, got 1"),
        ({"sketch_size": 2.5}, TypeError, "sketch_size"),
        ({"sketch_size": "8"}, TypeError, "sketch_size"),
        ({"sketch_size": True}, TypeError, "sketch_size"),
        ({"sketch_size": None}, TypeError, "sketch_size"),
        ({"method": "nope"}, ValueError, "method"),
        ({"method": None}, TypeError, "method"),
        ({"beta": 0.5}, ValueError, "beta"),
        ({"method": "pfd", "beta": 1.5}, ValueError, "beta"),
        ({"method": "pfd", "beta": np.nan}, ValueError, "beta"),
        ({"method": "fd", "alpha0": 1.0}, ValueError, "alpha0"),
        ({"method": "rfd", "alpha0": -1.0}, ValueError, "alpha0"),
        ({"method": "rfd", "alpha0": np.inf}, ValueError, "alpha0"),
        ({"buffer_size": -1}, ValueError, "buffer_size"),
        ({"center": True, "buffer_size": 0}, ValueError, "buffer_size"),
        ({"solver": "lu"}, ValueError, "solver"),
        ({"center": 1}, TypeError, "center"),
        ({"decay": 0.0}, ValueError, "decay"),
        ({"decay": 1.1}, ValueError, "decay"),
        ({"decay": "1"}, TypeError, "decay"),
        ({"dtype": int}, ValueError, "dtype"),
        ({"dtype": "nope"}, TypeError, "dtype"),
        ({"tolerance": 0.0}, ValueError, "tolerance"),
        ({"tolerance": 1.0}, ValueError, "tolerance"),
        ({"tolerance": -0.1}, ValueError, "tolerance"),
        ({"tolerance": np.nan}, ValueError, "tolerance"),
        ({"tolerance": "0.1"}, TypeError, "tolerance"),
        ({"tolerance": 0.1, "tolerance_relative_to": "trace"}, ValueError, "tolerance_relative_to"),
        ({"tolerance": 0.1, "max_sketch_size": 1}, ValueError, "max_sketch_size"),
        ({"tolerance": 0.1, "max_sketch_size": 4}, ValueError, "max_sketch_size must be at least sketch_size=5"),
        ({"max_sketch_size": 10}, ValueError, "max_sketch_size belongs to tolerance"),
        ({"tolerance": 0.1, "compressor": "srht"}, ValueError, "tolerance does not go with a compressor"),
    ],
)
def test_bad_parameters(options, error, message):
    with pytest.raises(error, match=message):
        fs.FrequentDirections(**{"sketch_size": 5, **options})


def test_bad_merges():
    s = fresh().update(ROWS)
    before = s.to_bytes()
    others = {
        "tolerance": fresh(tolerance=0.1),
        "method": fresh(method="fd"),
        "solver": fresh(solver="svd"),
        "center": fresh(center=True),
        "decay": fresh(decay=0.5),
        "buffer_size": fresh(buffer_size=3),
        "n_features": fresh().update(np.ones((2, 5))),
        "dtype": fresh().update(ROWS.astype(np.float32)),
    }
    for name, other in others.items():
        with pytest.raises(ValueError, match=name):
            s.merge(other)
    for other in (None, ROWS, "sketch"):
        with pytest.raises(TypeError, match="^other"):
            s.merge(other)
    with pytest.raises(ValueError, match="at least one"):
        fs.merge([])
    with pytest.raises(TypeError):
        fs.merge([ROWS])
    assert s.to_bytes() == before


def test_both_classes_of_robust_sketches_merge():
    one, two = fresh().update(ROWS), fs.RobustFrequentDirections(5, solver="gram").update(ROWS)
    assert one.copy().merge(two).n_rows == two.copy().merge(one).n_rows == 140
    assert np.array_equal(one.copy().merge(two).sketch(), two.copy().merge(one).sketch())
    assert type(two.copy()) is type(fs.from_bytes(two.to_bytes())) is fs.RobustFrequentDirections
    with pytest.raises(ValueError, match="other has method='fd', this model has 'rfd'"):
        two.merge(fresh(method="fd").update(ROWS))
    implied, given = (fresh(method="pfd", beta=beta).update(ROWS) for beta in (None, 0.2))
    assert implied.merge(given).n_rows == 140


def test_merging_leaves_the_arguments_alone():
    a, b = fresh().update(ROWS), fresh().update(ROWS[:20])
    before = a.to_bytes(), b.to_bytes()
    merged = fs.merge([a, b, fresh()])
    assert (a.to_bytes(), b.to_bytes()) == before
    assert merged.n_rows == 90
    assert same_state(fresh().merge(b), b)
    doubled = a.copy().merge(a)
    assert doubled.n_rows == 140


def test_reading_never_changes_the_state():
    s = fresh(center=True, method="rfd").update(ROWS)
    before = s.to_bytes()
    s.sketch()[:] = 0
    s.components[:] = 0
    s.mean[:] = 0
    _ = (s.alpha, s.error_bound, s.singular_values, s.gram(), s.squared_norm, s.operator(), s.solve(np.ones(12)))
    assert s.to_bytes() == before
    assert s.sketch().any()
    assert repr(s) == "<FrequentDirections(sketch_size=5, solver='gram', center=True): 70 rows of 12 features>"


@pytest.mark.parametrize("method", METHODS)
def test_operators(method):
    from scipy.sparse.linalg import cg

    options = {"alpha0": 0.3} if method == "rfd" else {}
    s = fresh(method=method, **options).update(stream("signal", RNG, 200, 30))
    alpha = s.alpha or 0.5
    b = s.sketch()
    dense = b.T @ b + alpha * np.eye(30)
    op = s.operator(alpha=alpha)
    inverse = s.operator(inverse=True, alpha=alpha)
    v, block = RNG.standard_normal(30), RNG.standard_normal((30, 4))
    assert np.allclose(op @ v, dense @ v)
    assert np.allclose(op @ block, dense @ block)
    assert np.allclose(op.T @ v, dense @ v)
    assert np.allclose(inverse @ v, np.linalg.solve(dense, v))
    assert np.allclose(s.solve(block, alpha=alpha), np.linalg.solve(dense, block))
    x, info = cg(dense, v, M=inverse, rtol=1e-10, maxiter=3)
    assert info == 0
    assert np.allclose(dense @ x, v)
    if method == "rfd":
        assert np.allclose(s.gram(), dense)
        assert np.allclose(s.operator() @ s.solve(v), v)
    else:
        with pytest.raises(ValueError, match="alpha must be positive"):
            s.solve(v)
        with pytest.raises(ValueError, match="alpha"):
            s.operator(inverse=True)
    for bad in (np.ones(29), np.full(30, np.nan), "v", np.ones((2, 30, 2))):
        with pytest.raises((TypeError, ValueError), match="^v "):
            s.solve(bad, alpha=1.0)


def test_full_rank_sketch_inverts_without_alpha():
    s = fs.FrequentDirections(64).update(ROWS)
    assert np.allclose(ROWS.T @ ROWS @ s.solve(np.ones(12)), 1.0)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_copies_are_independent(kind):
    rows = sparse.csr_array(ROWS * (np.abs(ROWS) > 1.8)) if kind == "sparse" else ROWS
    s = fresh(center=True, decay=0.99).update(rows)
    twins = s.copy(), pickle.loads(pickle.dumps(s)), fs.from_bytes(s.to_bytes())
    before = s.to_bytes()
    for twin in twins:
        assert twin.to_bytes() == before
        twin.update(rows)
        assert twin.to_bytes() != before
    assert s.to_bytes() == before
    s.update(rows)
    assert {twin.to_bytes() for twin in twins} == {s.to_bytes()}


@pytest.mark.parametrize("kind", ["dense", "sparse", "exact"])
def test_an_interrupt_in_a_long_batch_undoes_it(kind, monkeypatch):
    rows = RNG.standard_normal((5000, 12)) * (RNG.random((5000, 12)) < (0.1 if kind == "sparse" else 1))
    start = sparse.csr_array(rows) if kind == "sparse" else rows
    s = fresh(solver="exact" if kind == "exact" else "gram", center=True).update(start[:50])
    before = s.to_bytes()
    engine, calls = type(s._engine), []
    original = engine.absorb

    def absorb(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        original(self, *args, **kwargs)

    monkeypatch.setattr(engine, "absorb", absorb)
    monkeypatch.setattr("fastsketch.sketching._engines._base.BUFFERS_PER_SLICE", 2)
    with pytest.raises(KeyboardInterrupt):
        s.update(start)
    monkeypatch.undo()
    assert s.to_bytes() == before
    s.update(start)
    assert s.to_bytes() == fresh(solver=s.solver, center=True).update(start[:50]).update(start).to_bytes()


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupt_beside_one_shrink_of_csr_rows(when, center, monkeypatch):
    """The kept rows are not copied for it: a batch is undone before the shrink, and in after it."""
    rows = sparse.csr_array(RNG.standard_normal((200, 300)) * (RNG.random((200, 300)) < 0.1))
    s = fresh(solver="gram", center=center).update(rows[:20])
    engine, before = type(s._engine), s.to_bytes()
    room, capacity = s._engine.room(), s._engine.capacity
    original = engine.absorb

    def absorb(self, *args, **kwargs):
        if when == "after":
            original(self, *args, **kwargs)
        raise KeyboardInterrupt

    def no_copy(self, rows):
        saved = save(self, rows)
        assert "z" not in saved
        return saved

    save = engine.saved_from
    for n in (room, room + 1, capacity - 1):
        s, whole = fs.from_bytes(before), fs.from_bytes(before).update(rows[:n]).to_bytes()
        monkeypatch.setattr(engine, "absorb", absorb)
        monkeypatch.setattr(engine, "saved_from", no_copy)
        with pytest.raises(KeyboardInterrupt):
            s.update(rows[:n])
        monkeypatch.undo()
        assert s.to_bytes() == (before if when == "before" else whole)


def test_a_shrink_of_csr_rows_that_fails_is_undone_without_a_copy():
    rows = sparse.csr_array(RNG.standard_normal((30, 300)) * (RNG.random((30, 300)) < 0.1))
    s = fresh(solver="gram", center=True).update(rows).update(rows)
    for n in (30, s._engine.room()):
        before = s.to_bytes()
        with pytest.raises(np.linalg.LinAlgError):
            for _ in range(4):
                before = s.to_bytes()
                s.update(rows[: min(n, 30)], sample_weight=1e308)
        assert s.to_bytes() == before


def test_too_large_for_lapack_is_said_before_anything_is_allocated():
    with pytest.raises(ValueError, match="sketch_size"):
        fs.FrequentDirections(40_000, solver="gram").update(np.ones((1, 10)))
