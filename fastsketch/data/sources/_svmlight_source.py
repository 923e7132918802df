"""svmlight text as sparse rows, also with their labels."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files._input import InputFile, Opened, SourceError
from fastsketch.data.files._svmlight import count_features, read_blocks
from fastsketch.data.sources import _source
from fastsketch.data.sources._text import TextSource

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class SvmlightSource(TextSource):
    """svmlight text as blocks of CSR rows.

    A stream (``file``: an open binary file, the path its name in errors) is read once, from where it is, and its width
    must be known.
    """

    sparse = complete = labelled = True
    dtype = np.dtype(np.float64)

    def __init__(self, path: Path, *, n_features: int | None, zero_based: bool, file: Opened | None = None) -> None:
        super().__init__(path, file)
        self._zero_based = zero_based
        if file is None:
            with InputFile(path) as start:
                head = start.read(4096)
            if b"\0" in head:
                raise SourceError(f"{path} is neither .npy, .npz nor svmlight text")
        if n_features is None:
            with InputFile(path, file) as whole:
                n_features = count_features(whole, zero_based=zero_based)
            if n_features == 0:
                raise SourceError(f"{path} holds no features")
        self.n_features = n_features

    def widened(self, n_features: int) -> "SvmlightSource":
        """Return the same text as rows of more columns."""
        return self.varied(n_features=n_features)

    def read(self, start_row: int = 0) -> "Iterator[tuple[csr_array[Any], int]]":
        """See Source."""
        for rows, _, position in self.labelled_chunks(start_row):
            yield rows, position

    def read_beside(self, start_row: int = 0) -> "Iterator[tuple[csr_array[Any], NDArray[np.float64], int]]":
        """See Source: the values are the labels."""
        return self.labelled_chunks(start_row)

    def labelled_chunks(self, start_row: int = 0) -> "Iterator[tuple[csr_array[Any], NDArray[np.float64], int]]":
        """Yield (rows, labels, position), a chunk at a time."""
        from scipy.sparse import csr_array

        row = 0
        with self.opened() as file:
            for block in read_blocks(file, _source.CHUNK_BYTES, zero_based=self._zero_based, line_of=self.line_at):
                n = len(block.labels)
                if block.width > self.n_features:
                    raise SourceError(
                        f"{self.path}: feature {block.width} in row {row + block.widest_row()}, "
                        f"but n_features is {self.n_features}"
                    )
                rows: Any = csr_array((block.data, block.indices, block.indptr), shape=(n, self.n_features))
                first, row = row, row + n
                if row <= start_row:
                    continue
                skipped = max(0, start_row - first)
                position = min(self.size, file.place) if self.repeatable else file.place
                yield (rows[skipped:] if skipped else rows), block.labels[skipped:], position

    def identity(self) -> dict[str, Any]:
        """See Source."""
        return {**super().identity(), "n_features": self.n_features, "zero_based": self._zero_based}

    def is_row(self, line: bytes) -> bool:
        """See TextSource."""
        return bool(line.split(b"#", 1)[0].strip())
