"""What Arrow's interfaces cannot vouch for: offsets, counts and nulls of tables in files, in memory, of any library."""

import numpy as np
import pytest

from fastsketch.data import SourceError, open_rows
from fastsketch.data.files._table import Dialect
from fastsketch.data.names import _three_columns
from tests.data.sources.foreign import Column, Table

pa = pytest.importorskip("pyarrow")

TOP = 2**63
ITEMS = np.arange(40.0)


def rows_of(x, **options):
    return np.concatenate([np.array(rows) for rows in open_rows(x, **options)])


# -- files and tables of pyarrow -----------------------------------------------------------------------------------
def lists_whose_offsets_wrap():
    """Lists of three whose inner offsets leave 64 bits, hidden by nulls; without full=True pyarrow lets them pass."""
    offsets = pa.array(np.array([0, 3, 6, TOP - 2, 1 - TOP, 12], np.int64)).buffers()[1]
    valid = pa.py_buffer(bytes([0b01011]))
    return pa.Array.from_buffers(pa.large_list(pa.float64()), 5, [valid, offsets], children=[pa.array(ITEMS)])


def as_file(t, folder):
    with pa.OSFile(str(folder / "x.arrow"), "wb") as file, pa.ipc.new_file(file, t.schema) as writer:
        writer.write_table(t)
    return folder / "x.arrow"


def as_stream(t, folder):
    with pa.OSFile(str(folder / "x.arrows"), "wb") as file, pa.ipc.new_stream(file, t.schema) as writer:
        writer.write_table(t)
    return folder / "x.arrows"


FORMS = [
    as_file,
    as_stream,
    lambda t, folder: t,
    lambda t, folder: t.to_batches()[0],
    lambda t, folder: t.to_reader(),
    lambda t, folder: pa.ipc.open_stream(as_stream(t, folder)),
]


@pytest.mark.parametrize("form", FORMS)
def test_inner_offsets_that_wrap_give_no_foreign_memory(form, tmp_path):
    t = pa.table({"x": lists_whose_offsets_wrap()})
    with pytest.raises(SourceError, match="damaged"):
        rows_of(form(t, tmp_path), fill=0.0)


def codes_without_entry():
    return pa.DictionaryArray.from_arrays(pa.array([0, 1 << 20, 1], pa.int32()), ["a", "b"], safe=False)


@pytest.mark.parametrize("form", FORMS[:4])
def test_codes_of_a_dictionary_are_not_followed_unseen(form, tmp_path):
    t = pa.table({"a": [1.0, 2.0, 3.0], "key": codes_without_entry()})
    with pytest.raises(SourceError, match="damaged"):
        list(open_rows(form(t, tmp_path), beside="key").chunks_beside())


def test_ids_that_are_codes_without_an_entry(tmp_path):
    t = pa.table({"user": codes_without_entry(), "item": ["a", "b", "c"]})
    with pytest.raises(SourceError, match=r"x\.arrow cannot be read"):
        _three_columns.of_file(as_file(t, tmp_path), None, Dialect())
    with pytest.raises(ValueError, match="out of bounds"):
        _three_columns.of_frame(t, None)


def test_names_of_columns_that_are_no_text(tmp_path):
    path = as_file(pa.table({"user": [1, 2], "item": [3, 4]}), tmp_path)
    path.write_bytes(path.read_bytes().replace(b"user", b"\xffser"))
    with pytest.raises(SourceError, match=r"x\.arrow cannot be read"):
        _three_columns.of_file(path, None, Dialect())


# -- tables of any library -----------------------------------------------------------------------------------------
def numbers(length=4, **counts):
    return Column(b"g", length, None, ITEMS, **counts)


def lists(offsets=(0, 3, 6, 9, 12), kind=b"+l", length=4, items=None, **counts):
    items = Column(b"g", 40, None, ITEMS) if items is None else items
    offsets = np.array(offsets, np.int32 if kind == b"+l" else np.int64)
    return Column(kind, length, None, offsets, children=[items], **counts)


def fixed(width=3, length=4, items=None, **counts):
    items = Column(b"g", 40, None, ITEMS) if items is None else items
    return Column(b"+w:%d" % width, length, None, children=[items], **counts)


def test_offsets_of_tables_columns_and_entries_add_up():
    t = Table(2, numbers(offset=1, length=5), fixed(2, 5, offset=2), lists(length=4, offset=0), offset=1)
    t.children[1].children[0].array.offset = 3
    expected = [[2, 9, 10, 3, 4, 5], [3, 11, 12, 6, 7, 8]]
    np.testing.assert_array_equal(rows_of(t), expected)


def broken(column, **fields):
    for name, value in fields.items():
        setattr(column.array, name, value)
    return column


FAULTS = {
    "fewer entries than rows": lambda: numbers(3),
    "a length below zero": lambda: numbers(-1),
    "a length of all addresses": lambda: fixed(3, TOP - 1),
    "an offset below zero": lambda: numbers(offset=-1),
    "an offset beyond memory": lambda: numbers(offset=TOP - 5),
    "one buffer of two": lambda: broken(numbers(), n_buffers=1),
    "no buffers": lambda: broken(numbers(), buffers=None),
    "no numbers": lambda: Column(b"g", 4, None, None),
    "offsets that wrap": lambda: lists([0, 3, TOP - 2, 1 - TOP, 12], b"+L"),
    "offsets that go back": lambda: lists([0, 3, 6, 3, 12]),
    "offsets below zero": lambda: lists([-3, 0, 3, 6, 9]),
    "offsets beyond the entries": lambda: lists([0, 38, 41, 44, 47]),
    "the first list beyond the entries": lambda: lists([38, 41, 44, 47, 50]),
    "no offsets": lambda: Column(b"+l", 4, None, None, children=[numbers()]),
    "lists of no entries": lambda: broken(lists(), n_children=0),
    "lists without children": lambda: broken(lists(), children=None),
    "fewer entries than lists of one length": lambda: fixed(11),
    "lists of one length that wrap": lambda: fixed(2**62),
    "lists longer than memory, of nothing": lambda: fixed(1 << 40, items=Column(b"n", 1 << 50)),
    "lists below zero": lambda: fixed(-3),
    "lists of a length that is none": lambda: Column(b"+w:x", 4, None, children=[numbers(40)]),
    "entries below zero": lambda: lists(items=numbers(-1)),
    "entries that begin below zero": lambda: lists(items=numbers(40, offset=-9)),
    "entries that begin beyond memory": lambda: fixed(items=numbers(40, offset=TOP - 41)),
    "entries without numbers": lambda: lists(items=Column(b"g", 40, None, None)),
    "entries of one buffer": lambda: lists(items=broken(numbers(40), n_buffers=1)),
    "codes of a dictionary": lambda: Column(b"i", 4, None, np.arange(4, dtype=np.int32), dictionary=numbers()),
    "runs": lambda: Column(b"+r", 4, children=[Column(b"i", 1, None, np.array([4], np.int32)), numbers()]),
    "unions": lambda: Column(b"+ud:0", 4, np.zeros(4, np.int8), np.arange(4, dtype=np.int32), children=[numbers()]),
    "lists of lists": lambda: lists(items=lists()),
    "decimals of any power": lambda: Column(b"d:5,9999", 4, None, np.zeros(8, np.int64)),
    "no type": lambda: Column(None, 4, None, ITEMS),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("before", [0, 1])
def test_what_a_library_says_of_its_arrays_is_not_believed(fault, before):
    t = Table(4, *([numbers()] * before), FAULTS[fault]())
    with pytest.raises(SourceError):
        rows_of(t)


def test_tables_that_are_none():
    for counts in ({"n_children": 2}, {"children": None}, {"length": -1}, {"offset": TOP - 2}, {"buffers": None}):
        with pytest.raises(SourceError):
            rows_of(broken(Table(4, numbers()), **counts))
    nulls = Table(4, numbers(), null_count=-1)
    valid = np.array([0b1011], np.uint8)
    nulls.array.buffers[0] = valid.ctypes.data
    with pytest.raises(SourceError, match="rows are null: row 2 is"):
        rows_of(nulls)
    valid[:] = 0b1111
    np.testing.assert_array_equal(rows_of(nulls), ITEMS[:4, None])
