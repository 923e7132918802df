"""Cells of a segment: near rows lie together, cell after cell, and a search looks at the rows of the nearest cells."""

from dataclasses import dataclass, replace
from functools import cached_property
from math import isqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.threads import one_blas_thread
from fastsketch.neighbours.codes._places import with_run
from fastsketch.neighbours.codes._search import nearest
from fastsketch.neighbours.index._segment import Segment, joined, pieces

# Rows from which on a segment is cut into cells by partitions="auto": fewer are scanned in some 30 us.
LEAST_ROWS: Final = 1 << 16
# Rows of a cell that its middle is learned from, and iterations of k-means. Eight rows a cell, as a sample of a stream
# has them, have a search read 6.3% of a million clustered rows where these have it read 3.9%.
LEARNED_ROWS, ITERATIONS = 32, 8
# Rows that are asked for their neighbours, and the share of so many that the cells looked at are to hold.
ASKED_ROWS, SHARE = 256, 0.99
LEVELS: Final = (10, 100, 1000)


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of a segment, in the order of its rows.

    Parameters
    ----------
    middles : ndarray float32 (c, r)
        In the directions of the encoder, from its mean, in units of its length.
    starts : ndarray int64 (c + 1,)
        Where the rows of each begin.
    probes : tuple of int
        Cells in which SHARE of the LEVELS nearest are.
    """

    middles: NDArray[np.float32]
    starts: NDArray[np.int64]
    probes: tuple[int, ...]

    @cached_property
    def _held(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the middles (c, r) and their squares (c,)."""
        middles = self.middles.astype(np.float64)
        return middles, np.einsum("ij,ij->i", middles, middles)

    def by_distance(self, encoder: Any, queries: Any, metric: str, n: int) -> NDArray[np.int64]:
        """Return the n nearest cells of queries (m, d), the nearest first."""
        (middles, squares), basis, mean = self._held, encoder.basis, encoder.mean / encoder.length
        with np.errstate(over="ignore", invalid="ignore"):
            z = queries @ basis / encoder.length
            # in units of length squared, up to what all cells of a query share
            if metric == "euclidean":
                far = squares / 2 - (z - mean @ basis) @ middles.T
            else:
                far = -(z @ middles.T)
            if metric == "cosine":
                lengths = np.sqrt(squares + 2 * middles @ (mean @ basis) + mean @ mean)
                far = (far - (queries @ mean)[:, np.newaxis] / encoder.length) / np.where(lengths > 0, lengths, 1.0)
            far = far.astype(np.float32)  # so that the order of sums does not matter
        out = np.argpartition(far, n - 1, axis=1)[:, :n] if n < len(middles) else np.tile(np.arange(n), (len(far), 1))
        return np.take_along_axis(out, np.argsort(np.take_along_axis(far, out, axis=1), axis=1, kind="stable"), axis=1)

    def ranges(
        self, encoder: Any, queries: Any, *, metric: str, k: int, probes: int | None
    ) -> NDArray[np.int64] | None:
        """Return from and to of the rows that each query looks at, (m, p, 2); None for all."""
        wanted = probes or next((p for level, p in zip(LEVELS, self.probes, strict=True) if k <= level), None)
        if wanted is None or wanted >= len(self.middles):
            return None
        cells = self.by_distance(encoder, queries, metric, wanted)
        return np.stack([self.starts[cells], self.starts[cells + 1]], axis=2)


def n_cells(partitions: int | str | None, n: int) -> int:
    """Return how many cells n rows are cut into; 0 for none."""
    if partitions == "auto":
        return isqrt(n) if n >= LEAST_ROWS else 0
    return partitions if isinstance(partitions, int) and n >= partitions else 0


@one_blas_thread
def laid_out(segment: Segment, partitions: int | str | None, metric: str, asked: NDArray[Any] | None) -> Segment:
    """Return a segment with its rows in cells, if there are enough of them.

    asked: rows (m, d) by whose neighbours it is chosen how many cells are looked at; by default some of the segment.
    """
    c = n_cells(partitions, segment.n_live)
    if segment.cells is not None or not c:
        return segment
    segment = joined([segment]) if segment.n_removed else segment
    n, encoder = len(segment), segment.encoder
    sample = _coordinates(segment, _spaced(n, LEARNED_ROWS * c))
    if not np.isfinite(sample).all():  # decoded rows are float32
        return segment
    middles = sample[_spaced(len(sample), c)]
    for _ in range(ITERATIONS):
        cells = _nearest_middle(sample, middles)
        order = np.argsort(cells, kind="stable")
        there, first, counts = np.unique(cells[order], return_index=True, return_counts=True)
        middles[there] = np.add.reduceat(sample[order], first, axis=0) / counts[:, np.newaxis]
    parts = [_nearest_middle(_coordinates(segment, np.arange(n)[piece]), middles) for piece in pieces(n)]
    cells = np.concatenate(parts)
    order = np.argsort(cells, kind="stable")
    starts = np.searchsorted(cells[order], np.arange(c + 1))
    codes = segment.codes.empty(n, encoder.layout)
    for piece in pieces(n):
        codes.put(piece.start, segment.codes.take(order[piece]))
    ids, rows = segment.ids[order], None if segment.rows is None else segment.rows[order]
    out = Segment(encoder, codes, ids, rows, runs=with_run((), ids), cells=Cells(middles, starts, ()))
    return replace(out, cells=Cells(middles, starts, _enough(out, metric, asked)))


def _enough(segment: Segment, metric: str, asked: NDArray[Any] | None) -> tuple[int, ...]:
    """Return how many of the nearest cells hold SHARE of the LEVELS nearest rows.

    The very nearest does not count: it may be the row that is asked.
    """
    cells, n = segment.cells, len(segment)
    assert cells is not None
    queries = _rows(segment, _spaced(n, ASKED_ROWS)) if asked is None else asked
    _, places = nearest(segment.encoder, queries, segment.codes, metric=metric, k=min(n, LEVELS[-1] + 1))
    holding = np.searchsorted(cells.starts, places[:, 1:], side="right") - 1
    rank = np.argsort(cells.by_distance(segment.encoder, queries, metric, len(cells.middles)), axis=1)
    ranks = np.take_along_axis(rank, holding, axis=1)
    return tuple(1 + int(np.quantile(ranks[:, :level], SHARE, method="higher")) for level in LEVELS)


def _spaced(n: int, most: int) -> NDArray[np.int64]:
    """Return at most so many of n places, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))


def _rows(segment: Segment, places: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return rows as they are kept, or what their codes stand for."""
    rows = segment.encoder.decode(segment.codes.take(places)) if segment.rows is None else segment.rows[places]
    return rows.astype(np.float64)


def _coordinates(segment: Segment, places: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return coordinates (n, r) of rows, as middles have them."""
    encoder: Any = segment.encoder
    return ((_rows(segment, places) - encoder.mean) @ encoder.basis / encoder.length).astype(np.float32)


def _nearest_middle(z: NDArray[np.float32], middles: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the nearest of the middles for each row, (n,)."""
    half = np.einsum("ij,ij->i", middles, middles) / 2
    return np.concatenate([np.argmin(half - z[piece] @ middles.T, axis=1) for piece in pieces(len(z))])
