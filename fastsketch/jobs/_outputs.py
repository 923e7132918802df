"""Where answers go while a job is under way: parts that are there or not, and become one output when all are.

They lie in a folder beside the output, ``OUT.partial``: of an .npy one file, into which every part is written at its
own place if that is known, else a file for each part; of a table a file for each part.
"""

import contextlib
import csv
import io
import os
import re
import shutil
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch.io._replacing import temporary_name
from fastsketch.jobs._answers import Fields, Method, Spec, column_names

# Bytes of answers in one row group of Parquet: what readers take at a time; smaller ones cost them, larger ones memory.
GROUP_BYTES = 32 << 20

Put = Callable[[Fields], None]


class Writer(Protocol):
    """Where the answers of one part go; pickles as names and numbers."""

    def open(self, spec: Spec, method: Method) -> "contextlib.AbstractContextManager[Put]":
        """What takes answers of a function, in the order of rows; they count when the block ends.

        Raises ValueError if answers like these have no place there.
        """
        ...


class Sink(Protocol):
    """A kind of output."""

    folder: ClassVar[bool]  # whether the output is one

    def begin(self, place: Path) -> None:
        """Make ready a folder that is this job's own, empty or left by a job that was killed."""
        ...

    def writer(self, place: Path, number: int, first_row: int | None) -> Writer:
        """Where a part goes; first_row None if it is not known before."""
        ...

    def holds(self, place: Path, number: int, first_row: int | None) -> bool:
        """Whether what a finished part has written is there; asked before `begin`."""
        ...

    def wrote(self, name: str) -> bool:
        """Whether a file of a folder may be one of an earlier output."""
        ...

    def finish(self, place: Path, lengths: list[int], firsts: list[int | None], spec: Spec) -> Path:
        """Put the parts together; what is to be called by the name of the output. Nothing that it needs is removed."""
        ...


@contextlib.contextmanager
def whole(path: Path) -> Generator[BinaryIO]:
    """A binary file that has its name when the block ends, with all of its content, and is gone if it fails."""
    temporary = temporary_name(path)
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


# -- .npy --------------------------------------------------------------------------------------------------------------
def npy_header(spec: Spec, n: int) -> bytes:
    """The header of an array of n answers. Its length does not depend on n: numpy leaves room for 21 digits.

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
    found = io.BytesIO()
    about: dict[str, Any] = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(spec.dtypes[0])),
        "fortran_order": False,
        "shape": (n, *spec.shapes[0]),
    }
    np.lib.format.write_array_header_1_0(found, about)
    return found.getvalue()


def _bytes_of(fields: Fields, spec: Spec) -> memoryview:
    array: NDArray[Any] = np.ascontiguousarray(next(iter(fields.values())), np.dtype(spec.dtypes[0]))
    return array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


@dataclass(frozen=True)
class NpyRows:
    """Rows of an .npy at their place in it."""

    path: str
    first_row: int

    @contextlib.contextmanager
    def open(self, spec: Spec, method: Method) -> Generator[Put]:
        """See Writer."""
        # the file is there: a worker that cannot see it must not make one of its own
        with Path(self.path).open("r+b", buffering=0) as file:
            file.seek(len(npy_header(spec, 0)) + self.first_row * spec.row_bytes)
            yield lambda fields: _write_fully(file, _bytes_of(fields, spec))
            os.fsync(file.fileno())


@dataclass(frozen=True)
class NpyPart:
    """The bytes of rows of an .npy whose place is not known yet."""

    path: str

    @contextlib.contextmanager
    def open(self, spec: Spec, method: Method) -> Generator[Put]:
        """See Writer."""
        npy_header(spec, 0)
        with whole(Path(self.path)) as file:
            yield lambda fields: _write_fully(file, _bytes_of(fields, spec))


def _write_fully(file: Any, view: memoryview) -> None:
    done = 0
    while done < len(view):
        done += cast(int, file.write(view[done:]))


class Npy:
    """One .npy of all answers."""

    folder: ClassVar[bool] = False
    RESULT = "rows.npy"

    def begin(self, place: Path) -> None:
        """See Sink."""
        (place / self.RESULT).touch()

    def writer(self, place: Path, number: int, first_row: int | None) -> Writer:
        """See Sink."""
        if first_row is not None:
            return NpyRows(str(place / self.RESULT), first_row)
        return NpyPart(str(self._part(place, number)))

    def holds(self, place: Path, number: int, first_row: int | None) -> bool:
        """See Sink."""
        return (self._part(place, number) if first_row is None else place / self.RESULT).exists()

    def wrote(self, name: str) -> bool:
        """See Sink."""
        return False

    def finish(self, place: Path, lengths: list[int], firsts: list[int | None], spec: Spec) -> Path:
        """See Sink."""
        result, header = place / self.RESULT, npy_header(spec, sum(lengths))
        with result.open("r+b") as file:
            file.write(header)
            row = 0
            for number, length in enumerate(lengths):
                if firsts[number] is None and length:
                    file.seek(len(header) + row * spec.row_bytes)
                    with self._part(place, number).open("rb") as part:
                        shutil.copyfileobj(part, file, 1 << 20)
                row += length
            file.flush()
            file.truncate(len(header) + row * spec.row_bytes)
            os.fsync(file.fileno())
        return result

    @staticmethod
    def _part(place: Path, number: int) -> Path:
        return place / f"{_numbered(number)}.rows"


def _numbered(number: int) -> str:
    return f"part-{number:06d}"


# -- csv ---------------------------------------------------------------------------------------------------------------
def as_text(value: Any) -> str:
    """A cell: numbers as short as they are."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class CsvPart:
    """Lines of a part, without a header."""

    path: str

    @contextlib.contextmanager
    def open(self, spec: Spec, method: Method) -> Generator[Put]:
        """See Writer."""
        if any(len(shape) > 1 for shape in spec.shapes):
            raise ValueError(f"a line of csv takes one number or one row of them, answers are {spec}")
        with whole(Path(self.path)) as file:
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


class Csv:
    """One text of all answers, a line each; `heads` name the columns, and without any there is no such line."""

    folder: ClassVar[bool] = False
    RESULT = "rows.csv"

    def __init__(self, heads: list[str]) -> None:
        self._heads = heads

    def begin(self, place: Path) -> None:
        """See Sink."""

    def writer(self, place: Path, number: int, first_row: int | None) -> Writer:
        """See Sink."""
        return CsvPart(str(place / f"{_numbered(number)}.csv"))

    def holds(self, place: Path, number: int, first_row: int | None) -> bool:
        """See Sink."""
        return (place / f"{_numbered(number)}.csv").exists()

    def wrote(self, name: str) -> bool:
        """See Sink."""
        return False

    def finish(self, place: Path, lengths: list[int], firsts: list[int | None], spec: Spec) -> Path:
        """See Sink."""
        result = place / self.RESULT
        with result.open("wb") as file:
            if self._heads:
                head = io.StringIO()
                csv.writer(head, lineterminator="\n").writerow(self._heads)
                file.write(head.getvalue().encode())
            for number, length in enumerate(lengths):
                if length:
                    with (place / f"{_numbered(number)}.csv").open("rb") as part:
                        shutil.copyfileobj(part, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())
        return result


# -- Parquet -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ParquetPart:
    """A file of Parquet."""

    path: str

    @contextlib.contextmanager
    def open(self, spec: Spec, method: Method) -> Generator[Put]:
        """See Writer."""
        pa, pq = arrow()
        none = {name: np.empty((0, *shape), dtype) for name, dtype, shape in zip(*spec, strict=True)}
        heads = [head for names in column_names(method, spec) for head in names]
        kinds = [column.type for array in none.values() for column in _as_columns(pa, array)]
        schema = pa.schema([pa.field(head, kind, nullable=False) for head, kind in zip(heads, kinds, strict=True)])
        with whole(Path(self.path)) as file, pq.ParquetWriter(file, schema) as writer:
            waiting: list[list[Any]] = []
            held = 0

            def flush() -> None:
                nonlocal held
                if waiting:
                    columns = [pa.concat_arrays(parts) for parts in zip(*waiting, strict=True)]
                    writer.write_table(pa.Table.from_arrays(columns, schema=schema))
                waiting.clear()
                held = 0

            def put(fields: Fields) -> None:
                nonlocal held
                waiting.append([column for array in fields.values() for column in _as_columns(pa, array)])
                held += sum(array.nbytes for array in fields.values())
                if held >= GROUP_BYTES:
                    flush()

            yield put
            flush()


def _as_columns(pa: Any, array: NDArray[Any]) -> list[Any]:
    """Columns of answers of one number each, or of one row of them; rows of bytes are one column."""
    if array.ndim == 2 and array.dtype == np.uint8:
        kind = pa.binary(array.shape[1])
        content = pa.py_buffer(np.ascontiguousarray(array).tobytes())
        return [pa.Array.from_buffers(kind, len(array), [None, content])]
    if array.dtype.kind == "O":
        return [pa.array(array.tolist(), pa.string())]
    # copies: the next answer may lie in the same memory
    parts = array.T if array.ndim == 2 else [array]
    return [pa.array(np.array(part, part.dtype.newbyteorder("=")), from_pandas=False) for part in parts]


class Parquet:
    """A folder of numbered files of Parquet."""

    folder: ClassVar[bool] = True
    RESULT = "rows"
    NAME = re.compile(r"part-\d{6,}\.parquet")

    def __init__(self) -> None:
        arrow()

    def begin(self, place: Path) -> None:
        """See Sink."""
        (place / self.RESULT).mkdir(exist_ok=True)

    def writer(self, place: Path, number: int, first_row: int | None) -> Writer:
        """See Sink."""
        return ParquetPart(str(self._part(place, number)))

    def holds(self, place: Path, number: int, first_row: int | None) -> bool:
        """See Sink."""
        return self._part(place, number).exists()

    def wrote(self, name: str) -> bool:
        """See Sink."""
        return self.NAME.fullmatch(name) is not None

    def finish(self, place: Path, lengths: list[int], firsts: list[int | None], spec: Spec) -> Path:
        """See Sink."""
        return place / self.RESULT

    def _part(self, place: Path, number: int) -> Path:
        return place / self.RESULT / f"{_numbered(number)}.parquet"


def arrow() -> tuple[Any, Any]:
    """(pyarrow, pyarrow.parquet), or ImportError that names the extra."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("Parquet needs pyarrow: pip install 'fastsketch[arrow]'") from error
    return pyarrow, parquet
