"""Select columns of a source, convert its dtype, and fill or refuse NaN."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import is_sparse
from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._column_names import positions
from fastsketch.data.sources._source import Place, Source, length


def chosen(
    source: Source,
    *,
    columns: Sequence[str | int] | None = None,
    dtype: np.dtype[Any] | None = None,
    fill: float | None = None,
) -> Source:
    """Return a source with some columns of another, converted to `dtype`, and with NaN replaced by `fill`.

    Without fill, reading raises an error that names the position of the first NaN.
    """
    if columns is not None:
        places = positions(source, columns)
        if places != list(range(source.n_features)):
            source = picked(source, places)
    no_nan = source.complete or (source.dtype is not None and source.dtype.kind != "f")
    if no_nan and (dtype is None or dtype == source.dtype):
        return source
    return Checked(source, dtype, fill)


def with_missing(source: Source) -> Source:
    """Return a source of the same rows that has NaN for missing numbers, where the original raises an error."""
    return Checked(source, None, float("nan")) if isinstance(source, Checked) and source.refuses else source


def picked(source: Source, columns: Sequence[int]) -> Source:
    """Return a source of the same rows with only the columns at these positions, in this order."""
    return source.only(columns) or SelectedColumns(source, columns)


class Derived(Source):
    """Base class of sources that read another source and transform its rows, for example by selecting columns."""

    def __init__(self, source: Source) -> None:
        self._of = source
        self.name, self.n_rows, self.n_features = source.name, source.n_rows, source.n_features
        self.feature_names, self.dtype, self.sparse = source.feature_names, source.dtype, source.sparse
        self.size, self.repeatable, self.waits = source.size, source.repeatable, source.waits
        self.first_row, self.complete = source.first_row, source.complete
        self.beside, self.labelled = source.beside, source.labelled

    def like(self, source: Source) -> Source:
        """Return a source that transforms the rows of `source`, a part of the original one, as this one does."""
        raise NotImplementedError

    def made(self, rows: Any, first: int) -> Any:
        """Return a transformed chunk of rows. `first` is the number of its first row in the source, for error
        messages.
        """
        raise NotImplementedError

    def read(self, start_row: int = 0) -> Iterator[tuple[Any, int]]:
        """Yield (transformed rows, position in the source) for each chunk, from row `start_row` on."""
        for rows, position in self._of.read(start_row):
            yield self.made(rows, start_row), position
            start_row += length(rows)

    def read_beside(self, start_row: int = 0) -> Iterator[tuple[Any, NDArray[Any], int]]:
        """Yield (transformed rows, values of the extra column `beside`, position in the source) for each chunk."""
        for rows, values, position in self._of.read_beside(start_row):
            yield self.made(rows, start_row), values, position
            start_row += length(rows)

    @property
    def made_of(self) -> Source:
        """The source that is read, before the transformation."""
        return self._of

    def each(self) -> list[Source]:
        """Return the list of sources that the original source concatenates, each with this object's transformation."""
        return [self.like(source) for source in self._of.each()]

    @property
    def n_bytes(self) -> int:
        """Approximate size of the original source's rows, in bytes."""
        return self._of.n_bytes

    def between(self, start: int, stop: int) -> Source:
        """Return rows [start, stop) as a source."""
        return self.like(self._of.between(start, stop))

    def parts(self, n_bytes: int, *, multiple: int = 1) -> list[Source]:
        """Return a list of consecutive sources that each transform about n_bytes of the original source's rows."""
        return [self.like(part) for part in self._of.parts(n_bytes, multiple=multiple)]

    def identity(self) -> dict[str, Any]:
        """Return JSON values by which a resumed job recognises the original source."""
        return self._of.identity()

    def place(self, row: int) -> Place:
        """Return the file, row and line of a row, for messages."""
        return self._of.place(row)

    def _row_names(self) -> NDArray[Any] | None:
        return self._of._row_names()


class SelectedColumns(Derived):
    """Source that selects columns after another source has read all of them."""

    def __init__(self, source: Source, columns: Sequence[int]) -> None:
        super().__init__(source)
        self._columns = np.array(columns, np.intp)
        self.n_features = len(columns)
        names = source.feature_names
        self.feature_names = None if names is None else tuple(names[k] for k in columns)

    def like(self, source: Source) -> Source:
        """Return a source that selects the same columns of another source."""
        return SelectedColumns(source, self._columns.tolist())

    @property
    def n_bytes(self) -> int:
        """Approximate size of the selected columns in bytes, or of the whole text if the source is text."""
        return self._of.n_bytes * self.n_features // self._of.n_features if self.n_rows is not None else self.size

    def made(self, rows: Any, first: int) -> Any:
        """Return the selected columns of a chunk of rows."""
        if is_sparse(rows):
            return rows[:, self._columns]
        return np.take(cast("NDArray[Any]", rows), self._columns, axis=1)

    def identity(self) -> dict[str, Any]:
        """Return JSON values that identify the rows and the selected columns."""
        return {**self._of.identity(), "columns": self._columns.tolist()}


class Checked(Derived):
    """Source that converts the rows of another source to one dtype. NaN is replaced, or raises an error."""

    def __init__(self, source: Source, dtype: np.dtype[Any] | None, fill: float | None) -> None:
        while isinstance(source, Checked):
            dtype = source._dtype if dtype is None else dtype
            fill = source._fill if fill is None else fill
            source = source._of
        super().__init__(source)
        self._dtype: np.dtype[Any] | None = dtype
        self._fill: float | None = fill
        self.dtype = source.dtype if dtype is None else dtype
        self.complete = True

    @property
    def refuses(self) -> bool:
        """Whether NaN in the rows raises an error, instead of being replaced or kept."""
        return self._fill is None

    def like(self, source: Source) -> Source:
        """Return a source that reads another source with the same dtype and treatment of NaN."""
        return Checked(source, self._dtype, self._fill)

    @property
    def n_bytes(self) -> int:
        """Approximate size of the converted rows in memory, in bytes."""
        if self.n_rows is None or self.sparse or self.dtype is None:
            return self._of.n_bytes
        return self.n_rows * self.n_features * self.dtype.itemsize

    def only(self, columns: Sequence[int]) -> Source:
        """Return a source that reads only the columns at these positions, with the same dtype and treatment of NaN."""
        return self.like(picked(self._of, columns))

    def made(self, rows: Any, first: int) -> Any:
        """Return a chunk of rows in the requested dtype, with each NaN replaced. SourceError if NaN is not allowed."""
        values: NDArray[Any] = rows.data if is_sparse(rows) else rows
        out = values if self._dtype is None else values.astype(self._dtype, copy=False)
        if out.dtype.kind == "f" and out.size and np.isnan(out.max()):
            missing = np.isnan(out)
            if self._fill is None:
                self._refuse(rows, missing, first)
            out = values.copy() if out is values else out
            out[missing] = self._fill
        if out is values or not is_sparse(rows):
            return rows if out is values else out
        return type(rows)((out, rows.indices, rows.indptr), shape=rows.shape)

    def _refuse(self, rows: Any, missing: NDArray[np.bool_], first: int) -> None:
        if is_sparse(rows):
            entry = int(np.argmax(missing))
            row = int(np.searchsorted(rows.indptr, entry, side="right")) - 1
            column = int(rows.indices[entry])
        else:
            row, column = divmod(int(np.argmax(missing)), missing.shape[1])
        name, number, line = self._of.place(first + row)
        name = name if line is None else f"{name}, line {line}"
        where = "it" if number is None else f"row {number}"
        called = f"{column}" if self.feature_names is None else f"{column} ({self.feature_names[column]!r})"
        raise SourceError(
            f"{name}: rows must be finite: {where} holds a NaN in column {called}: leave such rows or the column "
            "out (columns= of fs.open_rows, --columns), or give a number in its place (fill=, --fill)"
        )

    def identity(self) -> dict[str, Any]:
        """Return JSON values that identify the rows, with the dtype and the fill value if they are set."""
        about = self._of.identity()
        about |= {} if self._dtype is None else {"dtype": str(self._dtype)}
        return about if self._fill is None else {**about, "fill": self._fill}
