"""What a fuzzer calls with any bytes: readers, each held against what must be true of every answer."""

import io
import json
import math
import re
import warnings
import zipfile
from pathlib import Path

import numpy as np

import fastsketch as fs
from fastsketch._kernels.io.svmlight import parse_block
from fastsketch.data import SourceError
from fastsketch.data.files._input import InputFile
from fastsketch.data.files._state import pack
from fastsketch.data.files._svmlight import read_blocks
from fastsketch.data.files._table import Dialect, text_cells
from fastsketch.data.names._events import events_of
from tests.fuzz.folder_targets import FOLDER_TARGETS
from tests.fuzz.folder_targets import SEEDS as FOLDER_SEEDS
from tests.fuzz.row_targets import ROW_SEEDS, ROW_TARGETS

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
NUMBER = re.compile(rb"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


# -- svmlight ----------------------------------------------------------------------------------------------------------
def reference_row(line, base):
    """(label, columns, values) of one line of svmlight text, None of a blank one; ValueError for what is none."""
    line = line.rstrip(b"\r")
    if b"\r" in line:
        raise ValueError
    tokens = [token for token in re.split(rb"[ \t]+", line.split(b"#")[0]) if token]
    if not tokens:
        return None
    pairs = tokens[1:]
    if pairs and re.fullmatch(rb"qid:[0-9]+", pairs[0]):
        del pairs[0]
    columns, values = [], []
    for pair in pairs:
        index, colon, value = pair.partition(b":")
        if not colon or not re.fullmatch(rb"[0-9]+", index) or not NUMBER.fullmatch(value):
            raise ValueError
        columns.append(int(index[-400:]) - base if len(index.lstrip(b"0")) < 400 else 2**40)
        values.append(float(value))
        if not (columns[-2] if len(columns) > 1 else -1) < columns[-1] < 2**31 - 1:
            raise ValueError
    if not NUMBER.fullmatch(tokens[0]) or not all(map(math.isfinite, [float(tokens[0]), *values])):
        raise ValueError
    return float(tokens[0]), columns, values


def reference(text, base):
    """Rows of svmlight text, and the number of its first bad line (None)."""
    rows = []
    for number, line in enumerate(text.split(b"\n"), 1):
        try:
            row = reference_row(line, base)
        except ValueError:
            return rows, number
        if row is not None:
            rows.append(row)
    return rows, None


def said_in_parts(text, zero_based):
    """Arrays or message of a block that is cut into as many parts as there can be."""
    try:
        return parse_block(text, zero_based=zero_based, least=1)[:4]
    except ValueError as error:
        return str(error)


def svmlight(data):
    """The parser in C accepts and refuses what the reference does, with the same bits, in any block size or parts."""
    for zero_based in (False, True):
        expected, bad = reference(data, 0 if zero_based else 1)
        try:
            labels, indptr, indices, values, width, _ = parse_block(data + b"\n", zero_based=zero_based)
        except ValueError as error:
            assert bad is not None and str(error).startswith(f"line {bad}:"), (str(error), bad)
            assert said_in_parts(data + b"\n", zero_based) == str(error)
        else:
            assert bad is None, bad
            in_parts = said_in_parts(data + b"\n", zero_based)
            for one, other in zip((labels, indptr, indices, values), in_parts, strict=True):
                assert one.tobytes() == other.tobytes()
            got = [
                (label, indices[a:b].tolist(), values[a:b].tolist())
                for label, a, b in zip(labels.tolist(), indptr[:-1], indptr[1:], strict=True)
            ]
            assert repr(got) == repr(expected)
            assert width == max((column + 1 for _, columns, _ in expected for column in columns), default=0)
        try:
            blocks = list(read_blocks(InputFile(Path("a"), io.BytesIO(data)), 16, zero_based=zero_based))
        except SourceError as error:
            assert bad is not None and f"a: line {bad}:" in str(error)
        else:
            assert bad is None and sum(len(block.labels) for block in blocks) == len(expected)


# -- tables of ids -----------------------------------------------------------------------------------------------------
def reference_table(data, values, header):
    """Lines of a table without quotes, None for one that breaks a rule: a second reading of those in read_events."""
    try:
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        return None
    lines = [line.rstrip("\r") for line in lines]
    if b"\0" in data or any("\r" in line for line in lines):
        return None
    lines = [line for line in lines if line.strip()]
    if not lines:
        return None
    marks = [mark for mark in "\t,;" if mark in lines[0]]
    if marks == [",", ";"]:
        marks = [mark for mark in marks if len({line.count(mark) for line in lines[:1000]}) == 1]
        if len(marks) != 1:
            return None
    table = [line.split(marks[0] if marks else ",") for line in lines]
    if any(len(cells) != len(table[0]) for cells in table) or len(table[0]) < (3 if values else 2):
        return None
    if header:
        table = None if table[0] in table[1:] else table[1:]
    if not table or not all(all(cell.strip() for cell in cells[:2]) for cells in table):
        return None
    numbers = [cells[2].strip(" \t") if values else "0" for cells in table]
    if not all(NUMBER.fullmatch(number.encode()) and math.isfinite(float(number)) for number in numbers):
        return None
    return [(cells[0].strip(), cells[1].strip(), float(n)) for cells, n in zip(table, numbers, strict=True)]


def parsed(data, values, header):
    """What the reader says: (lines, None) or (None, message)."""
    file = InputFile(Path("a"), io.BytesIO(data))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an id such as NA is told
            cells = text_cells(file, Dialect(header), wanted=3 if values else 2)
            users, items, numbers, *_ = events_of(cells, values=values)
    except SourceError as error:
        return None, str(error)
    return list(zip(users, items, numbers.tolist() if values else [0.0] * len(users), strict=True)), None


def csv(data):
    """Without quotes, what the reference reads; with quotes no line is lost: it is there, or the file is refused."""
    for values in (True, False):
        with_header, without = parsed(data, values, True), parsed(data, values, False)
        told = parsed(data, values, None)
        assert told in (with_header, without) or "nothing tells" in told[1]
        for header, (lines, message) in ((True, with_header), (False, without)):
            if message is not None:
                assert "\n" not in message
                assert re.match(r"a(, line \d+: | is not text: line \d+ | holds no lines|: a line is longer)", message)
            if b'"' not in data:
                assert lines == reference_table(data, values, header), message
            elif lines is not None:
                text = [line for line in data.decode("utf-8-sig").split("\n") if line.strip()]
                assert len(lines) == len(text) - header
                assert all(row and column and row == row.strip() for row, column, _ in lines)
                assert all(math.isfinite(value) for _, _, value in lines)


# -- state files -------------------------------------------------------------------------------------------------------
def state(data):
    """A model that can be asked, copied and saved, or a StateError."""
    try:
        model = fs.from_bytes(data)
    except fs.StateError as error:
        assert "\n" not in str(error)
        return
    model.facts()
    again = fs.from_bytes(model.to_bytes())
    assert type(again) is type(model) and again.n_rows == model.n_rows


def reseal(data, change):
    """A state file with other contents and right checksums: change(header, arrays) in place. None if it is no file."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name[:-4]: np.load(io.BytesIO(archive.read(name))) for name in archive.namelist()}
        header = json.loads(members.pop("header").tobytes())
        if not all(isinstance(header, dict) and array.size < 10_000 for array in members.values()):
            return None
    except Exception:  # whatever is wrong with these bytes, they are no state file
        return None
    about = {name: value for name, value in header.items() if name not in ("format", "schema", "arrays")}
    change(about, members)
    try:
        return pack(about, members)
    except (ValueError, TypeError, RecursionError, OverflowError):
        return None


TARGETS = {"svmlight": svmlight, "csv": csv, "state": state, **ROW_TARGETS, **FOLDER_TARGETS}
# Of targets without files in tests/data/corpus: what depends on the machine, or is quickly made.
SEEDS = {**ROW_SEEDS, **FOLDER_SEEDS}
