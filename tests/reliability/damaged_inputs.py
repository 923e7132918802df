"""Damaged input files, made one after another by their numbers, read through the library and through the command line.

Run as a child: python damaged_inputs.py FOLDER FIRST STOP prints a line when a case begins and a line with what it came
to, so that the parent knows which case ended or held up the child.
"""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import signal
import sys
import zipfile
from pathlib import Path

import numpy as np
from scipy import sparse

import fastsketch as fs
from fastsketch.cli import main
from fastsketch.data import SourceError, StateError, open_rows
from fastsketch.data.files._table import Dialect
from fastsketch.data.names._events import read_events
from tests.data.sources.helpers import labelled
from tests.fuzz.targets import reference, reference_table

SECONDS, BYTES = 30, 6 << 30  # what one case may take, and what the child may map
GOOD = ("rows", "refused")

ROWS = np.round(np.random.default_rng(0).standard_normal((40, 6)), 4) * (np.arange(240).reshape(40, 6) % 3 > 0)
SVMLIGHT = "".join(
    f"{1 - 2 * (k % 2)} " + " ".join(f"{j + 1}:{value!r}" for j, value in enumerate(row) if value) + "\n"
    for k, row in enumerate(ROWS.tolist())
).encode()
CSV = b"user,item,rating\n" + b"".join(b"u%d,i%d,%.2f\n" % (k % 8, k // 8, 1 + k * 0.1) for k in range(40))
HASH = fs.SketchHash(3, method="fd", block_rows=16, rotation=None).update(ROWS)
PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def _saved(save, *args, **options):
    file = io.BytesIO()
    save(file, *args, **options)
    return file.getvalue()


CSR = sparse.csr_array(ROWS)
FORMATS = {
    "a.npy": _saved(np.save, ROWS),
    "fortran.npy": _saved(np.save, np.asfortranarray(ROWS)),
    "a.npz": _saved(sparse.save_npz, CSR, compressed=False),
    "compressed.npz": _saved(sparse.save_npz, CSR),
    "csc.npz": _saved(sparse.save_npz, CSR.tocsc()),
    "a.svm": SVMLIGHT,
    **{f"a.svm{suffix}": pack(SVMLIGHT) for suffix, pack in PACK.items()},
    "two.svm.bz2": bz2.compress(SVMLIGHT[:900]) + bz2.compress(SVMLIGHT[900:]),
    "two.svm.xz": lzma.compress(SVMLIGHT[:900]) + lzma.compress(SVMLIGHT[900:]),
    "t.csv": CSV,
    **{f"t.csv{suffix}": pack(CSV) for suffix, pack in PACK.items()},
    "m.fsk": HASH.to_bytes(),
}
NAMES = tuple(FORMATS)
PACKED = (".gz", ".bz2", ".xz", ".npz", ".fsk")  # under checksums
WORDS = (b"\0", b"\xff\xfe", b"\r", b'"', b",", b"\n\n", b"1_0", b"nan", b"PK\x05\x06")
GARBAGE = (*WORDS, b":" * 50, b"9" * 300, b"x" * 140_000)


# -- damage ------------------------------------------------------------------------------------------------------------
# Compressed streams that are complete, and that others follow in a file.
WHOLE_STREAMS = (bz2.compress(SVMLIGHT[:900]), lzma.compress(SVMLIGHT[:900]))


def truncated(rng, content):
    return content[: rng.integers(1, len(content))]


def flipped(rng, content):
    out = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        out[rng.integers(len(out))] ^= 1 << rng.integers(8)
    return bytes(out)


def edited(rng, content):
    """Bytes of the first hundred, where the headers are, replaced by such as headers have."""
    out = bytearray(content)
    for _ in range(rng.integers(1, 3)):
        out[rng.integers(min(len(out), 128))] = rng.choice(list(b"0123456789<>|(){}',:Lfiub \0\xff"))
    return bytes(out)


def inserted(rng, content):
    at = rng.integers(len(content) + 1)
    return content[:at] + GARBAGE[rng.integers(len(GARBAGE))] + content[at:]


def removed(rng, content):
    at = rng.integers(len(content))
    return content[:at] + content[at + rng.integers(1, 40) :]


def resealed(rng, content):
    """A member of an archive damaged, under a checksum that is right."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except zipfile.BadZipFile:
        return edited(rng, content)
    name = list(members)[rng.integers(len(members))]
    members[name] = DAMAGES[rng.integers(len(DAMAGES) - 1)](rng, members[name])
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if rng.random() < 0.5 else zipfile.ZIP_STORED) as archive:
        for key, member in members.items():
            archive.writestr(key, member)
    return file.getvalue()


DAMAGES = (truncated, flipped, edited, inserted, removed, resealed)


# -- what is read ------------------------------------------------------------------------------------------------------
def rows_of(path):
    """The rows of a file as a list of rows of (column, value), and their labels."""
    if ".svm" in path.name:
        rows, labels = labelled(path)
        parts = [part for part, _ in open_rows(path).chunks()]
        assert sum(part.shape[0] for part in parts) == rows.shape[0]
        return _triples(rows, labels)
    parts = [sparse.csr_array(part.astype(np.float64)) for part, _ in open_rows(path).chunks()]
    return _triples(sparse.vstack(parts, format="csr"), None) if parts else []


def _triples(rows, labels):
    labels = np.zeros(rows.shape[0]) if labels is None else labels
    found = []
    for label, a, b in zip(labels.tolist(), rows.indptr[:-1], rows.indptr[1:], strict=True):
        columns = rows.indices[a:b].tolist()
        assert columns == sorted(set(columns)) and all(0 <= column < rows.shape[1] for column in columns)
        found.append((label, columns, rows.data[a:b].tolist()))
    return found


def table_of(path):
    events = read_events(path, Dialect(header=True), columns=(0, 1, 2))
    return list(zip(events.users, events.items, events.values.tolist(), strict=True))


def model_of(path):
    model = fs.load(path)
    return model.to_bytes(), model.facts()["n_rows"]


def read(path):
    """All that a file holds, through the public functions."""
    if path.suffix == ".fsk":
        return model_of(path)
    return table_of(path) if path.name.startswith("t.csv") else rows_of(path)


def expectation(path, damage, content, whole):
    """A function that says whether what was read can be right, as far as that can be known."""
    if path.suffix in PACKED and (damage is not resealed or path.suffix not in (".npz", ".fsk")):
        if damage is truncated and content in WHOLE_STREAMS:  # nothing says that another stream followed
            return lambda found: repr(found) == repr(reference(SVMLIGHT[:900], 1)[0])
        return lambda found: damage is not truncated and found == whole
    if path.suffix == ".npy" and len(content) != len(FORMATS[path.name]):
        return lambda found: False
    if path.suffix == ".svm":
        rows, bad = reference(content, 1)
        return lambda found: bad is None and repr(found) == repr(rows)
    if path.suffix == ".csv" and b'"' not in content:
        return lambda found: found == reference_table(content, True, True)
    if path.suffix == ".csv":
        lines = [line for line in content.decode(errors="replace").lstrip("\ufeff").split("\n") if line.strip()]
        return lambda found: len(found) in (len(lines), len(lines) - 1) and len(found) >= len(lines) - 1
    if path.suffix == ".fsk":  # a number of a model may be another one: it is kept as it was read
        return lambda found: fs.from_bytes(found[0]).to_bytes() == found[0]
    # of a matrix, the member of an archive that says its class is not read here
    return lambda found: repr(found) in (repr(as_scipy_reads(path)), repr(whole if path.suffix == ".npz" else None))


def as_scipy_reads(path):
    """What NumPy and SciPy read of an array or of an archive; None where they refuse it."""
    try:
        whole = sparse.load_npz(path) if path.suffix == ".npz" else np.load(path, allow_pickle=False)
        return _triples(sparse.csr_array(whole.astype(np.float64)), None)
    except Exception:
        return None


# -- one case ----------------------------------------------------------------------------------------------------------
def through_the_library(path, right, reader):
    """("rows", "refused" or what is wrong, text)."""
    try:
        found = reader()
    except (SourceError, StateError) as error:
        text = str(error)
        named = path.name in text and "\n" not in text
        return ("refused" if named else "an error that names no file"), text
    except MemoryError as error:
        return "memory", str(error)
    except ValueError as error:  # columns that were asked for, and that a damaged file lacks
        asked = str(error).startswith(("columns: ", "beside: ")) and path.name in str(error)
        return ("refused" if asked else "raw errors"), f"{type(error).__name__}: {error}"
    except Exception as error:
        return "raw errors", f"{type(error).__name__}: {error}"
    return ("rows" if right(found) else "silent wrong"), f"{len(found)} rows"


def commands_of(path, folder):
    """The command lines that read such a file."""
    out, model, rows = str(folder / "out"), str(folder / "good.fsk"), str(folder / "good.npy")
    name = path.name
    if path.suffix == ".fsk":
        return [
            ["info", str(path)],
            ["predict", str(path), rows, "-o", out],
            ["sketch", str(path), "-l", "4", "-o", out],
            ["transform", str(path), rows, "-o", out],
        ]
    if name.startswith("t.csv"):
        return [
            ["recommend", str(path), "--set", "header=yes", "--set", "ridge=1", "-o", out],
            ["learn", str(path), "--set", "header=yes", "--target", "rating", "--regression", "-l", "2", "-o", out],
            ["recommend", str(folder / "items.fsk"), "--set", "header=yes", "--events", str(path)],
        ]
    commands = [["sketch", str(path), "-l", "4", "-o", out], ["transform", model, str(path), "-o", out]]
    if ".svm" in name:
        commands += [
            ["learn", str(path), "-l", "2", "-o", out],
            ["predict", str(folder / "learned.fsk"), str(path), "-o", out],
            ["predict", str(folder / "learned.fsk"), str(path), "--what", "metrics"],
        ]
    return commands


def through_the_command_line(command, path, refused):
    """As through_the_library; `refused`: the library has refused the file."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(command)
    except SystemExit as error:
        return "raw errors", f"exit {error.code}: {err.getvalue()[:300]}"
    except Exception as error:
        return "raw errors", f"{type(error).__name__}: {error}"
    lines = [line for line in err.getvalue().splitlines(True) if not line.startswith("fastsketch: warning: ")]
    text = "".join(lines)
    if status == 0:
        return ("silent wrong" if refused else "said more than one line" if text else "rows"), text
    if status != 2 or text.count("\n") != 1 or not text.startswith("fastsketch: error: "):
        return "raw errors", f"status {status}: {text[:300]}"
    if refused and path.name not in text:
        return "an error that names no file", text
    return "refused", text


def damaged(number, folder):
    """(path, how it was damaged, content, what it held) of a case."""
    rng = np.random.default_rng([7, number])
    name = NAMES[number % len(NAMES)]
    damage = DAMAGES[rng.integers(len(DAMAGES))]
    content = FORMATS[name]
    while content == FORMATS[name]:
        content = damage(rng, content)
    (folder / name).write_bytes(content)
    return folder / name, damage, content


def prepare(folder):
    """The undamaged files, and what each of them holds."""
    wholes = {}
    for name, content in FORMATS.items():
        (folder / name).write_bytes(content)
        wholes[name] = read(folder / name)
    HASH.save(folder / "good.fsk")
    np.save(folder / "good.npy", ROWS)
    (folder / "good.svm").write_bytes(SVMLIGHT)
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["recommend", str(folder / "t.csv"), "-o", str(folder / "items.fsk")]) == 0
        assert main(["learn", str(folder / "good.svm"), "-l", "2", "-o", str(folder / "learned.fsk")]) == 0
    return wholes


def try_all(case_of, first, stop):
    """Cases first, ..., stop - 1; case_of(number): (path, name, read, right, a command that reads it or None)."""
    import resource

    if "ASAN_OPTIONS" not in os.environ:  # the sanitizers' shadow of memory would not fit
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    for number in range(first, stop):
        print(json.dumps({"begin": number}), flush=True)
        signal.alarm(SECONDS)
        path, name, reader, right, command = case_of(number)
        kind, text = through_the_library(path, right, reader)
        print(json.dumps({"case": number, "by": "library", "name": name, "kind": kind, "text": text[:300]}), flush=True)
        if command is not None:
            found, text = through_the_command_line(command, path, kind == "refused")
            about = {"case": number, "by": command[0], "name": name, "kind": found, "text": text[:300]}
            print(json.dumps(about), flush=True)
        signal.alarm(0)


def run(folder, first, stop):
    """Cases first, ..., stop - 1."""
    wholes = prepare(folder)

    def case_of(number):
        path, damage, content = damaged(number, folder)
        commands = commands_of(path, folder)
        command = None if number % 4 else commands[number // 4 % len(commands)]
        right = expectation(path, damage, content, wholes[path.name])
        return path, f"{path.name} {damage.__name__}", lambda: read(path), right, command

    try_all(case_of, first, stop)


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
