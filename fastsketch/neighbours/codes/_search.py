"""Nearest-neighbour search of codes by real-valued queries.

Candidates are ranked by keys, of which smaller ones are nearer: squared distances, negative inner products, negative
cosines, or Hamming distances.
"""

# pyright: reportImportCycles=false, reportPrivateUsage=false
# (the encoder is here for its type alone; ``search`` is a method of the classes that assign it)
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import Rows, as_choice, check_finite, natural_dtype
from fastsketch._kernels.codes import scan as kernel
from fastsketch.neighbours.codes._blocks import CodeRows
from fastsketch.neighbours.codes._code_scan import Estimate, ScoreRule, Tables, scan
from fastsketch.neighbours.codes._layout import Codes
from fastsketch.neighbours.codes._packed_codes import as_codes, nearest_bits
from fastsketch.neighbours.codes._rescoring import Source, create_rows_reader, rescore_candidates
from fastsketch.neighbours.codes._search_arguments import Mask, Places, as_ids, as_k, as_mask

if TYPE_CHECKING:
    from fastsketch.neighbours.codes._encoder import Encoder

Metric = Literal["euclidean", "inner_product", "cosine", "hamming"]
METRICS: Final[tuple[str, ...]] = get_args(Metric)
Found = tuple[NDArray[Any], Places]
Keys = NDArray[Any]

# A squared norm is estimated as at least this share of the squared norm of the mean: a row at the origin has no
# direction.
MIN_NORM_SHARE = 2.0**-20
# Entries of tables are clipped to +-MAX_TABLE_ENTRY, so that their sums do not overflow float32, and scores to
# +-MAX_SCORE.
MAX_TABLE_ENTRY = 1e30
MAX_SCORE = 3e38
# Queries whose entries have a larger binary exponent, in units of the encoder's length, are scaled down.
MAX_QUERY_EXPONENT = 40
# Memory for the queries that are answered together, and the bytes that a table and a candidate take with all
# intermediate results. Without a bound, 100,000 queries for 1,000 neighbours each would take 25 GB.
PIECE_BYTES = 256 << 20
TABLE_BYTES = 256
CANDIDATE_BYTES = 64


class CodeSearch(Protocol):
    """What ``search`` needs of an encoder, or of a model that makes codes."""

    def _encoder_for(self, codes: Codes) -> "Encoder":
        """Return the encoder with which the given codes were made. ValueError before the first row.

        The width of the codes tells whether those of a hash have factors.
        """
        ...


def search(
    self: CodeSearch,
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
    """Find the k codes nearest to every query; queries are real-valued rows, not codes.

    Parameters
    ----------
    queries : array_like or scipy.sparse (m, d), or one row (d,)
    codes : ndarray uint8 (n, width)
        Codes that ``encode`` returned. The width tells whether codes of a hash have factors.
    k : int, default 10
        At most the number of codes that may be found.
    metric : {"euclidean", "inner_product", "cosine", "hamming"}, default "euclidean"
        "euclidean": estimates of the distance of query and row, in the units of the rows, not squared and at least
        0. "inner_product" and "cosine": estimates of q'x and of q'x / (||q|| ||x||), the largest first; 0 for a
        query or a row of zeros. Codes of a hash without factors do not store lengths: each row is taken to be as
        far from the mean as the query. "hamming", for hashes only: the number of bits that differ from the code of
        the query.
    rescore : array_like, numpy.memmap or scipy.sparse (n, d), or callable, optional
        The rows that were encoded. The best ceil(k * oversample) candidates of every query are ranked by exact
        distances, inner products or cosines (Euclidean distances for "hamming"). Only rows of candidates are read,
        in ascending order, about 16 MB at a time, and each row once for all queries that are answered together. A
        callable receives ids int64 (b,), or positions without `ids`, and returns their rows (b, d).
    oversample : float, default 4
        At least 1; ignored without `rescore`.
    ids : array_like of int64 (n,), optional
        Distinct ids of the codes, used in the result and in `allow`; default 0 to n - 1.
    allow : array_like of ids, or of bool (n,), optional
        The codes that may be found.

    Returns
    -------
    distances : ndarray float64 (m, k), int32 for "hamming" without `rescore`
        Nearest first; see `metric`.
    indices : ndarray int64 (m, k)
        Ids; equal estimates are ordered by id.

    Raises
    ------
    TypeError, ValueError
        If the model has seen no rows, queries are not finite real rows of its width, codes do not have its width or
        do not support the metric, k exceeds the number of codes that may be found, ids are not n distinct integers,
        `allow` has an unknown id or is a mask of another length, or `rescore` has rows of another number or width
        or rows that are not finite.

    Notes
    -----
    All codes are scanned. With factors, the estimate for codes of a hash is that of RaBitQ, in learned instead of
    random directions. It is exact for a query that equals the row, except for the part of the row outside the span
    of the directions.

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
    check_metric(metric, encoder)
    check_width(packed, encoder)
    n = len(packed)
    collection = CodeRows(encoder.layout, packed, n)
    checked = checked_queries(queries, encoder)
    code_ids = as_ids(ids, n)
    mask = as_mask(allow, n, code_ids)
    k = as_k(k, n, mask)
    n_candidates = as_candidates(k, oversample, n if mask is None else int(np.count_nonzero(mask)))
    read_rows = None
    if rescore is not None:
        read_rows = create_rows_reader(rescore, encoder.n_features, "rescore", n, feature_names=encoder.feature_names)

    def rows_at(positions: Places) -> Any:
        assert read_rows is not None
        return read_rows(positions, positions if code_ids is None else code_ids[positions])

    distances, positions = search_codes(
        encoder,
        checked,
        collection,
        metric=metric,
        k=k,
        n_candidates=k if read_rows is None else n_candidates,
        rows_at=None if read_rows is None else rows_at,
        ids=code_ids,
        allow=mask,
    )
    return distances, positions if code_ids is None else code_ids[positions]


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
    """Find the codes nearest to validated queries, with rescoring of candidates if `rows_at` is given. Return distances
    and positions, both (m, k).

    At least k codes must be allowed.

    With rows_at, which returns the rows at ascending positions, n_candidates codes of each query are ranked by exact
    distances (Euclidean ones for "hamming"). Among equal distances the code with the smaller id comes first.
    """
    norms = estimated_norms(encoder, codes) if metric == "cosine" and encoder.norm is None else None
    ranked_by = "euclidean" if metric == "hamming" and rows_at is not None else metric

    def search_block(block: Any) -> Found:
        keys, positions = rank_codes(
            encoder, block, codes, metric=metric, k=n_candidates, ids=ids, allow=allow, norms=norms
        )
        if rows_at is not None:
            keys, positions = rescore_candidates(block, positions, rows_at, metric=ranked_by, k=k, ids=ids)
        return as_distances(keys, ranked_by), positions

    return search_in_blocks(queries, search_block, n_tables=encoder.layout.n_tables, candidates=n_candidates)


def search_in_blocks(queries: Any, search_block: Callable[[Any], Found], *, n_tables: int, candidates: int) -> Found:
    """Call `search_block` for blocks of queries, to limit memory, and return all distances and positions as (m, k)."""
    m: int = queries.shape[0]
    step = max(1, PIECE_BYTES // (TABLE_BYTES * n_tables + CANDIDATE_BYTES * candidates))
    if m <= step:
        return search_block(queries)
    distances, positions = search_block(queries[:step])
    out = np.empty((m, distances.shape[1]), distances.dtype), np.empty((m, positions.shape[1]), positions.dtype)
    out[0][:step], out[1][:step] = distances, positions
    for start in range(step, m, step):
        block = slice(start, start + step)
        out[0][block], out[1][block] = search_block(queries[block])
    return out


def check_metric(metric: str, encoder: "Encoder") -> None:
    """Raise ValueError if a metric is unknown, or if the codes of an encoder do not support it."""
    as_choice(metric, "metric", METRICS)
    if metric == "hamming" and not encoder.has_bits:
        raise ValueError("metric='hamming' is for codes of a hash: those of a quantizer are no signs")


def check_width(codes: Codes, encoder: "Encoder") -> None:
    """Raise ValueError if codes do not have the width of the codes of an encoder."""
    if codes.shape[1] != encoder.width:
        raise ValueError(f"codes must have {encoder.width} bytes, as this model makes them, got {codes.shape[1]}")


def checked_queries(queries: Rows, encoder: "Encoder") -> Any:
    """Validate queries and return them as a float matrix, dense or CSR. Raise ValueError if one is not finite."""
    out = encoder.checked(queries, "queries")
    with np.errstate(over="ignore"):  # of a long double
        out = out.astype(natural_dtype(out.dtype), copy=False)
    check_finite(out, "queries")
    return out


def as_candidates(k: int, oversample: float, n_allowed: int) -> int:
    """Return the number of candidates to rescore: k times `oversample`, rounded up, and at most `n_allowed`."""
    if isinstance(oversample, bool | np.bool_) or not isinstance(oversample, int | float | np.number):
        raise TypeError(f"oversample must be a number, got {oversample!r}")
    if not 1 <= oversample < math.inf:
        raise ValueError(f"oversample must be finite and at least 1, got {oversample}")
    return n_allowed if oversample >= n_allowed else min(math.ceil(k * float(oversample)), n_allowed)


def rank_codes(
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
    """Find the k nearest codes for every validated query, by estimated distances. Return ranking keys and positions,
    both (m, k).

    Smaller keys are nearer, and the keys of a query ascend. At least k codes must be allowed. Equal keys are ordered by
    id. `norms` are the ``estimated_norms`` of the codes, for cosines; they are computed if they are needed and not
    given.
    """
    if metric == "hamming":
        bits = np.ascontiguousarray(codes.read_slice(0, len(codes))[:, : encoder.layout.nibble_bytes])
        return nearest_bits(encoder.bits(queries), bits, k=k, ids=ids, allow=allow)
    if metric == "euclidean" or encoder.norm is None:
        return _rank_by_estimates(encoder, queries, codes, metric=metric, k=k, ids=ids, allow=allow, norms=norms)
    unit, norm = _normalised(queries), encoder.norm * encoder.length
    has_direction = unit.any(axis=1)
    if not has_direction.all():  # the zero vector has no direction: its products with all rows are 0
        keys, positions = np.empty((len(unit), k)), np.empty((len(unit), k), np.int64)
        keys[has_direction], positions[has_direction] = rank_codes(
            encoder, queries[has_direction], codes, metric=metric, k=k, ids=ids, allow=allow
        )
        keys[~has_direction], positions[~has_direction] = _rank_by_estimates(
            encoder, queries[~has_direction], codes, metric=metric, k=k, ids=ids, allow=allow, norms=norms
        )
        return keys, positions
    # q'x = |q| |x| (1 - |u - x|^2 / (2 |x|^2)), where u is the query scaled to the length of the rows
    keys, positions = _rank_by_estimates(encoder, unit * norm, codes, metric="euclidean", k=k, ids=ids, allow=allow)
    keys = keys / norm / norm / 2 - 1
    if metric == "inner_product":
        with np.errstate(over="ignore"):
            keys *= np.einsum("ij,ij->i", _dense(queries), unit)[:, np.newaxis] * norm
    return keys, positions


def _rank_by_estimates(
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
    """Find the k nearest codes for every query by distances that are estimated from lookup tables.
    Return ranking keys and positions, both (m, k), as ``rank_codes`` does.
    """
    if metric == "cosine":
        queries, shift = _normalised(queries) * encoder.length, 0
    else:
        queries, shift = _scale_into_range(queries, encoder.length, metric)
    tables, constant = _tables(encoder, queries, "euclidean" if metric == "euclidean" else "inner_product")
    if metric == "euclidean":
        rule = ScoreRule(1.0, -2.0)
    elif metric == "inner_product":
        rule = ScoreRule(0.0, -1.0)
    else:
        norms = estimated_norms(encoder, codes) if norms is None else norms
        rule = ScoreRule(0.0, -1.0, np.clip(-constant, -MAX_SCORE, MAX_SCORE).astype(np.float32), norms)
    scores, positions = scan(tables, codes, rule, k=k, allow=allow, ids=ids)
    keys = np.clip(scores, -MAX_SCORE, MAX_SCORE, dtype=np.float64)
    if metric != "cosine":
        keys += constant[:, np.newaxis] if metric == "euclidean" else -constant[:, np.newaxis]
        with np.errstate(over="ignore"):
            keys *= encoder.length  # twice: its square may be none
            keys *= encoder.length
            keys = np.ldexp(keys, shift)
    return keys, positions


def estimated_norms(encoder: "Encoder", codes: CodeRows) -> NDArray[np.float32]:
    """Return an estimate of the Euclidean norm of each encoded row, from its code alone.

    They are positive float32 (n,), in units of ``encoder.length``.
    """
    tables, constant = _tables(encoder, np.zeros((1, encoder.n_features)), "euclidean")
    # squared distances from the origin
    base = min(float(constant[0]), MAX_SCORE)
    square = kernel.scores(
        tables[0], codes.data, codes.layout, alpha=1.0, beta=-2.0, constant=base, in_blocks_of=codes.in_blocks_of
    )
    smallest = max(MIN_NORM_SHARE * base, float(np.finfo(np.float32).tiny))
    return np.sqrt(np.clip(square, smallest, MAX_SCORE, dtype=np.float64)).astype(np.float32)


def _tables(encoder: "Encoder", queries: Any, metric: Estimate) -> Tables:
    """Return the lookup tables of queries for a metric, clipped so that sums of table entries do not overflow.

    There may be no queries.
    """
    if not queries.shape[0]:
        return Tables(np.zeros((0, encoder.layout.n_tables, 16), np.float32), np.zeros(0))
    tables, constant = encoder.tables(queries, metric)
    return Tables(
        np.clip(tables, -MAX_TABLE_ENTRY, MAX_TABLE_ENTRY), np.clip(constant, -(MAX_TABLE_ENTRY**8), MAX_TABLE_ENTRY**8)
    )


def as_distances(keys: Keys, metric: str) -> NDArray[Any]:
    """Return the distances or similarities for the user, given the ranking keys of a search (smaller is nearer)."""
    if metric == "hamming":
        return keys
    if metric == "euclidean":
        return np.sqrt(np.maximum(keys, 0.0))
    values = 0.0 - keys  # not -keys, which has negative zeros
    return np.clip(values, -1.0, 1.0) if metric == "cosine" else values


def _scale_into_range(queries: Any, length: float, metric: str) -> tuple[Any, Any]:
    """Return queries (m, d) scaled by powers of two so that their lookup tables fit in float32, and exponents (m, 1).
    The keys of a query must be multiplied by 2**exponent. Instead of exponents 0 is returned if none was scaled.

    Inner products are proportional to the query. So are, nearly, distances from a query that is very far from all rows,
    and scaling it keeps their order.
    """
    extremes = queries.max(axis=1), -queries.min(axis=1)
    top = np.maximum(*(_dense(end).reshape(-1) for end in extremes))
    exponents = np.frexp(top)[1] - math.frexp(length)[1]
    out_of_range = exponents > MAX_QUERY_EXPONENT
    if metric == "inner_product":
        out_of_range |= (exponents < -MAX_QUERY_EXPONENT) & (top > 0)
    if not out_of_range.any():
        return queries, 0
    exponent = np.where(out_of_range, exponents - MAX_QUERY_EXPONENT if metric == "euclidean" else exponents, 0)[
        :, np.newaxis
    ]
    return np.ldexp(_dense(queries), -exponent), 2 * exponent if metric == "euclidean" else exponent


def _dense(values: Any) -> NDArray[np.float64]:
    """Convert queries, dense or CSR, to a float64 array."""
    return np.asarray(values.toarray() if hasattr(values, "toarray") else values, np.float64)


def _normalised(queries: Any) -> Any:
    """Return queries scaled to unit length; zero vectors stay zero."""
    dense = _dense(queries)
    top = np.abs(dense).max(axis=1, keepdims=True)
    dense = dense / np.where(top > 0, top, 1.0)
    length = np.sqrt(np.einsum("ij,ij->i", dense, dense))[:, np.newaxis]
    return dense / np.where(length > 0, length, 1.0)
