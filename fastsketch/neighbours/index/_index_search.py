"""A search through the segments of an index: the best of each, joined by key and id, then ranked by kept rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import as_integer, check_finite, is_sparse
from fastsketch.neighbours.codes._rescoring import RowsAt, checked_source, refuse_names, rescored
from fastsketch.neighbours.codes._search import (
    Found,
    Keys,
    as_candidates,
    as_distances,
    by_pieces,
    checked_queries,
    nearest,
)
from fastsketch.neighbours.codes._search_arguments import different
from fastsketch.neighbours.index._contents import Contents, as_ids
from fastsketch.neighbours.index._places import Ids
from fastsketch.neighbours.index._segment import Mask, Segment

# Rescoring by what an index keeps, or by what the caller has: (ids ascending, their numbers of segments and positions).
RowsOf = Callable[[Ids, NDArray[np.int64], NDArray[np.int64]], Any]


def search(
    contents: Contents,
    queries: Any,
    *,
    k: int,
    metric: str,
    rescore: Any,
    oversample: float,
    allow: ArrayLike | None,
) -> Found:
    """Return (distances, ids), both (m, k): see ``CodeIndex.search``; rescore is None, rows as given, or True."""
    asked = checked_queries(queries, contents.encoder)
    segments = contents.segments
    masks = _allowed(contents, allow)
    counts = [_count(segment, mask) for segment, mask in zip(segments, masks, strict=True)]
    k, most = as_integer(k, "k", 1), sum(counts)
    if k > most:
        raise ValueError(f"k must be at most the {most} rows that may be found, got {k}")
    n_candidates, source = as_candidates(k, oversample, most), None
    if rescore is None:
        n_candidates = k
    elif rescore is True:
        source = kept_rows(contents)
    else:
        source = given_rows(rescore, contents.encoder.n_features, contents, name="rescore")

    def answer(some: Any) -> Found:
        keys, ids, places = _candidates(segments, masks, counts, some, metric=metric, k=n_candidates)
        if source is None:
            return as_distances(keys, metric), ids
        return _ranked(some, ids, places, source, contents.encoder.n_features, metric=metric, k=k)

    n_tables = max(segment.encoder.layout.n_tables for segment in segments)
    return by_pieces(asked, answer, n_tables=n_tables, candidates=n_candidates * len(segments))


def _ranked(
    asked: Any,
    ids: Ids,
    places: tuple[NDArray[np.int64], NDArray[np.int64]],
    source: RowsOf,
    n_features: int,
    *,
    metric: str,
    k: int,
) -> Found:
    """Rank candidates of queries by the distances to their rows."""
    metric = "euclidean" if metric == "hamming" else metric
    # places of candidates among all of this search in the order of their ids: ties by place are ties by id
    names, first, at = np.unique(ids, return_index=True, return_inverse=True)
    which, where = (part.reshape(-1)[first] for part in places)

    def rows(some: NDArray[np.int64]) -> Any:
        return source(names[some], which[some], where[some])

    rows_at = RowsAt(rows, len(names), n_features)
    keys, local = rescored(asked, at.reshape(ids.shape).astype(np.int64, copy=False), rows_at, metric=metric, k=k)
    return as_distances(keys, metric), names[local]


def _candidates(
    segments: tuple[Segment, ...], masks: list[Mask | None], counts: list[int], asked: Any, *, metric: str, k: int
) -> tuple[Keys, Ids, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return keys and ids (m, k) of the best of all segments, and number of the segment and position of each."""
    best: list[tuple[Keys, Ids, NDArray[np.int64], NDArray[np.int64]]] = []
    for number, (segment, mask, count) in enumerate(zip(segments, masks, counts, strict=True)):
        if not count:
            continue
        keys, where = nearest(
            segment.encoder,
            asked,
            segment.codes.scanned,
            metric=metric,
            k=min(k, count),
            ids=None if segment.in_order else segment.ids,
            allow=mask,
            norms=segment.norms if metric == "cosine" and segment.encoder.norm is None else None,
        )
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
    if isinstance(allow, np.ma.MaskedArray):
        raise TypeError("allow must not be a masked array")
    given: NDArray[Any] = np.asarray(allow)
    if given.dtype.kind == "b":
        return _by_mask(segments, given)
    wanted = different(as_ids(given, "allow"), "allow")
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


# -- rows to rescore by ------------------------------------------------------------------------------------------------
def kept_rows(contents: Contents) -> RowsOf:
    """Return a function that gives rows that the index keeps."""
    segments, d = contents.segments, contents.encoder.n_features

    def rows(ids: Ids, which: NDArray[np.int64], where: NDArray[np.int64]) -> NDArray[np.float32]:
        out = np.empty((len(ids), d), np.float32)
        for number, segment in enumerate(segments):
            here = np.flatnonzero(which == number)
            assert segment.rows is not None  # asked only of an index that keeps them
            out[here] = segment.rows[where[here]]
        return out

    return rows


def given_rows(source: Any, n_features: int, contents: Contents, *, name: str) -> RowsOf:
    """Return a function that gives a caller's rows: row i of an array is that of id i, a function has its own."""
    if not callable(source):
        refuse_names(source, name)
        given: Any = source if is_sparse(source) else np.asanyarray(source)
        source = checked_source(given, given.shape[0] if given.ndim else 0, n_features, name).source

    def rows(ids: Ids, which: NDArray[np.int64], where: NDArray[np.int64]) -> Any:
        if not callable(source) and len(ids) and ids[-1] >= source.shape[0]:
            raise ValueError(
                f"{name} must have a row for every id: row {ids[-1]} is wanted, got {source.shape[0]} rows "
                "(a function of ids can stand in its place)"
            )
        some: Any = source(ids.copy()) if callable(source) else source[ids]
        checked = contents.encoder.checked(some, name)
        if checked.shape[0] != len(ids):
            raise ValueError(f"{name} must return {len(ids)} rows for {len(ids)} ids, got {checked.shape[0]}")
        try:
            check_finite(checked, name)
        except ValueError as error:
            raise ValueError(f"{error}, of the ids from {ids[0]} to {ids[-1]}") from None
        return checked

    return rows
