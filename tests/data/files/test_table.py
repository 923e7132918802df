"""Tables of ids and values: what they hold, and that nothing in them is skipped, joined or guessed."""

import gzip

import pytest

from fastsketch.data import SourceError
from fastsketch.data.files import _table as table
from fastsketch.data.files._table import Dialect, detect_header
from fastsketch.data.names import _tables
from fastsketch.data.names._events import read_events


def read(tmp_path, content, values=True, **dialect):
    path = tmp_path / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = read_events(path, Dialect(**dialect), columns=range(3 if values else 2))
    return list(zip(*found[: 3 if values else 2], strict=True))


@pytest.mark.parametrize(
    "text",
    [
        "a,b,1\nc,d,2.5\n",
        "user,item,rating\na,b,1\nc,d,2.5",
        "a\tb\t1\r\nc\td\t2.5\r\n",
        "a;b;1\n\n  \nc;d;2.5\n",
        ' a , b , 1 \n"c", "d" ,"2.5"\n',
        "\ufeffa,b,+1e0\nc,d,25e-1\n",
        "a,b,1,x\nc,d,2.5,\n",
        "\ufeff\nuser,item,rating\r\r\na,b,1.\nc,d,02.50\n",
    ],
)
@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_lines_are_read(tmp_path, monkeypatch, text, block):
    monkeypatch.setattr(_tables, "PIECE_BYTES", block)
    assert read(tmp_path, text) == [("a", "b", 1.0), ("c", "d", 2.5)]


def test_quotes(tmp_path):
    assert read(tmp_path, '"a,1","say ""b""",1\n"","",2\n'.replace('"","",2\n', "")) == [("a,1", 'say "b"', 1.0)]
    assert read(tmp_path, '"a\t1","b",1\n') == [("a\t1", "b", 1.0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # an open quote took every line up to the next quote for one field, and those lines were gone
        ('a,b,1\nc,"d,2\ne,f,3\ng,h",4\n', "line 2: the quote that opens column 2 does not close on this line"),
        ('a,b,1\n"c\nx",d,2\n', "line 2: the quote that opens column 1"),
        ('a,b,1\n"c"x,d,2\n', "line 2: column 1 goes on after its closing quote"),
        ('a,b,1\n5" nail,d,2\n', "line 2: column 1 holds a quote"),
        # a first line that is no number was dropped as a header
        ("a,b,4.o\nc,d,1\n", "line 1: column 3: '4.o' is no finite"),
        ("a,b,4,5\nc,d,1\n", "line 2: there are 3 columns, in the first line 4"),
        ("a;b;4,5\nc;d;1\n", "line 1: column 3: '4,5' is no .* but a number with a comma: --set decimal=,"),
        ("a,b,\nc,d,1\n", "line 1: 'a', 'b', '': nothing tells whether this is a header: say --set header=yes"),
        ("a,b,nan\nc,d,1\n", "line 1: column 3: the value is missing"),
        ("a,b,NA\nc,d,1\n", "line 1: column 3: the value is missing"),
        ("\n\na,b,-\n", "line 3: 'a', 'b', '-': nothing tells"),
        ("sep=,\na,b,1\n", "line 1: leave out 'sep=,', which Excel alone reads"),
        ("a,b,1\nuser,item,rating\n", "line 2: column 3: 'rating' is no finite"),
        *(
            (f"a,b,1\nc,d,{number}\n", "line 2: .*( is no finite decimal number|the value is missing)")
            for number in (
                "1_0",
                "nan",
                "inf",
                "-Infinity",
                "0x10",
                "１２",
                "1e999",
                "1 2",
                "1d3",
                "",
                "--1",
            )
        ),
        ("a,b,1\nc,d,3,5\n", "line 2: there are 4 columns, in the first line 3"),
        ("a,b,1\nc,d\n", "line 2: there are 2 columns, in the first line 3"),
        ("a,b,1\n,d,2\n", "line 2: column 1: an id must not be empty"),
        ('a,b,1\nc," ",2\n', "line 2: column 2: an id must not be empty"),
        ("a,b,1\rc,d,2\n", "line 1: a carriage return within"),
        (b"a,b,1\nc,\xff,2\n", "is not text: line 2 holds the byte 0xff"),
        (b"a,b,1\nc\0,d,2\n", "is not text: line 2 holds a NUL"),
        (b"\0a,b,1\n", "is not text: line 1 holds a NUL"),
        ("user,item,rating\n", "line 1: 'user', 'item', 'rating': nothing tells"),
        ("\n \n", "holds no lines"),
    ],
)
def test_what_breaks_a_rule_is_named(tmp_path, text, message):
    with pytest.raises(SourceError, match=f"t.csv.*{message}"):
        read(tmp_path, text)


def test_pairs_need_no_value(tmp_path):
    assert read(tmp_path, "a,b\nc,d\n", values=False, header=False) == [("a", "b"), ("c", "d")]
    assert read(tmp_path, "a,b,x\nc,d,\n", values=False, header=False) == [("a", "b"), ("c", "d")]
    with pytest.raises(SourceError, match="line 1: 2 columns are needed"):
        read(tmp_path, "a\n", values=False, header=False)


def test_long_fields_and_many_columns(tmp_path):
    """The csv module refuses fields of more than 131,072 characters, with an error that names no file."""
    name = "x" * 200_000
    assert read(tmp_path, f"a,{name},1\n") == [("a", name, 1.0)]
    assert read(tmp_path, "a,b,1" + ",z" * 50_000 + "\n") == [("a", "b", 1.0)]


def test_each_id_is_held_once(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"".join(b"u%d,i%d,1\n" % (k % 7, k % 5) for k in range(100))))
    found = read_events(path, Dialect(), columns=(0, 1, 2))
    assert found.users == [f"u{k % 7}" for k in range(100)] and len(set(map(id, found.users))) == 7
    assert found.lines.tolist() == list(range(1, 101)) and found.values.tolist() == [1.0] * 100
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(SourceError, match="t.csv.gz is cut short"):
        read_events(path, Dialect(), columns=(0, 1, 2))


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        # a name above numbers, dates, percentages or money, in any language
        (["Kunde,Artikel,Wert", "anna,soap,3", "bob,soap,4"], True),
        (["何,いつ", "a,2024-01-31", "b,2024-02-01 12:30"], True),
        (["a,when", "x,31.01.2024", "y,1.2.24"], True),
        (["a,Anteil", "x,5%", "y,7 %"], True),
        (["a,Preis", "x,€ 3.50", "y,4 EUR"], True),
        (["a,b2", "x,NA", "y,3"], True),
        # ids with digits, under names that have none
        (["Kunde,Artikel", *(f"u{k},i{k}" for k in range(10))], True),
        (["Kunde,Artikel", *(f"u{k},i{k}" for k in range(9))], None),
        (["k1,a1", *(f"u{k},i{k}" for k in range(10))], None),
        (["a,b", "x,1"] + ["y,2"] * 40 + ["z,oops"], True),
        # a figure is no name
        (["u1,i1,5", "u2,i2,4"], False),
        (["u1,i1,2024-01-31", "u2,i2,2024-01-31"], False),
        (["a,b,4.o", "c,d,1"], False),
        (["a,b,nan", "c,d,1"], False),
        # both, so that neither tells: a year as a name, an id that is a word
        (["a,2020", "3,4"], None),
        (["guest,17", "4,18"], None),
        (["x,y", "a,b", "c,d"], None),
        (["x,y"], None),
        # a figure that may be a name: it is like none below it, and the words tell nothing
        (["Kunde,Artikel,2024", "anna,milk,3", "bob,soap,4"], None),
        (["user,item,0", "anna,milk,3", "bob,soap,4"], None),
        (["user,item,2024-01-31", "anna,milk,3", "bob,soap,4"], None),
        (["Kunde,Artikel,2024"], None),
        (["user,item,2024", *(f"u{k},i{k},3" for k in range(10))], None),
        (["anna,milk,3", "bob,soap,4"], False),
        (["anna,milk,30", "bob,soap,4"], False),
        (["anna,milk,2024", "bob,soap,2023"], False),
        (["u1,i1,5000", "u2,i2,4"], False),
        (["anna,milk,-1", "bob,soap,1"], False),
        (["anna,milk,3", "bob,soap,x"], False),
        (["anna,milk,0", "anna,soap,4"], False),
        # ids come again below, in another row; a second header is none of these
        (["a,x", "a,y", "b,x"], False),
        (["a,x", "a,y", "b,z"], None),
        (["who,what", "a,x", "who,what", "b,y"], None),
        (["guest,x"] + ["7,x"] * 30 + ["guest,y"], False),
    ],
)
def test_headers(rows, told):
    assert detect_header([row.split(",") for row in rows]) is told


def test_a_header_that_ids_alone_tell_is_a_warning(tmp_path, caplog):
    """A first row of other ids than those below is lost then: in Python nobody listens to less."""
    ids = "".join(f"bob{k},item{k % 3}\n" for k in range(12))
    for text, level in ((ids, "WARNING"), (ids.replace("\n", ",3\n"), "INFO")):
        with caplog.at_level("INFO", "fastsketch"):
            read(tmp_path, ("anna,milk" if level == "WARNING" else "who,what,value") + "\n" + text, values=None)
        (record,) = caplog.records
        assert record.levelname == level
        assert "line 1 is taken for a header" in record.getMessage() and "header=False" in record.getMessage()
        caplog.clear()


class Counted(str):
    """Text that counts the characters which are cut out of it."""

    taken = 0

    def __getitem__(self, key):
        found = super().__getitem__(key)
        Counted.taken += len(found)
        return found


@pytest.mark.parametrize("line", ['"",' * 20_000, '"a"' + "," * 20_000, ('"a"' + " " * 10_000 + ",") * 3])
def test_quoted_lines_take_time_by_their_length(line):
    """The rest of the line was copied for each cell: one of 1 MiB took 19 s."""
    Counted.taken = 0
    cells = table.cells_of(Counted(line), ",")
    assert cells == [cell.strip(' "') for cell in line.split(",")]
    assert Counted.taken <= 3 * len(line)


@pytest.mark.parametrize(
    ("text", "dialect", "lines"),
    [
        ("a;b;1,5\nc;d;2,5\n", {"decimal": ","}, [("a", "b", 1.5), ("c", "d", 2.5)]),
        ("Preis, netto;b;c\na;b;1\n", {}, [("a", "b", 1.0)]),
        ("a, b;x;1\nc;d;2\n", {}, [("a, b", "x", 1.0), ("c", "d", 2.0)]),
        ("a|b|1\n", {"separator": "|"}, [("a", "b", 1.0)]),
        ("a  b 1\nc d   2\n", {"separator": " "}, [("a", "b", 1.0), ("c", "d", 2.0)]),
        ('a,b,"1,5"\n', {"decimal": ",", "separator": ","}, [("a", "b", 1.5)]),
    ],
)
def test_dialects(tmp_path, text, dialect, lines):
    assert read(tmp_path, text, **dialect) == lines


def test_what_divides_columns_is_not_guessed(tmp_path):
    with pytest.raises(
        SourceError, match="line 1: semicolons or commas may divide it: say which by --set 'separator=;' or"
    ):
        read(tmp_path, "a;b;1,5\nc;d;2,5\n")
    with pytest.raises(SourceError, match=r"column 3: '1\.5' is no .* a number with a point: it is read without"):
        read(tmp_path, "a;b;1.5\n", decimal=",")
