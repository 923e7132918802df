"""Add the file, row and line to a model's errors about a row of a batch."""

import contextlib
import re
from collections.abc import Generator

from fastsketch.data.sources._source import Source


@contextlib.contextmanager
def naming(source: Source, start_row: int) -> Generator[None]:
    """Replace row numbers in the errors that a ``with`` block raises by the file, the row and, for text, the line.

    Parameters
    ----------
    source : Source
    start_row : int
        The number of the batch's first row in the source.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> source = fs.open_rows(np.array([[0.0, 1.0], [2.0, np.inf]]))
    >>> try:
    ...     with fs.data.naming(source, start_row=1000):
    ...         fs.FrequentDirections(2).update(next(iter(source)))
    ... except ValueError as error:
    ...     print(error)
    the rows: rows must be finite: row 1001 holds a NaN or an infinity
    """
    try:
        yield
    except ValueError as error:
        message = str(error)
        match = re.search(r"\b(row|entry) (\d+)\b", message)
        if match is None:
            raise ValueError(f"{source.name}, after row {start_row}: {message}") from None
        name, row, line = source.place(start_row + int(match[2]))
        before = name if line is None else f"{name}, line {line}"
        named = "that row" if row is None else f"row {row}"
        raise ValueError(f"{before}: {message[: match.start()]}{named}{message[match.end() :]}") from None
