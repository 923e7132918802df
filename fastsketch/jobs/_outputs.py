"""Output formats of ``map_rows`` and the command line: .npy, csv and Parquet.

Each part of the rows is written to a separate file in the folder OUTPUT.partial. When all parts are finished, the files
are combined into the output.
"""

import contextlib
import csv
import io
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files._npy import read_header
from fastsketch.data.files._replacing import replacing, temporary_name
from fastsketch.data.files._untrusted import discard, is_link, open_within
from fastsketch.jobs._fields import Fields, Method, Spec, column_names

# Bytes of answers in a row group of Parquet, which readers read at a time: small ones are slow, large ones need memory.
GROUP_BYTES = 32 << 20

Append = Callable[[Fields], object]
# A context manager that opens the file of a part, called with (path, spec of the answers, the function that computes
# them). It yields a function that appends answers. The file gets its name when the block ends. ValueError if the format
# cannot hold such answers.
Writer = Callable[[str, Spec, Method], contextlib.AbstractContextManager[Append]]


class Sink(ABC):
    """Base class of output formats.

    Its attribute `writer`, which writes the file of a part, is sent to workers.
    """

    FOLDER: ClassVar[bool] = False  # whether the output is a folder of the files of parts
    HEADER_IN_PARTS: ClassVar[bool] = False  # whether the files of parts begin with a header as long as the output's
    SUFFIX: ClassVar[str]
    writer: Writer

    def parts_folder(self, job_folder: Path) -> Path:
        """Return the folder that holds the files of parts, in the folder `job_folder` of the job."""
        return job_folder / "rows" if self.FOLDER else job_folder

    def part_path(self, job_folder: Path, number: int) -> Path:
        """Return the path of the file of part `number`, in the folder `job_folder` of the job."""
        return self.parts_folder(job_folder) / f"part-{number:06d}{self.SUFFIX}"

    def is_part(self, name: str) -> bool:
        """Return True if a file name is one that this format gives to a part."""
        return re.fullmatch(rf"part-\d{{6,}}\{self.SUFFIX}", name) is not None

    def prepare_folder(self, job_folder: Path) -> None:
        """Create the folder for the files of parts if it is missing, and delete temporary files of killed processes.

        The folder of the job may be untrusted: a link instead of the folder is replaced.
        """
        folder = self.parts_folder(job_folder)
        if folder != job_folder and (is_link(folder) or not folder.is_dir()):
            discard(folder)
            folder.mkdir()
        for path in folder.glob(".*.tmp"):  # of writers that were killed
            discard(path)

    def count_rows(self, job_folder: Path, number: int, spec: Spec, method: Method) -> int | None:
        """Return the number of rows in the file of a finished part.
        Return None if the file cannot be read, or if its names, dtypes or shapes differ from `spec`.
        """
        try:
            with open_within(job_folder, self.part_path(job_folder, number).relative_to(job_folder).as_posix()) as file:
                return self._count_rows(file, spec, method)
        except (OSError, ValueError, csv.Error):
            return None

    @abstractmethod
    def _count_rows(self, file: BinaryIO, spec: Spec, method: Method) -> int | None:
        """Return the number of rows in the open file of a part.
        Return None if its names, dtypes or shapes differ from `spec`.
        """

    def header(self, spec: Spec, n: int) -> bytes:
        """Return the header bytes of an output with n rows; their number does not depend on n."""
        return b""

    def finish(self, job_folder: Path, lengths: list[int], spec: Spec, target: Path) -> None:
        """Concatenate the files of all parts, and replace the file `target` by the result atomically.

        The files of the parts are kept.
        """
        head = self.header(spec, sum(lengths))
        with replacing(target) as out:
            out.write(head)
            for number, length in enumerate(lengths):
                if length:
                    with open_within(job_folder, self.part_path(job_folder, number).name) as part_file:
                        part_file.seek(len(head) if self.HEADER_IN_PARTS else 0)
                        shutil.copyfileobj(part_file, out, 1 << 20)


# -- .npy --------------------------------------------------------------------------------------------------------------
def npy_header(spec: Spec, n: int) -> bytes:
    """Return the bytes of the header of an .npy file of n results.

    Their number does not depend on n, because NumPy pads the number of rows to 21 digits.

    Raises
    ------
    ValueError
        If rows have several arrays of results, or empty ones.
    """
    if len(spec.names) > 1:
        raise ValueError(
            f"an .npy holds one array, and there are {len(spec.names)} for each row ({', '.join(spec.names)}): write "
            ".parquet, or map a function that gives one of them"
        )
    if not spec.row_bytes:
        raise ValueError(f"there is nothing to write: answers are {spec}")
    header = io.BytesIO()
    header_fields: dict[str, Any] = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(spec.dtypes[0])),
        "fortran_order": False,
        "shape": (n, *spec.shapes[0]),
    }
    np.lib.format.write_array_header_1_0(header, header_fields)
    return header.getvalue()


@contextlib.contextmanager
def npy_part(path: str, spec: Spec, method: Method) -> Generator[Append]:
    """Create the .npy file of one part for a ``with`` block, and yield a function that appends results to it."""
    n_rows, header = 0, npy_header(spec, 0)
    with replacing(path, follow_links=False) as file:
        file.write(header)

        def append(fields: Fields) -> None:
            nonlocal n_rows
            (array,) = fields.values()
            n_rows += len(array)
            file.write(np.ascontiguousarray(array, spec.dtypes[0]).tobytes())

        yield append
        file.seek(0)
        file.write(npy_header(spec, n_rows))


class Npy(Sink):
    """The output format of one .npy file."""

    SUFFIX = ".npy"
    HEADER_IN_PARTS = True
    writer = staticmethod(npy_part)

    def _count_rows(self, file: BinaryIO, spec: Spec, method: Method) -> int | None:
        """Return the number of rows of an .npy file, or None if its header does not match `spec` and its size."""
        header = read_header(file)
        n_rows = header.shape[0] if header.shape else 0
        file.seek(0)
        header_matches = file.read(header.offset) == npy_header(spec, n_rows)
        return n_rows if header_matches and file.seek(0, os.SEEK_END) == header.end else None

    def header(self, spec: Spec, n: int) -> bytes:
        """Return the .npy header of an output with n rows."""
        return npy_header(spec, n)


# -- csv ---------------------------------------------------------------------------------------------------------------
def format_cell(value: Any) -> str:
    """Format a value as the text of a csv cell; floats have at most nine significant digits."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


@contextlib.contextmanager
def csv_part(path: str, spec: Spec, method: Method) -> Generator[Append]:
    """Create the csv file of one part for a ``with`` block, and yield a function that appends results to it.
    The file has no header.
    """
    if any(len(shape) > 1 for shape in spec.shapes):
        raise ValueError(f"a line of csv takes one number or one row of them, answers are {spec}")
    with replacing(path, follow_links=False) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="")
        lines = csv.writer(text, lineterminator="\n")
        yield lambda fields: lines.writerows(map(format_cell, row) for row in _lines(fields))
        text.flush()
        text.detach()


def _lines(fields: Fields) -> Iterator[tuple[Any, ...]]:
    """Return an iterator over rows of cells, each a tuple with all results for a row."""
    columns: list[list[Any]] = []
    for array in fields.values():
        columns += [column.tolist() for column in (array.T if array.ndim == 2 else [array])]
    return zip(*columns, strict=True)


class Csv(Sink):
    """The output format of one csv file.

    `heads` are the column names in the first line; if it is empty, there is no such line.
    """

    SUFFIX = ".csv"
    writer = staticmethod(csv_part)

    def __init__(self, header_names: list[str]) -> None:
        self._header_names = header_names

    def _count_rows(self, file: BinaryIO, spec: Spec, method: Method) -> int | None:
        """Return the number of lines of a csv file, or None if their numbers of cells differ from `spec`."""
        width = sum(shape[0] if shape else 1 for shape in spec.shapes)
        widths = [len(line) for line in csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))]
        return len(widths) if set(widths) == {width} else None

    def header(self, spec: Spec, n: int) -> bytes:
        """Return the first line of the csv file, with the column names, or b"" if there are none."""
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerows([self._header_names] if self._header_names else [])
        return line.getvalue().encode()


# -- Parquet -----------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def parquet_part(path: str, spec: Spec, method: Method) -> Generator[Append]:
    """Create the Parquet file of one part for a ``with`` block, and yield a function that appends results to it."""
    pa, pq = import_pyarrow()
    schema = _schema(pa, spec, method)
    with replacing(path, follow_links=False) as file, pq.ParquetWriter(file, schema) as writer:
        waiting: list[Any] = []  # tables of the next row group

        def flush() -> None:
            if waiting:
                writer.write_table(pa.concat_tables(waiting))
            waiting.clear()

        def append(fields: Fields) -> None:
            columns = [column for array in fields.values() for column in _as_columns(pa, array)]
            waiting.append(pa.Table.from_arrays(columns, schema=schema))
            if sum(table.nbytes for table in waiting) >= GROUP_BYTES:
                flush()

        yield append
        flush()


def _schema(pa: Any, spec: Spec, method: Method) -> Any:
    """Return the Arrow schema of a table that holds a function's results: one field for each column."""
    empty_arrays = {name: np.empty((0, *shape), dtype) for name, dtype, shape in zip(*spec, strict=True)}
    names = [head for names in column_names(method, spec) for head in names]
    kinds = [column.type for array in empty_arrays.values() for column in _as_columns(pa, array)]
    return pa.schema([pa.field(head, kind, nullable=False) for head, kind in zip(names, kinds, strict=True)])


def _as_columns(pa: Any, array: NDArray[Any]) -> list[Any]:
    """Convert an array of results to Arrow columns, one for each number of a row.

    A row of bytes becomes one fixed-size binary value.
    """
    if array.ndim == 2 and array.dtype == np.uint8:
        kind = pa.binary(array.shape[1])
        content = pa.py_buffer(np.ascontiguousarray(array).tobytes())
        return [pa.Array.from_buffers(kind, len(array), [None, content])]
    if array.dtype.kind == "O":
        return [pa.array(array.tolist(), pa.string())]
    # copied, because the function may reuse the memory for its next answer
    columns = array.T if array.ndim == 2 else [array]
    return [pa.array(np.array(column, column.dtype.newbyteorder("=")), from_pandas=False) for column in columns]


class Parquet(Sink):
    """The output format of a folder of numbered Parquet files, one for each part."""

    FOLDER = True
    SUFFIX = ".parquet"
    writer = staticmethod(parquet_part)

    def __init__(self) -> None:
        import_pyarrow()

    def _count_rows(self, file: BinaryIO, spec: Spec, method: Method) -> int | None:
        """Return the number of rows of a Parquet file, or None if it is damaged or its schema differs from `spec`."""
        pa, pq = import_pyarrow()
        try:
            parquet_file = pq.ParquetFile(file)
        except pa.ArrowException:
            return None
        return parquet_file.metadata.num_rows if parquet_file.schema_arrow.equals(_schema(pa, spec, method)) else None

    def finish(self, job_folder: Path, lengths: list[int], spec: Spec, target: Path) -> None:
        """Rename the folder of the parts to `target`, replacing an older folder.

        Other files in the folder are deleted, and the older folder is deleted at the end.
        """
        result, replaced_folder = self.parts_folder(job_folder), temporary_name(target)
        parts = {self.part_path(job_folder, number) for number, length in enumerate(lengths) if length}
        for path in set(result.iterdir()) - parts:  # readers would take them for parts of the table
            discard(path)
        with contextlib.suppress(FileNotFoundError):
            target.rename(replaced_folder)
        try:
            result.rename(target)
        except OSError:
            if replaced_folder.exists():
                replaced_folder.rename(target)
            raise
        discard(replaced_folder)


def import_pyarrow() -> tuple[Any, Any]:
    """Import pyarrow and pyarrow.parquet, and return both. ImportError names the extra to install."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("Parquet needs pyarrow: pip install 'fastsketch[arrow]'") from error
    return pyarrow, parquet
