"""Rows that come in pieces of any length, as chunks of rows."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._ahead import Spaces
from fastsketch.data.sources._source import RowSource, rows_of_chunk


def chunks_of(pieces: Iterable[NDArray[Any]], source: RowSource, first: int) -> Iterator[NDArray[Any]]:
    """Yield the rows of pieces, the first of which is row `first` of the source, as chunks up to its last row.

    Raises
    ------
    SourceError
        If there are fewer rows than the source states.
    """
    spaces = Spaces()
    left = source.first_row + source.size - first
    step = min(rows_of_chunk(source), left)
    out, filled = None, 0
    for piece in pieces:
        place = 0
        while place < len(piece) and left:
            if out is None:
                out, filled = spaces.next((step, source.n_features), source.dtype), 0
            count = min(step - filled, len(piece) - place, left)
            np.copyto(out[filled : filled + count], piece[place : place + count], casting="unsafe")
            place, filled, left = place + count, filled + count, left - count
            if filled == step:
                yield out
                out = None
    if out is not None and filled:
        yield out[:filled]
    if left:
        end = source.first_row + source.size
        raise SourceError(f"{source.name} is damaged: its rows end after {end - left:,}, it states {end:,} and more")
