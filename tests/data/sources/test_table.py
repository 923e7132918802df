"""Tables of numbers: what Python's own reader reads, in any blocks and parts; what is no table is named."""

import csv
import io
import os
import pickle
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastsketch as fs
from fastsketch.data import SourceError, Triples
from fastsketch.data.sources import _source, open_rows
from tests.data.sources.helpers import ROWS, all_rows, table

NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**30), 10**30).map(str),
    st.sampled_from(
        ["0", "-0", "1.", ".5", "+3", "1e5", "1E-5", "9007199254740993", "1e23", "4.9e-324", "0.1" + "0" * 40]
    ),
    st.sampled_from(["", "NA", "n/a", "NaN", "null", "None", "?"]),
)
WORDS = st.one_of(NUMBERS, st.text("ab ;\t'é", max_size=4), st.sampled_from(['"', 'a"b', "x,y"]))


def as_float(cell):
    text = cell.strip()
    return np.nan if text.lower() in ("", "na", "n/a", "nan", "null", "none", "?") else float(text)


def opened(tmp_path, text, **options):
    path = tmp_path / "a.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return open_rows(path, **options)


@given(st.data())
def test_as_python_reads_it(tmp_path_factory, data):
    width = data.draw(st.integers(1, 5), "width")
    numeric = data.draw(st.lists(st.booleans(), min_size=width, max_size=width).filter(any), "numeric")
    cells = st.tuples(*(NUMBERS if number else WORDS for number in numeric))
    rows = data.draw(st.lists(cells, min_size=1, max_size=20), "rows")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=data.draw(st.sampled_from(["\n", "\r\n"]), "end"))
    quoted = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow([f"c{k}" for k in range(width)])
    for row in rows:
        (quoted if data.draw(st.booleans(), "quoted") or not "".join(row).strip() else writer).writerow(row)
    text = out.getvalue()
    columns = [k for k in range(width) if numeric[k]]
    expected = np.array([[as_float(row[k]) for k in columns] for row in rows])
    path = tmp_path_factory.mktemp("t") / "a.csv"
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_source, "CHUNK_BYTES", data.draw(st.sampled_from([1, 200, 1 << 20]), "chunk"))
        source = open_rows(path, columns=columns, fill=-7.0, header=True)
        assert np.array_equal(all_rows(source), np.nan_to_num(expected, nan=-7.0))


BAD = [
    ("a,b\n1,2\n\n  \n3,x\n", r"line 5: column 2 \('b'\): 'x' is no finite decimal number"),
    ("a,b\n1,x\n", r"line 2: .* columns='numeric' \(--columns numeric\) leaves them out, columns= .* names others"),
    ("5,2\n3,0x10\n", "line 2: column 2: '0x10' is no finite"),
    ("5,2\n3,1_0\n", "line 2: column 2: '1_0' is no finite"),
    ("5,2\n3,inf\n", "line 2: column 2: 'inf' is no finite"),
    ("5,2\n3,1e\n", "line 2: column 2: '1e' is no finite"),
    ("5,2\n3,1 1\n", "line 2: column 2: '1 1' is no finite"),
    ("5,2\n3,2e400\n", "line 2: column 2: '2e400' is no finite"),
    ("a,b\n1,2\n3\n", "line 3: there are 1 columns, in the first line 2"),
    ("a,b\n1,2\n3,4,5\n", "line 3: there are 3 columns, in the first line 2"),
    ("a,b\n1,2\n3,4,\n", "line 3: there are 3 columns, in the first line 2"),
    ("a,b\n1,2\n3,4,5\n6\n", "line 3: there are 3 columns, in the first line 2"),
    ("a,b\n1,2\n6\n3,4,5\n", "line 3: there are 1 columns, in the first line 2"),
    ('a,b\n1,"2"\n"3,4\n', r"line 3: the quote that opens column 1 does not close .*multiline=True"),
    ('a,b\n1,2\n1,"2"x\n', "line 3: column 2 goes on after its closing quote"),
    ('a,b\n1,2\n1,2"\n', "line 3: column 2 holds a quote"),
    ("a,b\n1,2\n1,2\r3,4\n", "line 3: a carriage return within the line"),
    ("a\r1\n2\n", "line 1: a carriage return within the line"),
    ("a\0,b\n2,3\n", "line 1 holds a NUL byte"),
    ("a,a\n1,2\n", "two columns are called 'a'"),
    ("\n \n", "holds no rows"),
    (b"a,\xff\n1,2\n", "line 1 holds the byte 0xff, which is no UTF-8"),
    ("id,2019,2020\na7,1,2\n", r"line 2: column 1 \('id'\): 'a7' is no finite"),
    ("a,2020\n3,4\n", "line 1: .* nothing tells whether this is a header: say --set header=yes or --set header=no"),
    ("4.o,5.o\n1,2\n", "line 1: column 1: '4.o' is no finite"),
    ("anna,,\nbob,1,2\n", "line 1: .* nothing tells"),
    ("1,2,3\n2,3,4\n5,6,7\n", "line 1: '1', '2', '3': nothing tells whether this is a header"),
    ("x,y\n1,5%\n", r"line 2: column 2 \('y'\): '5%' is no finite decimal number but a percentage: take the percent"),
    ("x,y\n1,€ 5\n", "'€ 5' is .* an amount of money: take the currency away"),
    ("x,y\n1,31.01.2024 12:30\n", "'31.01.2024 12:30' is .* but a date or a time: leave the column out"),
    ('x,y\n1,"3,50"\n', r"'3,50' is .* but a number with a comma: --set decimal=, reads it .*decimal=','"),
    ('x,y\n1,"1,150"\n', r"a comma before three digits: --set thousands=, .* reads it if .*; if not, --set decimal=,"),
    ("x;y\n1;1.009,47\n", r"points and a comma: --set thousands=. --set decimal=, reads it"),
    ("x;y\n1;1.000.000\n", r"a number with separators: leave them out, or say which: --set thousands"),
    ("sep=;\nx;y\n1;2\n", "line 1: leave out 'sep=;', which Excel alone reads"),
    ("x,y\n1,2\n1,#N/A\n", r"'#N/A' is no .*: --set na_values=#N/A .* reads it as missing, and fill="),
    ("x,y\n1,1 234.5\n", "'1 234.5' is .* a number with separators: leave them out"),
    ("x,y,z\n1,a,b\n2,c,d\n", "line 2: .*columns that do not hold numbers alone: 'y', 'z': columns='numeric'"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
@pytest.mark.parametrize("chunk", [1, 1 << 20])
def test_what_is_no_table(tmp_path, monkeypatch, text, message, chunk):
    monkeypatch.setattr(_source, "CHUNK_BYTES", chunk)
    with pytest.raises(SourceError, match=rf"a\.csv.*{message}"):
        list(opened(tmp_path, text))


def test_parts_name_the_lines_of_the_file(tmp_path):
    text = table(ROWS) + b"1,2,3,4,5,x,7\n"
    parts = opened(tmp_path, text).parts(1000)
    assert len(parts) > 5
    with pytest.raises(SourceError, match=r"line 92: column 6 \('c5'\): 'x'"):
        list(pickle.loads(pickle.dumps(parts[-1])))
    assert parts[2].where(0).startswith(f"{tmp_path}/a.csv, line ")


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("5,2\n3,4\n", None, [[5, 2], [3, 4]]),
        ("a,b\n3,4\n", ("a", "b"), [[3, 4]]),
        (",b\n3,4\n", ("1", "b"), [[3, 4]]),
        ("NA,2\n3,4\n", None, [[-1, 2], [3, 4]]),
        ('"a b","c,d"\r\n1,2\r\n', ("a b", "c,d"), [[1, 2]]),
        ("\ufeffa;b\n1;2\n", ("a", "b"), [[1, 2]]),
        ("\ufeff1;2\n", None, [[1, 2]]),
        ("\n\na\n5\n", ("a",), [[5]]),
        ("a,b\n1,2", ("a", "b"), [[1, 2]]),
        ("a,b\n", ("a", "b"), np.empty((0, 2))),
    ],
)
def test_headers_are_recognised(tmp_path, text, names, rows):
    source = opened(tmp_path, text, fill=-1)
    assert source.feature_names == names
    assert np.array_equal(all_rows(source), rows)


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
@pytest.mark.parametrize("rows", [1, 20_000])
def test_a_header_of_numbers_that_stands_there_again_is_no_row(tmp_path, rows, end):
    """Files that were put together: near the beginning or far from it, and in the last line without a line end."""
    (tmp_path / "t.csv").write_bytes(b"0,1,2\n" + b"5,6.5,7\n" * rows + b"0,1,2" + end.encode())
    with pytest.raises(SourceError, match=f"t.csv, line {rows + 2}: the header stands there again: leave the line out"):
        list(open_rows(tmp_path / "t.csv", header=True))
    (tmp_path / "t.csv").write_bytes(b"0,1,2\n" + b"5,6.5,7\n" * rows + b"0,1,2.0" + end.encode())
    assert sum(len(part) for part in open_rows(tmp_path / "t.csv", header=True)) == rows + 1


def test_headers_as_it_is_said(tmp_path):
    assert opened(tmp_path, "1,2\n3,4\n", header=True).feature_names == ("1", "2")
    assert np.array_equal(all_rows(opened(tmp_path, "id,1\nb7,2\n", header=False, columns=[1])), [[1], [2]])


@pytest.mark.parametrize("beside", ["2003", ["2003"], ["2003", "2001"]])
def test_a_name_beside_the_rows_makes_the_first_line_a_header(tmp_path, beside):
    source = opened(tmp_path, "2001,2002,2003\n1,2,3\n4,5,6\n", beside=beside)
    ((rows, values, _),) = source.chunks_beside()
    assert source.feature_names == ("2001", "2002")[2 - rows.shape[1] :]
    assert rows[:, -1].tolist() == [2, 5] and np.ravel(values)[0] in (3, "3")


def test_a_column_beside_the_rows(tmp_path):
    source = opened(tmp_path, 'city,x,y\nParis,1,2\n"Ro""me",3,4\n ,5,6\n', beside="city")
    ((rows, values, _),) = source.chunks_beside()
    assert values.tolist() == ["Paris", 'Ro"me', None]
    assert rows.tolist() == [[1, 2], [3, 4], [5, 6]] and source.feature_names == ("x", "y")


def test_a_line_of_tabs_is_a_row_of_missing_numbers(tmp_path):
    (tmp_path / "a.tsv").write_text("1\t2\n\t\n \n\r\n3\t4\n\t \r\n5\tx\n")
    source = open_rows(tmp_path / "a.tsv", fill=-1, header=False, columns=[0])
    assert np.array_equal(all_rows(source), [[1], [-1], [3], [-1], [5]])
    with pytest.raises(SourceError, match=r"a\.tsv, line 2: .* row 1 holds a NaN"):
        list(open_rows(tmp_path / "a.tsv", header=False, columns=[0]))
    with pytest.raises(SourceError, match=r"a\.tsv, line 7: column 2: 'x'"):
        list(open_rows(tmp_path / "a.tsv", header=False, fill=0))


COMMA = {"decimal": ","}


@pytest.mark.parametrize("least", [1, 1 << 20])
@pytest.mark.parametrize(
    ("text", "options", "rows"),
    [
        ("a;b\n1,5;-2\n,5;1e-3\n", {"decimal": ","}, [[1.5, -2], [0.5, 0.001]]),
        (
            '"1,5",123456789012345678901,7\n" 0,1000000000000000055511",2,3\n',
            COMMA,
            [[1.5, 1.2345678901234568e20, 7], [0.1, 2, 3]],
        ),
        ('a,b\n"1,5",3\n" 2,25 ","x"\n', {"decimal": ",", "columns": ["a"]}, [[1.5], [2.25]]),
        ("a|b\n1|2\n", {"separator": "|"}, [[1, 2]]),
        ("5 2\n 3   4\n", {"separator": " "}, [[5, 2], [3, 4]]),
        # what needs a full conversion, and what has another separator in its names
        (
            "a;b\n0,1000000000000000055511151231257827;1,7976931348623157e308\n",
            {"decimal": ","},
            [[0.1, 1.7976931348623157e308]],
        ),
        ("Preis, netto;b\n1;2\n", {}, [[1, 2]]),
    ],
)
def test_dialects(tmp_path, monkeypatch, least, text, options, rows):
    monkeypatch.setattr(_source, "CHUNK_BYTES", least)
    source = opened(tmp_path, text, **options)
    assert np.array_equal(all_rows(source), rows)
    assert pickle.loads(pickle.dumps(source)).identity() == source.identity()


@pytest.mark.parametrize("least", [1, 1 << 20])
def test_all_columns_of_numbers(tmp_path, monkeypatch, least):
    monkeypatch.setattr(_source, "CHUNK_BYTES", least)
    with pytest.warns(UserWarning, match=r"a.csv: columns that hold no numbers are left out: 'id', 'when'"):
        source = opened(tmp_path, "id,x,when,y\na7,1,2024-01-31,\na8,NA,2024-02-01,3\n", columns="numeric", fill=0)
    assert all_rows(source).tolist() == [[1, 0], [0, 3]]
    with pytest.warns(UserWarning, match="left out: '2'"):
        source = opened(tmp_path, "1;2,5;x\n", columns="numeric", decimal=",", header=False)
    assert all_rows(source).tolist() == [[1, 2.5]]
    assert pickle.loads(pickle.dumps(source)).identity() == source.identity()


def test_points_and_commas_are_not_mixed(tmp_path):
    for text, message in (
        ("a;b\n1.5;2\n", "'1.5' is .* a number with a point: it is read without"),
        ("a;b\n1.000;0,5\n", "a point before three digits: --set thousands=. .*; if not, it is read without"),
        ("a;b\n0,5;1.009,47\n", "points and a comma: --set thousands=. --set decimal"),
        ("a,b\n1,5,2\n", "there are 3 columns"),
    ):
        with pytest.raises(SourceError, match=f"line 2: .*{message}"):
            list(opened(tmp_path, text, decimal=","))
    with pytest.raises(SourceError, match="has no columns of numbers: line 2: column 1 ..a..: .x. is no"):
        opened(tmp_path, "a,b\nx,y\n", columns="numeric")
    for options, message in (({"separator": "1"}, "separator must be"), ({"decimal": "x"}, "decimal must be")):
        with pytest.raises(ValueError, match=message):
            opened(tmp_path, "1,2\n", **options)


def test_a_stream_knows_its_first_two_lines(monkeypatch):
    for text, rows in (("a,b\n1,2\n", [[1, 2]]), ("5,2\n3,4\n", [[5, 2], [3, 4]])):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert np.array_equal(all_rows(open_rows("-")), rows)


@pytest.mark.parametrize("text", [b"a,a\n1,2\n", b'"a,b\n1,2\n', b"a,b\n1,2\n"])
def test_a_pipe_is_closed_where_it_is_refused(tmp_path, text):
    """It stayed open for as long as somebody held the error."""
    pipe, folder = tmp_path / "p.csv", Path("/proc/self/fd")
    if not folder.exists():
        pytest.skip("no /proc")
    os.mkfifo(pipe)
    feeder = threading.Thread(target=pipe.write_bytes, args=(text,))
    feeder.start()
    with pytest.raises(ValueError, match=r"p\.csv") as held:
        open_rows(pipe, columns=["z"])
    feeder.join()
    assert held.value and not [link for link in folder.iterdir() if link.resolve() == pipe]


@pytest.mark.parametrize(
    ("head", "row", "named"),
    [
        ("id,x\n", lambda k: f"{1000 + k},{k % 3}", "'id'"),
        (",x\n", lambda k: f"{k},{k % 3}", "'1'"),
        ("", lambda k: f"{k % 3}.5,{k}", "'1'"),
        ("user,item\n", lambda k: f"{k % 3:05d},{k % 4:03d}", "'user', 'item'"),
        ("x,y\n", lambda k: f"{k % 3},{k}.5", None),
    ],
)
def test_numbers_that_may_be_ids_are_told(tmp_path, caplog, head, row, named):
    caplog.set_level("INFO", "fastsketch")
    opened(tmp_path, head + "".join(f"{row(k)}\n" for k in range(30)))
    said = [record.getMessage() for record in caplog.records if "in every row" in record.getMessage()]
    assert [line.split("as numbers: ")[1] for line in said] == (
        [f"{named} (--columns names the others, columns=)"] if named else []
    )


def test_one_cell_in_twenty_may_be_a_mistake(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "1,2\n" * 19 + "x,2\n")
    with pytest.raises(SourceError, match="line 21: column 1 .'a'.: 'x'"):
        list(open_rows(path, columns="numeric"))
    path.write_text("a,b\n" + "1,2\n" * 18 + "x,2\n" * 2)
    with pytest.warns(UserWarning, match="no numbers are left out: 'a'"):
        assert list(open_rows(path, columns="numeric").feature_names) == ["b"]


def numbered(header, rows, sep=","):
    return sep.join(map(str, header)) + "\n" + "".join(sep.join(f"{v:.4f}" for v in row) + "\n" for row in rows)


MATRIX = np.random.default_rng(0).random((30, 8)).round(4)
SPECTRUM = [350.0, 351.5, 352.9, 354.1, 356.0, 357.7, 359.2, 361.0]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("d", [1, 2, 3, 8])
@pytest.mark.parametrize("first", [0, 1, 1998, "step", "wavelengths"])
def test_a_header_of_numbers_is_one(tmp_path, first, d, end):
    """pandas writes the numbers of the columns of a matrix without names; years and wavelengths are names, too."""
    header = {"step": range(10, 10 + 5 * d, 5), "wavelengths": SPECTRUM[:d]}.get(first) or range(first, first + d)
    if (first == "step" and d < 3) or (first == "wavelengths" and d < 6):
        return  # nothing tells it from a row
    source = opened(tmp_path, numbered(header, MATRIX[:, :d]).replace("\n", end))
    assert source.feature_names == tuple(map(str, header))
    assert np.array_equal(all_rows(source), MATRIX[:, :d])


def test_a_header_of_numbers_and_an_index(tmp_path):
    rows = np.column_stack([np.arange(30), MATRIX])
    source = opened(tmp_path, numbered(["", *range(8)], rows))
    assert np.array_equal(all_rows(source), rows) and source.feature_names[:2] == ("unnamed 1", "0")


@pytest.mark.parametrize(
    "text",
    [
        "5.1,3.5,1.4\n4.9,3.0,1.4\n",
        "1,0\n0,1\n1,0\n",  # the first row comes again
        "0,1\n1,0\n0,1\n1,1\n",
        "3,9,4,100000000\n5,8,1,100000001\n7,2,2,100000002\n",
        "1\n2\n1\n",
    ],
)
def test_rows_of_numbers_are_no_header(tmp_path, text):
    source = opened(tmp_path, text)
    assert source.feature_names is None and len(all_rows(source)) == text.count("\n")


def test_a_table_without_header_whose_words_are_named(tmp_path):
    text = "5.1,3.5,setosa\n4.9,3.0,setosa\n6.3,3.3,virginica\n"
    with pytest.raises(SourceError, match=r"line 1: column 3: 'setosa' is no .*columns='numeric'"):
        all_rows(opened(tmp_path, text))
    with pytest.warns(UserWarning, match="left out: '2'"):
        assert all_rows(opened(tmp_path, text, columns="numeric")).shape == (3, 2)


def test_columns_that_fill_late_are_numbers(tmp_path):
    rows = [f"{i % 5},a,{'' if i < 20000 else i % 7},{'' if i < 20000 else 'x'},\n" for i in range(30000)]
    with pytest.warns(UserWarning, match="left out: 's1', 'word', 'empty'$"):
        source = opened(tmp_path, "x,s1,late,word,empty\n" + "".join(rows), columns="numeric", fill=-1.0)
    assert source.feature_names == ("x", "late")
    assert np.array_equal(all_rows(source)[:, 1], [-1.0 if i < 20000 else i % 7 for i in range(30000)])
    assert opened(tmp_path, "a,b\n1,\n2,\n3,5", columns="numeric").feature_names == ("a", "b")


@pytest.mark.parametrize("chunk", [60, 1 << 20])
def test_what_pandas_has_options_for(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(_source, "CHUNK_BYTES", chunk)
    rows = [[1234.5, -2.0], [-1.0, 7.0], [3.0, 4.0]]
    for text, options in (
        ('a,b\n"1,234.5",-2\n,7\n3,4\n', {"thousands": ","}),
        ("a;b\n1.234,5;-2\n;7\n3;4\n", {"thousands": ".", "decimal": ","}),
        ("# made by hand\na,b\n1234.5,-2\n# half\n,7\n3,4\n", {"comment": "#"}),
        ("a,b\n1234.5,-2\n-,7\n3,4\n", {"na_values": "-"}),
        ("a,b\n1234.5,-2\nN.A.,7\n3,4\n", {"na_values": ["n.a.", "#N/A"]}),
        ("a,b\r1234.5,-2\r,7\r3,4\r", {}),
    ):
        assert all_rows(opened(tmp_path, text, fill=-1.0, **options)).tolist() == rows, text
        source = opened(tmp_path, text * 1, fill=-1.0, **options)
        parts = [pickle.loads(pickle.dumps(part)) for part in source.parts(12)]
        assert np.concatenate([all_rows(part) for part in parts]).tolist() == rows, text
    text = 'a,b,note\n1234.5,-2,"two\nlines"\n,7,"and, ""one"""\n3,4,x\n'
    with pytest.raises(SourceError, match=r"line 2: the quote that opens column 3 .*--set multiline=yes"):
        all_rows(opened(tmp_path, text, columns=["a", "b"]))
    source = opened(tmp_path, text, beside="note", fill=-1.0, multiline=True)
    assert all_rows(source).tolist() == rows and len(source.parts(12)) == 1
    assert [value for _, values, _ in source.chunks_beside() for value in values] == ["two\nlines", 'and, "one"', "x"]
    with pytest.raises(SourceError, match=r"a\.csv, line 3: .* row 1 holds a NaN"):
        all_rows(opened(tmp_path, "a,b\n1,2\n,3\n"))


def test_bad_options(tmp_path):
    for options, message in (
        ({"thousands": "."}, "thousands must be one of"),
        ({"thousands": "x"}, "thousands must be one of"),
        ({"comment": ""}, "comment must be"),
        ({"multiline": 1}, "multiline must be True or False"),
        ({"na_values": [1]}, "na_values must be strings"),
    ):
        if options == {"thousands": "."}:
            options = {"thousands": ",", "decimal": ","}
        with pytest.raises((ValueError, TypeError), match=message):
            opened(tmp_path, "a,b\n1,2\n", **options)


@pytest.mark.parametrize("targets", ["y", ["y"], ["y", "z"]])
def test_the_decimal_comma_of_targets(tmp_path, targets):
    path = tmp_path / "d.csv"
    path.write_text("a;b;y;z\n" + "".join(f"{i},5;{i % 4},25;{i % 7},75;{i % 5},5\n" for i in range(60)))
    source = open_rows(path, columns=["a", "b"], beside=targets, decimal=",")
    ((_, values, _),) = source.chunks_beside()
    assert np.asarray(values, float).reshape(60, -1)[:, 0].tolist() == [i % 7 + 0.75 for i in range(60)]
    assert fs.SketchedRidge().update(source).n_rows == 60


def test_numbers_are_rounded_as_python_rounds_them(tmp_path):
    rng = np.random.default_rng(5)
    mantissas = rng.integers(-(2**62), 2**62, 20_000)
    texts = [f"{m}e{e}" for m, e in zip(mantissas, rng.integers(-330, 290, 20_000), strict=True)]
    texts += [f"{m / 2**k:.{k % 25}f}" for k, m in enumerate(mantissas.tolist()) for k in [k % 60]]
    texts += [repr(value) for value in rng.standard_normal(20_000).tolist()]
    texts += [f"{m}.{abs(int(n))}" for m, n in zip(mantissas[::-1], mantissas, strict=True)]
    rows = all_rows(opened(tmp_path, "x\n" + "\n".join(texts) + "\n"))
    assert rows[:, 0].tolist() == list(map(float, texts))


def test_many_columns_open_in_a_time_that_grows_as_their_number(tmp_path):
    """131,072 columns took 1.6 to 2 seconds; sixteen times as many as 8,192 would take 256 times as long by squares."""
    seconds = []
    for k in (8192, 131_072):
        path = tmp_path / f"{k}.csv"
        path.write_text(",".join(f"c{i}" for i in range(k)) + "\n" + (",".join(["1"] * k) + "\n") * 2)
        began = time.process_time()
        assert open_rows(path).n_features == k
        seconds.append(time.process_time() - began)
    assert seconds[1] < 64 * seconds[0]


@pytest.mark.parametrize("how", [{}, {"decimal": ","}, {"thousands": " "}, {"comment": "#"}])
@pytest.mark.parametrize("blank", ["", " ", "\t", " \t\r", "\x0b"])
@pytest.mark.parametrize("end", ["\n", "\r"])
def test_a_line_of_blanks_is_no_row_of_one_column(tmp_path, how, blank, end):
    path = tmp_path / "a.csv"
    path.write_bytes(f"x\n1\n{blank}\n15\n{blank}".replace("\n", end).encode())
    source = open_rows(path, separator=";", fill=0.0, **how)
    np.testing.assert_array_equal(np.concatenate(list(source)), [[1.0], [15.0]])


# What str.strip removes; float refuses the first four.
WHITESPACE = ["\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\xa0", "\u2003", "\x0b", "\x0c"]


@pytest.mark.parametrize("header", [None, True])
@pytest.mark.parametrize("blank", WHITESPACE, ids=ascii)
def test_whitespace_of_any_kind_around_numbers(tmp_path, blank, header):
    source = opened(tmp_path, f"a;b\n1;2\n{blank}3;4{blank}\n;{blank}5\n", separator=";", header=header, fill=0.0)
    np.testing.assert_array_equal(np.concatenate(list(source)), [[1.0, 2.0], [3.0, 4.0], [0.0, 5.0]])
    path = tmp_path / "events.csv"
    path.write_text(f"user,item,value\n{blank}u,i,{blank}2\nv{blank},j,3{blank}\nu,j,{blank}1\n", encoding="utf-8")
    events = Triples.of(path)
    assert list(events.user_ids) == ["u", "v"] and list(events.item_ids) == ["i", "j"]
    assert events.values.tolist() == [2.0, 3.0, 1.0]


def test_columns_of_folders_above_a_file_without_header_are_not_lost_in_silence(tmp_path):
    folder = tmp_path / "shop=a" / "year=2023"
    folder.mkdir(parents=True)
    (folder / "p.csv").write_text("1,2\n3,4\n")
    with pytest.warns(UserWarning, match="no header: the columns 'shop', 'year'"):
        assert open_rows(folder / "p.csv", header=False).n_features == 2


@pytest.mark.parametrize("first", ["1", '"1"', " 1"])  # read by polars, and by the loop in Python
def test_carriage_returns_and_blanks_at_the_end_of_a_line(tmp_path, first):
    source = opened(tmp_path, f"{first};2\r\n3;4\r \t\n5;6 \r\r\n", header=False, separator=";")
    np.testing.assert_array_equal(all_rows(source), [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    with pytest.raises(SourceError, match="line 2: a carriage return within the line"):
        all_rows(opened(tmp_path, f"{first};2\n3;\r4\n", header=False, separator=";"))


def test_quotes_in_files_whose_lines_end_in_a_carriage_return(tmp_path):
    with pytest.raises(SourceError, match="quote"):
        all_rows(opened(tmp_path, '""\r"', header=False, separator=",", fill=0.0))
    source = opened(tmp_path, 'a,b\r"1",2\r3,"4"\r', header=True, separator=",")
    np.testing.assert_array_equal(all_rows(source), [[1.0, 2.0], [3.0, 4.0]])


def test_an_event_beyond_doubles_is_named_by_its_line(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text("user,item,value\nu,i,2\nv,j,1e999\n")
    with pytest.raises(SourceError, match="line 3: column 3 .*'1e999' is no finite decimal number"):
        fs.SketchedEASE(2).update(path)


def test_names_of_columns_are_utf_8_wherever_the_header_is(tmp_path):
    for before, how in ((b"", {}), (b"\n\n\n", {}), (b"# by hand\n# 2\n# 3\n", {"comment": "#"})):
        line = 1 + before.count(b"\n")
        with pytest.raises(SourceError, match=f"line {line} holds the byte 0xe4, which is no UTF-8"):
            opened(tmp_path, before + b"Gr\xe4\xdfe;Wert\n1;2\n", header=True, **how)


@pytest.mark.parametrize(("text", "line"), [("x;y\n\ufeff3;4\n", 2), ("x;y\n1;2\n\ufeff3;4\n", 3)])
def test_a_byte_order_mark_within_a_file_is_part_of_its_cell(tmp_path, text, line):
    """As it comes about where files are joined."""
    with pytest.raises(SourceError, match=f"line {line}: column 1"):
        list(opened(tmp_path, text, header=True))
