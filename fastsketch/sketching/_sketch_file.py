"""A sketch of the rows of one or several files."""

# pyright: reportPrivateUsage=false

from collections.abc import Iterable
from os import PathLike
from typing import TypedDict, Unpack

from numpy.typing import DTypeLike

from fastsketch._validation import as_integer
from fastsketch.sketching._engines import Reference, SolverName
from fastsketch.sketching._frequent_directions import FrequentDirections
from fastsketch.sketching._methods import MethodName
from fastsketch.sketching._random_maps import Compressor
from fastsketch.sketching._read_again import SecondPass
from fastsketch.sketching._sized_map import MapKind
from fastsketch.sources import open_rows

Path = str | PathLike[str]


class SketchParameters(TypedDict, total=False):
    """Parameters of FrequentDirections that are given by keyword."""

    method: MethodName
    alpha0: float
    beta: float | None
    buffer_size: int | None
    solver: SolverName
    center: bool
    decay: float
    dtype: DTypeLike | None
    compressor: Compressor | MapKind | None
    tolerance: float | None
    tolerance_relative_to: Reference
    max_sketch_size: int | None


def sketch_file(
    path: Path | Iterable[Path],
    sketch_size: int | None = None,
    *,
    n_features: int | None = None,
    zero_based: bool = False,
    passes: int = 1,
    **parameters: Unpack[SketchParameters],
) -> FrequentDirections:
    """Sketch the rows of a file, or of several one after another, in constant memory, in one pass or in two.

    Parameters
    ----------
    path : str, path or iterable of them
        Files of any format of ``fastsketch.open_rows``, folders and globs too, all of the same width; "-" is standard
        input, and like a pipe it can be read in one pass only.
    sketch_size : int, optional
        By default that of FrequentDirections.
    n_features, zero_based
        For svmlight text: see ``fastsketch.open_rows``.
    passes : {1, 2}, default 1
        2: the files are read once more, as ``FrequentDirections.refine`` does. With solver="exact" one pass is enough.
    **parameters
        The other parameters of FrequentDirections.

    Returns
    -------
    FrequentDirections

    Raises
    ------
    ValueError
        If a file is missing, empty, damaged or of another format, widths differ, or two passes are asked for with decay
        or a compressor.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((500, 40))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder, "rows.npy"), rows)
    ...     sketch = fs.sketch_file(Path(folder, "rows.npy"), 16)
    >>> sketch
    <FrequentDirections(sketch_size=16): 500 rows of 40 features>
    """
    sketch = FrequentDirections(**parameters) if sketch_size is None else FrequentDirections(sketch_size, **parameters)
    if as_integer(passes, "passes", 1, 3) == 2:
        sketch._check_rereadable("passes=2")
    source = open_rows(
        path if isinstance(path, str | PathLike) else list(path), n_features=n_features, zero_based=zero_based
    )
    if passes == 2 and not source.repeatable:
        raise ValueError(f"passes=2: {source.name} can be read only once: save it to a file first")
    for rows in source:
        sketch.update(rows)
    if passes == 1 or sketch.n_features is None or sketch._is_exact():
        return sketch
    again = SecondPass.of(sketch)
    for rows in source:
        again.update(rows)
    return again.finish()
