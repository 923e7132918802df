"""The buffer of Frequent Directions on a device: long rows in a tensor there, small matrices in float64 on the CPU.

The layout and the rules are those of ``_kernels/sketching/shrink.pyx``, so that both states convert to each other
without loss. The `kept` rows of the last shrink come last, the longest at the very end; before them are the new rows.
Retained row i is stored as it was computed, and represents gain[i] times itself.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
# (torch declares only part of its types)

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from math import frexp, ldexp, sqrt
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastsketch._kernels.sketching.shrink import top_eigh
from fastsketch._kernels.sketching.state import NOTHING_SEEN, ROUNDING_PER_SHRINK, SketchState
from fastsketch.sketching._engines import DenseEngine, EngineSetting, exponent_for
from fastsketch.sketching._scalars import set_scalars
from fastsketch.torch._base import UNTYPED

Floats = NDArray[np.float64]

NUMPY_DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}
# Columns whose products are summed in the dtype of the rows; the sums of such parts are added in float64. This limits
# the rounding error of a Gram matrix to that of a short sum, whatever the number of columns.
PART_COLUMNS = 512


@contextmanager
def full_precision(device: torch.device) -> Generator[None]:
    """Compute without gradients, autocast, TF32 and bfloat16 products; restore the caller's settings afterwards.

    The precision of products is a setting of the process: other threads get full precision as well meanwhile.
    """
    known: Any = torch.backends  # before torch 2.9 there is one setting for all
    backends = [known.cuda.matmul, known.mkldnn.matmul] if hasattr(known.mkldnn, "matmul") else []
    before = [backend.fp32_precision for backend in backends]
    legacy = None if backends else torch.get_float32_matmul_precision()
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.autocast(device.type, enabled=False))
        for backend, precision in zip(backends, before, strict=True):
            if precision in ("tf32", "bf16"):
                stack.callback(setattr, backend, "fp32_precision", precision)
                backend.fp32_precision = "ieee"
        if legacy not in (None, "highest"):
            stack.callback(torch.set_float32_matmul_precision, legacy)
            torch.set_float32_matmul_precision("highest")
        yield


def to_host(x: Tensor) -> Floats:
    """Copy a tensor to the CPU as an array of float64, in one transfer."""
    return x.to(torch.float64).cpu().numpy()


def squares(rows: Tensor) -> Tensor:
    """Return the squared norms of rows, summed in float64."""
    return UNTYPED.linalg.vector_norm(rows, dim=-1, dtype=torch.float64).square()


@dataclass
class RowBuffer:
    """A Frequent Directions sketch of rows of one width on one device.

    Squares and rows are divided by powers of two where they would otherwise leave the range of the dtype
    (`exponent`, as ``sketching/_engines`` has it).
    """

    SUMS, COUNTS = SketchState.SUMS, SketchState.COUNTS  # names of the scalars, in the order of saved arrays

    setting: EngineSetting
    rows: Tensor  # (capacity, d)
    mean: Tensor  # (d,) float64, as is mean_low, the part that mean loses to rounding; both empty without centring
    mean_low: Tensor
    squared_norm: Tensor  # () float64: of the rows, and with centring of those that have been centred
    lam: Floats  # (sketch_size + 1,) squared lengths of the retained rows, the longest first
    gain: Floats  # (sketch_size + 1,)
    fill: int = 0
    kept: int = 0
    age: int = -1  # retained rows need not be orthogonal; of a state of fs.FrequentDirections, until the next shrink
    n_rows: int = 0
    exponent: int = 0
    top: int = NOTHING_SEEN
    weight: float = 0.0  # of all rows, 1 each, except in a state of fs.FrequentDirections
    settled_weight: float = 0.0  # of the rows that have been centred, that is, which the mean includes
    shrinkage: float = 0.0  # Delta
    rounding: float = 0.0  # square of the allowance for rounding in the certificate
    # Squared norms of the coefficients of the last shrink (r,), largest direction first, and of the rows that it
    # computed, on the device in the order of the rows. The lengths are fetched with the next Gram matrix, or when the
    # sketch is read: a shrink waits for the device once.
    coefficient_squares: Floats = field(default_factory=lambda: np.zeros(0))
    row_squares: Tensor | None = None

    @classmethod
    def empty(cls, setting: EngineSetting, d: int, *, dtype: torch.dtype, device: torch.device) -> Self:
        """Return the buffer of a sketch that has seen no rows."""
        mean = torch.zeros(2, d if setting.center else 0, dtype=torch.float64, device=device)
        return cls(
            setting,
            torch.zeros(DenseEngine.capacity_for(setting), d, dtype=dtype, device=device),
            mean[0],
            mean[1],
            torch.zeros((), dtype=torch.float64, device=device),
            np.zeros(setting.sketch_size + 1),
            np.ones(setting.sketch_size + 1),
        )

    @property
    def first(self) -> int:
        """Return the index of the first used row."""
        return len(self.rows) - self.fill

    @property
    def new(self) -> Tensor:
        """Return a view of the rows added since the last shrink."""
        return self.rows[self.first : len(self.rows) - self.kept]

    @property
    def room(self) -> int:
        """Return how many more rows fit into the buffer before it is shrunk; centring needs one row itself."""
        return self.first - self.setting.center

    def copy(self) -> Self:
        """Return an independent copy."""
        fields: Any = {name: x.clone() if isinstance(x, Tensor) else deepcopy(x) for name, x in self.__dict__.items()}
        return type(self)(**fields)

    # -- a batch ---------------------------------------------------------------------------------------------------
    def scale_for(self, largest: float) -> tuple[int, int]:
        """Return `exponent` and `top` for a sketch that also has rows of this largest absolute entry."""
        top = max(frexp(largest)[1], self.top) if largest else self.top
        return self.exponent if top == NOTHING_SEEN else exponent_for(top, NUMPY_DTYPES[self.rows.dtype]), top

    def take(self, rows: Tensor, scale: tuple[int, int]) -> None:
        """Add finite rows (n, d), of which `scale` is ``scale_for``. The buffer is shrunk whenever it is full."""
        if scale[0] != self.exponent:  # which is rare: the CPU multiplies everything by a power of two
            engine = self.to_engine()
            engine.scale_all(ldexp(1.0, max(-1022, min(1022, self.exponent - scale[0]))))
            self.restore(engine.arrays())
        self.exponent, self.top = scale
        start, n = 0, len(rows)
        while start < n:
            count = min(self.room, n - start)
            block = self.rows[self.first - count : self.first]
            block.copy_(rows[start : start + count].flip(0))  # the newest first, however rows are split into batches
            if self.exponent:
                block.mul_(ldexp(1.0, -self.exponent))
            if not self.setting.center:
                self.squared_norm += squares(block).sum()
            self.fill += count
            self.n_rows += count
            self.weight += count
            start += count
            if not self.room:
                self.flush()

    # -- a shrink --------------------------------------------------------------------------------------------------
    def settle(self) -> None:
        """Centre the new rows, and add the row that corrects for the mean of the rows before: FROSH Algorithm 1, step
        7.

        Differences are taken from a row of the block before anything is rounded to the size of the mean, as in
        csrc/fs_rows.h. What the rounding of `shift` adds to each row is of second order, because centred rows sum to 0.
        """
        fresh, count = self.new, self.fill - self.kept
        if not (self.setting.center and count):
            return
        base = fresh[0].clone()
        fresh -= base
        shift = torch.zeros_like(self.mean)
        for part in fresh.split(self.setting.sketch_size):  # in parts, as float64 takes twice the memory
            wide = part.to(torch.float64)
            shift += wide.sum(0)
            self.squared_norm += squares(wide.view(-1))
        shift /= count
        self.squared_norm -= count * squares(shift)
        fresh -= shift.to(fresh.dtype)
        # the mean is moved from that of the larger group, so that the rounding is small relative to the move
        before, total = self.settled_weight, self.settled_weight + count
        block, rest = two_sum(base.to(torch.float64), shift)
        move = (block - self.mean) + (rest - self.mean_low)
        start, low = (block, rest) if count > before else (self.mean, self.mean_low)
        step = -before / total if count > before else count / total
        moved, error = two_sum(start, step * move)
        error += low
        self.mean = moved + error
        self.mean_low = error - (self.mean - moved)
        self.settled_weight = total
        row = sqrt(before / total) * sqrt(count) * move
        self.rows[self.first - 1] = row
        self.fill += 1
        self.squared_norm += squares(row)

    def flush(self) -> None:
        """Centre the new rows, and shrink the buffer to sketch_size - 1 rows.

        The Gram matrix comes to the CPU, and a matrix of coefficients goes back. One more row than remains is computed,
        for delta.
        """
        self.settle()
        rows = self.rows[self.first :]
        m, d, r = len(rows), rows.shape[1], self.setting.sketch_size
        half = m // 2
        gram = torch.zeros(m, m, dtype=torch.float64, device=rows.device)
        step = PART_COLUMNS if rows.dtype == torch.float32 else d
        for start in range(0, d, step):
            part = rows[:, start : start + step]
            gram[:half] += part[:half] @ part.T
            gram[half:, half:] += part[half:] @ part[half:].T  # the eigensolver reads the upper triangle only
        products = self.fetch_lengths(gram.view(-1)).reshape(m, m)
        gain = np.ones(m)
        gain[m - self.kept :] = self.gain[: self.kept][::-1]
        values, vectors = top_eigh(products * gain * gain[:, np.newaxis], r)
        vectors = vectors.astype(NUMPY_DTYPES[rows.dtype])
        self.coefficient_squares = np.square(vectors, dtype=np.float64).sum(axis=1)[::-1]
        turn = UNTYPED.from_numpy((vectors * gain).astype(vectors.dtype)).to(rows.device)
        rotated = turn @ rows
        self.row_squares = squares(rotated)
        eps = torch.finfo(rows.dtype).eps
        allowance = ROUNDING_PER_SHRINK * eps * float(values[-1])
        # errors in float32 have random signs, as lengths are summed in float64; those of float64 may have the same one
        summed = rows.dtype == torch.float64
        self.rounding = (sqrt(self.rounding) + allowance) ** 2 if summed else self.rounding + allowance**2
        self.fill = self.kept = r - 1
        self.age = -1
        self.rows[len(self.rows) - r :] = rotated

    def fetch_lengths(self, *gram: Tensor) -> Floats:
        """Fetch the lengths of the rows that the last shrink computed, if they are pending, and set lam and gain.

        The Gram matrix (m * m,) of the next shrink is fetched by the same transfer, and returned.

        Eigenvalues are taken from the rows, not from the eigensolver, whose rounding would shift them in the same
        direction in every shrink (``shorten`` in shrink.pyx).
        """
        if self.row_squares is None:
            return to_host(gram[0]) if gram else np.zeros(0)
        numbers, square = np.split(to_host(torch.cat([*gram, self.row_squares])), [-len(self.row_squares)])
        lam = square[::-1] / self.coefficient_squares
        delta = lam[-1]
        lam[self.setting.rows_spared :] -= delta
        lam, square = np.maximum(lam[:-1], 0.0), square[:0:-1]
        self.lam[:], self.gain[:] = 0.0, 0.0
        self.lam[: len(lam)] = lam
        np.divide(lam, square, out=self.gain[: len(lam)], where=square > 0)
        np.sqrt(self.gain, out=self.gain)
        self.shrinkage += float(delta)
        self.row_squares = None
        return numbers

    # -- the state -------------------------------------------------------------------------------------------------
    def arrays(self) -> dict[str, Tensor]:
        """Return the state as tensors under the names of ``DenseEngine.arrays``; large ones are views."""
        self.fetch_lengths()
        known = {**self.__dict__, "squared_norm": float(self.squared_norm)}
        return {
            "book": torch.tensor([known[name] for name in self.SUMS], dtype=torch.float64),
            "count": torch.tensor([known[name] for name in self.COUNTS], dtype=torch.int64),
            "lam": UNTYPED.from_numpy(self.lam.copy()),
            "gain": UNTYPED.from_numpy(self.gain.copy()),
            "root": torch.ones(self.fill - self.kept, dtype=torch.float64),
            "mean": self.mean,
            "mean_low": self.mean_low,
            "buffer": self.rows[self.first :],
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        """Set the state from arrays or tensors of ``arrays``, or which ``DenseEngine.validate`` has accepted."""
        set_scalars(cast("Any", self), arrays)
        self.squared_norm = torch.tensor(self.squared_norm, dtype=torch.float64, device=self.rows.device)
        self.lam[:], self.gain[:] = arrays["lam"], arrays["gain"]
        for name in ("mean", "mean_low"):
            getattr(self, name).copy_(torch.as_tensor(arrays[name]))
        self.rows[self.first :] = torch.as_tensor(arrays["buffer"])
        self.row_squares = None

    def to_engine(self) -> DenseEngine:
        """Return the state as an engine of ``fs.FrequentDirections``, which is on the CPU."""
        engine = DenseEngine(self.setting, self.rows.shape[1], dtype=NUMPY_DTYPES[self.rows.dtype])
        engine.restore({name: tensor.cpu().numpy() for name, tensor in self.arrays().items()})
        return engine

    @classmethod
    def from_engine(cls, engine: DenseEngine, device: torch.device) -> Self:
        """Return the state of an engine whose rows have weight 1, or have been centred."""
        dtype = {numpy: name for name, numpy in NUMPY_DTYPES.items()}[engine.dtype]
        out = cls.empty(engine.setting, engine.n_features, dtype=dtype, device=device)
        out.restore(engine.arrays())
        return out


def two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return a + b as rounded, and its rounding error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)
