"""Read svmlight text as sparse rows with labels: scikit-learn parses blocks of whole lines.

scikit-learn accepts more than the format allows: NaN and infinity, underscores within numbers, carriage returns as
blanks. Each block is searched for these. A block with a violation is checked line by line, so that the error names the
line and the reason.
"""

import io
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files._input import InputFile, SourceError, iterate_whole_lines
from fastsketch.data.sources import _source
from fastsketch.data.sources._foreign import needs
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._source import BLOCK_BYTES, LONGEST_LINE, MAX_FEATURES
from fastsketch.data.sources._text import TextSource

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_NUMBER = re.compile(rb"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
# Violations of the format that scikit-learn accepts. Each contains one of _SUSPECT_BYTES, which are fast to search.
_SUSPECT = re.compile(rb"_|[ \t][+-][0-9]+:|qid(?!:[0-9]+[ \t\r\n])|[\x0b\x0c]|\r(?!\r*\n)")
_SUSPECT_BYTES = b"_", b" +", b" -", b"\t+", b"\t-", b"qid", b"\x0b", b"\x0c"


class SvmlightSource(TextSource):
    """A source that reads the rows of svmlight text as CSR matrices. For a stream, n_features must be given."""

    sparse = complete = labelled = True
    dtype = np.dtype(np.float64)

    def __init__(self, path: Path, options: Options, stream: InputFile | None = None) -> None:
        super().__init__(path, stream)
        self._zero_based = options.zero_based
        if stream is None:
            with InputFile(path) as start:
                head = start.read(4096)
            if b"\0" in head:
                raise SourceError(f"{path} is neither .npy, .npz nor svmlight text")
        elif options.n_features is None:
            raise SourceError(f"{self.name} is read once: how wide its rows are must be known (n_features)")
        _loader()  # ImportError if scikit-learn is not installed
        self.n_features = self._count_features() if options.n_features is None else options.n_features
        if self.n_features == 0:
            raise SourceError(f"{path} holds no features")

    def _count_features(self) -> int:
        """Return the number of columns of a file of svmlight text, read from the last index of each line.

        Indices ascend, so the last index of each line is the largest. The first block is parsed, so that a file of
        another format is refused at once; so is a block in which feature 0 seems to occur in a one-based file.
        """
        n_features, n_lines = 0, 0
        with InputFile(self.path) as file:
            for text in iterate_whole_lines(file, BLOCK_BYTES, LONGEST_LINE):
                if n_lines == 0 or (not self._zero_based and re.search(rb"[ \t]0+:", text)):
                    needed = self._parse(text, n_lines)[0].shape[1]
                else:
                    needed = max(_last_index(line) for line in text.split(b"\n")) + self._zero_based
                n_features = max(n_features, needed)
                n_lines += text.count(b"\n")
        return n_features

    def _blocks(self, file: InputFile) -> "Iterator[tuple[csr_array[Any], NDArray[np.float64]]]":
        n_rows = n_lines = 0
        for text in iterate_whole_lines(file, _source.CHUNK_BYTES, LONGEST_LINE):
            rows, labels = self._parse(text, n_lines)
            if rows.shape[1] > self.n_features:
                entry = int(np.argmax(rows.indices))
                row = n_rows + int(np.searchsorted(rows.indptr, entry, side="right")) - 1
                raise SourceError(
                    f"{self.path}: feature {rows.shape[1]} in row {row}, but n_features is {self.n_features}"
                )
            n_lines += text.count(b"\n")
            n_rows += len(labels)
            if len(labels):
                cast("Any", rows).resize(len(labels), self.n_features)
                yield rows, labels

    def _parse(self, text: bytes, n_before: int) -> "tuple[csr_array[Any], NDArray[np.float64]]":
        """Parse whole lines of svmlight text into CSR rows and labels; the rows are as wide as the largest index.

        Raise SourceError at an invalid line; `n_before` is the number of lines of this source before the text.
        """
        from scipy.sparse import csr_array

        rows, labels, n_features = cast("Any", None), np.empty(0), 0
        try:
            rows, labels = _loader()(io.BytesIO(text), zero_based=self._zero_based)
            n_features = int(rows.indices.max()) + 1 if rows.nnz else 0
            good = n_features <= MAX_FEATURES and np.isfinite(rows.data).all() and np.isfinite(labels).all()
            reason = "" if good else "a number is not finite"
        except (ValueError, OverflowError) as error:
            reason = str(error)
        if reason or _is_suspect(text):
            for number, line in enumerate(text.split(b"\n"), n_before):
                if fault := _fault(line, self._zero_based):
                    raise self._error(number, fault)
        if reason:
            raise self._error(n_before, f"at or after it: {reason}")
        arrays = rows.data, rows.indices.astype(np.int32), rows.indptr.astype(np.int64)
        return csr_array(arrays, shape=(len(labels), n_features)), labels

    def _error(self, n_before: int, reason: str) -> SourceError:
        table = {".csv", ".tsv"} & set(self.path.suffixes)
        hint = " (this is read as svmlight text: of a table, save the numbers with np.save)" if table else ""
        return SourceError(f"{self.path}: line {self.line_at(n_before)}: {reason}{hint}")

    def identity(self) -> dict[str, Any]:
        """Return JSON values that identify the rows: the file, the byte range and how indices are read."""
        return {**super().identity(), "n_features": self.n_features, "zero_based": self._zero_based}

    def is_row(self, line: bytes) -> bool:
        """Return True if a line is a row, not blank or a comment."""
        return bool(line.split(b"#", 1)[0].strip())


def _loader() -> Any:
    return needs("sklearn", "svmlight text", "sklearn.datasets").load_svmlight_file


def _is_suspect(text: bytes) -> bool:
    """Return True if a text may violate a rule of the svmlight format that scikit-learn does not check."""
    likely = text.count(b"\r") != text.count(b"\r\n") or any(part in text for part in _SUSPECT_BYTES)
    return likely and _SUSPECT.search(text) is not None


def _last_index(line: bytes) -> int:
    """Return the feature index of the last index:value pair in a line, or 0 if there is none."""
    pair = line.partition(b"#")[0].rpartition(b":")[0][-20:].split()[-1:]
    return int(pair[0]) if pair and pair[0].isdigit() else 0


def _fault(line: bytes, zero_based: bool) -> str | None:
    """Describe why a line is not valid svmlight text; return None for a valid line."""
    line = line.rstrip(b"\r")
    if b"\r" in line:
        return "a carriage return within a line (lines end in \\n or \\r\\n)"
    tokens = [token for token in re.split(rb"[ \t]+", line.partition(b"#")[0]) if token]
    previous = -1 if zero_based else 0
    for position, token in enumerate(tokens):
        near = f", near {token[:40].decode('ascii', 'replace')!r}"
        index, colon, value = token.partition(b":")
        if position == 1 and index == b"qid":
            if not value.isdigit():
                return f"qid: needs an integer{near}"
            continue
        field = "value" if position else "label"
        if position and not (colon and index.isdigit()):
            return f"expected index:value{near}"
        number = value if position else token
        if not _NUMBER.fullmatch(number):
            return f"the {field} is not a finite decimal number{near}"
        if not math.isfinite(float(number)):
            return f"the {field} is beyond the range of float64{near}"
        if position:
            digits = index.lstrip(b"0") or b"0"
            feature = int(digits[:20])
            if feature == 0 and not zero_based:
                return f"feature index 0 in a one-based file (read it with zero_based=True){near}"
            if feature > MAX_FEATURES - zero_based:
                return f"the feature index exceeds 2**31 - 2{near}"
            if feature <= previous:
                return f"feature indices must increase within a line{near}"
            previous = feature
    return None
