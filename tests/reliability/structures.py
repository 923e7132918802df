"""What files that are wrong by structure have in common: how they are made wrong, read, and compared.

A maker (the modules beside this one) writes a file by a random number generator and says how it is read and what may
come of it: what a second reading by other means gives, or what was put in. A refusal is right in any case.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastsketch.data import open_rows

FILL = -7.25
EXTREMES = [-(2**63), -(2**31), -8, -2, -1, 0, 1, 2, 3, 7, 255, 2**31 - 1, 2**31, 2**32 + 1, 2**40, 2**62, 2**63 - 1]


class Case(NamedTuple):
    """One file, or one table of a library that hands it over."""

    path: Path
    read: Callable[[], Any]
    right: Callable[[Any], bool]
    command: list[str] | None = None  # that reads it too


def extreme(rng, old=0):
    """A count that is none, or one beside the old one."""
    return int(rng.choice([old - 1, old + 1, 2 * old])) if rng.random() < 0.3 else EXTREMES[rng.integers(len(EXTREMES))]


def chosen(rng, options):
    return options[rng.integers(len(options))]


def dense(path, **options):
    """All rows of a file."""
    found = [np.array(rows.toarray() if hasattr(rows, "toarray") else rows) for rows in open_rows(path, **options)]
    return np.concatenate(found) if found else np.empty((0, 0))


def same(found, expected):
    """Whether rows are these, to the bit of their type."""
    expected = np.asarray(expected, np.float64)
    if found.size == 0 or expected.size == 0:
        return found.size == expected.size
    with np.errstate(over="ignore"):
        return found.shape == expected.shape and np.array_equal(found, expected.astype(found.dtype), equal_nan=True)


def sketching(path, *flags):
    """The command that reads such a file."""
    return ["sketch", str(path), "-l", "2", "--fill", str(FILL), *flags]


def edited(rng, content, zones):
    """Some whole numbers of 1, 2, 4 or 8 bytes replaced in one of the zones."""
    out = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        begin, end = chosen(rng, chosen(rng, [some for some in zones if some]))
        width, kind = chosen(rng, [(1, "B"), (2, "<H"), (4, "<I"), (4, "<I"), (8, "<Q"), (8, "<Q")])
        at = begin + width * int(rng.integers(max(1, (end - begin) // width)))
        if at + width <= len(out):
            old = struct.unpack_from(kind, out, at)[0]
            struct.pack_into(kind, out, at, extreme(rng, old) % (1 << 8 * width))
    return bytes(out)


def changed(rng, tree):
    """One value somewhere in what json holds replaced, removed or put in; in place."""
    while tree:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        key = chosen(rng, keys)
        if isinstance(tree[key], dict | list) and tree[key] and rng.random() < 0.8:
            tree = tree[key]
            continue
        old = tree[key]
        if rng.random() < 0.15:
            del tree[key]
        elif isinstance(old, int) and rng.random() < 0.7:
            tree[key] = extreme(rng, int(old))
        else:
            others = [
                None,
                [],
                {},
                "",
                "x",
                -1,
                1.5,
                True,
                [2**40, 2**40],
                "float32",
                "<i8",
                "C",
                "../other",
                old,
                [old],
            ]
            tree[key] = chosen(rng, others)
        return


def triples_of(rows, first=0):
    """{(row, column): sum of what stands there} of CSR."""
    coo, out = rows.tocoo(), {}
    for place, value in zip(
        zip((coo.row + first).tolist(), coo.col.tolist(), strict=True), coo.data.tolist(), strict=True
    ):
        out[place] = out.get(place, 0.0) + (FILL if value != value else float(value))
    return {place: value for place, value in out.items() if value}
