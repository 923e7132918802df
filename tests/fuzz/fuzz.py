"""Fuzzing guided by coverage (Atheris): python tests/fuzz/fuzz.py TARGET [libFuzzer options].

Targets: svmlight, csv, state, table, npz, market (Matrix Market), manifest (of jobs of fs.run and
fs.map_rows), nested (states within states). Seeds are in tests/data/corpus, or made when it begins; what is
found on the way stays in a temporary folder, and a finding is written beside the place where this is run. Coverage is
that of the Python modules; what libraries parse is compared with a reference in Python. State files are
changed inside, too, and sealed again with right checksums: no random change gets past a checksum.
"""

import io
import json
import random
import sys
import tempfile
import zipfile
from pathlib import Path

import atheris
import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))
TARGET_MODULES = ["tests.fuzz.targets", "tests.fuzz.row_targets", "tests.fuzz.folder_targets"]
with atheris.instrument_imports(include=["fastsketch", *TARGET_MODULES]):
    import fastsketch as fs
    from fastsketch.data.files._state import pack
    from tests.fuzz.folder_targets import inner_arrays
    from tests.fuzz.targets import CORPUS, SEEDS, TARGETS, reseal
    from tests.reliability.job_folders import crafted_manifest
    from tests.reliability.states import read

    for name in fs.__all__:  # what is imported on its first use
        getattr(fs, name)

BLANKS = ["\r\n", "\r", " ", "\t"]
WORDS = {
    "svmlight": [*BLANKS, "qid:", "#", ":", "1:1", "1e-5", "9007199254740993", "2147483647", "2147483648", "nan", "_"],
    "csv": [*BLANKS, '"', '""', '","', "\ufeff", "rating", "4.5", "nan", "1_0", ";", ",", "1e5", "\0"],
    "market": [
        *BLANKS,
        *["coordinate", "array", "real", "integer", "pattern", "general", "symmetric", "skew-symmetric"],
        "%",
        "0",
        "1e9",
    ],
    "table": [*BLANKS, '"', '""', ",", ";", "|", "\ufeff", "NA", "1,5", "1.5", "1_0", "1e999", "\0", "2024-01-02"],
}
# Bytes of an input, at most, where a manifest or states within states are longer than others.
LENGTHS = {"manifest": 1 << 15, "nested": 1 << 17}
WHOLE = [-1, 0, 1, 2, 3, 7, 255, 2**31 - 1, 2**31, 2**40, 2**63 - 1]
NUMBERS = [*WHOLE, 1e308, -0.0, float("nan"), float("inf"), None, True]


def mutate_text(words):
    """Half of the changes put in a word or repeat a part; the others are the fuzzer's own."""

    def mutate(data, max_size, seed):
        draw = random.Random(seed)
        if draw.random() < 0.5:
            return atheris.Mutate(data, max_size)
        at = draw.randint(0, len(data))
        stop = draw.choice([at, at, min(len(data), at + draw.randint(1, 8))])
        part = draw.choice([draw.choice(words).encode(), data[stop : stop + draw.randint(1, 20)]])
        return (data[:at] + part + data[stop:])[:max_size]

    return mutate


def change_value(draw, holder, key):
    """One value of a header: another number, another type, or a part of it."""
    value = holder[key]
    if isinstance(value, dict) and value and draw.random() < 0.9:
        return change_value(draw, value, draw.choice(list(value)))
    if isinstance(value, list) and value and draw.random() < 0.8:
        return change_value(draw, value, draw.randrange(len(value)))
    if isinstance(value, int | float) and draw.random() < 0.5:
        holder[key] = value + draw.choice([-1, 1]) if value == value else 0
    elif draw.random() < 0.9 or not isinstance(holder, dict):
        holder[key] = draw.choice([*NUMBERS, "", "gram", [], {}])
    else:
        del holder[key]
    return None


def mutate_manifest(data, max_size, seed):
    """A manifest with other values; sometimes bytes."""
    draw = random.Random(seed)
    try:
        if draw.random() < 0.2:
            raise ValueError
        manifest = crafted_manifest(json.loads(data[1:]), np.random.default_rng(seed))
        out = data[:1] + json.dumps(manifest).encode()
    except (ValueError, RecursionError):  # what is none is changed by bytes alone
        return atheris.Mutate(data, max_size)
    return out if len(out) <= max_size else atheris.Mutate(data, max_size)


def mutate_npz(data, max_size, seed):
    """Members of a zip file with other bytes, another length or another header of an array; sometimes bytes."""
    draw = random.Random(seed)
    if draw.random() < 0.2:
        return atheris.Mutate(data, max_size)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
        name = draw.choice(list(members))
        member = members[name]
        kind = draw.random()
        if kind < 0.5:  # one of the numbers, or of the letters of a header
            array = np.load(io.BytesIO(member)).copy()
            value = draw.choice(NUMBERS[:-2])
            if array.size and array.dtype.kind in "fiu":
                with np.errstate(all="ignore"):
                    limits = np.iinfo(array.dtype) if array.dtype.kind in "iu" else None
                    whole = 0 if value != value or abs(value) == np.inf else int(value)
                    array.flat[draw.randrange(array.size)] = (
                        value if limits is None else max(limits.min, min(limits.max, whole))
                    )
            else:
                array = np.array(draw.choice([b"csr", b"csc", b"coo", b"bsr", b"\xff", "csr"]))
            out = io.BytesIO()
            np.save(out, array)
            members[name] = out.getvalue()
        elif kind < 0.6:
            members[draw.choice(list(members))] = member
        elif kind < 0.65:
            del members[name]
        else:
            members[name] = bytes(atheris.Mutate(member, len(member) + 16))
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
            for name, member in members.items():
                archive.writestr(name, member)
    except Exception:  # whatever is wrong with these bytes, they are changed as bytes
        return atheris.Mutate(data, max_size)
    return out.getvalue() if out.tell() <= max_size else atheris.Mutate(data, max_size)


def mutate_nested(data, max_size, seed):
    """Change a state that is held by another as states are changed, put the whole in its place, or change the other."""
    draw = random.Random(seed)
    try:
        about, arrays = read(data)
        name = draw.choice(inner_arrays(arrays))
    except (fs.StateError, LookupError):
        return atheris.Mutate(data, max_size)
    if draw.random() < 0.3:
        return mutate_state(data, max_size, seed)
    inner = data if draw.random() < 0.2 else bytes(mutate_state(arrays[name].tobytes(), max_size, seed))
    out = pack(about, {**arrays, name: np.frombuffer(inner, np.uint8)})
    return out if len(out) <= max_size else atheris.Mutate(data, max_size)


def mutate_state(data, max_size, seed):
    """A value of the header or of an array, a length, a dtype; sometimes bytes."""
    draw = random.Random(seed)

    def change(header, arrays):
        for _ in range(draw.choice([1, 1, 1, 2, 3])):
            if header and (not arrays or draw.random() < 0.5):
                change_value(draw, header, draw.choice(list(header)))
                continue
            if not arrays:
                continue
            name = draw.choice(list(arrays))
            array = arrays[name].copy()
            kind = draw.random()
            with np.errstate(all="ignore"):
                if kind < 0.6 and array.size and array.dtype.kind in "fiu":
                    value = draw.choice([*NUMBERS[:-2], -5, 1e-300])
                    info = np.iinfo(array.dtype) if array.dtype.kind in "iu" else None
                    if info is not None:
                        value = 0 if value != value or abs(value) == np.inf else int(value)
                        value = max(info.min, min(info.max, value))
                    array.flat[draw.randrange(array.size)] = value
                elif kind < 0.75:
                    array = array[: draw.randint(0, len(array))] if array.ndim else array[None]
                elif kind < 0.9:
                    array = array.astype(draw.choice(["f4", "f8", "i4", "i8", "u1", "?"]))
                else:
                    array = array.ravel() if draw.random() < 0.5 else array[None]
            arrays[name] = array

    out = reseal(data, change) if draw.random() < 0.9 else None
    return out if out is not None and len(out) <= max_size else atheris.Mutate(data, max_size)


def keeping(target):
    """The function of a target, which leaves the bytes that it fails at in a file."""

    def call(data):
        try:
            TARGETS[target](data)
        except BaseException:
            Path(f"{target}-finding").write_bytes(data)
            raise

    return call


MUTATIONS = {
    "state": mutate_state,
    "manifest": mutate_manifest,
    "npz": mutate_npz,
    "nested": mutate_nested,
}


def main():
    """Run one target."""
    target, options = sys.argv[1], sys.argv[2:]
    mutate = MUTATIONS.get(target) or mutate_text(WORDS[target])
    with tempfile.TemporaryDirectory() as found:
        for number, seed in enumerate(SEEDS[target]() if target in SEEDS else ()):
            Path(found, f"seed-{number}").write_bytes(seed)
        folders = [found, *([str(CORPUS / target)] if target not in SEEDS else [])]
        limits = [
            "-timeout=20",
            "-rss_limit_mb=3000",
            f"-max_len={LENGTHS.get(target, 512 if target in WORDS else 1 << 14)}",
        ]
        arguments = [sys.argv[0], *limits, f"-artifact_prefix=./{target}-", *options, *folders]
        atheris.Setup(arguments, keeping(target), custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
