"""Search of codes by real queries: one pipeline for every encoder, from the public door to sorted answers.

A candidate's key is its squared distance, or the inner product or cosine with its sign turned, or a Hamming distance:
the smaller, the nearer. Keys of different encoders are in the same units, so that an index can join answers.
"""

# pyright: reportImportCycles=false
# (the encoder is here for its type alone)
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import Rows, as_choice, check_finite, natural_dtype
from fastsketch._kernels.codes import scan as kernel
from fastsketch.neighbours.codes._blocks import CodeRows
from fastsketch.neighbours.codes._code_scan import Estimate, Rule, Tables, scan
from fastsketch.neighbours.codes._layout import Codes
from fastsketch.neighbours.codes._packed_codes import as_codes, nearest_bits
from fastsketch.neighbours.codes._rescoring import Source, rescored, rows_reader
from fastsketch.neighbours.codes._search_arguments import Mask, Places, allowed, as_ids, as_k

if TYPE_CHECKING:
    from fastsketch.neighbours.codes._encoder import Encoder

Metric = Literal["euclidean", "inner_product", "cosine", "hamming"]
METRICS: Final[tuple[str, ...]] = get_args(Metric)
Found = tuple[NDArray[Any], Places]
Keys = NDArray[Any]

# A norm is estimated no smaller than this share of what it is made of: a row at the origin has no direction.
LEAST_NORM = 2.0**-20
# Of entries of tables, float32: sums of them stay numbers, wherever a query lies. LARGEST: of scores.
FARTHEST = 1e30
LARGEST = 3e38
# Binary exponent of the entries of a query, in units of the encoder's length, beyond which it is brought nearer.
REACH = 40
# Memory for the queries that are answered at a time, and what a table and a candidate of one take, with all that is
# made of them on the way: a hundred thousand queries of a thousand neighbours each would else take 25 GB.
PIECE_BYTES = 256 << 20
TABLE_BYTES = 256
CANDIDATE_BYTES = 64


class CodeSearch:
    """Search of codes by real-valued queries, of a model that has an encoder or of the encoder itself."""

    def _encoder_for(self, codes: Codes) -> "Encoder":
        """Return the encoder that these codes are read by; raise ValueError without one."""
        raise NotImplementedError

    def search(
        self,
        queries: Rows,
        codes: ArrayLike,
        *,
        k: int = 10,
        metric: Metric = "euclidean",
        rescore: Source | None = None,
        oversample: float = 4,
        ids: ArrayLike | None = None,
        allow: ArrayLike | None = None,
    ) -> Found:
        """Find the k codes nearest to every query, which stays as it is: a real-valued row, no code.

        Parameters
        ----------
        queries : array_like or scipy.sparse (m, d), or one row (d,)
        codes : ndarray uint8 (n, width)
            A collection that ``encode`` made; of a hash with factors or without, as the width tells.
        k : int, default 10
            At most the number of codes that may be found.
        metric : {"euclidean", "inner_product", "cosine", "hamming"}, default "euclidean"
            "euclidean": estimates of the distance of query and row, in the units of the rows, not squared and never
            below zero. "inner_product" and "cosine": estimates of q'x and of q'x / (||q|| ||x||), the largest first;
            0 for a query or a row of zeros. Without factors a row counts as long as the query is, in relation to the
            mean: angles are compared, lengths are not known. "hamming", of a hash alone: bits that differ from the code
            of the query.
        rescore : array_like, numpy.memmap or scipy.sparse (n, d), or callable, optional
            The rows that were encoded. The best ceil(k * oversample) candidates of every query are ranked by exact
            distances, inner products or cosines (Euclidean distances for "hamming"). Only rows of candidates are read,
            in order, each once for all queries (those of some million candidates), some 16 MB at a time. A callable is
            given int64 ids (b,), those of `ids` or else places, and returns their rows (b, d).
        oversample : float, default 4
            At least 1; of no meaning without `rescore`.
        ids : array_like of int64 (n,), optional
            Different numbers by which codes are called, in results and in `allow`; default 0 to n - 1.
        allow : array_like of ids, or of bool (n,), optional
            The codes that may be found.

        Returns
        -------
        distances : ndarray float64 (m, k), int32 for "hamming" without `rescore`
            From the nearest on; see `metric`.
        indices : ndarray int64 (m, k)
            Ids; among equal estimates the smaller comes first.

        Raises
        ------
        TypeError, ValueError
            If a model has seen no rows; if queries are no finite real rows of its width, codes are not of its width,
            such codes have no such metric, k exceeds the codes that may be found, ids are not n different integers, or
            `allow` holds others or is a mask of another length; if `rescore` has rows of another number or width, or
            some that are not finite.

        Notes
        -----
        A scan of all codes. With factors an estimate is that of RaBitQ in the learned directions: unbiased for random
        ones, and without error for the query that is the row itself, but for what the directions do not span.

        References
        ----------
        Gao, Long, *RaBitQ*, SIGMOD 2024.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((5000, 100))
        >>> model = fs.SketchHash(32).update(rows)
        >>> codes = model.encode(rows, factors=True)
        >>> distances, found = model.search(rows[:1], codes, k=1, rescore=rows)
        >>> int(found[0, 0]), float(distances[0, 0])
        (0, 0.0)
        """
        packed = as_codes(codes, "codes")
        encoder = self._encoder_for(packed)
        as_metric(metric, encoder)
        check_width(packed, encoder)
        n = len(packed)
        collection = CodeRows(encoder.layout, packed, n)
        asked = checked_queries(queries, encoder)
        names = as_ids(ids, n)
        mask = allowed(allow, n, names)
        k = as_k(k, n, mask)
        wanted = as_candidates(k, oversample, n if mask is None else int(np.count_nonzero(mask)))
        read = None
        if rescore is not None:
            read = rows_reader(rescore, encoder.n_features, "rescore", n, feature_names=encoder.feature_names)

        def rows_at(places: Places) -> Any:
            assert read is not None
            return read(places, places if names is None else names[places])

        distances, places = search_codes(
            encoder,
            asked,
            collection,
            metric=metric,
            k=k,
            n_candidates=k if read is None else wanted,
            rows_at=None if read is None else rows_at,
            ids=names,
            allow=mask,
        )
        return distances, places if names is None else names[places]


def search_codes(
    encoder: "Encoder",
    queries: Any,
    codes: CodeRows,
    *,
    metric: str,
    k: int,
    n_candidates: int,
    rows_at: Callable[[Places], Any] | None = None,
    ids: Places | None = None,
    allow: Mask | None = None,
) -> Found:
    """Return distances and positions (m, k) of the codes nearest to checked queries; at least k codes are allowed.

    With rows_at, which returns the rows at ascending positions, n_candidates codes of each query are ranked by exact
    distances (Euclidean ones for "hamming"). Among equal distances the code with the smaller id comes first.
    """
    norms = estimated_norms(encoder, codes) if metric == "cosine" and encoder.norm is None else None
    ranked_by = "euclidean" if metric == "hamming" and rows_at is not None else metric

    def answer(some: Any) -> Found:
        keys, places = nearest(encoder, some, codes, metric=metric, k=n_candidates, ids=ids, allow=allow, norms=norms)
        if rows_at is not None:
            keys, places = rescored(some, places, rows_at, metric=ranked_by, k=k, ids=ids)
        return as_distances(keys, ranked_by), places

    return by_pieces(queries, answer, n_tables=encoder.layout.n_tables, candidates=n_candidates)


def by_pieces(queries: Any, answer: Callable[[Any], Found], *, n_tables: int, candidates: int) -> Found:
    """Answer all queries, so many at a time that their tables and candidates fit in PIECE_BYTES."""
    m: int = queries.shape[0]
    step = max(1, PIECE_BYTES // (TABLE_BYTES * n_tables + CANDIDATE_BYTES * candidates))
    if m <= step:
        return answer(queries)
    distances, places = answer(queries[:step])
    out = np.empty((m, distances.shape[1]), distances.dtype), np.empty((m, places.shape[1]), places.dtype)
    out[0][:step], out[1][:step] = distances, places
    for start in range(step, m, step):
        part = slice(start, start + step)
        out[0][part], out[1][part] = answer(queries[part])
    return out


def as_metric(metric: str, encoder: "Encoder") -> None:
    """Raise unless it is a metric, and one of codes of this kind."""
    as_choice(metric, "metric", METRICS)
    if metric == "hamming" and not encoder.has_bits:
        raise ValueError("metric='hamming' is for codes of a hash: those of a quantizer are no signs")


def check_width(codes: Codes, encoder: "Encoder") -> None:
    """Raise ValueError unless codes are as wide as those of an encoder."""
    if codes.shape[1] != encoder.width:
        raise ValueError(f"codes must have {encoder.width} bytes, as this model makes them, got {codes.shape[1]}")


def checked_queries(queries: Rows, encoder: "Encoder") -> Any:
    """Return finite queries (m, d) in float32 or float64, or CSR."""
    out = encoder.checked(queries, "queries")
    with np.errstate(over="ignore"):  # of a long double
        out = out.astype(natural_dtype(out.dtype), copy=False)
    check_finite(out, "queries")
    return out


def as_candidates(k: int, oversample: float, most: int) -> int:
    """Return how many candidates to rescore: ceil(k * oversample), or as many as there are."""
    if isinstance(oversample, bool | np.bool_) or not isinstance(oversample, int | float | np.number):
        raise TypeError(f"oversample must be a number, got {oversample!r}")
    if not 1 <= oversample < math.inf:
        raise ValueError(f"oversample must be finite and at least 1, got {oversample}")
    return most if oversample >= most else min(math.ceil(k * float(oversample)), most)


def nearest(
    encoder: "Encoder",
    queries: Any,
    codes: CodeRows,
    *,
    metric: str,
    k: int,
    ids: Places | None = None,
    allow: Mask | None = None,
    norms: NDArray[np.float32] | None = None,
) -> tuple[Keys, Places]:
    """Return keys (m, k), ascending, and places (m, k) of the k best codes of checked queries; k at least may come.

    Among equal estimates the smaller id comes first. norms: ``estimated_norms``, for cosines.
    """
    if metric == "hamming":
        bits = np.ascontiguousarray(codes.part(0, len(codes))[:, : encoder.layout.nibble_bytes])
        return nearest_bits(encoder.bits(queries), bits, k=k, ids=ids, allow=allow)
    if metric == "euclidean" or encoder.norm is None:
        return _estimated(encoder, queries, codes, metric=metric, k=k, ids=ids, allow=allow, norms=norms)
    unit, norm = _unit(queries), encoder.norm * encoder.length
    aimed = unit.any(axis=1)
    if not aimed.all():  # zero has no direction: its products with all rows are 0
        keys, places = np.empty((len(unit), k)), np.empty((len(unit), k), np.int64)
        keys[aimed], places[aimed] = nearest(encoder, queries[aimed], codes, metric=metric, k=k, ids=ids, allow=allow)
        keys[~aimed], places[~aimed] = _estimated(
            encoder, queries[~aimed], codes, metric=metric, k=k, ids=ids, allow=allow, norms=norms
        )
        return keys, places
    # q'x = |q| |x| (1 - |u - x|^2 / (2 |x|^2)), u the query at the length of the rows
    keys, places = _estimated(encoder, unit * norm, codes, metric="euclidean", k=k, ids=ids, allow=allow)
    keys = keys / norm / norm / 2 - 1
    if metric == "inner_product":
        with np.errstate(over="ignore"):
            keys *= np.einsum("ij,ij->i", _dense(queries), unit)[:, np.newaxis] * norm
    return keys, places


def _estimated(
    encoder: "Encoder",
    queries: Any,
    codes: CodeRows,
    *,
    metric: str,
    k: int,
    ids: Places | None,
    allow: Mask | None,
    norms: NDArray[np.float32] | None = None,
) -> tuple[Keys, Places]:
    """Return what ``nearest`` does, by the estimates that codes give of this metric."""
    if metric == "cosine":
        queries, shift = _unit(queries) * encoder.length, 0
    else:
        queries, shift = _within_reach(queries, encoder.length, metric)
    tables, constant = _tables(encoder, queries, "euclidean" if metric == "euclidean" else "inner_product")
    if metric == "euclidean":
        rule = Rule(1.0, -2.0)
    elif metric == "inner_product":
        rule = Rule(0.0, -1.0)
    else:
        norms = estimated_norms(encoder, codes) if norms is None else norms
        rule = Rule(0.0, -1.0, np.clip(-constant, -LARGEST, LARGEST).astype(np.float32), norms)
    scores, places = scan(tables, codes, rule, k=k, allow=allow, ids=ids)
    keys = np.clip(scores, -LARGEST, LARGEST, dtype=np.float64)
    if metric != "cosine":
        keys += constant[:, np.newaxis] if metric == "euclidean" else -constant[:, np.newaxis]
        with np.errstate(over="ignore"):
            keys *= encoder.length  # twice: its square may be none
            keys *= encoder.length
            keys = np.ldexp(keys, shift)
    return keys, places


def estimated_norms(encoder: "Encoder", codes: CodeRows) -> NDArray[np.float32]:
    """Return float32 (n,), positive: estimated lengths of the rows behind codes, in units of ``encoder.length``."""
    tables, constant = _tables(encoder, np.zeros((1, encoder.n_features)), "euclidean")
    # the squared distances from zero
    base = min(float(constant[0]), LARGEST)
    square = kernel.scores(
        tables[0], codes.data, codes.layout, alpha=1.0, beta=-2.0, constant=base, in_blocks_of=codes.in_blocks_of
    )
    least = max(LEAST_NORM * base, float(np.finfo(np.float32).tiny))
    return np.sqrt(np.clip(square, least, LARGEST, dtype=np.float64)).astype(np.float32)


def _tables(encoder: "Encoder", queries: Any, metric: Estimate) -> Tables:
    """Return the encoder's tables, among numbers whose sums are numbers; it is not asked where there are no queries."""
    if not queries.shape[0]:
        return Tables(np.zeros((0, encoder.layout.n_tables, 16), np.float32), np.zeros(0))
    tables, constant = encoder.tables(queries, metric)
    return Tables(np.clip(tables, -FARTHEST, FARTHEST), np.clip(constant, -(FARTHEST**8), FARTHEST**8))


def as_distances(keys: Keys, metric: str) -> NDArray[Any]:
    """Return keys as distances, no longer squared and not below zero; products and cosines, the largest
    first; Hamming distances as they are."""
    if metric == "hamming":
        return keys
    if metric == "euclidean":
        return np.sqrt(np.maximum(keys, 0.0))
    values = 0.0 - keys  # no negative zero
    return np.clip(values, -1.0, 1.0) if metric == "cosine" else values


def _within_reach(queries: Any, length: float, metric: str) -> tuple[Any, Any]:
    """Scale queries (m, d) by powers of two so that float32 holds their tables; return them and exponents (m, 1) of
    what their keys are to be multiplied by, or 0 if that is none of them.

    An inner product goes by the query. From a query so far away all rows are as far as their mean, up to their order,
    which is that of the direction: so its distance goes by the query, too.
    """
    ends = queries.max(axis=1), -queries.min(axis=1)
    top = np.maximum(*(_dense(end).reshape(-1) for end in ends))
    exponents = np.frexp(top)[1] - math.frexp(length)[1]
    beyond = exponents > REACH
    if metric == "inner_product":
        beyond |= (exponents < -REACH) & (top > 0)
    if not beyond.any():
        return queries, 0
    down = np.where(beyond, exponents - REACH if metric == "euclidean" else exponents, 0)[:, np.newaxis]
    return np.ldexp(_dense(queries), -down), 2 * down if metric == "euclidean" else down


def _dense(values: Any) -> NDArray[np.float64]:
    return np.asarray(values.toarray() if hasattr(values, "toarray") else values, np.float64)


def _unit(queries: Any) -> Any:
    """Return queries of length one; zero stays zero."""
    dense = _dense(queries)
    top = np.abs(dense).max(axis=1, keepdims=True)
    dense = dense / np.where(top > 0, top, 1.0)
    length = np.sqrt(np.einsum("ij,ij->i", dense, dense))[:, np.newaxis]
    return dense / np.where(length > 0, length, 1.0)
