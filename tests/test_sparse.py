"""The door for sparse matrices: what is not consistent is refused, flags are not believed, good arrays not copied."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch._core.sparse import as_csr
from tests.broken import BROKEN, LYING, whole
from tests.helpers import papers

KINDS = ("csr", "csc", "coo", "bsr", "lil", "dok", "dia")


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("numbered", [False, True])
def test_what_is_not_consistent_is_refused_by_name(name, numbered):
    if numbered and not name.startswith(("csr", "csc", "coo")):
        return
    with pytest.raises(ValueError, match=r"^rows is not a consistent \w+ matrix: .") as caught:
        as_csr(BROKEN[name](), "rows", numbered=numbered)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_places_of_values(kind):
    made = whole(kind)
    values = made.data.copy()
    found = as_csr(made, "rows", sum_duplicates=False, numbered=True)
    assert np.array_equal(made.data, values) and np.array_equal(made.data[found.data], whole("csr").data)


@pytest.mark.parametrize("name", BROKEN)
def test_update_refuses_it_and_stays_as_it_was(name):
    model = fs.FrequentDirections(5, solver="gram").update(whole())
    before = model.to_bytes()
    with pytest.raises(ValueError, match="consistent"):
        model.update(BROKEN[name]())
    assert model.to_bytes() == before


@pytest.mark.parametrize("name", LYING)
def test_flags_are_not_believed(name):
    made = LYING[name]()
    dense = np.zeros(made.shape)
    np.add.at(dense, (np.repeat(np.arange(made.shape[0]), np.diff(made.indptr)), made.indices), made.data)
    before = made.indices.copy()
    found = as_csr(made, "rows")
    assert np.array_equal(found.toarray(), dense) and found.nnz == np.count_nonzero(dense)
    assert (np.diff(found.indices.reshape(len(dense), -1)) > 0).all()
    assert np.array_equal(made.indices, before)
    got = fs.FrequentDirections(5, solver="gram").update(made)
    assert got.to_bytes() == fs.FrequentDirections(5, solver="gram").update(sparse.csr_array(dense)).to_bytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(40, 12), (1, 1), (0, 12), (3, 0), (1, 300)])
def test_every_format_is_what_it_was(kind, shape):
    rng = np.random.default_rng(0)
    dense = np.where(rng.random(shape) < 0.3, rng.standard_normal(shape), 0.0)
    for make in (getattr(sparse, f"{kind}_array"), getattr(sparse, f"{kind}_matrix")):
        found = as_csr(make(dense), "rows")
        assert found.format == "csr" and np.array_equal(found.toarray(), dense)


def test_plain_csr_is_not_copied():
    for index in (np.int32, np.int64):
        good = whole(index=index)
        assert as_csr(good, "rows") is good


def test_what_is_left_over_is_not_seen():
    good = whole()
    longer = whole()
    longer.indices, longer.data = np.append(longer.indices, -7), np.append(longer.data, np.nan)
    found = as_csr(longer, "rows")
    assert len(found.data) == len(found.indices) == good.nnz
    fs.FrequentDirections(5, solver="gram").update(longer)
    one, other = (fs.LowRankModel(2).fit(x).factors() for x in (longer, good))
    assert np.array_equal(one[0], other[0]) and np.array_equal(one[1], other[1])


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("dtype", ["u4", "u8", ">i4", ">i8", "i2", "u1", "mixed", "strided", "read-only"])
def test_other_integers_serve(kind, dtype):
    odd, good = whole(kind), whole(kind).toarray()
    if dtype == "mixed":
        odd.indices = odd.indices.astype(np.int64)
    elif dtype == "strided":
        odd.indices, odd.indptr = np.repeat(odd.indices, 2)[::2], odd.indptr[::-1].copy()[::-1]
    elif dtype == "read-only":
        odd.indices.flags.writeable = odd.indptr.flags.writeable = odd.data.flags.writeable = False
    else:
        odd.indices, odd.indptr = odd.indices.astype(dtype), odd.indptr.astype(dtype)
    assert np.array_equal(as_csr(odd, "rows").toarray(), good)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr"])
@pytest.mark.parametrize("dtype", [">f8", ">f4", "f2", "i1", ">u2", "?", "g"])
def test_other_numbers_serve(kind, dtype):
    odd = whole(kind)
    odd.data = odd.data.astype(dtype)
    found = as_csr(odd, "rows")
    assert found.dtype.isnative and np.array_equal(found.toarray(), whole().toarray().astype(dtype))
    model = fs.FrequentDirections(5, solver="gram").update(odd)
    assert np.isclose(model.squared_norm, (found.toarray().astype(float) ** 2).sum())


def test_too_many_columns_are_refused():
    wide = sparse.csr_array((np.ones(1), np.array([2**40 - 1]), np.array([0, 1])), shape=(1, 2**40))
    for learn in (
        lambda: fs.FrequentDirections(5, solver="gram").update(wide),
        lambda: papers.SketchedNewton(5).update(wide, 1.0),
        lambda: papers.AdaptiveSubgradient(5).update(wide, 1.0),
        lambda: fs.LowRankModel(1).fit(wide),
    ):
        with pytest.raises(ValueError, match=r"2\*\*31 columns, got 1099511627776"):
            learn()


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_entries_that_are_stored_twice_are_refused_where_each_counts(kind):
    rows, columns = np.array([0, 3, 5, 3]), np.array([1, 2, 0, 2])
    twice = sparse.coo_array((np.ones(4), (rows, columns)), shape=(6, 3))
    if kind == "csr":
        twice = sparse.csr_array((np.ones(4), [1, 2, 2, 0], [0, 1, 1, 1, 3, 3, 4]), shape=(6, 3))
    elif kind == "csc":
        twice = sparse.csc_array((np.ones(4), [5, 0, 3, 3], [0, 1, 2, 4]), shape=(6, 3))
    twice.has_canonical_format = True
    with pytest.raises(ValueError, match=r"X holds entry \(3, 2\) more than once"):
        as_csr(twice, "X", sum_duplicates=False)


@pytest.mark.parametrize(
    ("dtype", "many", "then"), [("u1", 300, "i8"), ("i1", 200, "i8"), ("u4", 3, "u4"), ("?", 3, "?")]
)
@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_sums_of_small_integers_do_not_overflow(kind, dtype, many, then):
    rows = np.append(np.zeros(many, int), 1)
    counts = sparse.coo_array((np.ones(many + 1, dtype), (rows, rows)), shape=(2, 3))
    if kind != "coo":
        order = np.argsort(rows, kind="stable")
        make = sparse.csr_array if kind == "csr" else sparse.csc_array
        lines = 2 if kind == "csr" else 3
        indptr = np.searchsorted(rows[order], np.arange(lines + 1))
        counts = make((counts.data, rows[order], indptr), shape=(2, 3))
    found = as_csr(counts, "X")
    assert found.dtype == np.dtype(then)
    assert found.toarray().tolist() == [[1 if dtype == "?" else many, 0, 0], [0, 1, 0]]


def test_random_damage_is_found_or_harmless():
    """One value of indptr or indices changed: refused if and only if a plain loop in Python finds it out of place."""
    rng = np.random.default_rng(3)
    refused = 0
    for trial in range(2000):
        index = (np.int32, np.int64)[trial % 2]
        odd = whole(n=int(rng.integers(1, 30)), index=index)
        array = (odd.indptr, odd.indices)[int(rng.integers(2))]
        array[int(rng.integers(len(array)))] = rng.choice([-1, 0, 1, 2, 11, 12, len(odd.data), 2**31 - 1, -(2**31)])
        p, n = odd.indptr, len(odd.data)
        good = p[0] == 0 and all(a <= b for a, b in zip(p[:-1], p[1:], strict=True)) and p[-1] <= n
        good = good and all(0 <= j < 12 for j in odd.indices[: p[-1]])
        try:
            as_csr(odd, "rows")
            assert good, (p, odd.indices)
        except ValueError:
            assert not good, (p, odd.indices)
            refused += 1
    assert 500 < refused < 1900
