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
from fastsketch.data import SourceError
from fastsketch.data.files._input import InputFile
from fastsketch.data.files._state import pack
from fastsketch.data.files._table import Dialect
from fastsketch.data.names._events import extract_events
from fastsketch.data.names._tables import CsvTable
from fastsketch.data.sources import _source
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._svmlight_source import SvmlightSource
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


def svmlight(data):
    """What is read is what a second reader of the same rules reads, bit for bit, whatever the size of a block."""
    for zero_based in (False, True):
        expected, bad = reference(data, 0 if zero_based else 1)
        for chunk_bytes in (_source.CHUNK_BYTES, 16):
            _source.CHUNK_BYTES, usual = chunk_bytes, _source.CHUNK_BYTES
            stream = InputFile(Path("a"), io.BytesIO(data))
            source = SvmlightSource(Path("a"), Options(n_features=2**31 - 1, zero_based=zero_based), stream)
            got = []
            try:
                for rows, labels, _ in source.read_beside():
                    for label, start, stop in zip(labels.tolist(), rows.indptr[:-1], rows.indptr[1:], strict=True):
                        got.append((label, rows.indices[start:stop].tolist(), rows.data[start:stop].tolist()))
            except SourceError as error:
                assert bad is not None and f"a: line {bad}:" in str(error), (str(error), bad)
            else:
                assert bad is None and repr(got) == repr(expected), (bad, got, expected)
            finally:
                _source.CHUNK_BYTES = usual


# -- tables of ids -----------------------------------------------------------------------------------------------------
def reference_table(data, values, header):
    """Lines of a table without quotes, None for one that breaks a rule: a second reading of those in read_events."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    lines = [line.rstrip("\r") for line in text.split("\r" if "\n" not in text else "\n")]
    first = next((line for line in lines if line.strip()), None)
    if b"\0" in data or first is None:
        return None
    marks = [mark for mark in "\t,;" if mark in first]
    lines = [line for line in lines if line.strip(" " if marks[:1] == ["\t"] else None)]
    if any("\r" in line for line in lines):
        return None
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
    numbers = [cells[2].strip() if values else "0" for cells in table]
    if not all(NUMBER.fullmatch(number.encode()) and math.isfinite(float(number)) for number in numbers):
        return None
    return [(cells[0].strip(), cells[1].strip(), float(n)) for cells, n in zip(table, numbers, strict=True)]


def parsed(data, values, header):
    """What the reader says: (lines, None) or (None, message)."""
    file = InputFile(Path("a"), io.BytesIO(data))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an id such as NA is told
            table = CsvTable(file, Dialect(header), len(data))
            if 0 < table.width < (3 if values else 2):
                raise table.error(table.begins, "more columns are needed")
            users, items, numbers, *_ = extract_events(table, range(3 if values else 2))
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
                ends = "\r" if b"\n" not in data else "\n"
                text = [line for line in data.decode("utf-8-sig").split(ends) if line.strip()]
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
