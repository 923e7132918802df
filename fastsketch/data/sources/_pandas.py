"""Data frames of pandas, read without another package; columns of lists by way of Arrow."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._column_names import names_of_labels, positions_of
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._identity import of_ends
from fastsketch.data.sources._source import RowSource, Source, length
from fastsketch.data.sources._table_columns import CHOOSE


def open_frame(x: Any, options: Options) -> Source:
    """Return the columns of numbers of a data frame."""
    names = [str(name) for name in x.columns]
    of = "the DataFrame"
    beside = -1 if options.beside is None else positions_of([options.beside], names, len(names), of, "beside")[0]
    if options.columns is None:
        columns = [k for k in range(len(names)) if k != beside]
    else:
        columns = positions_of(options.columns, names, len(names), of)
    if options.numeric:
        columns = [k for k in columns if _is_number(x.dtypes.iloc[k]) or _holds_lists(x.iloc[:, k])]
    if not columns:
        raise SourceError(f"the DataFrame has no columns{' of numbers' if options.numeric else ''}")
    kinds = [x.dtypes.iloc[k] for k in columns]
    if any(
        getattr(kind, "kind", "") == "O" and _holds_lists(x.iloc[:, k]) for k, kind in zip(columns, kinds, strict=True)
    ):
        from fastsketch.data.sources._dataframes import TableSource
        from fastsketch.data.sources._foreign import needs

        pyarrow = needs("pyarrow", "columns of lists")
        table = pyarrow.Table.from_pandas(x.iloc[:, columns], preserve_index=False)
        source = TableSource(table, "the DataFrame", Options(columns=tuple(range(len(columns))), dtype=options.dtype))
        source.taken = options.columns
        return source
    for k, kind in zip(columns, kinds, strict=True):
        if not _is_number(kind):
            hint = "" if options.columns else f": {CHOOSE}"
            raise SourceError(f"the DataFrame: column {names[k]!r} holds {kind}, not numbers{hint}")
    return FrameSource(x, columns, beside, options)


def _is_number(kind: Any) -> bool:
    """Return whether a dtype of pandas is one of real numbers, its own nullable ones among them."""
    return getattr(kind, "kind", "O") in "fiub" and not str(kind).startswith(("category", "datetime", "timedelta"))


def _holds_lists(column: Any) -> bool:
    first = next((value for value in column if value is not None), None)
    return isinstance(first, list | tuple | np.ndarray)


class FrameSource(RowSource):
    """Some columns of a data frame."""

    waits = False

    def __init__(self, x: Any, columns: Sequence[int], beside: int, options: Options) -> None:
        self._frame: Any = x
        self._columns, self._beside = list(columns), beside
        self.name = "the DataFrame"
        self.taken, self.beside = options.columns, options.beside
        self._take()
        self.n_rows = self.size = len(x)

    def _take(self) -> None:
        # of columns that are kept sparse, the dtype of what they hold
        kinds = [getattr(kind, "subtype", kind) for kind in (self._frame.dtypes.iloc[k] for k in self._columns)]
        narrow = all(kind.kind == "f" and kind.itemsize <= 4 for kind in kinds)
        self.dtype = np.dtype(np.float32 if narrow else np.float64)
        self.n_features = len(kinds)
        labels = list(self._frame.columns)
        numbered = labels == list(range(len(labels)))
        self.feature_names = None if numbered else names_of_labels([labels[k] for k in self._columns], self.name)

    def only(self, columns: Sequence[int]) -> Source | None:
        """See Source."""
        other = self.varied(_columns=[self._columns[k] for k in columns])
        other._take()
        return other

    def between(self, start: int, stop: int) -> Source:
        """See Source."""
        n = stop - start
        return self.varied(_frame=self._frame.iloc[start:stop], first_row=self.first_row + start, n_rows=n, size=n)

    def _chunks(self, start: int) -> Iterator[NDArray[Any]]:
        every = self._columns == list(range(self._frame.shape[1]))  # a frame of one dtype is not copied
        for first, stop in self._steps(start):
            rows = self._frame.iloc[first - self.first_row : stop - self.first_row]
            rows = rows if every else rows.iloc[:, self._columns]
            yield rows.to_numpy(self.dtype, na_value=np.nan)

    def read_beside(self, start_row: int = 0) -> Iterator[tuple[Any, NDArray[Any], int]]:
        """See Source."""
        column: Any = self._frame.iloc[:, self._beside]
        for rows, position in self.read(start_row):
            yield rows, np.asarray(column.iloc[position - length(rows) : position]), position

    def identity(self) -> dict[str, Any]:
        """See Source: the shape, names, and a digest of samples of the rows."""
        return {**of_ends(self, "DataFrame"), **super().identity()}
