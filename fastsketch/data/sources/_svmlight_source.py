"""svmlight text as sparse rows, also with their labels."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files._input import InputFile, SourceError
from fastsketch.data.files._svmlight import count_features, read_blocks
from fastsketch.data.sources import _source
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._streams import Stream
from fastsketch.data.sources._text import TextSource

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class SvmlightSource(TextSource):
    """svmlight text as blocks of CSR rows; a stream is read once, from where it is, and its width must be known."""

    sparse = complete = labelled = True
    dtype = np.dtype(np.float64)

    def __init__(self, path: Path, options: Options, stream: Stream | None = None) -> None:
        super().__init__(path, stream)
        n_features, self._zero_based = options.n_features, options.zero_based
        if stream is None:
            with InputFile(path) as start:
                head = start.read(4096)
            if b"\0" in head:
                raise SourceError(f"{path} is neither .npy, .npz nor svmlight text")
        elif n_features is None:
            raise SourceError(f"{self.name} is read once: how wide its rows are must be known (n_features)")
        if n_features is None:
            with InputFile(path) as whole:
                n_features = count_features(whole, zero_based=self._zero_based)
            if n_features == 0:
                raise SourceError(f"{path} holds no features")
        self.n_features = n_features

    def _blocks(self, file: InputFile) -> "Iterator[tuple[csr_array[Any], NDArray[np.float64]]]":
        from scipy.sparse import csr_array

        row = 0
        for block in read_blocks(file, _source.CHUNK_BYTES, zero_based=self._zero_based, line_of=self.line_at):
            n = len(block.labels)
            if block.width > self.n_features:
                raise SourceError(
                    f"{self.path}: feature {block.width} in row {row + block.widest_row()}, "
                    f"but n_features is {self.n_features}"
                )
            row += n
            yield csr_array((block.data, block.indices, block.indptr), shape=(n, self.n_features)), block.labels

    def identity(self) -> dict[str, Any]:
        """See Source."""
        return {**super().identity(), "n_features": self.n_features, "zero_based": self._zero_based}

    def is_row(self, line: bytes) -> bool:
        """See TextSource."""
        return bool(line.split(b"#", 1)[0].strip())
