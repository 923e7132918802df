"""Fuzzing guided by coverage (Atheris): python tests/fuzz/fuzz.py {svmlight,csv,state,table,arrow} [libFuzzer options].

Seeds are in tests/data/corpus; what is found on the way stays in a temporary folder, and a finding is written beside
the place where this is run. Coverage is that of the Python modules; the parser in C is compared with a reference in
Python, whose branches are as many. State files are changed inside, too, and sealed again with right checksums: no
random change gets past a checksum.
"""

import random
import sys
import tempfile
from pathlib import Path

import atheris
import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))
with atheris.instrument_imports(include=["fastsketch", "tests.fuzz.targets", "tests.fuzz.row_targets"]):
    import fastsketch as fs
    from tests.fuzz.targets import CORPUS, TARGETS, reseal

    for name in fs.__all__:  # what is imported on its first use
        getattr(fs, name)

BLANKS = ["\r\n", "\r", " ", "\t"]
WORDS = {
    "svmlight": [*BLANKS, "qid:", "#", ":", "1:1", "1e-5", "9007199254740993", "2147483647", "2147483648", "nan", "_"],
    "csv": [*BLANKS, '"', '""', '","', "\ufeff", "rating", "4.5", "nan", "1_0", ";", ",", "1e5", "\0"],
    "table": [*BLANKS, '"', '""', ",", ";", "|", "\ufeff", "NA", "1,5", "1.5", "1_0", "1e999", "\0", "2024-01-02"],
}
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


def mutate_arrow(data, max_size, seed):
    """Put another whole number where one may stand: an offset, a length, a count; sometimes bytes."""
    draw = random.Random(seed)
    if len(data) < 16 or draw.random() < 0.3:
        return atheris.Mutate(data, max_size)
    out, width = bytearray(data), draw.choice([1, 2, 4, 4, 8, 8])
    at = draw.randrange(len(data) // width) * width
    out[at : at + width] = (draw.choice([*WHOLE, -2, -8, 2**62]) % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(out[: len(data)])


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


def main():
    """Run one target."""
    target, options = sys.argv[1], sys.argv[2:]
    mutate = {"state": mutate_state, "arrow": mutate_arrow}.get(target) or mutate_text(WORDS[target])
    with tempfile.TemporaryDirectory() as found:
        limits = ["-timeout=20", "-rss_limit_mb=3000", "-max_len=512" if target in WORDS else "-max_len=16384"]
        arguments = [sys.argv[0], *limits, f"-artifact_prefix=./{target}-", *options, found, str(CORPUS / target)]
        atheris.Setup(arguments, keeping(target), custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
