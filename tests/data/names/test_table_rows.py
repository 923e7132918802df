"""Rows of tables in text: kinds of columns, missing cells, labels, resuming, and errors that name line and column."""

import gzip
import io
import sys

import numpy as np
import pytest

from fastsketch.data import SourceError
from fastsketch.data.files._table import Dialect
from fastsketch.data.names import TableRows, _table_rows
from fastsketch.data.names._events import read_events

TEXT = "age,city,n,buys\n31,Paris,1,yes\n44, Rome ,2,no\n,Rome,NaN,no\n 5e1,,4,yes\n"
ROWS = [
    {"age": 31.0, "city": "Paris", "n": 1.0},
    {"age": 44.0, "city": "Rome", "n": 2.0},
    {"age": "", "city": "Rome", "n": ""},
    {"age": 50.0, "city": "", "n": 4.0},
]


def table(tmp_path, text=TEXT, name="t.csv", **options):
    path = tmp_path / name
    content = text.encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return TableRows(path, **options)


def read(found, start=0):
    rows, labels = [], []
    for part, targets, position in found.chunks(start):
        assert 0 < position <= found.size and isinstance(part, list)
        rows += part
        labels += [] if targets is None else targets.tolist()
    return rows, labels


def test_a_table(tmp_path):
    found = table(tmp_path, label="buys")
    assert read(found) == (ROWS, ["yes", "no", "no", "yes"])
    assert found.schema == {
        "columns": {"age": "numeric", "city": "categorical", "n": "numeric"},
        "label": "buys",
        "label_kind": "categorical",
    }
    assert read(found) == read(found)  # as often as one likes
    assert read(table(tmp_path, label=3)) == read(found) and table(tmp_path, label=3).schema == found.schema
    assert read(table(tmp_path, label=3, ignore=[0, "n"]))[0] == [{"city": row["city"]} for row in ROWS]


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
@pytest.mark.parametrize("text", [TEXT, TEXT.replace(",", "\t"), TEXT.replace(",", ";"), TEXT.replace("\n", "\r\n")])
def test_forms_of_text(tmp_path, text, name):
    assert read(table(tmp_path, text, name, label="buys"))[0] == ROWS
    assert read(table(tmp_path, "\ufeff" + text, name, label="buys"))[0] == ROWS


@pytest.mark.parametrize("piece", [1, 2, 3, 4096])
@pytest.mark.parametrize("start", range(6))
def test_it_begins_again_at_a_row(tmp_path, monkeypatch, start, piece):
    monkeypatch.setattr(_table_rows, "ROWS_AT_A_TIME", piece)
    found = table(tmp_path, label="buys")
    assert read(found, start) == (ROWS[start:], ["yes", "no", "no", "yes"][start:])


def test_quotes(tmp_path):
    found = table(tmp_path, '"a ""b""",c\n"x, y",1\n', ignore=["c"])
    assert read(found) == ([{'a "b"': "x, y"}], [])


def test_kinds_and_overrides(tmp_path):
    text = "id,zip,y\n1,1010,0\n2,8001,1\n"
    assert table(tmp_path, text, label="y").schema["label_kind"] == "numeric"
    found = table(tmp_path, text, label="y", categorical=["zip", "y"], ignore=["id"])
    assert read(found) == ([{"zip": "1010"}, {"zip": "8001"}], ["0", "1"])
    assert read(table(tmp_path, text, label="y", ignore=["id"])) == ([{"zip": 1010.0}, {"zip": 8001.0}], [0.0, 1.0])


def test_only_the_first_rows_decide(tmp_path):
    body = "".join(f"{i},{i}\n" for i in range(1000))
    found = table(tmp_path, f"a,b\n{body}word,7\n")
    assert found.schema["columns"] == {"a": "numeric", "b": "numeric"}
    with pytest.raises(SourceError, match=r"t\.csv, line 1002: column 1 \('a'\): 'word' is no finite decimal number"):
        read(found)
    found = table(tmp_path, f"a,b\n{body}word,7\n", categorical=["a"])
    assert read(found)[0][-1] == {"a": "word", "b": 7.0}


def test_a_word_among_numbers_is_asked_about(tmp_path):
    """Neither is a mistake made a category, nor a code taken for a mistake."""
    text = "a,b\n" + "3,x\n" * 40 + "4.o,x\n"
    with pytest.raises(SourceError, match=r"line 42: column 'a' holds '4\.o', but numbers in most"):
        table(tmp_path, text)
    assert table(tmp_path, text, categorical=["a"]).schema["columns"]["a"] == "categorical"
    with pytest.raises(SourceError, match=r"line 42: column 1 \('a'\): '4\.o' is no finite"):
        read(table(tmp_path, text, numeric=["a"]))
    mixed = table(tmp_path, "a,b\n" + "3,x\n" * 9 + "A5,x\n", header=True)
    assert mixed.schema["columns"]["a"] == "categorical"
    assert table(tmp_path, "a,b\n?,x\n,x\n", header=True).schema["columns"]["a"] == "categorical"


def test_missing_cells(tmp_path):
    text = "a,b,y\n1,x,1\n?,x,1\nn/a,,0\n"
    assert read(table(tmp_path, text, label="y"))[0] == [{"a": 1.0, "b": "x"}, {"a": "", "b": "x"}, {"a": "", "b": ""}]
    with pytest.raises(SourceError, match="line 3: column 'a' is empty, or stands for a missing value"):
        read(table(tmp_path, text, missing="refuse"))
    with pytest.raises(SourceError, match="line 4: column 'b' is empty"):
        read(table(tmp_path, text, missing="refuse", ignore=["a"]))
    label = "'y'., the label, is empty|'y', the label, is empty"
    for cell, why in (("", label), ("word", r"3 \('y'\): 'word' is no finite"), ("inf", r"'y'\): 'inf' is no finite")):
        with pytest.raises(SourceError, match=f"line 4: column .*{why}"):
            read(table(tmp_path, text.replace(",0\n", f",{cell}\n"), label="y", numeric=["y"]))


def test_without_a_header(tmp_path):
    found = table(tmp_path, "31,Paris,1\n44,Rome,0\n", header=False, label="3")
    assert read(found) == ([{"1": 31.0, "2": "Paris"}, {"1": 44.0, "2": "Rome"}], [1.0, 0.0])
    with pytest.raises(SourceError, match=r"line 1: a column is called '31': is there no header\? \(.*header=False\)"):
        table(tmp_path, "31,Paris,1\n44,Rome,0\n", label="Paris")
    assert read(table(tmp_path, "31,Paris\n44,Rome\n"))[0] == [{"1": 31.0, "2": "Paris"}, {"1": 44.0, "2": "Rome"}]
    assert read(table(tmp_path, "a,2019\n44,Rome\n", header=True))[0] == [{"a": 44.0, "2019": "Rome"}]
    assert read(table(tmp_path, ",a\n0,1\n"))[0] == [{"1": 0.0, "a": 1.0}]  # as a data frame writes its index


def test_files_put_together(tmp_path):
    """The header of the second file is no row."""
    with pytest.raises(SourceError, match="line 4: the header stands there again: leave the line out"):
        read(table(tmp_path, "city,buys\nRome,yes\nParis,no\ncity,buys\nOslo,no\n", label="buys"))


def test_decimal_commas(tmp_path):
    found = table(tmp_path, "a;b;y\n1,5;x;0,25\n-,5;y;1e2\n;z;3\n", label="y", decimal=",")
    assert read(found) == ([{"a": 1.5, "b": "x"}, {"a": -0.5, "b": "y"}, {"a": "", "b": "z"}], [0.25, 100.0, 3.0])
    with pytest.raises(SourceError, match=r"line 2: column 'a' holds '1\.5', a number with a point"):
        table(tmp_path, "a;y\n1.5;1\n", label="y", decimal=",")
    with pytest.raises(
        SourceError, match=r"line 3: column 'a' holds '1\.009,47', a .*: --set thousands=. --set decimal"
    ):
        table(tmp_path, "a;y\n995,12;1\n1.009,47;2\n998,5;3\n", label="y", decimal=",")


@pytest.mark.parametrize("kind", ["parquet", "feather", "pandas", "polars", "pyarrow"])
def test_tables_with_types(tmp_path, kind):
    """They are read as their text would be: whole numbers beside missing ones, dates, what is missing."""
    pa = pytest.importorskip("pyarrow")
    whole = pa.table({"n": [1.0, None, 3.0], "x": [0.1, 2.0, 3.5], "w": ["a", None, "c"], "y": ["u", "v", "u"]})
    path = tmp_path / f"t.{kind}"
    if kind == "parquet":
        pytest.importorskip("pyarrow.parquet").write_table(whole, path)
    elif kind == "feather":
        pytest.importorskip("pyarrow.feather").write_feather(whole, path)
    elif kind == "pyarrow":
        path = whole
    else:
        path = whole.to_pandas() if kind == "pandas" else pytest.importorskip("polars").from_arrow(whole)
    found = TableRows(path, label="y")
    rows = [{"n": 1.0, "x": 0.1, "w": "a"}, {"n": "", "x": 2.0, "w": ""}, {"n": 3.0, "x": 3.5, "w": "c"}]
    assert read(found) == (rows, ["u", "v", "u"]) == read(found)
    assert found.line_of(1) is None and found.size == 3
    with pytest.raises(ValueError, match="row must be at least 0, got -1"):
        found.line_of(-1)
    with pytest.raises(SourceError, match="columns: the table has 4 columns, got position 4"):
        read_events(path, Dialect(), columns=(0, 4))
    with pytest.raises(SourceError, match="row 1: column 'w' is empty"):
        read(TableRows(path, label="y", ignore=["n"], missing="refuse"))


def test_the_index_of_a_pandas_table_is_no_feature(tmp_path):
    pa, pd = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")
    frame = pd.DataFrame({"n": [1.0, 2.0]}, index=pd.Index([7, 3], name="row"))
    frame.to_parquet(tmp_path / "t.parquet")
    for kept in (tmp_path / "t.parquet", frame, pa.Table.from_pandas(frame)):
        assert read(TableRows(kept))[0] == [{"n": 1.0}, {"n": 2.0}]


def test_a_schema_reads_other_files(tmp_path):
    schema = table(tmp_path, label="buys").schema
    text = "more,n,age,city\nz,1,40,7\n"
    found = table(tmp_path, text, name="other.csv", schema=schema)
    assert read(found) == ([{"age": 40.0, "city": "7", "n": 1.0}], [])
    with pytest.raises(SourceError, match=r"other\.csv has no column 'buys': it has 'more'"):
        table(tmp_path, text, name="other.csv", schema=schema, label="buys")
    with pytest.raises(SourceError, match="no column 'age'"):
        table(tmp_path, "n,city\n1,2\n", schema=schema)
    for options, message in (
        ({"schema": schema, "numeric": ["n"]}, "numeric does not go with schema"),
        ({"schema": schema, "label": "age"}, "label='age' is not the label of the schema"),
        ({"schema": {}}, "schema must be that of other TableRows"),
        ({"schema": {**schema, "columns": {"a": "word"}}}, "'numeric' or 'categorical' of each column"),
        ({"schema": {**schema, "columns": {}}}, "must have a column"),
    ):
        with pytest.raises(ValueError, match=message):
            table(tmp_path, **options)


def test_standard_input_is_read_once(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    found = TableRows("-", label="buys")
    assert [row for rows, _, _ in found.chunks() for row in rows] == ROWS
    with pytest.raises(SourceError, match="standard input can be read only once"):
        list(found.chunks())


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n1\n", {}, "line 2: there are 1 columns, in the first line 2"),
        ("a,a\n1,2\n", {}, "line 1: two columns are called 'a'"),
        ("a,b\n", {"header": True}, "holds a header and no rows"),
        ("Paris,rain\nRome,sun\n", {}, "line 1: 'Paris', 'rain': nothing tells whether this is a header"),
        (
            "t,y\n2024-01-31,1\n2024-02-01,2\n",
            {"label": "t"},
            "line 2: column 't' holds '2024-01-31', a date or a time",
        ),
        (
            "p,y\n5%,1\n",
            {},
            r"column 'p' holds '5%', a percentage: take .*; --ignore p leaves it out .*--categorical p reads",
        ),
        ('p,y\n"3,5",1\n', {}, "column 'p' holds '3,5', a number with a comma"),
        ("", {}, "holds no rows"),
        ("a,b\n1,2\n", {"label": "c"}, "has no column 'c': it has 'a', 'b'"),
        ("a,b\n1,2\n", {"ignore": ["a", "b"]}, "has no column of features"),
        ("a,b\n1,\x00\n", {}, "is not text: line 2 holds a NUL byte"),
    ],
)
def test_bad_files(tmp_path, text, options, message):
    with pytest.raises(SourceError, match=message):
        table(tmp_path, text, **options)


def test_bad_arguments(tmp_path):
    for options, error, message in (
        ({"label": 2.5}, TypeError, "label must be columns by name, or number from 0"),
        ({"label": 4}, SourceError, "has 4 columns, numbered from 0: 4 is none of them"),
        ({"categorical": "city"}, TypeError, r"categorical must be a sequence of names, got 'city': \['city'\] is one"),
        ({"categorical": ["town"]}, ValueError, "categorical: .* has no column 'town'"),
        ({"categorical": ["n"], "numeric": ["n"]}, ValueError, "'n' stands in categorical and in numeric"),
        ({"ignore": [True]}, TypeError, "ignore must be columns by name, or number from 0"),
        ({"ignore": 3}, TypeError, "ignore must be a sequence of names"),
        ({"label": "n", "ignore": ["n"]}, ValueError, "'n' is the column of labels"),
        ({"missing": "drop"}, ValueError, "missing must be one of"),
        ({"header": "yes"}, TypeError, "header must be True or False"),
        ({"decimal": ";"}, ValueError, "decimal must be '.' or ','"),
        ({"separator": "::"}, ValueError, "separator must be one character"),
    ):
        with pytest.raises(error, match=message):
            table(tmp_path, **options)
    with pytest.raises(SourceError, match="Is a directory"):
        TableRows(tmp_path)
    with pytest.raises(SourceError, match="cannot be read"):
        TableRows(tmp_path / "none.csv")
    with pytest.raises(ValueError, match="start_row must be at least 0"):
        next(table(tmp_path).chunks(-1))
    assert np.array_equal(next(table(tmp_path, label="n", numeric=["n"], text="n,a\n1,2\n").chunks())[1], [1.0])


def test_numbers_that_may_be_ids_are_told(tmp_path, caplog):
    caplog.set_level("INFO", "fastsketch")
    table(tmp_path, "id,x,y\n" + "".join(f"{1000 + k},{k % 3},1\n" for k in range(40)), label="y")
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}/t.csv: these columns hold another whole number in every row, or zeros in front, and are read as "
        "numbers: 'id' (--ignore id, ignore=['id'], leaves it out)"
    ]


def test_a_column_of_texts_that_hardly_come_again_is_told(tmp_path, caplog):
    text = "text,city,y\n" + "".join(
        f"it came {k // 2 * 2 if k < 4 else k} days late,town {k // 2},no\n" for k in range(40)
    )
    for options in ({"ignore": ["text"]}, {"categorical": ["text"]}):
        table(tmp_path, text, label="y", **options)
    assert not caplog.records
    table(tmp_path, text, label="y")
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(
        f"{tmp_path}/t.csv: column 'text' holds another text in nearly every row, such as 'it came 0 days late', and"
    )
    assert "--ignore text leaves it out (ignore=['text']), --categorical text keeps it" in record.getMessage()


@pytest.mark.parametrize("kind", ["pandas", "polars", "t.parquet", "t.feather"])
def test_so_are_those_of_tables_with_types(tmp_path, caplog, kind):
    frames = pytest.importorskip("polars" if kind == "polars" else "pandas")
    held = frames.DataFrame({"id": range(1000, 1040), "x": [k % 3 for k in range(40)], "y": 40 * [0.5]})
    if "." in kind:
        pytest.importorskip("pyarrow")
        getattr(held, f"to_{kind[2:]}")(tmp_path / kind)
        held = tmp_path / kind
    caplog.set_level("INFO", "fastsketch")
    TableRows(held, label="y")
    (record,) = caplog.records
    assert "and are read as numbers: 'id' (--ignore id" in record.getMessage()


def test_a_schema_says_which_column_has_the_labels(tmp_path):
    """They are read where the table has the column, and not where rows are to be predicted."""
    schema = table(tmp_path, "age,buys\n31,yes\n44,no\n", label="buys").schema
    labelled = table(tmp_path, "buys,age\nno,12\nyes,50\n", name="more.csv", schema=schema)
    (rows, labels, _), *_ = labelled.chunks()
    assert rows == [{"age": 12.0}, {"age": 50.0}] and labels.tolist() == ["no", "yes"] and labelled.schema == schema
    for text, read_as in (("age\n12\n", schema), ("age,buys\n12,\n", {**schema, "label": None})):
        unlabelled = table(tmp_path, text, name="new.csv", schema=read_as)
        (rows, labels, _), *_ = unlabelled.chunks()
        assert rows == [{"age": 12.0}] and labels is None and unlabelled.schema["label"] is None
    with pytest.raises(SourceError, match="more.csv, line 2: column 'buys', the label, is empty"):
        list(table(tmp_path, "age,buys\n12,\n", name="more.csv", schema=schema).chunks())


def test_a_column_of_dates_is_left_out_by_name(tmp_path):
    text = "when,x,day,y\n" + "".join(f"2024-01-{k:02d} 10:00,{k},{k}.01.2024,{k % 2}\n" for k in range(1, 20))
    with pytest.warns(UserWarning, match=r"t\.csv: columns of dates or times, .* left out: 'when', 'day' .categorical"):
        found = table(tmp_path, text, label="y")
    assert found.schema["columns"] == {"x": "numeric"} and read(found)[0][4] == {"x": 5.0}
    words = table(tmp_path, text, label="y", categorical=["when"], ignore=["day"])
    assert read(words)[0][0] == {"when": "2024-01-01 10:00", "x": 1.0}


def test_all_columns_that_cannot_be_read_are_named(tmp_path):
    text = "a,p,m,w,y\n" + "".join(f"{k},{k}%,€ {k},{k}.5,1\n" for k in range(40)) + "x,1%,€ 2,word,1\n"
    with pytest.raises(SourceError, match=r"line 2: column 'p' .* a percentage: .*'m', 'a', 'w'|--ignore") as error:
        table(tmp_path, text, label="y")
    assert "--ignore a p m w leaves them out (ignore=['a', 'p', 'm', 'w'])" in str(error.value)
    assert set(
        read(
            table(tmp_path, text, label="y", ignore=["a", "p", "m", "w"], header=True)
            if 0
            else table(tmp_path, text.replace("y\n", "y\n", 1), label="y", ignore=["p", "m", "a"], categorical=["w"])
        )[0][0]
    ) == {"w"}


def test_columns_that_fill_late_are_numbers(tmp_path):
    rows = [f"{i % 5},{'' if i < 20000 else i % 7},{'' if i < 20000 else 'x'},\n" for i in range(30000)]
    found = table(tmp_path, "x,late,word,empty\n" + "".join(rows))
    assert found.schema["columns"] == {"x": "numeric", "late": "numeric", "word": "categorical", "empty": "categorical"}
    assert read(found)[0][-1] == {"x": 4.0, "late": float(29999 % 7), "word": "x", "empty": ""}


@pytest.mark.parametrize("label", [0, "word"])
def test_labelled_rows_below_numbers(tmp_path, label):
    text = "word,0,1,2\n" + "".join(f"{('cat', 'dog')[k % 2]},{k}.5,-{k}.25,0.{k}\n" for k in range(30))
    found = table(tmp_path, text, label=label)
    assert sorted(set(read(found)[1])) == ["cat", "dog"] and read(found)[0][1] == {"0": 1.5, "1": -1.25, "2": 0.1}
    gdp = table(tmp_path, "continent,1952,1957\nAsia,100,200\nAsia,300,250\nEurope,400,120\nEurope,500,180\n")
    assert len(read(gdp)[0]) == 4


def test_options_of_text(tmp_path):
    text = '# x\na;b;y\n"1.234,5";-;u\n2;"two\nlines";v\n'
    found = table(
        tmp_path,
        text,
        label="y",
        decimal=",",
        thousands=".",
        comment="#",
        na_values="-",
        multiline=True,
        categorical=["b"],
        header=True,
    )
    assert read(found) == ([{"a": 1234.5, "b": "-"}, {"a": 2.0, "b": "two\nlines"}], ["u", "v"])
