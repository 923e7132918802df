"""A small encoder with every part that an index may meet: sixteen levels a direction, an offset, a rotation."""

from typing import Any, Self

import numpy as np

from fastsketch._core.validation import Rows, check_finite
from fastsketch.data.files import _checks as checks
from fastsketch.neighbours import Encoder
from fastsketch.neighbours.codes._code_factors import NOTHING, Minifloat
from fastsketch.neighbours.codes._encoder import Arrays, Tables
from fastsketch.neighbours.codes._layout import Layout


class ToyEncoder(Encoder):
    """Codes of z = x @ basis by levels from -top to top; with offsets ||x||^2 is told, too."""

    def __init__(self, basis: Any, top: float = 3.0, *, offset: bool = True) -> None:
        self.basis, self.top, self.offset = np.asarray(basis, np.float64), top, offset
        self.n_features, n_tables = self.basis.shape
        self.layout = Layout(n_tables, Minifloat(2, 9, 2.0**-64) if offset else NOTHING)
        self.levels = np.linspace(-top, top, 16)

    def encode(self, rows: Rows) -> Any:
        x = self.checked(rows)
        check_finite(x)
        x = np.asarray(x.toarray() if hasattr(x, "toarray") else x, np.float64)
        z = np.einsum("ij,jk->ik", x, self.basis)  # whose sums do not depend on the number of rows
        nibbles = np.clip(np.rint((z + self.top) * 15 / (2 * self.top)), 0, 15).astype(np.uint8)
        return self.layout.pack(nibbles, (x * x).sum(axis=1))

    def decode(self, codes: Any) -> Any:
        return (self.levels[self.layout.nibbles(codes)] @ self.basis.T).astype(np.float32)

    def tables(self, queries: Any, metric: Any) -> Tables:
        x = np.asarray(queries.toarray() if hasattr(queries, "toarray") else queries, np.float64)
        z = x @ self.basis
        tables = z[:, :, np.newaxis] * self.levels
        if metric == "euclidean" and not self.offset:
            tables -= 0.5 * self.levels**2
        constant = (x * x).sum(axis=1) if metric == "euclidean" else np.zeros(len(x))
        return Tables(tables.astype(np.float32), constant)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {"top": self.top, "offset": self.offset}, {"basis": self.basis}

    @classmethod
    def of_state(cls, state: dict[str, Any], arrays: Arrays) -> Self:
        checks.finite(arrays, "basis", arrays["basis"].shape)
        return cls(arrays["basis"], float(state["top"]), offset=bool(state["offset"]))


def toy(d: int = 8, seed: int = 0, **parameters: Any) -> ToyEncoder:
    """An encoder of rows with d features, in directions of its own."""
    basis, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))
    return ToyEncoder(basis, **parameters)
