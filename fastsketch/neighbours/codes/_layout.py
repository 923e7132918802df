"""Byte layout of a code: nibbles (4-bit indices into lookup tables of the query), then two numbers of the row."""

from dataclasses import astuple, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_integer
from fastsketch.neighbours.codes._code_factors import NOTHING, Factors, Minifloat

Codes = NDArray[np.uint8]

# The largest number of tables of a code: the kernels count bytes and tables of a block with 32 bits.
MAX_TABLES = 1 << 16


@dataclass(frozen=True)
class Layout:
    """Layout of the bytes of a code: first 4-bit indices into lookup tables (nibbles), then an offset and a scale that
    refine distances.

    Nibbles take ceil(n_tables / 2) bytes, the low nibble of a byte first.

    Let T (n_tables, 16) be the tables of a query, and t = sum over j of T[j, nibble j]. The squared distance of query
    and row is estimated by offset - 2 scale t plus a constant of the query, the inner product by scale t plus a
    constant. A code without bytes for them has the offset 0 and the scale 1.

    Parameters
    ----------
    n_tables : int
        Number of nibbles.
    offset, scale : Minifloat
        Formats of the two factors.
    """

    n_tables: int
    offset: Minifloat = NOTHING
    scale: Minifloat = NOTHING

    def __post_init__(self) -> None:
        as_integer(self.n_tables, "n_tables", 1, MAX_TABLES + 1)

    @property
    def nibble_bytes(self) -> int:
        """Number of bytes at the start of a code that contain its nibbles (4-bit indices), two in each."""
        return (self.n_tables + 1) // 2

    @property
    def width(self) -> int:
        """Number of bytes of a code."""
        return self.nibble_bytes + self.offset.n_bytes + self.scale.n_bytes

    def nibbles(self, codes: Codes) -> Codes:
        """Unpack the 4-bit indices of codes (n, width). Return them as uint8 (n, n_tables), one in each byte."""
        body = codes[:, : self.nibble_bytes]
        out = np.empty((len(codes), 2 * self.nibble_bytes), np.uint8)
        out[:, ::2], out[:, 1::2] = body & 15, body >> 4
        return out[:, : self.n_tables]

    def offsets(self, codes: Codes) -> Factors | None:
        """Return the offset of each code (n, width) as float32 (n,), or None if codes have no offset."""
        start = self.nibble_bytes
        return self._factor(self.offset, codes[:, start : start + self.offset.n_bytes])

    def scales(self, codes: Codes) -> Factors | None:
        """Return the scale of each code (n, width) as float32 (n,), or None if codes have no scale."""
        return self._factor(self.scale, codes[:, self.width - self.scale.n_bytes :])

    @staticmethod
    def _factor(kind: Minifloat, data: Codes) -> Factors | None:
        """Decode the bytes of an offset or a scale to float32. Return None if codes have no such bytes."""
        return kind.decode(data) if kind.n_bytes else None

    def pack(self, nibbles: Codes, offset: Any = None, scale: Any = None) -> Codes:
        """Return codes (n, width), packed from nibbles (4-bit indices), offsets and scales.

        Nibbles are (n, n_tables), each below 16; offsets and scales are (n,), and codes (n, width).
        """
        n = len(nibbles)
        pairs = np.zeros((n, 2 * self.nibble_bytes), np.uint8)
        pairs[:, : self.n_tables] = nibbles
        out = np.empty((n, self.width), np.uint8)
        out[:, : self.nibble_bytes] = pairs[:, ::2] | (pairs[:, 1::2] << 4)
        self.write_factors(out, offset, scale)
        return out

    def write_factors(self, codes: Codes, offset: Any, scale: Any) -> None:
        """Write the offset and the scale of each row into its code, in place.

        They are (n,), and codes (n, width). What has no bytes in the layout is ignored.
        """
        start = self.nibble_bytes
        if self.offset.n_bytes:
            codes[:, start : start + self.offset.n_bytes] = self.offset.encode(offset)
        if self.scale.n_bytes:
            codes[:, start + self.offset.n_bytes :] = self.scale.encode(scale)

    def state(self) -> dict[str, Any]:
        """Return the layout as a dictionary of JSON values."""
        return {"n_tables": self.n_tables, "offset": [*astuple(self.offset)], "scale": [*astuple(self.scale)]}

    @classmethod
    def of_state(cls, state: Any) -> "Layout":
        """Create a layout from the result of ``state``. Raise TypeError or ValueError if it is invalid."""
        if not isinstance(state, dict) or set(cast("dict[Any, Any]", state)) != {"n_tables", "offset", "scale"}:
            raise ValueError(f"a layout has n_tables, offset and scale, got {state!r}")
        stated = cast("dict[str, Any]", state)
        return cls(
            stated["n_tables"], *(Minifloat(*_three_numbers(stated[name], name)) for name in ("offset", "scale"))
        )


def _three_numbers(value: Any, name: str) -> list[Any]:
    """Validate the saved form of a Minifloat, a list of three numbers, and return it. ValueError for anything else."""
    out = cast("list[Any]", value) if isinstance(value, list) else []
    if len(out) != 3:
        raise ValueError(f"{name} of a layout must be [bytes, mantissa bits, unit], got {value!r}")
    return out
