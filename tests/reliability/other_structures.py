"""The Matrix Market whose header and entries do not belong together, and files of indexes whose arrays do not."""

import gzip
import re

import numpy as np

import fastsketch as fs
from fastsketch.data import StateError, open_rows
from fastsketch.data.files import _state as files
from tests.neighbours.toy import toy
from tests.reliability.structures import Case, changed, chosen, extreme, sketching, triples_of

WORDS = [
    "%%MatrixMarket",
    "matrix",
    "coordinate",
    "array",
    "real",
    "pattern",
    "integer",
    "complex",
    "general",
    "symmetric",
]
WORDS += [
    "skew-symmetric",
    "hermitian",
    "%",
    "",
    "\t",
    "1e3",
    "0x1",
    "nan",
    "inf",
    "1_0",
    "-0",
    "1.0",
    "+2",
    "é",
    "\0",
    "\r",
]
DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def market_as_written(text):
    """(triples, rows) of a coordinate matrix, entries of an array, None where a rule is broken: a second reading."""
    lines = text.split("\n")
    head = lines[0].lower().rstrip("\r").split()
    if len(head) != 5 or head[:2] != ["%%matrixmarket", "matrix"]:
        return None
    rest = [line for line in lines[1:] if line.strip(" \t\r")]
    while rest and rest[0].startswith("%"):
        rest.pop(0)
    if not rest or not all(re.fullmatch("[0-9]+", size) for size in rest[0].split()):
        return None
    sizes, dense_form = list(map(int, rest[0].split())), head[2] == "array"
    entries = [line.rstrip("\r").split() for line in rest[1:]]
    width = 1 if dense_form else 2 if head[3] == "pattern" else 3
    if len(sizes) != (2 if dense_form else 3) or any(len(entry) != width for entry in entries):
        return None
    if not all(DECIMAL.fullmatch(word) and np.isfinite(float(word)) for entry in entries for word in entry):
        return None
    if dense_form:
        values = [float(entry[0]) for entry in entries]
        if head[4] != "general" or len(values) != sizes[0] * sizes[1]:
            return None  # the others are made of triangles: not read a second time
        places = [(k % sizes[0], k // sizes[0]) for k in range(len(values))]
    else:
        if len(entries) != sizes[2]:
            return None
        places = [(float(row) - 1, float(column) - 1) for row, column, *_ in entries]
        values = [1.0 if width == 2 else float(entry[2]) for entry in entries]
        if not all(0 <= r < sizes[0] and 0 <= c < sizes[1] and r == int(r) and c == int(c) for r, c in places):
            return None
    found = {}
    for (row, column), value in zip(places, values, strict=True):
        found[int(row), int(column)] = found.get((int(row), int(column)), 0.0) + value
        if head[4] != "general" and row != column:
            mirrored = -value if head[4] == "skew-symmetric" else value
            found[int(column), int(row)] = found.get((int(column), int(row)), 0.0) + mirrored
    return {place: value for place, value in found.items() if value}, sizes[0]


def market(rng, folder):
    """Banners, sizes and entries."""
    form, kind = chosen(rng, [("coordinate", "real"), ("coordinate", "pattern"), ("array", "real")])
    symmetry = chosen(rng, ["general", "general", "symmetric", "skew-symmetric"]) if form == "coordinate" else "general"
    places = sorted({(int(a), int(b)) for a, b in rng.integers(1, 6, (12, 2)) if symmetry == "general" or a > b})
    lines = [["%%MatrixMarket", "matrix", form, kind, symmetry], ["%", "a", "comment"], ["5", "5"]]
    if form == "array":
        lines += [[repr(float(value))] for value in rng.standard_normal(25)]
    else:
        lines[2].append(str(len(places)))
        lines += [[str(a), str(b), *(["0.5"] if kind == "real" else [])] for a, b in places]
    for _ in range(rng.integers(1, 3)):
        at, how = int(rng.integers(min(len(lines), 6) if rng.random() < 0.7 else len(lines))), rng.integers(5)
        if how < 2 and lines[at]:
            k = int(rng.integers(len(lines[at])))
            old = int(lines[at][k]) if lines[at][k].isdigit() else 0
            lines[at][k] = chosen(rng, WORDS) if how else str(extreme(rng, old))
        elif how == 2 and len(lines) > 1:
            del lines[at]
        elif how == 3:
            lines.insert(at, list(chosen(rng, lines)))
        else:
            lines[at] = [*lines[at], chosen(rng, WORDS)]
    text = "\n".join(map(" ".join, lines)) + chosen(rng, ["\n", "", "\n\n", "\r\n"])
    path = folder / chosen(rng, ["x.mtx", "x.mtx.gz"])
    content = text.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)

    def read():
        found, n = {}, 0
        for rows in open_rows(path):
            part = rows.tocoo() if hasattr(rows, "tocoo") else None
            if part is None:
                whole = {(n + r, c): float(rows[r, c]) for r, c in zip(*np.nonzero(rows), strict=True)}
            else:
                whole = triples_of(rows, n)
            found.update({(int(r), int(c)): value for (r, c), value in whole.items()})
            n += rows.shape[0]
        return found, n

    return Case(path, read, lambda found: found == market_as_written(text), sketching(path))


# -- files of indexes --------------------------------------------------------------------------------------------------
ROWS, QUERIES = np.random.default_rng(0).standard_normal((90, 8)), np.random.default_rng(1).standard_normal((3, 8))


def said(path):
    """All that an index says: what it finds, stores and lets go of."""
    index = fs.CodeIndex.load(path)
    found = [part.tolist() for part in index.search(QUERIES, k=min(4, len(index)))]
    assert set(np.ravel(found[1]).tolist()) <= {*index.ids.tolist(), -1}
    told = [index.facts()["n_rows"], index.ids.tolist(), found, index.get(index.ids[:5]).tolist()]
    index.add(ROWS[:2], [10**6, 10**6 + 1])
    index.remove(index.ids[:1])
    index.save(path.parent / "again.fsk")
    return told


def index(rng, folder):
    """A file of an index whose header or arrays say another thing, with right checksums."""
    path = folder / "x.fsk"
    made = fs.CodeIndex(toy(), rows="float32")
    made.add(ROWS)
    made.remove([3, 70])
    made.save(path)
    said(path)  # as it was written it is read
    about, arrays = files.read(path)
    about = {name: value for name, value in about.items() if name not in ("format", "schema", "arrays")}
    for _ in range(rng.integers(1, 3)):
        if rng.integers(2):
            changed(rng, about["state"])
            continue
        name = chosen(rng, sorted(arrays))
        array = arrays[name].copy()
        how = rng.integers(4)
        if how == 0:
            array = array[: rng.integers(len(array) + 1)]
        elif how == 1:
            array = array.astype(chosen(rng, [np.float64, np.int32, np.uint8]))
        elif how == 2 and array.size:
            content = array.reshape(-1).view(np.uint8)
            content[rng.integers(content.size)] ^= 1 << rng.integers(8)
        else:
            array = arrays[chosen(rng, sorted(arrays))]
        arrays[name] = array
    try:
        path.write_bytes(files.pack(about, arrays))
    except (ValueError, TypeError, OverflowError):  # no json
        path.write_bytes(b"")

    def read():
        try:
            return said(path)
        except StateError:
            raise
        except (ValueError, LookupError, TypeError) as error:  # loaded, and then refused by a call
            raise StateError(f"{path}: {error}") from error

    return Case(path, read, lambda found: True, ["info", str(path)])
