"""Lengths of time as "15min" says them, and moments of rows as whole microseconds since 1970."""

import re
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_array, as_integer

SECOND = 1_000_000
UNITS = {"ms": SECOND // 1000, "s": SECOND, "min": 60 * SECOND, "h": 3600 * SECOND, "d": 86400 * SECOND}
MISSING = np.iinfo(np.int64).min  # as numpy has NaT
LATEST = 1 << 62


def as_block_length(value: Any, name: str) -> int | str:
    """Return a number of rows, at least 1, or a length of time as a text such as "15min", checked."""
    if isinstance(value, str):
        microseconds_in(value, name)
        return value
    return as_integer(value, name, 1, LATEST)


def microseconds_in(text: str, name: str) -> int:
    """Return the microseconds of a length of time."""
    match = re.fullmatch(r"(\d{1,9})\s*(ms|s|min|h|d)", text.strip())
    if match is None or int(match[1]) == 0:
        raise ValueError(
            f'{name} must be a number of rows, or a time such as "30s", "15min", "1h" or "1d", got {text!r}'
        )
    length = int(match[1]) * UNITS[match[2]]
    if length > LATEST:
        raise ValueError(f"{name} must be at most {LATEST // UNITS['d']:,} days, got {text!r}")
    return length


def as_moments(values: Any, n_rows: int) -> NDArray[np.int64]:
    """Return the moments of rows in microseconds since 1970; an error names the row.

    Of datetime64, seconds since 1970, ISO 8601 text or datetimes; without a time zone they are taken for UTC.
    """
    given = as_array(values, "by")
    if given.shape != (n_rows,):
        raise ValueError(f"by must have one time for each of the {n_rows} rows, got shape {given.shape}")
    if given.dtype.kind == "M":
        microseconds = given.astype("datetime64[us]")
        beyond = ~np.isnat(given) & (microseconds.astype(given.dtype) != given)  # of coarse units, which wrap
        if beyond.any() and np.datetime_data(given.dtype)[0] not in ("ns", "ps", "fs", "as"):
            raise ValueError(f"by: row {np.flatnonzero(beyond)[0]} has a time out of range")
        moments = microseconds.astype(np.int64)
    elif given.dtype.kind in "iuf":
        seconds = given.astype(np.float64)
        wrong = ~(np.abs(seconds) < LATEST / SECOND)  # NaN too
        moments = np.where(wrong, MISSING, np.rint(np.where(wrong, 0.0, seconds) * SECOND)).astype(np.int64)
    elif given.dtype.kind in "OUS":
        moments = np.fromiter((_moment_of(value, row) for row, value in enumerate(given.tolist())), np.int64, n_rows)
    else:
        raise TypeError(f"by must hold times: datetime64, seconds since 1970 or ISO 8601 text, got dtype {given.dtype}")
    if (missing := np.flatnonzero(moments == MISSING)).size:
        raise ValueError(f"by: row {missing[0]} has no time")
    return moments


def _moment_of(value: Any, row: int) -> int:
    """Return microseconds since 1970 of text, a datetime, a number of seconds, or nothing."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if value is None or value == "" or value != value:
        return MISSING
    if isinstance(value, np.datetime64):
        return int(value.astype("datetime64[us]").astype(np.int64))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return round(value * SECOND) if abs(value) < LATEST / SECOND else MISSING
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise ValueError(f"by: row {row} has the time {value!r}, which is not ISO 8601") from None
    if not isinstance(value, datetime):
        raise TypeError(f"by: row {row} has the time {value!r}: times are datetimes, seconds since 1970 or text")
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * SECOND + since.microseconds
