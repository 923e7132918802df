"""svmlight / libsvm text, through the block parser in C."""

from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_flag, as_integer
from fastsketch._kernels.io import svmlight as kernel
from fastsketch.data.files._input import InputFile, SourceError, whole_lines

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BLOCK_BYTES = 4 << 20
# A row of 20 million values. One line is parsed as a whole: three times its length in memory.
LONGEST_LINE = 256 << 20
# Columns are 32-bit integers, and their number is one too.
MOST_FEATURES = 2**31 - 1

# Names of tables, which are no svmlight text.
TABLES = frozenset((".csv", ".tsv"))


class Block(NamedTuple):
    """Whole lines of text, parsed: the arrays of a CSR matrix with its labels."""

    labels: NDArray[np.float64]  # (n,)
    indptr: NDArray[np.int64]  # (n + 1,)
    indices: NDArray[np.int32]  # (nnz,)
    data: NDArray[np.float64]  # (nnz,)
    width: int  # columns that its largest index needs

    def widest_row(self) -> int:
        """Return the first row that has the largest index."""
        return int(np.searchsorted(self.indptr, int(np.argmax(self.indices)), side="right")) - 1


def read_blocks(
    file: InputFile, block_bytes: int, *, zero_based: bool, line_of: Callable[[int], int] | None = None
) -> Iterator[Block]:
    """Parse an input file, about block_bytes at a time.

    Raises SourceError with the line number and the reason for text that is not svmlight. `line_of` gives the number of
    a line that is counted from 0 where the file is read from; without it that is the first line.
    """
    line = 0
    for text in whole_lines(file, block_bytes, LONGEST_LINE):
        try:
            labels, indptr, indices, data, width, newlines = kernel.parse_block(text, zero_based=zero_based)
        except ValueError:
            try:  # with the numbers of its lines, for which those before may have to be counted
                kernel.parse_block(text, zero_based=zero_based, first_line=line_of(line) if line_of else 1 + line)
            except ValueError as error:
                raise SourceError(f"{file.path}: {error}{_other_table(file.path)}") from None
            raise
        line += newlines
        if len(labels):
            yield Block(labels, indptr, indices, data, width)


def _other_table(path: Path) -> str:
    """Return the hint for a file whose name is that of a table."""
    if TABLES.isdisjoint(path.suffixes):
        return ""
    return " (this is read as svmlight text: of a table, save the numbers with np.save)"


def count_features(file: InputFile, *, zero_based: bool) -> int:
    """Return number of columns: the largest index plus one (zero-based) or the largest index (one-based)."""
    return max((block.width for block in read_blocks(file, BLOCK_BYTES, zero_based=zero_based)), default=0)


def load_svmlight(
    path: str | PathLike[str], *, n_features: int | None = None, zero_based: bool = False
) -> "tuple[csr_array[np.float64], NDArray[np.float64]]":
    """Read a whole svmlight file.

    Parameters
    ----------
    path : str or path
        Text, or compressed text by its suffix (.gz, .bz2, .xz).
    n_features : int, optional
        Number of columns; by default the largest index in the file.
    zero_based : bool, default False
        Whether indices start at 0.

    Returns
    -------
    rows : scipy.sparse.csr_array (n, d), float64
    labels : ndarray (n,), float64

    Raises
    ------
    SourceError
        If the file is missing or damaged, a line is not svmlight (the message names the line; numbers are decimal
        and finite), or an index exceeds n_features.
    TypeError, ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import fastsketch as fs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "rows.svm")
    ...     _ = path.write_text("1 1:0.5 3:2\\n-1 2:1\\n")
    ...     rows, labels = fs.data.load_svmlight(path)
    >>> rows.toarray()
    array([[0.5, 0. , 2. ],
           [0. , 1. , 0. ]])
    >>> labels
    array([ 1., -1.])
    """
    from scipy.sparse import csr_array

    path = Path(path)
    if n_features is not None:
        n_features = as_integer(n_features, "n_features", 0, MOST_FEATURES + 1)
    zero_based = as_flag(zero_based, "zero_based")
    with InputFile(path).held() as file:
        blocks = list(read_blocks(file, BLOCK_BYTES, zero_based=zero_based))
    width = max((block.width for block in blocks), default=0)
    if n_features is None:
        n_features = width
    elif width > n_features:
        raise SourceError(f"{path} has feature {width}, but n_features is {n_features}")
    if not blocks:
        return csr_array((0, n_features)), np.zeros(0)
    starts = np.cumsum([0, *(len(block.data) for block in blocks)])
    indptr = np.concatenate([[0], *(block.indptr[1:] + start for block, start in zip(blocks, starts, strict=False))])
    indices, data, labels = (
        np.concatenate(parts) for parts in zip(*((b.indices, b.data, b.labels) for b in blocks), strict=True)
    )
    indptr = indptr.astype(np.int32 if starts[-1] <= np.iinfo(np.int32).max else np.int64)
    matrix: Any = csr_array((data, indices, indptr), shape=(len(labels), n_features))
    return matrix, labels
