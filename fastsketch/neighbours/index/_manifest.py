"""The manifest of a saved index: which files it has, and what each of them must hold."""

import re
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_dtype, as_integer
from fastsketch.data.files import _checks as checks
from fastsketch.data.files import _state as files
from fastsketch.data.files._state import StateError
from fastsketch.data.names._id_map import arrays_of, read_ids
from fastsketch.neighbours.codes import Encoder
from fastsketch.neighbours.codes._blocks import CodeRows
from fastsketch.neighbours.codes._places import ascending, with_run
from fastsketch.neighbours.codes._search import METRICS, as_metric
from fastsketch.neighbours.index._cells import LEVELS, Cells
from fastsketch.neighbours.index._contents import Contents
from fastsketch.neighbours.index._generations import MOST_CELLS, as_partitions
from fastsketch.neighbours.index._index_files import MANIFEST, as_name, open_array, read_encoder
from fastsketch.neighbours.index._segment import CODES, IDS, MIDDLES, REMOVED, ROWS, STARTS, Segment, Written, kind_for
from fastsketch.neighbours.index._segment_room import empty_room

KIND = "CodeIndex"
ROW_TYPES: dict[str, np.dtype[Any]] = {"float16": np.dtype(np.float16), "float32": np.dtype(np.float32)}
# Most rows of one segment of a file: positions are kept in 32 bits.
MOST_ROWS = 1 << 31

# What damaged or crafted content raises.
INCONSISTENT = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


class SavedIndex(NamedTuple):
    """Contents of a manifest, and of the files that it names."""

    metric: str
    rows: str | None
    partitions: int | str | None
    contents: Contents
    asked: NDArray[np.floating[Any]] | None
    stamp: str


def describe(
    contents: Contents, encoders: dict[str, str], about: dict[str, Any], asked: NDArray[np.floating[Any]] | None
) -> bytes:
    """Return the manifest of an index whose arrays are written.

    encoders: {fingerprint: file}; about: the stamp, and what the index was made with; asked: rows to try cells by.
    """
    numbers = {fingerprint: number for number, fingerprint in enumerate(encoders)}
    state = {
        **about,
        "n_features": contents.encoder.n_features,
        "next_id": contents.next_id,
        "names": None if contents.names is None else contents.names.kind,
        "encoders": [[file, fingerprint] for fingerprint, file in encoders.items()],
        "current": numbers[contents.encoder.fingerprint],
        "segments": [
            {
                "encoder": numbers[segment.encoder.fingerprint],
                "n": len(segment),
                "files": {name: [one.file, one.crc32] for name, one in segment.written.items()},
                "probes": None if segment.cells is None else [*segment.cells.probes],
                "n_cells": None if segment.cells is None else len(segment.cells.middles),
            }
            for segment in contents.segments
        ],
    }
    arrays: dict[str, NDArray[Any]] = {} if asked is None else {"asked": asked}
    if contents.names is not None:
        arrays |= arrays_of(contents.names, "names")
    return files.pack(
        {"kind": KIND, "home": "fastsketch.neighbours.index", "parameters": {}, "notes": {}, "state": state}, arrays
    )


def read_state(folder: Path) -> dict[str, Any]:
    """Read the manifest of a folder, unchecked but for its format; StateError without one. Its arrays are "arrays"."""
    path = folder / MANIFEST
    if not path.exists():
        what = "no index" if folder.is_dir() else "no folder of an index"
        raise StateError(f"{folder} cannot be read: it is {what}, {MANIFEST} is missing")
    about, arrays = files.read(path)
    state: Any = about.get("state")
    if about["kind"] != KIND or not isinstance(state, dict):
        raise StateError(f"{path} is no manifest of an index: it holds a {about['kind']}")
    return {**cast("dict[str, Any]", state), "arrays": arrays}


def stamp_of(state: dict[str, Any]) -> str:
    """Return the mark of one save; ValueError if it is none."""
    stamp: Any = state["stamp"]
    if not isinstance(stamp, str) or not re.fullmatch("[0-9a-f]{32}", stamp):
        raise ValueError(f"{stamp!r} is no stamp of a save")
    return stamp


def named(state: dict[str, Any]) -> list[str]:
    """Return the names of the files of a manifest, as far as they are names."""
    names: list[Any] = [file for file, _ in state["encoders"]]
    for segment in state["segments"]:
        names += [file for file, _ in segment["files"].values()]
    return [name for name in names if isinstance(name, str)]


def read(folder: Path, *, memory_map: bool, verify: bool) -> SavedIndex:
    """Read an index that was saved; StateError for anything else."""
    state = read_state(folder)
    try:
        return _read(folder, state, memory_map=memory_map, verify=verify)
    except StateError:
        raise
    except INCONSISTENT as error:
        raise StateError(f"{folder / MANIFEST} is not consistent: {error}") from error


def _read(folder: Path, state: dict[str, Any], *, memory_map: bool, verify: bool) -> SavedIndex:
    metric, kept = state["metric"], state["rows"]
    if metric not in METRICS or kept not in (None, *ROW_TYPES):
        raise ValueError(f"it has metric={metric!r}, rows={kept!r}")
    d = as_integer(state["n_features"], "n_features", 1, checks.MOST_COLUMNS)
    next_id = checks.as_count(state["next_id"], "next_id")
    encoders = [_encoder(folder, *pair, d=d, metric=metric) for pair in state["encoders"]]
    if len(set(encoders)) < len(encoders):
        raise ValueError("two of its encoders are one")
    current = encoders[as_integer(state["current"], "current", 0, len(encoders))]
    sizes = [checks.as_count(about["n"], "n", 1) for about in state["segments"]]
    if max(sizes, default=0) >= MOST_ROWS:
        raise ValueError(f"n must be below {MOST_ROWS}, got {max(sizes)}")
    segments = tuple(
        _segment(
            encoders[as_integer(about["encoder"], "encoder", 0, len(encoders))],
            n,
            _written(folder, about["files"], kept, in_cells=about.get("probes") is not None),
            kept,
            about,
            kind=kind_for(metric),
            memory_map=memory_map,
            verify=verify,
        )
        for n, about in zip(sizes, state["segments"], strict=True)
    )
    partitions = as_partitions(state.get("partitions"), current)
    room = empty_room(kind_for(metric), current, None if kept is None else ROW_TYPES[kept])
    kind = state.get("names")
    names = None if kind is None else read_ids(state["arrays"], "names", kind)
    if names is not None and (names.kind != "strings" or len(names) < next_id):
        raise ValueError(f"it has {len(names)} names of {names.kind} for ids below {next_id}")
    contents = Contents(segments, room, next_id, names)
    _check_ids(contents)
    asked = state["arrays"].get("asked")
    if asked is not None:
        checks.finite(state["arrays"], "asked", (len(asked), d), as_dtype(asked.dtype))
    return SavedIndex(metric, kept, partitions, contents, asked, stamp_of(state))


def _encoder(folder: Path, name: Any, fingerprint: Any, *, d: int, metric: str) -> Encoder:
    encoder = read_encoder(folder, as_name(name, "encoder"), fingerprint)
    if encoder.n_features != d:
        raise ValueError(f"an encoder is of {encoder.n_features} features, the index of {d}")
    as_metric(metric, encoder)
    return encoder


def _written(folder: Path, about: Any, kept: str | None, *, in_cells: bool) -> dict[str, Written]:
    """Return the files of a segment."""
    expected = {CODES, IDS, *([ROWS] if kept else []), *([MIDDLES, STARTS] if in_cells else [])}
    files_of = cast("dict[str, Any]", about) if isinstance(about, dict) else {}
    if set(files_of) - {REMOVED} != expected:
        raise ValueError(f"a segment must have files of {', '.join(sorted(expected))}, got {about!r}")
    return {
        name: Written(folder, as_name(file, name), as_integer(crc, "checksum", 0, 1 << 32))
        for name, (file, crc) in files_of.items()
    }


def _segment(
    encoder: Encoder,
    n: int,
    written: dict[str, Written],
    kept: str | None,
    about: dict[str, Any],
    *,
    kind: type[CodeRows],
    memory_map: bool,
    verify: bool,
) -> Segment:
    shape, rows = kind.shape(n, encoder.layout), None
    codes = open_array(written[CODES], shape, np.uint8, memory_map=memory_map, verify=True)
    ids = open_array(written[IDS], (n,), np.int64, memory_map=memory_map, verify=True)
    if kept is not None:
        shape = n, encoder.n_features
        rows = open_array(written[ROWS], shape, ROW_TYPES[kept], memory_map=memory_map, verify=verify)
        if verify:
            checks.require_finite(rows, f"{ROWS} of {written[ROWS].file}")
    removed = None
    if REMOVED in written:
        bits = open_array(written[REMOVED], (-(-n // 8),), np.uint8, memory_map=False, verify=True)
        removed = np.unpackbits(bits, count=n, bitorder="little").view(np.bool_)
    cells = _cells(encoder, n, written, about) if MIDDLES in written else None
    return Segment(encoder, kind(encoder.layout, codes, n), ids, rows, removed, with_run((), ids), cells, written)


def _cells(encoder: Any, n: int, written: dict[str, Written], about: dict[str, Any]) -> Cells:
    c = as_integer(about["n_cells"], "n_cells", 2, MOST_CELLS + 1)
    as_partitions(c, encoder)
    shape = c, encoder.basis.shape[1]
    middles = open_array(written[MIDDLES], shape, np.float32, memory_map=False, verify=True)
    starts = open_array(written[STARTS], (c + 1,), np.int64, memory_map=False, verify=True)
    checks.require_finite(middles, f"{MIDDLES} of {written[MIDDLES].file}")
    if starts[0] != 0 or starts[-1] != n or (starts[1:] < starts[:-1]).any():
        raise ValueError(f"its cells must be those of {n} rows")
    probes = tuple(as_integer(one, "probes", 1, c + 1) for one in about["probes"])
    if len(probes) != len(LEVELS):
        raise ValueError(f"probes must be {len(LEVELS)} numbers, got {len(probes)}")
    return Cells(middles, starts, probes)


def _check_ids(contents: Contents) -> None:
    """Raise ValueError unless ids are below the next one, and no two rows that count have the same."""
    for segment in contents.segments:
        if segment.ids.min() < 0 or segment.ids.max() >= contents.next_id:
            raise ValueError(f"an id is outside [0, {contents.next_id})")
    live = contents.live_ids
    if not ascending(live):
        live.sort()
        if not ascending(live):
            raise ValueError("an id comes twice")
