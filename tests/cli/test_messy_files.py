"""Files as people have them, through every command that reads tables: the right numbers, or what to type instead."""

import io
import json
import re
import sys
import zipfile

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.cli import main

skl = pytest.importorskip("fastsketch.sklearn")

WHO, WHAT = ("anna", "bob", "cy", "dora"), ("soap", "towel", "comb", "brush", "razor")
ROWS = [
    (WHO[i], WHAT[j], 0.5 + (3 * i + 5 * j) % 7, 1.0 + (i * j) % 4)
    for i in range(4)
    for j in range(5)
    if (i + 2 * j) % 4 != 3
]
NUMBERS = np.array([row[2:] for row in ROWS])
HEAD = ["who", "what", "score", "amount"]
FEATURES = [{"who": who, "score": score, "amount": amount} for who, _, score, amount in ROWS]
LABELS = [row[1] for row in ROWS]


# -- the files ---------------------------------------------------------------------------------------------------------
def table(head=HEAD, row=lambda k, cells: cells, mark=","):
    """The table as text, its cells changed by a function of their row."""
    return "\n".join(mark.join(cells) for cells in [head, *(row(k, [*map(str, r)]) for k, r in enumerate(ROWS))]) + "\n"


def commas(k, cells):
    return [*cells[:2], *(text.replace(".", ",") for text in cells[2:])]


def scores(form, at=None):
    """Every score in another form, a function of its text, or that of one row."""
    return lambda k, cells: [*cells[:2], form(cells[2]), cells[3]] if at in (k, None) else cells


def missing(k, cells):
    return [*cells[:2], ("", "NA", "n/a", "NaN", "null", "?")[k], cells[3]] if k < 6 else cells


def workbook():
    with zipfile.ZipFile(held := io.BytesIO(), "w") as book:
        book.writestr("[Content_Types].xml", "<Types/>")
    return held.getvalue()


LONG = ["who", "what", "score, net", "amount, all"]
GERMAN = ["Kunde", "Artikel", "Größe", "Stück"]
PLAIN = table()
FILES = {
    "plain": PLAIN,
    "semicolons": table(mark=";"),
    "tabs": table(mark="\t"),
    "bars": table(mark="|"),
    "decimal commas": table(mark=";", row=commas),
    "quoted decimal commas": table(row=lambda k, c: [*c[:2], *(f'"{text}"' for text in commas(k, c)[2:])]),
    "mark and returns": ("\ufeff" + PLAIN).replace("\n", "\r\n"),
    "another language": table(GERMAN),
    "names with commas": table([f'"{name}"' for name in LONG]),
    "names with commas, semicolons": table(LONG, mark=";"),
    "a line end in quotes": table(row=lambda k, c: [c[0], '"soap\nbar"', *c[2:]] if k == 3 else c),
    "an unnamed column": table(["", *HEAD[1:]]),
    "repeated names": table(["who", "what", "score", "score"]),
    "dates": table(row=scores(lambda text: f"2024-01-{1 + float(text):02.0f}")),
    "percent": table(row=scores(lambda text: f"{text}%")),
    "money": table(row=scores(lambda text: f"€ {text}")),
    "missing in six spellings": table(row=missing),
    "words among numbers": table(row=scores(lambda text: "many", 3)),
    "trailing separators": PLAIN.replace("\n", ",\n"),
    "longer rows": PLAIN.replace("\n", ",\n").replace("amount,", "amount"),
    "no header": PLAIN.split("\n", 1)[1],
    "two files in one": PLAIN + PLAIN,
    "latin-1": table(GERMAN).encode("latin-1"),
    "utf-16": table(GERMAN).encode("utf-16"),
    "workbook": workbook(),
}
NAMES = {
    "another language": GERMAN,
    "names with commas": LONG,
    "names with commas, semicolons": LONG,
    "an unnamed column": ["1", *HEAD[1:]],
}

# -- what is expected: an error where there is a pattern, else the right numbers ---------------------------------------
ROW_READERS, READERS_OF_EVENTS = ("sketch", "open_rows", "estimator"), ("recommend",)
FILE = "f.csv"
COMMANDS = (*ROW_READERS, *READERS_OF_EVENTS, "learn")


def of(pattern, commands=COMMANDS):
    return dict.fromkeys(commands, pattern)


def figure(what, to_do):
    """A cell that is no number: of rows and events, of tables with words."""
    said = rf"line 2: column 3 \('score'\): '.*' is no finite decimal number but {what}: {to_do}"
    learn = rf"line 2: column 'score' holds '.*', {what}: {to_do}.*; --ignore score.* leaves (it|them) out"
    return {**of(said), "learn": learn}


DIVIDED = "line 1: .*: tabs, semicolons and commas divide columns, or what --set separator=X says"
COMMA = figure("a number with a comma", "--set decimal=, reads it as the point")
AGAIN = "line 17: .*the header stands there again: leave the line out"
ERRORS = {
    "bars": {
        **of(DIVIDED),
        **of("line 1: . columns are needed, there are 1; tabs.* --set separator=X", READERS_OF_EVENTS),
    }
    | {"learn": r"has no column 'what': it has 'who\|what\|score\|amount' \(tabs.* or what --set separator=X says"},
    "decimal commas": COMMA,
    "quoted decimal commas": COMMA,
    "a line end in quotes": of(
        "line 5: .*quote that opens .*does not close on this line: --set multiline=yes .multiline=True."
    ),
    "repeated names": of("line 1: two columns are called 'score': rename one of them", (*ROW_READERS, "learn")),
    "dates": {
        **{k: v for k, v in figure("a date or a time", "leave the column out").items() if k in ROW_READERS},
    },
    "percent": figure("a percentage", "take the percent sign away"),
    "money": figure("an amount of money", "take the currency away"),
    "missing in six spellings": {
        **of(r"line 2: .*'score'\): leave such rows or the column out .* or give a number .*--fill", ROW_READERS),
        **of(r"line 2: column 3 \('score'\): the value is missing \(--", READERS_OF_EVENTS),
    },
    "words among numbers": of(r"line 5: column 3 \('score'\): 'many' is no finite", (*ROW_READERS, *READERS_OF_EVENTS)),
    "longer rows": of("line 2: there are (5 columns, in the first line 4|more than 4 columns, as many as the first)"),
    "two files in one": {**of(AGAIN)},
    "latin-1": of("line 1.* no UTF-8.*: iconv -f CP1252 -t UTF-8 makes such text"),
    "utf-16": of("line 1.* iconv -f UTF-16 -t UTF-8 makes such text"),
    "workbook": of("Excel workbook.*: save the sheet as CSV UTF-8"),
}
# What the errors say to type, after which all is right.
TYPED = {
    "bars": {"separator": "|"},
    "decimal commas": {"decimal": ","},
    "quoted decimal commas": {"decimal": ","},
}


# -- the commands ------------------------------------------------------------------------------------------------------
def flags(options):
    return [part for name, value in options.items() for part in ("--set", f"{name}={value}".lower())]


def say(capsys, *argv):
    """The result of a command; SourceError for an error, which is one line."""
    status = main([str(word) for word in argv])
    out = capsys.readouterr()
    if status:
        assert status == 2 and "Traceback" not in out.err
        raise fs.data.SourceError(out.err.strip().splitlines()[-1])
    return out.out


def columns_of(name):
    return [2, 3] if name == "no header" else NAMES.get(name, HEAD)[2:]


def sketched(capsys, name, options):
    wanted = ",".join(f'"{column}"' for column in columns_of(name))
    say(capsys, "sketch", FILE, "--columns", wanted, "-o", "s.fsk", *flags(options))
    return fs.load("s.fsk").gram()


def learned(capsys, name, options):
    target = "1" if name == "no header" else NAMES.get(name, HEAD)[1]
    say(capsys, "learn", FILE, "--target", target, "-o", "l.fsk", *flags(options))
    return fs.load("l.fsk").coef


def recommended(capsys, name, options):
    found = json.loads(say(capsys, "recommend", FILE, "--json", *flags(options)))["recommendations"]
    return [(entry["id"], entry["items"], np.round(entry["scores"], 6).tolist()) for entry in found]


def opened(capsys, name, options):
    return np.concatenate([np.array(rows) for rows in fs.open_rows(FILE, columns=columns_of(name), **options)])


def fitted(capsys, name, options):
    source = fs.open_rows(FILE, columns=columns_of(name), **options)
    return skl.SketchedPCA(1).fit(source).mean_


RUN = dict(
    zip(COMMANDS, (sketched, opened, fitted, recommended, learned), strict=True),
)


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """The right numbers: of arrays and dicts in memory, and of {user: {item: value}}."""
    events = {who: {what: score for user, what, score, _ in ROWS if user == who} for who in WHO}
    return {
        "sketch": NUMBERS.T @ NUMBERS,
        "open_rows": NUMBERS,
        "estimator": NUMBERS.mean(axis=0),
        "learn": fs.SketchedNewton().update(FEATURES, LABELS).coef,
        "recommend": {who: set(WHAT) - set(held) for who, held in events.items()},
    }


def check(command, found, right):
    if command == "recommend":
        assert {who: set(items) for who, items, _ in found} == right[command]
    else:
        np.testing.assert_allclose(found, right[command], rtol=1e-5)


# Of tables with words a learner makes something of more files than of plain numbers.
LEARNED = {
    "missing in six spellings": lambda k, row: {**row, "score": ""} if k < 6 else row,
    "words among numbers": lambda k, row: {**row, "score": "many" if k == 3 else f"{row['score']}"},
    "trailing separators": lambda k, row: {**row, "5": ""},
    "dates": lambda k, row: {name: value for name, value in row.items() if name != "score"},
}


@pytest.mark.parametrize("name", FILES)
def test_right_or_what_to_type(name, right, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    content = FILES[name]
    (tmp_path / "f.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    wanted = dict(right)
    if name in LEARNED:
        rows = [LEARNED[name](k, row) for k, row in enumerate(FEATURES)]
        wanted["learn"] = fs.SketchedNewton().update(rows, LABELS).coef
    for command in COMMANDS:
        pattern, options = ERRORS.get(name, {}).get(command), {}
        if pattern is not None:
            with pytest.raises(ValueError) as error:
                RUN[command](capsys, name, {})
            assert re.search(rf"f\.csv.*{pattern}", str(error.value)), f"{command}: {error.value}"
            options = TYPED.get(name)
        if options is not None:
            check(command, RUN[command](capsys, name, options), wanted)


def test_a_folder_and_parquet(right, tmp_path, monkeypatch, capsys):
    """Of the same columns: what is read from text is read from tables with types."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.chdir(tmp_path)
    whole = pa.table({name: list(column) for name, column in zip(HEAD, zip(*ROWS, strict=True), strict=True)})
    parquet.write_table(whole, "f.parquet")
    monkeypatch.setattr(sys.modules[__name__], "FILE", "f.parquet")
    for command in COMMANDS:
        check(command, RUN[command](capsys, "plain", {}), right)
    (tmp_path / "days").mkdir()
    for k, part in enumerate((ROWS[:7], ROWS[7:])):
        lines = "".join(",".join(map(str, row)) + "\n" for row in part)
        (tmp_path / "days" / f"{k}.csv").write_text(",".join(HEAD) + "\n" + lines)
    monkeypatch.setattr(sys.modules[__name__], "FILE", "days")
    for command in ROW_READERS:
        check(command, RUN[command](capsys, "plain", {}), right)
