"""A search through the segments of an index: the best of each, joined by key and id, then ranked by kept rows."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import as_integer, require_array_like
from fastsketch.neighbours.codes._places import Ids
from fastsketch.neighbours.codes._rescoring import rescored, rows_reader
from fastsketch.neighbours.codes._search import (
    Found,
    Keys,
    as_candidates,
    as_distances,
    by_pieces,
    checked_queries,
    nearest,
)
from fastsketch.neighbours.index._contents import Contents
from fastsketch.neighbours.index._generations import MOST_CELLS
from fastsketch.neighbours.index._segment import Mask, Segment

# Answers of a query beyond the rows that there are: what is lacking is filled up.
MOST_ASKED = 1 << 20


def search(
    contents: Contents,
    queries: Any,
    *,
    k: int,
    metric: str,
    rescore: Any,
    oversample: float,
    allow: ArrayLike | None,
    probes: int | None,
    pad: bool,
) -> Found:
    """Return (distances, ids), both (m, k): see ``CodeIndex.search``; rescore is None, rows as given, or True."""
    asked = checked_queries(queries, contents.encoder)
    segments = contents.segments
    masks = _allowed(contents, allow)
    counts = [_count(segment, mask) for segment, mask in zip(segments, masks, strict=True)]
    wanted, most = as_integer(k, "k", 1), sum(counts)
    if wanted > most and not pad:
        raise ValueError(f"k must be at most the {most} rows that may be found, got {wanted}")
    if wanted > max(most, MOST_ASKED):
        raise ValueError(f"k must be at most {max(most, MOST_ASKED):,}, got {wanted}")
    k = min(wanted, most)
    if probes is not None:
        cells = max((len(one.cells.middles) for one in segments if one.cells is not None), default=MOST_CELLS)
        if as_integer(probes, "probes", 1) > cells:
            raise ValueError(f"probes must be at most the {cells} cells of a segment, got {probes}")
    n_candidates = k if rescore is None else as_candidates(k, oversample, most)
    read = None if rescore is None or rescore is True else rows_reader(rescore, contents.encoder.n_features, "rescore")
    ranked_by = "euclidean" if metric == "hamming" and rescore is not None else metric

    def answer(some: Any) -> Found:
        keys, ids, places = _candidates(segments, masks, counts, some, metric=metric, k=n_candidates, probes=probes)
        if rescore is None:
            return as_distances(keys, metric), contents.named(ids)
        # places of candidates among all of this search in the order of their ids: ties by place are ties by id
        names, first, at = np.unique(ids, return_index=True, return_inverse=True)
        which, where = (part.reshape(-1)[first] for part in places)

        def rows_at(some: NDArray[np.int64]) -> Any:
            if read is None:
                return kept_rows(contents, which[some], where[some])
            return read(names[some], contents.named(names[some]))

        local = at.reshape(ids.shape).astype(np.int64, copy=False)
        keys, local = rescored(some, local, rows_at, metric=ranked_by, k=k)
        return as_distances(keys, ranked_by), contents.named(names[local])

    n_tables = max((segment.encoder.layout.n_tables for segment in segments), default=1)
    ways = {"n_tables": n_tables, "candidates": n_candidates * len(segments)}
    dtype = np.int32 if ranked_by == "hamming" else np.float64
    found = (
        by_pieces(asked, answer, **ways) if k else (np.empty((asked.shape[0], 0), dtype), _no_ids(contents, asked, 0))
    )
    if k == wanted:
        return found
    more = wanted - k
    distance = np.iinfo(np.int32).max if ranked_by == "hamming" else np.inf if ranked_by == "euclidean" else -np.inf
    rest = np.full((asked.shape[0], more), distance, found[0].dtype)
    return np.hstack([found[0], rest]), np.hstack([found[1], _no_ids(contents, asked, more)])


def _no_ids(contents: Contents, queries: Any, k: int) -> NDArray[Any]:
    """Return the ids (m, k) of answers that are lacking."""
    return contents.named(np.full((queries.shape[0], k), -1, np.int64))


def _candidates(
    segments: tuple[Segment, ...],
    masks: list[Mask | None],
    counts: list[int],
    asked: Any,
    *,
    metric: str,
    k: int,
    probes: int | None,
) -> tuple[Keys, Ids, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return keys and ids (m, k) of the best of all segments, and number of the segment and position of each."""
    best: list[tuple[Keys, Ids, NDArray[np.int64], NDArray[np.int64]]] = []
    for number, (segment, mask, count) in enumerate(zip(segments, masks, counts, strict=True)):
        if not count:
            continue
        look = partial(
            nearest,
            segment.encoder,
            codes=segment.codes,
            metric=metric,
            k=min(k, count),
            ids=None if segment.in_order else segment.ids,
            allow=mask,
            norms=segment.norms if metric == "cosine" and segment.encoder.norm is None else None,
        )
        ranges = None
        if segment.cells is not None:
            ranges = segment.cells.ranges(segment.encoder, asked, metric=metric, k=k, probes=probes)
        keys, where = look(asked, ranges=ranges)
        lacking = (where < 0).any(axis=1)
        if lacking.any():  # fewer than k may come of the cells that these queries look at
            keys[lacking], where[lacking] = look(asked[lacking])
        best.append((keys, segment.ids[where], np.full(where.shape, number, np.int64), where))
    if len(best) == 1:
        keys, ids, which, where = best[0]
        return keys, ids, (which, where)
    keys, ids, which, where = (np.concatenate(part, axis=1) for part in zip(*best, strict=True))
    order = np.lexsort((ids, keys), axis=1)[:, :k]
    keys, ids, which, where = (np.take_along_axis(part, order, axis=1) for part in (keys, ids, which, where))
    return keys, ids, (which, where)


# -- which rows may be found -------------------------------------------------------------------------------------------
def _allowed(contents: Contents, allow: ArrayLike | None) -> list[Mask | None]:
    """Return for each segment which of its rows may be found, None for all."""
    segments = contents.segments
    if allow is None:
        return [segment.live for segment in segments]
    require_array_like(allow, "allow")
    given: NDArray[Any] = np.asarray(allow)
    if given.dtype.kind == "b":
        return _by_mask(segments, given)
    wanted = contents.different(contents.known_numbers(allow, "allow"), "allow")
    which, where = contents.located(wanted, "allow")
    masks = [np.zeros(len(segment), np.bool_) for segment in segments]
    for number, mask in enumerate(masks):
        mask[where[which == number]] = True
    return list(masks)


def _by_mask(segments: tuple[Segment, ...], given: Mask) -> list[Mask | None]:
    n = sum(segment.n_live for segment in segments)
    if given.shape != (n,):
        raise ValueError(f"allow as a mask must have one entry for each of the {n} rows, got shape {given.shape}")
    out: list[Mask | None] = []
    start = 0
    for segment in segments:
        part = given[start : start + segment.n_live]
        start += segment.n_live
        if segment.live is not None:
            mask = np.zeros(len(segment), np.bool_)
            mask[segment.live] = part
            part = mask
        out.append(np.ascontiguousarray(part))
    return out


def _count(segment: Segment, mask: Mask | None) -> int:
    return len(segment) if mask is None else int(np.count_nonzero(mask))


def kept_rows(contents: Contents, which: NDArray[np.int64], where: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return rows by number of the segment and position: as they are kept, or what their codes stand for."""
    out = np.empty((len(which), contents.encoder.n_features), np.float32)
    for number, segment in enumerate(contents.segments):
        here = np.flatnonzero(which == number)
        if segment.rows is not None:
            out[here] = segment.rows[where[here]]
        elif len(here):
            out[here] = segment.encoder.decode(segment.codes.take(where[here]))
    return out
