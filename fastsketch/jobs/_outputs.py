"""Outputs of map jobs: parts that are there or not, and become one output when all are.

Until then they lie in a folder beside the output, ``OUT.partial``.
"""

import contextlib
import csv
import io
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files._replacing import replacing
from fastsketch.data.files._state import StateError
from fastsketch.data.files._untrusted import discard, is_link, open_within
from fastsketch.jobs._fields import Fields, Method, Spec, column_names

# Bytes of answers in one row group of Parquet: what readers take at a time; smaller ones cost them, larger ones memory.
GROUP_BYTES = 32 << 20

Append = Callable[[Fields], object]


# Opens what takes the answers of a function for one part, in the order of rows; they count when the block ends. It is
# called with (what they are, the function), pickles as names and numbers, and refuses answers that have no place there.
Writer = Callable[[Spec, Method], contextlib.AbstractContextManager[Append]]


class Sink(ABC):
    """Output of a map job: made of a file for each part, unless a subclass knows better."""

    FOLDER: ClassVar[bool] = False  # whether the output is one
    IN_PLACE: ClassVar[bool] = False  # whether parts whose first row is known are written to the result itself
    RESULT: ClassVar[str]
    SUFFIX: ClassVar[str]

    def begin(self, place: Path) -> None:
        """Make ready a folder that is this job's own, empty or left by a job that was killed.

        A result that is a link, has a second name, or is no file is replaced by an empty file.
        """
        result = place / self.RESULT
        try:
            open_within(place, self.RESULT, "r+b").close()
        except (FileNotFoundError, StateError):
            discard(result)
            result.touch(exist_ok=False)

    @abstractmethod
    def writer(self, place: Path, number: int, first_row: int | None) -> Writer:
        """Return where a part goes; first_row None if it is not known before."""

    def holds(self, place: Path, number: int, first_row: int | None, rows: int, spec: Spec, method: Method) -> bool:
        """Return whether a file holds the answers for the rows of a finished part; asked before `begin`."""
        try:
            name, mode = self._written_to(place, number, first_row)
            with open_within(place, name, mode) as file:
                return self._is_complete(file, first_row, rows, spec, method)
        except (OSError, ValueError, csv.Error):
            return False

    def _written_to(self, place: Path, number: int, first_row: int | None) -> tuple[str, str]:
        """Return the file that a part is written to, and how that must be opened."""
        return self.part(place, number).relative_to(place).as_posix(), "rb"

    @abstractmethod
    def _is_complete(self, file: BinaryIO, first_row: int | None, rows: int, spec: Spec, method: Method) -> bool:
        """Return whether an open file has the size, and the columns, of the answers for so many rows."""

    def wrote(self, name: str) -> bool:
        """Tell whether a file of a folder may be one of an earlier output."""
        return False

    def head(self, spec: Spec, n: int) -> bytes:
        """Return what stands before the answers for n rows."""
        return b""

    def finish(self, place: Path, lengths: list[int], firsts: list[int | None], spec: Spec) -> Path:
        """Join the parts, and return the file or folder to be renamed to the output; the parts stay."""
        result = place / self.RESULT
        with open_within(place, self.RESULT, "r+b") as file:
            file.write(self.head(spec, sum(lengths)))
            for number, length in enumerate(lengths):
                if self.IN_PLACE and firsts[number] is not None:
                    file.seek(length * spec.row_bytes, os.SEEK_CUR)
                elif length:
                    with open_within(place, self.part(place, number).name) as part:
                        shutil.copyfileobj(part, file, 1 << 20)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        return result

    def part(self, place: Path, number: int) -> Path:
        """Return the file of a part."""
        return place / f"part-{number:06d}{self.SUFFIX}"


# -- .npy --------------------------------------------------------------------------------------------------------------
def npy_header(spec: Spec, n: int) -> bytes:
    """Return the header of an array of n answers. Its length does not depend on n: numpy leaves room for 21 digits.

    Raises
    ------
    ValueError
        If there are several answers for a row, or none.
    """
    if len(spec.names) > 1:
        raise ValueError(
            f"an .npy holds one array, and there are {len(spec.names)} for each row ({', '.join(spec.names)}): write "
            ".parquet, or map a function that gives one of them"
        )
    if not spec.row_bytes:
        raise ValueError(f"there is nothing to write: answers are {spec}")
    header = io.BytesIO()
    about: dict[str, Any] = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(spec.dtypes[0])),
        "fortran_order": False,
        "shape": (n, *spec.shapes[0]),
    }
    np.lib.format.write_array_header_1_0(header, about)
    return header.getvalue()


def _bytes_of(fields: Fields, spec: Spec) -> memoryview:
    array: NDArray[Any] = np.ascontiguousarray(next(iter(fields.values())), np.dtype(spec.dtypes[0]))
    return array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


@contextlib.contextmanager
def npy_rows(path: str, first_row: int, spec: Spec, method: Method) -> Generator[Append]:
    """Write rows of an .npy at their place in it; see Writer."""
    # the file is there: a worker that cannot see it must not make one of its own
    with open_within(Path(path).parent, Path(path).name, "r+b") as file:
        file.seek(len(npy_header(spec, 0)) + first_row * spec.row_bytes)
        yield lambda fields: file.write(_bytes_of(fields, spec))
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def npy_part(path: str, spec: Spec, method: Method) -> Generator[Append]:
    """Write rows of an .npy whose place is not known yet; see Writer."""
    npy_header(spec, 0)
    with replacing(path, follow_links=False) as file:
        yield lambda fields: file.write(_bytes_of(fields, spec))


class Npy(Sink):
    """One .npy of all answers, into which every part is written at its own place if that is known."""

    RESULT, SUFFIX = "rows.npy", ".rows"
    IN_PLACE = True

    def writer(self, place: Path, number: int, first_row: int | None) -> Writer:
        """See Sink."""
        if first_row is not None:
            return partial(npy_rows, str(place / self.RESULT), first_row)
        return partial(npy_part, str(self.part(place, number)))

    def _written_to(self, place: Path, number: int, first_row: int | None) -> tuple[str, str]:
        return super()._written_to(place, number, None) if first_row is None else (self.RESULT, "r+b")

    def _is_complete(self, file: BinaryIO, first_row: int | None, rows: int, spec: Spec, method: Method) -> bool:
        size = file.seek(0, os.SEEK_END)
        if first_row is None:
            return size == rows * spec.row_bytes
        return size >= len(npy_header(spec, 0)) + (first_row + rows) * spec.row_bytes

    def head(self, spec: Spec, n: int) -> bytes:
        """See Sink."""
        return npy_header(spec, n)


# -- csv ---------------------------------------------------------------------------------------------------------------
def as_text(value: Any) -> str:
    """Return a cell; numbers have nine digits at most."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


@contextlib.contextmanager
def csv_part(path: str, spec: Spec, method: Method) -> Generator[Append]:
    """Write lines of a part, without a header; see Writer."""
    if any(len(shape) > 1 for shape in spec.shapes):
        raise ValueError(f"a line of csv takes one number or one row of them, answers are {spec}")
    with replacing(path, follow_links=False) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="")
        lines = csv.writer(text, lineterminator="\n")
        yield lambda fields: lines.writerows(map(as_text, row) for row in _lines(fields))
        text.flush()
        text.detach()


def _lines(fields: Fields) -> Iterator[tuple[Any, ...]]:
    columns: list[list[Any]] = []
    for array in fields.values():
        columns += [column.tolist() for column in (array.T if array.ndim == 2 else [array])]
    return zip(*columns, strict=True)


class Csv(Sink):
    """One text of all answers, a line each; `heads` name the columns, and without any there is no such line."""

    RESULT, SUFFIX = "rows.csv", ".csv"

    def __init__(self, heads: list[str]) -> None:
        self._heads = heads

    def writer(self, place: Path, number: int, first_row: int | None) -> Writer:
        """See Sink."""
        return partial(csv_part, str(self.part(place, number)))

    def _is_complete(self, file: BinaryIO, first_row: int | None, rows: int, spec: Spec, method: Method) -> bool:
        width = sum(shape[0] if shape else 1 for shape in spec.shapes)
        widths = [len(line) for line in csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))]
        return widths == [width] * rows

    def head(self, spec: Spec, n: int) -> bytes:
        """See Sink."""
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerows([self._heads] if self._heads else [])
        return line.getvalue().encode()


# -- Parquet -----------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def parquet_part(path: str, spec: Spec, method: Method) -> Generator[Append]:
    """Write a file of Parquet; see Writer."""
    pa, pq = arrow()
    schema = _schema(pa, spec, method)
    if is_link(Path(path).parent):
        raise StateError(f"{Path(path).parent} is a link, and no link is followed there: remove it")
    with replacing(path, follow_links=False) as file, pq.ParquetWriter(file, schema) as writer:
        waiting: list[list[Any]] = []
        held = 0

        def flush() -> None:
            nonlocal held
            if waiting:
                columns = [pa.concat_arrays(parts) for parts in zip(*waiting, strict=True)]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            waiting.clear()
            held = 0

        def append(fields: Fields) -> None:
            nonlocal held
            waiting.append([column for array in fields.values() for column in _as_columns(pa, array)])
            held += sum(array.nbytes for array in fields.values())
            if held >= GROUP_BYTES:
                flush()

        yield append
        flush()


def _schema(pa: Any, spec: Spec, method: Method) -> Any:
    """Return names and types of the columns of a part."""
    none = {name: np.empty((0, *shape), dtype) for name, dtype, shape in zip(*spec, strict=True)}
    heads = [head for names in column_names(method, spec) for head in names]
    kinds = [column.type for array in none.values() for column in _as_columns(pa, array)]
    return pa.schema([pa.field(head, kind, nullable=False) for head, kind in zip(heads, kinds, strict=True)])


def _as_columns(pa: Any, array: NDArray[Any]) -> list[Any]:
    """Return the columns of answers of one number each, or of one row of them; rows of bytes are one column."""
    if array.ndim == 2 and array.dtype == np.uint8:
        kind = pa.binary(array.shape[1])
        content = pa.py_buffer(np.ascontiguousarray(array).tobytes())
        return [pa.Array.from_buffers(kind, len(array), [None, content])]
    if array.dtype.kind == "O":
        return [pa.array(array.tolist(), pa.string())]
    # copies: the next answer may lie in the same memory
    parts = array.T if array.ndim == 2 else [array]
    return [pa.array(np.array(part, part.dtype.newbyteorder("=")), from_pandas=False) for part in parts]


class Parquet(Sink):
    """Folder of numbered files of Parquet."""

    FOLDER = True
    RESULT, SUFFIX = "rows", ".parquet"
    NAME = re.compile(r"part-\d{6,}\.parquet")

    def __init__(self) -> None:
        arrow()

    def begin(self, place: Path) -> None:
        """See Sink."""
        result = place / self.RESULT
        if is_link(result) or not result.is_dir():
            discard(result)
            result.mkdir()

    def _is_complete(self, file: BinaryIO, first_row: int | None, rows: int, spec: Spec, method: Method) -> bool:
        pa, pq = arrow()
        try:
            found = pq.ParquetFile(file)
        except pa.ArrowException:
            return False
        return found.metadata.num_rows == rows and found.schema_arrow.equals(_schema(pa, spec, method))

    def writer(self, place: Path, number: int, first_row: int | None) -> Writer:
        """See Sink."""
        return partial(parquet_part, str(self.part(place, number)))

    def wrote(self, name: str) -> bool:
        """See Sink."""
        return self.NAME.fullmatch(name) is not None

    def finish(self, place: Path, lengths: list[int], firsts: list[int | None], spec: Spec) -> Path:
        """See Sink."""
        result = place / self.RESULT
        parts = {self.part(place, number) for number, length in enumerate(lengths) if length}
        for path in set(result.iterdir()) - parts:  # would be read as rows of the table
            discard(path)
        return result

    def part(self, place: Path, number: int) -> Path:
        """See Sink."""
        return super().part(place / self.RESULT, number)


def arrow() -> tuple[Any, Any]:
    """Return (pyarrow, pyarrow.parquet); ImportError names the extra."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("Parquet needs pyarrow: pip install 'fastsketch[arrow]'") from error
    return pyarrow, parquet
