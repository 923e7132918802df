"""A sketch of the rows of one or several files."""

from collections.abc import Iterable
from os import PathLike
from typing import TypedDict, Unpack

from numpy.typing import DTypeLike

from fastsketch.io import open_source
from fastsketch.sketching._engines import Reference, SolverName
from fastsketch.sketching._frequent_directions import FrequentDirections
from fastsketch.sketching._methods import MethodName
from fastsketch.sketching._random_maps import Compressor
from fastsketch.sketching._sized_map import MapKind

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
    **parameters: Unpack[SketchParameters],
) -> FrequentDirections:
    """Sketch the rows of a file, or of several one after another, in constant memory.

    Parameters
    ----------
    path : str, path or iterable of them
        .npy matrices, scipy CSR .npz, or svmlight text (also .gz, .bz2, .xz), all of the same width.
    sketch_size : int, optional
        By default that of FrequentDirections.
    n_features, zero_based
        For svmlight text: see ``fastsketch.io.open_source``.
    **parameters
        The other parameters of FrequentDirections.

    Returns
    -------
    FrequentDirections

    Raises
    ------
    ValueError
        If a file is missing, empty, damaged or of another format, or widths differ.
    """
    sketch = FrequentDirections(**parameters) if sketch_size is None else FrequentDirections(sketch_size, **parameters)
    for item in [path] if isinstance(path, str | PathLike) else path:
        for rows, _ in open_source(item, n_features=n_features, zero_based=zero_based).chunks():
            sketch.update(rows)
    return sketch
