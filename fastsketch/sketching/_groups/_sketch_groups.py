"""One pass over rows of many groups."""

# pyright: reportPrivateUsage=false

from collections.abc import Callable, Sequence
from os import PathLike, fspath
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastsketch._core.progress import ProgressLine
from fastsketch._core.validation import as_real, as_rows, is_sparse, natural_dtype, not_finite
from fastsketch._kernels.sketching import groups as kernel
from fastsketch.data.sources import Source, naming
from fastsketch.sketching._groups._gathering import Gathering
from fastsketch.sketching._groups._keys import KeyMap, kind_of
from fastsketch.sketching._groups._rows import KeyedRows
from fastsketch.sketching._groups._sketches import GroupMethod, GroupSketches
from fastsketch.sketching._plain_rows import plain_rows

# Sparse rows are made dense so many bytes at a time.
DENSE_BYTES = 4 << 20

Progress = Callable[[dict[str, Any]], object]


def sketch_groups(
    source: Any,
    *,
    by: str | int | ArrayLike,
    sketch_size: int = 16,
    method: GroupMethod = "rfd",
    alpha0: float = 0.0,
    beta: float | None = None,
    buffer_size: int | None = None,
    center: bool = False,
    dtype: DTypeLike | None = None,
    columns: str | Sequence[str | int] | None = None,
    fill: float | None = None,
    key: str | None = None,
    header: bool | None = None,
    separator: str | None = None,
    decimal: str = ".",
    n_features: int | None = None,
    zero_based: bool = False,
    max_memory: float = 1e9,
    folder: str | PathLike[str] | None = None,
    progress: bool | Progress | None = None,
) -> GroupSketches:
    """Sketch every group of rows by itself, in one pass over rows that come in any order.

    Parameters
    ----------
    source
        Whatever ``fs.open_rows`` takes. Sparse rows are made dense a few megabytes at a time.
    by : str, int, or array_like (n,)
        The column whose values are the keys of the groups, by name or position: the rows are then without it. Or the
        keys of the rows themselves. Integers of 64 bits, or strings, as keys of csv text always are.
    sketch_size, method, alpha0, beta, buffer_size, center, dtype
        Of every sketch: see ``GroupSketches``. Without a dtype, that of the first chunk of rows.
    columns, fill, key, header, separator, decimal, n_features, zero_based
        As for ``fs.open_rows``; positions in columns count the columns without that of the keys.
    max_memory : float, default 1e9
        Bytes that the groups may take up. Beyond that, rows of groups that have not filled a buffer go to temporary
        files, and so does the result, as far as it does not fit.
    folder : str or path, optional
        Where temporary files are, by default the system's place for them. They take as many bytes as the rows (and 8 a
        row), at most; no folder lists them, and they vanish with the process, however it ends.
    progress : bool or callable, optional
        Whether a line on standard error shows how far it has come, by default on a terminal. A callable gets a dict
        after every chunk: rows, rows_per_second, seconds, fraction (of the source; None if its size is not known),
        groups, spilled (whether rows have gone to disk) and final.

    Returns
    -------
    GroupSketches

    Raises
    ------
    TypeError, ValueError
        For rows or keys that cannot be: a row without a key (null) is named by its file and place.
    OSError
        If there is no space for temporary files.

    Notes
    -----
    ``groups[key]`` has the bits of a ``FrequentDirections(sketch_size, solver="gram", ...)`` that has been updated with
    the rows of this group alone, in their order, for any max_memory and any number of threads. (Its state would differ
    where rows are so large or so small that sketches store them divided by a power of two, and some become denormal.)

    Memory beside max_memory: a few chunks of rows (8 MB each), and what the system keeps of files. A group takes up
    (l + b) d numbers and 16 (l + 1) + 320 bytes and its key, b the buffer size; one with fewer rows than its buffer
    takes at most half as much again as these.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((1000, 12))
    >>> shops = np.where(np.arange(1000) % 10 < 7, "north", "south")
    >>> groups = fs.sketch_groups(rows, by=shops, sketch_size=4)
    >>> {key: sketch.n_rows for key, sketch in groups.items()}
    {'north': 700, 'south': 300}
    """
    groups = GroupSketches(
        sketch_size, method=method, alpha0=alpha0, beta=beta, buffer_size=buffer_size, center=center, dtype=dtype
    )
    max_memory = as_real(max_memory, "max_memory", 0.0, float(np.finfo(float).max))
    options: dict[str, Any] = {
        "fill": fill,
        "key": key,
        "header": header,
        "separator": separator,
        "decimal": decimal,
        "n_features": n_features,
        "zero_based": zero_based,
    }
    rows = KeyedRows(source, by, columns=columns, options=options)
    _fill(groups, rows, max_memory=max_memory, folder=None if folder is None else fspath(folder), progress=progress)
    return groups


def _fill(
    groups: GroupSketches, rows: KeyedRows, *, max_memory: float, folder: str | None, progress: bool | Progress | None
) -> None:
    index, packed = KeyMap(), None
    gathering: Gathering | None = None
    reported = _PassProgress(progress, rows.source)
    n_rows, place = 0, 0
    try:
        for batch, keys, first, position in rows.chunks():
            if not keys:
                continue
            if gathering is None:
                layout = groups._layout(batch.shape[1], dtype=np.dtype(groups.dtype or natural_dtype(batch.dtype)))
                gathering = Gathering(layout, max_memory=max_memory, folder=folder)
            _check_kind(index, keys, rows, first)
            _add(gathering, as_rows(batch, gathering.layout.n_features), index.numbers(keys), len(index), rows, first)
            n_rows, place = first + batch.shape[0], position
            reported.say(n_rows, place, len(index), spilled=gathering.spilled)
        if gathering is not None:
            packed = gathering.finish()
            reported.say(n_rows, place, len(index), spilled=gathering.spilled, final=True)
    finally:
        if gathering is not None:
            gathering.close()
    if packed is not None:
        groups._take_packed(dict(index), packed)
        groups._feature_names = rows.source.feature_names


class _PassProgress:
    """Line, or calls, that say how far a pass has come."""

    def __init__(self, wanted: bool | Progress | None, source: Source) -> None:
        if not (wanted is None or isinstance(wanted, bool) or callable(wanted)):
            raise TypeError(f"progress must be True, False, None or a function, got {type(wanted).__name__}")
        self._call = wanted if callable(wanted) else None
        self._line = ProgressLine(source.name, False if callable(wanted) else wanted)
        self._size, self._started = source.size, perf_counter()

    def say(self, n_rows: int, position: int, n_groups: int, *, spilled: bool, final: bool = False) -> None:
        """Report after a chunk, and at the end."""
        fraction = 1.0 if final else min(1.0, position / self._size) if self._size else None
        self._line.show(fraction or 0.0, n_rows, final=final, more={"groups": n_groups})
        if self._call is not None:
            seconds = perf_counter() - self._started
            self._call(
                {
                    "rows": n_rows,
                    "rows_per_second": n_rows / max(seconds, 1e-9),
                    "seconds": seconds,
                    "fraction": fraction,
                    "groups": n_groups,
                    "spilled": spilled,
                    "final": final,
                }
            )


def _check_kind(index: KeyMap, keys: list[Any], rows: KeyedRows, first: int) -> None:
    if index and kind_of(keys) != kind_of(index):
        raise ValueError(
            f"{rows.source.where(first)}: the key {keys[0]!r}, after {next(iter(index))!r}: "
            "keys must be all integers or all strings"
        )


def _add(
    gathering: Gathering, batch: Any, which: NDArray[np.int64], n_groups: int, rows: KeyedRows, first: int
) -> None:
    """Add the rows of a chunk, sparse ones a stretch at a time."""
    layout, n = gathering.layout, batch.shape[0]
    step = max(1, DENSE_BYTES // max(1, layout.row_bytes)) if is_sparse(batch) else n
    for start in range(0, n, step):
        plain = plain_rows(batch if step == n else batch[start : start + step], layout.dtype)
        largest = np.empty(len(plain))
        bad = kernel.scan(plain, largest)
        if bad >= 0:
            with naming(rows.source, first):
                raise not_finite(start + bad, layout.dtype)
        gathering.add(plain, largest, which[start : start + step], n_groups)
