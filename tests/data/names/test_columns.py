"""Names to columns: what rows may hold, order of first appearance, refused batches, and the hash of names."""

import itertools
import re
from collections import ChainMap, OrderedDict
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from fastsketch._kernels.features import names as kernel
from fastsketch.data.names._naming import HashedNames, NameTable, as_list, is_named

NAMES = st.text(st.characters(codec="utf-8"), max_size=6)
VALUES = st.one_of(st.floats(-1e6, 1e6), st.integers(-1000, 1000), st.booleans(), NAMES)
ROWS = st.lists(st.one_of(st.dictionaries(NAMES, VALUES), st.lists(st.tuples(NAMES, VALUES) | NAMES)), min_size=1)


def encode(naming, rows, **options):
    """Encode rows of named features as a CSR matrix with a NameTable or HashedNames."""
    indptr, indices, data = naming.parts(as_list(rows), **options)
    return sparse.csr_array((data, indices, indptr), shape=(len(indptr) - 1, naming.width or len(naming)))


def table_of(*names):
    table = NameTable()
    table.add(names)
    return table


def reference(rows):
    """[{name: sum}] in plain Python, and the names in order of first appearance."""
    out, seen = [], {}
    for row in rows:
        sums = {}
        for item in row.items() if hasattr(row, "items") else row:
            name, value = (item, 1.0) if isinstance(item, str) else item
            if isinstance(value, str):
                name, value = f"{name}={value}", 1.0
            seen.setdefault(name, len(seen))
            sums[name] = sums.get(name, 0.0) + float(value)
        out.append({name: value for name, value in sums.items() if value})
    return out, list(seen)


def by_name(matrix, names):
    """[{name: value}] of CSR rows."""
    out = []
    for start, stop in itertools.pairwise(matrix.indptr.tolist()):
        out.append({names[j]: v for j, v in zip(matrix.indices[start:stop], matrix.data[start:stop], strict=True)})
    return out


@given(ROWS)
def test_vocabulary_is_the_plain_one(rows):
    vocabulary = NameTable()
    found = encode(vocabulary, rows)
    expected, names = reference(rows)
    assert list(vocabulary.columns) == names and [vocabulary.columns[name] for name in names] == list(range(len(names)))
    assert by_name(found, names) == expected
    assert all((np.diff(found.indices[a:b]) > 0).all() for a, b in itertools.pairwise(found.indptr))


@given(ROWS, st.integers(0, 5))
def test_splits_give_the_same_columns(rows, cut):
    whole, parts = NameTable(), NameTable()
    at_once = encode(whole, rows)
    pieces = [encode(parts, part) for part in (rows[:cut], rows[cut:])]
    assert list(whole.columns) == list(parts.columns)
    assert np.array_equal(np.concatenate([p.data for p in pieces]), at_once.data)
    assert np.array_equal(np.concatenate([p.indices for p in pieces]), at_once.indices)


@pytest.fixture(scope="module")
def hasher():
    return pytest.importorskip("sklearn.feature_extraction").FeatureHasher(2**5, input_type="pair")


@given(rows=ROWS)
def test_hash_is_scikit_learns(hasher, rows):
    pairs = [[p for p in (row.items() if hasattr(row, "items") else row)] for row in rows]
    pairs = [[(p, 1.0) if isinstance(p, str) else p for p in row] for row in pairs]
    expected = hasher.transform([[(n, v if isinstance(v, str) else float(v)) for n, v in row] for row in pairs])
    found = encode(HashedNames(5), rows)
    # sums of one column's values in another order
    np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize(
    ("text", "seed", "expected"),
    [
        (b"", 0, 0),
        (b"", 1, 0x514E28B7),
        (b"", 0xFFFFFFFF, 0x81F16F39),
        (b"\xff\xff\xff\xff", 0, 0x76293B50),
        (b"\x21\x43\x65\x87", 0, 0xF55B516B),
        (b"\x21\x43\x65", 0, 0x7E4A8634),
        (b"\x21\x43", 0, 0xA0F7B07A),
        (b"\x21", 0, 0x72661CF4),
        (b"\0\0\0\0", 0, 0x2362F9DE),
        (b"test", 0x9747B28C, 0x704B81DC),
        (b"Hello, world!", 0x9747B28C, 0x24884CBA),
        (b"The quick brown fox jumps over the lazy dog", 0x9747B28C, 0x2FA826CD),
    ],
)
def test_vectors_of_the_hash(text, seed, expected):
    assert kernel.murmur3(text, seed) == expected


def test_hash_of_short_and_long_names():
    """ "name=word" is hashed in a small space without a string, or as a string: the same."""
    for n in (1, 250, 509, 510, 511, 512, 2000):
        name, word = "n" * n, "wö" * n
        assert (encode(HashedNames(20), [{name: word}]) != encode(HashedNames(20), [[f"{name}={word}"]])).nnz == 0


def test_forms_of_rows():
    expected = encode(NameTable(), [{"a": 1.0, "b": "x"}]).toarray()
    same = [
        {"a": True, "b": "x"},
        OrderedDict(a=1, b="x"),
        MappingProxyType({"a": np.float32(1), "b": np.str_("x")}),
        [("a", np.int8(1)), ("b", "x")],
        (["a", Fraction(1)], "b=x"),
        [("a", np.bool_(True)), ("b", "x"), ("c", 0), ("a", 2), ("a", -2)][:2],
    ]
    for row in same:
        assert is_named([row]) and np.array_equal(encode(NameTable(), [row]).toarray(), expected), row
    assert np.array_equal(encode(NameTable(), {"a": 1, "b": "x"}).toarray(), expected)
    assert encode(NameTable(), np.array([{"a": 1}], object)).toarray() == [[1.0]]
    assert encode(NameTable(), [ChainMap({"a": 1})]).toarray() == [[1.0]]
    assert encode(NameTable(), []).shape == (0, 0)


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([[1.0, 2.0]], False),
        ([1.0, 2.0], False),
        (np.ones((2, 2)), False),
        ([[]], False),
        ([], False),
        ([[], [("a", 1)]], True),
        ([{}], True),
        ({}, True),
        ([["a"]], True),
        ([("a", 1.0)], True),  # a row of names, whose second entry is refused
        (["a"], False),
        ([[[1, 2]]], False),
        (None, False),
        (sparse.dok_matrix((1, 2)), False),  # a dict in its own eyes
        (sparse.dok_array((1, 2)), False),
    ],
)
def test_what_is_named(rows, named):
    assert is_named(rows) is named


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([{"a": 1}, {"age": None}], ValueError, r"row 1: the value of 'age' is missing \(None\)"),
        ([{"age": float("nan")}], ValueError, r"row 0: the value of 'age' is missing \(nan\)"),
        ([{"age": np.float32("nan")}], ValueError, r"'age' is missing"),
        ([{"age": float("-inf")}], ValueError, "'age' must be finite, got -inf"),
        ([{"age": 10**400}], ValueError, "'age' is beyond the range"),
        ([{"age": [1]}], TypeError, r"'age' must be a number or a string, got \[1\]"),
        ([{"age": b"x"}], TypeError, "'age' must be a number or a string"),
        ([{"age": 1j}], TypeError, "'age' must be a number or a string"),
        ([{7: 1.0}], TypeError, "row 0: names of features must be strings, got 7"),
        ([[("a", 1.0, 2.0)]], TypeError, "must be names or pairs"),
        ([("a", 1.0)], TypeError, "one row of pairs is a list in a list"),
        ([{"a": 1}, 5], TypeError, "row 1 must be a dict, or a list of names or pairs, got int"),
        ([{"a": 1}, "b"], TypeError, "row 1 must be a dict"),
        ([{"a\ud800": 1}], ValueError, "row 0 has the feature .* no Unicode text"),
        ([{"a": "\udfff"}], ValueError, "no Unicode text"),
        ([[("a", 1e308), ("a", 1e308)]], ValueError, "row 0: values of one feature add up beyond"),
        (7, TypeError, "rows must be a dict"),
    ],
)
def test_refused_rows_leave_the_vocabulary(rows, error, message):
    vocabulary = table_of("x", "a=b")
    encode(vocabulary, [{"a": "b"}])
    if isinstance(rows, list):  # after a row with new names
        message = re.sub(r"row (\d)", lambda found: f"row {int(found[1]) + 1}", message)
        rows = [{"new": 1, "more": "word"}, *rows]
    with pytest.raises(error, match=message):
        encode(vocabulary, rows)
    assert list(vocabulary.columns) == ["x", "a=b"]
    assert encode(vocabulary, [{"more": "word"}]).indices.tolist() == [2]
    with pytest.raises(error, match=message):
        encode(HashedNames(4), rows)


def test_unknown_names_are_ignored_or_added():
    table = table_of("a")
    rows = [{"a": 1}, {"a": 2, "b": "x"}]
    assert encode(table, rows, add=False).toarray().tolist() == [[1.0], [2.0]]
    assert encode(table, rows).shape == (2, 2)


def test_an_interrupted_batch_leaves_no_names():
    class Interrupting(Fraction):
        def __float__(self):
            raise KeyboardInterrupt

    vocabulary = table_of("a")
    with pytest.raises(KeyboardInterrupt):
        encode(vocabulary, [{"b": 1}, {"c": "d"}, {"e": Interrupting(1)}])
    assert list(vocabulary.columns) == ["a"]
    assert encode(vocabulary, [{"c": "d"}]).indices.tolist() == [1]


@pytest.mark.parametrize("grow", [dict, list])
def test_rows_that_change_while_they_are_read(grow):
    """The kernel has room for what a row held when it was counted."""
    row = {"a": None} if grow is dict else [None]

    class Growing(Fraction):
        def __float__(self):
            if grow is dict:
                row.update({f"n{i}": 1 for i in range(1000)})
            else:
                row.extend(f"n{i}" for i in range(1000))
            return 1.0

    if grow is dict:
        row["a"] = Growing(1)
    else:
        row[0] = ("a", Growing(1))
    vocabulary = NameTable()
    with pytest.raises(RuntimeError, match="changed"):
        encode(vocabulary, [row])
    assert len(vocabulary) == 0


def test_arrays():
    names = NameTable()
    names.add(["", "a\nb\0", "naïve=Zürich", "日本"])
    good = names.arrays()
    assert NameTable.of_arrays(good).columns == names.columns
    assert NameTable.of_arrays(NameTable().arrays()).columns == {}
    for broken in (
        {"name_ends": good["name_ends"][::-1].copy()},
        {"name_ends": good["name_ends"] - 1},
        {"name_ends": good["name_ends"].astype(np.int32)},
        {"name_ends": np.zeros(0, np.int64)},
        {"names": good["names"][:-1]},
        {"names": np.full_like(good["names"], 255)},
        {"names": good["names"].astype(np.int64)},
        {"name_ends": np.zeros((2, 2), np.int64)},
        {"name_ends": np.array([0, 0, 5, 31])},  # one name twice
        {"name_ends": np.array([-5, 5, 19, 25])},
    ):
        with pytest.raises(ValueError):
            NameTable.of_arrays({**good, **broken})


def test_names_must_be_different():
    with pytest.raises(ValueError, match="twice"):
        table_of("a", "a")
