"""No control character of a file or a name reaches the terminal: neither from commands nor in errors and warnings."""

import csv
import json
import re
import warnings

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.cli import main
from fastsketch.data.files import _state as files
from tests.reliability.figures import report

# What commands a terminal, hides or turns text, or begins a line of its own.
NASTY = (
    "\x1b[31m",
    "\x1b]0;owned\x07",
    "a\rb",
    "\x08\x08",
    "\x7f",
    "\x9b2J",
    "\u202eabc",
    "\u2066x",
    "a\u2028b",
    "\x85",
)
CONTROLS = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def write_csv(path, head, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


def commands(folder, nasty):
    """Write files with a nasty text in names, labels and ids, and return commands that read them."""
    rows = np.random.default_rng(0).standard_normal((60, 2))
    rows[30:] += 9.0
    labels = [f"bad{nasty}" if k % 2 else "ok" for k in range(60)]
    write_csv(folder / "n.csv", [f"a{nasty}", f"b{nasty}"], rows.tolist())
    write_csv(
        folder / "lab.csv", ["x", f"w{nasty}", "y"], [[*row, y] for row, y in zip(rows[:, 0:2], labels, strict=True)]
    )
    write_csv(folder / "ev.csv", ["user", "item"], [[f"u{k % 5}{nasty}", f"i{k % 7}{nasty}"] for k in range(60)])
    write_csv(folder / "bad.csv", ["a", f"b{nasty}"], [[1, 2], [3, f"what{nasty}"]])
    write_csv(folder / f"f{nasty}.csv", ["a", "b"], rows.tolist())
    (folder / f"g{nasty}.csv").write_text("1,2\n3\n")
    state = {"kind": f"X{nasty}\nfastsketch: all is well", "home": f"fastsketch.sketching{nasty}"}
    (folder / "k.fsk").write_bytes(files.pack({**state, "parameters": {}, "notes": {}, "state": {}}, {}))
    (folder / "j.partial").mkdir(exist_ok=True)
    out = [
        *(
            ["sketch", "n.csv", "-o", "n.fsk"],
            ["info", "n.fsk"],
            ["watch", "n.csv", "--every", "5", "--reference", "4"],
        ),
        *(
            ["sketch", "bad.csv", "-o", "b.fsk"],
            ["sketch", f"f{nasty}.csv", "-o", "f.fsk"],
            ["sketch", f"g{nasty}.csv"],
        ),
        *(["info", "k.fsk"], ["info", f"absent{nasty}.fsk"], ["sketch", "n.csv", "-o", f"absent{nasty}/n.fsk"]),
        *(["learn", "lab.csv", "--target", "y", "-o", "l.fsk"], ["info", "l.fsk"], ["predict", "l.fsk", "n.csv"]),
        *(
            ["predict", "l.fsk", "lab.csv", "--what", "metrics"],
            ["learn", "lab.csv", "--target", f"no{nasty}", "-o", "x"],
        ),
        *(["recommend", "ev.csv", "-n", "2"], ["recommend", "ev.csv", f"nobody{nasty}", "-n", "2"], [f"verb{nasty}"]),
        *(
            ["sketch", "n.csv", f"--flag{nasty}"],
            ["sketch", "n.csv", "-o", "p.fsk", "--progress", "line"],
            ["info", "n.fsk", "--json"],
        ),
    ]
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        return out
    table = pa.table({f"a\nerror bound  0{nasty}": rows[:, 0], f"b{nasty}": rows[:, 1]})
    parquet.write_table(table, folder / "p.parquet")
    return [*out, ["sketch", "p.parquet", "-o", "q.fsk"], ["info", "q.fsk"]]


def test_commands_print_no_control_characters(tmp_path, monkeypatch, capsys, amount):
    monkeypatch.chdir(tmp_path)
    found, shown, n = [], 0, 0
    for nasty in NASTY[: amount(3, len(NASTY))]:
        for command in commands(tmp_path, nasty):
            for path in tmp_path.glob("*.fsk.partial"):
                path.rmdir()
            try:
                status = main(command)
            except SystemExit as end:  # of argparse
                status = end.code
            said = capsys.readouterr()
            assert status in (0, 2, 3), (command, status, said.err)
            n += 1
            text = said.out + said.err
            shown += "\\x" in text or "\\u" in text or "\\r" in text
            found += [(command, line) for line in text.split("\n") if CONTROLS.search(line)]
            found += [
                (command, line)
                for line in text.split("\n")
                if line.startswith(("fastsketch: all is", "error bound  0"))
            ]
            if "--json" in command:
                json.loads(said.out)
    print(found[:5])
    assert shown > n // 4  # the names are there, escaped
    report(
        "control characters in names, labels, ids and file names, printed by commands",
        f"{n:,} commands",
        lines_with_control_characters=len(found),
        also={"with escapes": shown},
    )


def faults(folder, nasty):
    """Return calls that raise errors or warnings about files."""
    (folder / f"g{nasty}.csv").write_text(f"a,b{nasty}\n1,2\n3\n")
    (folder / f"w{nasty}.csv").write_text(f"a,b{nasty}\n1,2\n3,x{nasty}\n", encoding="utf-8")
    (folder / f"s{nasty}.fsk").write_bytes(b"PK nothing")
    np.save(folder / f"nan{nasty}.npy", np.array([[1.0, np.nan]]))
    state = {"kind": f"X{nasty}", "home": "fastsketch.sketching", "parameters": {}, "notes": {}, "state": {}}
    (folder / "k.fsk").write_bytes(files.pack(state, {}))
    model = fs.FrequentDirections(2)
    return [
        *(lambda name=name: list(fs.open_rows(folder / f"{name}{nasty}.csv")) for name in ("g", "w", "absent")),
        *(lambda name=name: fs.load(folder / name) for name in (f"s{nasty}.fsk", f"absent{nasty}.fsk", "k.fsk")),
        lambda: fs.run(model, folder / f"nan{nasty}.npy", workers=1),
        lambda: fs.open_rows(folder / f"g{nasty}.csv", columns=[f"c{nasty}"]),
        lambda: fs.from_bytes(files.pack({**state, "kind": "FrequentDirections", "parameters": {f"p{nasty}": 1}}, {})),
    ]


@pytest.mark.parametrize("nasty", NASTY)
def test_errors_about_files_hold_no_control_characters(tmp_path, nasty):
    for call in faults(tmp_path, nasty):
        with warnings.catch_warnings(record=True) as said, pytest.raises((ValueError, OSError)) as error:
            warnings.simplefilter("always")
            call()
        for text in [str(error.value), *(str(warning.message) for warning in said)]:
            assert not CONTROLS.search(text) and "\n" not in text, text
