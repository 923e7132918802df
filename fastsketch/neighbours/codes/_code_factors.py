"""Floating-point formats of one or two bytes, for the numbers that a code stores of its row.

With M bits of mantissa the unsigned integer u of 8 or 16 bits stands for

    value(u) = unit * float_of_bits((u << (23 - M)) + (127 << 23))

as float32. The numbers go from `unit` to unit * 2^(2^(bits - M)); neighbours differ by the share 2^-M of the power of
two below them. Smaller numbers are encoded as `unit`, larger ones as the largest number: encoding saturates.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import as_integer, as_real

Factors = NDArray[np.float32]

_ONE = 127 << 23  # the bits of 1.0


@dataclass(frozen=True)
class Minifloat:
    """Floating-point format of 0, 1 or 2 bytes; with 0 bytes nothing is stored.

    Parameters
    ----------
    n_bytes : int
    mantissa_bits : int
        M: at least 1 for one byte and 9 for two (the exponent has at most 7 bits), at most all bits; 0 for 0 bytes.
    unit : float
        The smallest number, a positive float32.
    """

    n_bytes: int
    mantissa_bits: int = 0
    unit: float = 1.0

    def __post_init__(self) -> None:
        as_integer(self.n_bytes, "n_bytes", 0, 3)
        bits = 8 * self.n_bytes
        as_integer(self.mantissa_bits, "mantissa_bits", max(0, bits - 7), bits + 1)
        as_real(self.unit, "unit", float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max))
        if float(np.float32(self.unit)) != self.unit:
            raise ValueError(f"unit must be a float32, got {self.unit!r}")
        with np.errstate(over="ignore"):
            if self.n_bytes and not np.isfinite(self.values(self.largest)):
                raise ValueError(f"unit must leave the largest number finite, got {self.unit!r}")

    @property
    def largest(self) -> int:
        """Integer that represents the largest number of the format."""
        return (1 << 8 * self.n_bytes) - 1

    def nearest_integers(self, values: ArrayLike) -> NDArray[np.uint32]:
        """Round numbers (n,) to the nearest numbers of the format, and return the unsigned integers that represent
        these.

        NaN is not allowed. Halves are rounded up.
        """
        with np.errstate(over="ignore"):
            ratio: Any = np.asarray(values, np.float32) / np.float32(self.unit)
        shift = 23 - self.mantissa_bits
        bits = np.maximum(ratio, np.float32(1.0)).astype(np.float32).view(np.uint32) - np.uint32(_ONE)
        half = np.uint32((1 << shift) >> 1)
        return np.minimum((bits + half) >> np.uint32(shift), np.uint32(self.largest))

    def values(self, integers: ArrayLike) -> Factors:
        """Return the float32 numbers that integers represent in this format."""
        u = np.asarray(integers, np.uint32)
        return np.float32(self.unit) * ((u << np.uint32(23 - self.mantissa_bits)) + np.uint32(_ONE)).view(np.float32)

    def encode(self, values: ArrayLike) -> NDArray[np.uint8]:
        """Encode numbers as bytes.

        Numbers are (n,), none of them NaN; bytes are uint8 (n, n_bytes), the low byte first.
        """
        u = self.nearest_integers(values)
        return np.stack([(u >> np.uint32(8 * b)).astype(np.uint8) for b in range(self.n_bytes)], axis=-1)

    def decode(self, data: NDArray[np.uint8]) -> Factors:
        """Decode bytes, uint8 (n, n_bytes), to float32 numbers (n,)."""
        u = np.zeros(data.shape[0], np.uint32)
        for b in range(self.n_bytes):
            u |= data[:, b].astype(np.uint32) << np.uint32(8 * b)
        return self.values(u)


NOTHING = Minifloat(0)
