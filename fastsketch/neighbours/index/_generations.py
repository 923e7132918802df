"""Generations of an index: what its rows were encoded by, and how old ones are brought forward."""

# pyright: reportPrivateUsage=false
# (the sample of a model)
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_integer, check_finite, is_sparse
from fastsketch.neighbours.codes import Encoder
from fastsketch.neighbours.hashing._hasher import Hasher
from fastsketch.neighbours.index._cells import ASKED_ROWS
from fastsketch.neighbours.index._contents import Contents
from fastsketch.neighbours.index._segment import CODES, MIDDLES, STARTS, Segment, pieces
from fastsketch.neighbours.quantizing import SketchQuantizer
from fastsketch.neighbours.summaries._summary_model import SummaryModel

Rows = NDArray[np.floating[Any]]

# Rows that are looked at for what rounding takes from them, and what is much of their spread: recall falls from there.
LOOKED_AT, COARSE = 1000, 0.01
# Most cells of a segment.
MOST_CELLS = 1 << 16


def as_encoder(model: Any, *, metric: str) -> Encoder:
    """Return the encoder of a model as it has learned so far, or itself; of a hash with factors if they count."""
    if isinstance(model, Encoder):
        return model
    if isinstance(model, Hasher):
        return model.encoder(factors=metric != "hamming")
    if isinstance(model, SketchQuantizer):
        return model.encoder()
    raise TypeError(f"model must be a hash, a quantizer or the encoder of one, got {type(model).__name__}")


def as_partitions(partitions: Any, encoder: Encoder) -> int | str | None:
    """Return None, "auto" or a number of cells; TypeError or ValueError if it is none, or codes stand for no rows."""
    if partitions is None:
        return None
    if getattr(encoder, "basis", None) is None or not hasattr(encoder, "mean"):
        raise ValueError("partitions needs codes that can be decoded: of a quantizer, or of a SketchHash with factors")
    return partitions if partitions == "auto" else as_integer(partitions, "partitions", 2, MOST_CELLS + 1)


def as_asked(model: Any) -> NDArray[np.floating[Any]] | None:
    """Return rows by whose neighbours cells are tried, of the sample of a model; None without one."""
    sample = model._sample()[:ASKED_ROWS].copy() if isinstance(model, SummaryModel) else None
    return sample if sample is not None and len(sample) else None


def facts(contents: Contents) -> list[dict[str, Any]]:
    """Return facts of each encoder that rows in the index have, the oldest first, and of the present one."""
    about_each: dict[str, dict[str, Any]] = {}
    for encoder in (*(segment.encoder for segment in contents.segments), contents.encoder):
        about = {"fingerprint": encoder.fingerprint, "kind": type(encoder).__name__, "width": encoder.width}
        about["factor_bytes"] = encoder.layout.offset.n_bytes + encoder.layout.scale.n_bytes
        about_each.setdefault(encoder.fingerprint, {**about, "n_rows": 0, "n_removed": 0, "current": False})
    for segment in contents.segments:
        about_each[segment.encoder.fingerprint]["n_rows"] += segment.n_live
        about_each[segment.encoder.fingerprint]["n_removed"] += segment.n_removed
    about_each[contents.encoder.fingerprint]["current"] = True
    return list(about_each.values())


# -- rows on their way in ----------------------------------------------------------------------------------------------
def as_kept(rows: Any, kept: str | None, contents: Contents, *, offset: int = 0) -> Rows | None:
    """Return rows in the dtype they are kept in, None if they are not; ValueError for what it does not hold.

    Contents are those that the rows come to: the first ones are looked at for what rounding takes from them.
    """
    if kept is None:
        return None
    check_finite(rows, offset=offset)
    dtype = np.dtype(kept)
    dense: NDArray[Any] = rows.toarray() if is_sparse(rows) else rows
    with np.errstate(over="ignore"):
        out = dense.astype(dtype)
    if not np.isfinite(out).all():
        row = int(np.argmin(np.isfinite(out).all(axis=1)))
        wider = ': keep them as rows="float32"' if dtype == np.float16 else ""
        raise ValueError(
            f"rows must be numbers that {dtype} holds: row {offset + row} has one that is too large{wider}"
        )
    if dtype == np.float16 and not offset and not contents.n_live:
        _warn_of_rounding(dense[:LOOKED_AT], out[:LOOKED_AT], getattr(contents.encoder, "mean", None))
    return out


def _warn_of_rounding(rows: Rows, kept: Rows, mean: Rows | None) -> None:
    """Warn if what float16 has taken from rows is much beside their distances from the mean of the model, or theirs."""
    exact = rows.astype(np.float64)
    lost = np.square(exact - kept).sum()
    spread = np.square(exact - (exact.mean(axis=0) if mean is None else mean)).sum()
    if lost > COARSE**2 * spread > 0:
        warnings.warn(
            f'rows="float16" keeps these rows with errors of {np.sqrt(lost / spread):.1%} of their distances from the '
            f"mean, more than {COARSE:.0%}, so that near ones change places: subtract the mean from rows and queries, "
            'or take rows="float32"',
            UserWarning,
            stacklevel=4,
        )


# -- bringing old ones forward -----------------------------------------------------------------------------------------
def brought_forward(contents: Contents, rows_of: Callable[[Segment, NDArray[np.int64]], Any]) -> Contents:
    """Return all rows encoded by the present encoder; rows_of(segment, positions) gives the rows of old ones."""
    encoder = contents.encoder
    segments = (
        segment if segment.encoder == encoder else _again(segment, encoder, rows_of) for segment in contents.segments
    )
    return contents.of_segments(segments)


def _again(segment: Segment, encoder: Encoder, rows_of: Callable[[Segment, NDArray[np.int64]], Any]) -> Segment:
    codes = segment.codes.empty(len(segment), encoder.layout)
    for piece in pieces(len(segment)):
        start, stop, _ = piece.indices(len(segment))
        live = np.arange(start, stop, dtype=np.int64)
        if segment.live is not None:
            live = live[segment.live[piece]]
        some = np.zeros((stop - start, encoder.width), np.uint8)
        if len(live):
            some[live - start] = encoder.encode(rows_of(segment, live))
        codes.put(start, some)
    written = {name: file for name, file in segment.written.items() if name not in (CODES, MIDDLES, STARTS)}
    return replace(segment, encoder=encoder, codes=codes, cells=None, written=written, derived={})
