"""Rows of tables, batch after batch and column by column, as chunks of rows."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.io.arrow import Batch
from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._ahead import Spaces
from fastsketch.data.sources._foreign import damaged
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._source import RowSource, Source, length, rows_of_chunk
from fastsketch.data.sources._table_columns import Chosen, Field, choose


class Ragged(ValueError):
    """A list of another length than those before it: the row within its piece, and what is wrong with it."""

    def __init__(self, row: int, text: str) -> None:
        super().__init__(text)
        self.row = row

    def at(self, name: str, row: int) -> SourceError:
        """Return the same, with the row within the source of that name."""
        return SourceError(f"{name}, row {row}: {self}")


class OfBatch:
    """The rows of one batch of a table.

    Parameters
    ----------
    batch : Batch
    chosen : Chosen
        The columns, with positions in the batch.
    """

    def __init__(self, batch: Batch, chosen: Chosen) -> None:
        self._batch, self._chosen = batch, chosen
        self._columns, self._widths = np.array(chosen.columns, np.intp), np.array(chosen.widths, np.intp)
        self._places = chosen.places()
        self.n_rows = batch.n_rows

    def put(self, first: int, out: NDArray[Any]) -> None:
        """Write rows first .. first + len(out) - 1 to out; nulls become NaN."""
        wrong = self._batch.to_rows(first, self._columns, self._places, self._widths, out)
        if wrong is not None:
            row, column, length = wrong
            k = self._chosen.columns.index(column)
            width = self._chosen.widths[k]
            has = f"{length} entries" if length >= 0 else "a list that lies outside its entries"
            raise Ragged(row, f"column {self._chosen.names[k]!r} has {has}, in the rows before it has {width}")


def believed(batch: Any) -> Batch:
    """Return a batch of pyarrow, once that has held its counts, offsets and codes against the length of its buffers."""
    batch.validate(full=True)
    return Batch(*batch.__arrow_c_array__())


class OfArray:
    """Rows that are rows."""

    def __init__(self, rows: NDArray[Any]) -> None:
        self._rows, self.n_rows = rows, len(rows)

    def put(self, first: int, out: NDArray[Any]) -> None:
        """Write rows first .. first + len(out) - 1 to out."""
        np.copyto(out, self._rows[first : first + len(out)], casting="unsafe")


class SideBySide:
    """Pieces of the same rows, each with some of the columns."""

    def __init__(self, pieces: "list[tuple[slice, OfArray]]", n_rows: int) -> None:
        self._pieces, self.n_rows = pieces, n_rows

    def put(self, first: int, out: NDArray[Any]) -> None:
        """Write rows first .. first + len(out) - 1 to out."""
        for columns, piece in self._pieces:
            piece.put(first, out[:, columns])


# Consecutive rows that lie in memory in some form.
Piece = OfBatch | OfArray | SideBySide


def chunks_of(pieces: Iterable[Piece], source: RowSource, first: int, *, skip: int = 0) -> Iterator[NDArray[Any]]:
    """Yield chunks of the rows of pieces, without the first `skip`, up to the last one of the source.

    The first that is given is row `first` of it: where a list has another length, SourceError names its row; where
    there are fewer rows than the source states, the last one.
    """
    spaces, step = Spaces(), rows_of_chunk(source)
    n_rows = None if source.n_rows is None else source.first_row + source.n_rows - first
    step = step if n_rows is None else min(step, n_rows)
    out, filled, given = None, 0, 0
    for piece in pieces:
        place = min(skip, piece.n_rows)
        skip -= place
        while place < piece.n_rows and (n_rows is None or given < n_rows):
            if out is None:
                out, filled = spaces.next((step, source.n_features), source.dtype), 0
            count = min(step - filled, piece.n_rows - place)
            if n_rows is not None:
                count = min(count, n_rows - given)
            try:
                piece.put(place, out[filled : filled + count])
            except Ragged as error:
                raise error.at(source.name, first + given + error.row - place) from None
            place, filled, given = place + count, filled + count, given + count
            if filled == step:
                yield out
                out = None
    if out is not None and filled:
        yield out[:filled]
    if n_rows is not None and given < n_rows:
        raise too_short(source.name, first + given, first + n_rows)


def too_short(name: str, end: int, stated: int) -> SourceError:
    """Return the error of a file with fewer rows than it states."""
    return SourceError(f"{name} is damaged: its rows end after {end:,}, it states {stated:,} and more")


def first_width(batches: Iterable[Batch], column: int) -> int:
    """Return the length of the first list in a column that is one, of the first batch that has rows."""
    return next((batch.first_width(column) for batch in batches if batch.n_rows), 1)


def values_of(column: Any) -> NDArray[Any]:
    """Return the values of an array of pyarrow.

    Objects, None among them, where they are no numbers or some are missing.
    """
    column.validate(full=True)  # where strings begin and end, and the codes of a dictionary: pyarrow follows them
    if _is_number(column) and column.null_count == 0:
        return column.to_numpy(zero_copy_only=False)
    out = np.empty(len(column), object)
    out[:] = column.to_pylist()
    return out


def _is_number(column: Any) -> bool:
    return str(column.type) in ("bool", "float", "double", "halffloat") or str(column.type).lstrip("u").startswith(
        "int"
    )


class Values:
    """Values of a column beside rows: arrays one after another, as many values at a time as are asked for."""

    def __init__(self, arrays: Iterator[NDArray[Any]], skip: int) -> None:
        self._arrays, self._left = arrays, np.empty(0)
        while skip:
            self._left = self._more()
            gone = min(skip, len(self._left))
            self._left, skip = self._left[gone:], skip - gone

    def _more(self) -> NDArray[Any]:
        array = next(self._arrays, None)
        if array is None:  # StopIteration would end the rows
            raise ValueError("the column beside the rows is shorter than they are")
        return array

    def next(self, count: int) -> NDArray[Any]:
        """Return the next values."""
        arrays: list[NDArray[Any]] = []
        while count:
            if len(self._left) == 0:
                self._left = self._more()
                continue
            arrays.append(self._left[:count])
            count -= len(arrays[-1])
            self._left = self._left[len(arrays[-1]) :]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


class ColumnSource(RowSource):
    """Some columns of a table as rows, and perhaps another one beside them."""

    what = "table"  # in messages

    def _describe(
        self,
        fields: Sequence[Field],
        options: Options,
        metadata: dict[bytes, bytes] | None,
        width: Callable[[int], int],
    ) -> None:
        """Choose the columns that are asked for; width(k): the length of the lists in column k, by the first one."""
        self.taken, self.beside = options.columns, options.beside
        self._take(choose(fields, options, of=self.name, metadata=metadata, width=width))

    def _take(self, chosen: Chosen) -> None:
        self._chosen, self.dtype = chosen, chosen.dtype
        self.n_features, self.feature_names = chosen.n_features, chosen.feature_names

    def only(self, columns: Sequence[int]) -> Source | None:
        """See Source."""
        chosen = self._chosen.only(columns)
        if chosen is None:
            return None
        part = self.varied()
        part._take(chosen)
        return part

    def identity(self) -> dict[str, Any]:
        """See Source."""
        return {**super().identity(), "columns": list(self._chosen.columns)}

    def _group_of(self, row: int) -> tuple[int, int]:
        """Return (the group of rows that has a row, how many of it are before that)."""
        return 0, row

    def _pieces(self, group: int) -> Iterator[Piece]:
        """Yield the rows from a group on."""
        raise NotImplementedError

    def _values(self, group: int) -> Iterator[NDArray[Any]]:
        """Yield the values of the column beside the rows from a group on."""
        raise NotImplementedError

    def _chunks(self, start: int) -> Iterator[NDArray[Any]]:
        group, skip = self._group_of(start)
        with damaged(self.name, self.what, self.check_unchanged):
            yield from chunks_of(self._pieces(group), self, start, skip=skip)

    def read_beside(self, start_row: int = 0) -> Iterator[tuple[Any, NDArray[Any], int]]:
        """See Source: values of the type that the column has, strings as objects."""
        if self.beside is None:
            yield from super().read_beside(start_row)
        group, skip = self._group_of(self.first_row + start_row)
        with damaged(self.name, self.what, self.check_unchanged):
            values = Values(self._values(group), skip)
            for rows, position in self.read(start_row):
                yield rows, values.next(length(rows)), position
