"""Scores of quantized codes from lookup tables of queries, in float32, and the search for the smallest scores."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def code_number(codes: NDArray[np.uint8], number: Any) -> Floats:
    """Decode a small floating-point number from the bytes of each code, with the low byte first.

    Parameters
    ----------
    codes : (n, 1 or 2) array of uint8
        The bytes of the factor.
    number : object
        With ``mantissa_bits`` (int) and ``unit`` (float): a small float of no sign, whose bytes 0 stand for the unit.

    Returns
    -------
    (n,) array of float32
        Of neighbouring bytes the larger is the larger number.

    Examples
    --------
    With two bits of mantissa every fourth step doubles:

    >>> import numpy as np
    >>> from types import SimpleNamespace
    >>> from fastsketch import reference
    >>> bytes_ = np.array([[0], [1], [2], [3], [4], [8]], np.uint8)
    >>> reference.code_number(bytes_, SimpleNamespace(mantissa_bits=2, unit=1.0)).tolist()
    [1.0, 1.25, 1.5, 1.75, 2.0, 4.0]
    """
    u = codes.astype(np.uint32) @ (256 ** np.arange(codes.shape[1], dtype=np.uint32))
    bits = (u << np.uint32(23 - number.mantissa_bits)) + np.uint32(127 << 23)
    return np.float32(number.unit) * bits.view(np.float32)


def code_scores(
    tables: Floats,
    codes: NDArray[np.uint8],
    *,
    layout: Any,
    alpha: float,
    beta: float,
    constant: Floats | None = None,
    divisor: Floats | None = None,
) -> Floats:
    """Compute the scores of quantized codes from the lookup tables of queries.

    A score is ((beta scale) t + alpha offset + constant) / divisor.

    t is the sum of a table's entry for every nibble of a code, in float32 and in their order.

    Parameters
    ----------
    tables : (m, n_tables, 16) array of float32
        Of every query, what each value of each nibble adds.
    codes : (n, width) array of uint8
        Nibbles, the low one of a byte first, then the bytes of offset and scale.
    layout : object
        With ``n_tables``, ``width``, ``offset`` and ``scale``: the last two with ``n_bytes``, else as in `code_number`.
    alpha, beta : float
        What the offset and the sums are multiplied with.
    constant : (m,) array of float32, optional
        Added to the scores of a query.
    divisor : array of float32, optional
        Of the shape of the scores or of one that broadcasts to it.

    Returns
    -------
    (m, n) array of float32
        The scores.

    Examples
    --------
    One query, two tables, two codes of a byte each: 0x21 names the entries 1 and 2, 0x03 the entries 3 and 0.

    >>> import numpy as np
    >>> from types import SimpleNamespace
    >>> from fastsketch import reference
    >>> tables = np.stack([np.arange(16), 100 * np.arange(16)])[np.newaxis].astype(np.float32)
    >>> none = SimpleNamespace(n_bytes=0)
    >>> layout = SimpleNamespace(n_tables=2, width=1, offset=none, scale=none)
    >>> codes = np.array([[0x21], [0x03]], np.uint8)
    >>> reference.code_scores(tables, codes, layout=layout, alpha=0.0, beta=1.0).tolist()
    [[201.0, 3.0]]
    """
    bytes_, end = (layout.n_tables + 1) // 2, layout.width
    t = np.zeros((len(tables), len(codes)), np.float32)
    for j in range(layout.n_tables):
        nibble = codes[:, j // 2] >> 4 if j % 2 else codes[:, j // 2] & 15
        t += tables[:, j][:, nibble]
    factor: Any = np.float32(beta)
    if layout.scale.n_bytes:
        factor = factor * code_number(codes[:, end - layout.scale.n_bytes : end], layout.scale)
    scores = factor * t
    if layout.offset.n_bytes:
        offset = code_number(codes[:, bytes_ : bytes_ + layout.offset.n_bytes], layout.offset)
        scores = scores + np.float32(alpha) * offset
    if constant is not None:
        scores = scores + constant[:, np.newaxis]
    return scores if divisor is None else scores / divisor


def least_scores(
    scores: Floats,
    k: int,
    *,
    allow: NDArray[np.bool_] | None = None,
    ids: NDArray[np.int64] | None = None,
) -> tuple[Floats, NDArray[np.int64]]:
    """Return the k smallest scores of every query and their positions; of equal scores, the lowest id comes first.

    Parameters
    ----------
    scores : (m, n) array of float32
        Of n codes for m queries.
    k : int
        How many are wanted.
    allow : (n,) array of bool, optional
        Which codes may be found; all by default.
    ids : (n,) array of int64, optional
        By which equal scores are put in order; their places by default.

    Returns
    -------
    scores : (m, k) array of float32
        Ascending; infinity where there are fewer.
    places : (m, k) array of int64
        Columns of `scores`; -1 where there are fewer.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import reference
    >>> scores = np.array([[5.0, 1.0, 3.0, 1.0]], np.float32)
    >>> found, places = reference.least_scores(scores, 3)
    >>> found.tolist(), places.tolist()
    ([[1.0, 1.0, 3.0]], [[1, 3, 2]])
    >>> reference.least_scores(scores, 3, allow=np.array([True, False, False, True]))[1].tolist()
    [[3, 0, -1]]
    """
    allowed = np.ones(scores.shape[1], np.bool_) if allow is None else allow
    places: NDArray[np.int64] = np.flatnonzero(allowed).astype(np.int64)
    names = places if ids is None else ids[places]
    least = np.full((len(scores), k), np.inf, np.float32)
    where = np.full((len(scores), k), -1, np.int64)
    for row, score in enumerate(scores):
        order = np.lexsort((names, score[places]))[:k]
        least[row, : len(order)] = score[places[order]]
        where[row, : len(order)] = places[order]
    return least, where
