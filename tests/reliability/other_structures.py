"""The Matrix Market whose header and entries do not belong together, and folders of indexes whose files do not."""

import gzip
import re
import shutil
import zlib

import numpy as np

import fastsketch as fs
from fastsketch.data import StateError, open_rows
from fastsketch.neighbours.index import _index_files as _files
from tests.neighbours.index.toy import toy
from tests.reliability.structures import Case, changed, chosen, edited, extreme, sketching, triples_of

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


# -- folders of indexes ------------------------------------------------------------------------------------------------
ROWS, QUERIES = np.random.default_rng(0).standard_normal((90, 8)), np.random.default_rng(1).standard_normal((3, 8))


def said(folder):
    """All that an index says: what it finds, keeps and lets go of."""
    index = fs.CodeIndex.load(folder, verify=True)
    found = [part.tolist() for part in index.search(QUERIES, k=min(4, len(index)))]
    assert set(np.ravel(found[1]).tolist()) <= set(index.ids.tolist())
    told = [index.facts()["n_rows"], index.ids.tolist(), found, index.get(index.ids[:5]).tolist()]
    index.add(ROWS[:2], [10**6, 10**6 + 1])
    index.remove(index.ids[:1])
    index.save(folder.parent / "again.index")
    return told


def index(rng, folder):
    """A manifest that says another thing, and files that are not those it names: with and without right checksums."""
    path = folder / "x.index"
    for name in ("x.index", "again.index"):
        shutil.rmtree(folder / name, ignore_errors=True)
    made = fs.CodeIndex(toy(), rows="float32")
    for part in (ROWS[:50], ROWS[50:]):
        made.add(part)
        made.save(path)
    made.remove([3, 70])
    made.save(path)
    whole, crafted = said(path), False
    shutil.rmtree(folder / "again.index")
    manifest = path / _files.MANIFEST
    about, _ = _files.files.read(manifest)
    about = {name: value for name, value in about.items() if name not in ("format", "schema", "arrays")}
    for _ in range(rng.integers(1, 3)):
        files = sorted(file for file in path.iterdir() if file.name != _files.MANIFEST and file.is_file())
        how, file = rng.integers(6), chosen(rng, files)
        if how < 2:
            changed(rng, about["state"])
            crafted = True
        elif how < 4:
            content = file.read_bytes()
            file.write_bytes(edited(rng, content, [[(0, 128)], [(128, max(136, len(content)))]]))
            for segment in (
                about["state"]["segments"] if how == 3 and isinstance(about["state"].get("segments"), list) else []
            ):
                for one in segment["files"].values() if isinstance(segment, dict) and "files" in segment else []:
                    if one[:1] == [file.name]:
                        one[1:] = [zlib.crc32(file.read_bytes()[128:])]
                        crafted = True
        elif how == 4:
            file.write_bytes(chosen(rng, files).read_bytes())
        else:
            file.unlink()
            if rng.random() < 0.5:
                file.symlink_to(chosen(rng, [folder, path / "none", file, manifest]))
    try:
        _files.files.write(manifest, _files.files.pack(about, {}))
    except (ValueError, TypeError, OverflowError):  # no json
        manifest.unlink()

    def read():
        try:
            return said(path)
        except StateError:
            raise
        except (ValueError, LookupError, TypeError) as error:  # loaded, and then refused by a call
            raise StateError(f"{path}: {error}") from error

    return Case(path, read, lambda found: crafted or found == whole, ["info", str(path)])
