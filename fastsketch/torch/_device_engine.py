"""The engine of Frequent Directions on a device: long rows in a tensor there, small matrices in float64 on the CPU.

The layout and the rules are those of ``_kernels/sketching/shrink.pyx``, so that both states convert to each other
without loss. Retained row i is stored as it was computed, and represents gain[i] times itself.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
# (torch declares only part of its types)

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from math import ldexp, sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastsketch._frame.model import Arrays
from fastsketch._kernels.sketching.shrink import top_eigh
from fastsketch._kernels.sketching.state import ROUNDING_PER_SHRINK, SketchState
from fastsketch.sketching._engines import DenseEngine, EngineSetting
from fastsketch.torch._base import UNTYPED

Floats = NDArray[np.float64]

# Columns whose products are summed in the dtype of the rows; the sums of such parts are added in float64. This limits
# the rounding error of a Gram matrix to that of a short sum, whatever the number of columns.
PART_COLUMNS = 512
# Blocks of rows of a Gram matrix, of which those below the diagonal are not computed: of 4 blocks that is 3/8.
GRAM_BLOCKS = 4


@contextmanager
def full_precision(device: torch.device) -> Generator[None]:
    """Compute without gradients, autocast, TF32 and bfloat16 products; restore the caller's settings afterwards.

    The precision of products is a setting of the process: other threads get full precision as well meanwhile.
    """
    known: Any = torch.backends
    by_backend = hasattr(known.mkldnn, "matmul")  # before torch 2.9 there is one setting for all
    with ExitStack() as stack, torch.inference_mode(False), torch.no_grad(), torch.autocast(device.type, enabled=False):
        for backend in [known.cuda.matmul, known.mkldnn.matmul] if by_backend else []:
            if backend.fp32_precision in ("tf32", "bf16"):
                stack.callback(setattr, backend, "fp32_precision", backend.fp32_precision)
                backend.fp32_precision = "ieee"
        if not by_backend and (before := torch.get_float32_matmul_precision()) != "highest":
            stack.callback(torch.set_float32_matmul_precision, before)
            torch.set_float32_matmul_precision("highest")
        yield


def to_host(x: Tensor) -> Floats:
    """Copy a tensor to the CPU as an array of float64, in one transfer."""
    return x.to(torch.float64).cpu().numpy()


def product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply two matrices on their device; on the CPU by NumPy, without a copy.

    For these shapes OpenBLAS, which NumPy calls, took half the time of torch's MKL on an AMD processor.
    """
    return UNTYPED.from_numpy(a.numpy() @ b.numpy()) if a.device.type == "cpu" else a @ b


def squares(rows: Tensor) -> Tensor:
    """Return the squared norms of rows, summed in float64."""
    return UNTYPED.linalg.vector_norm(rows, dim=-1, dtype=torch.float64).square()


class DeviceEngine(DenseEngine):
    """A sketch engine of dense rows whose buffer and mean are tensors on one device.

    Scalars, lam and gain are those of the state on the CPU, except the sum of squares and the lengths of the last
    shrink, which are fetched with the next Gram matrix, or when the sketch is read: a shrink waits for the device once.
    """

    # tensors in the place of arrays of the state
    buffer: Any = None  # (capacity, d)
    mean: Any = None  # (d,) float64, as is mean_low, the part that mean loses to rounding; both empty without centring
    mean_low: Any = None

    def __init__(self, setting: EngineSetting, n_features: int, *, dtype: np.dtype[Any], device: torch.device) -> None:
        super().__init__(setting, n_features, dtype=dtype)
        with torch.inference_mode(False):  # tensors of that mode cannot be changed outside of it
            self.buffer = torch.zeros(self.capacity, n_features, dtype=getattr(torch, dtype.name), device=device)
            self.mean, self.mean_low = torch.zeros(2, n_features * setting.center, dtype=torch.float64, device=device)
            # () sum of squares of the rows, and with centring of those that have been centred
            self.squares = torch.zeros((), dtype=torch.float64, device=device)
        # Of the last shrink, until they are fetched: squared norms of the coefficients (r,), largest direction first,
        # and of the rows that it computed, on the device in the order of the rows.
        self.pending: tuple[Floats, Tensor] | None = None

    def make_state(self) -> Any:
        return SketchState(self.setting, self.capacity_for(self.setting), self.n_features)

    @property
    def squared_norm(self) -> float:
        return float(self.squares)

    # -- a batch ---------------------------------------------------------------------------------------------------
    def step(self, rows: Tensor) -> int:
        return len(rows)

    def cut(self, rows: Tensor) -> Any:
        return rows

    def scan(self, piece: Any) -> tuple[int, float]:
        low, high = to_host(torch.stack(torch.aminmax(piece)))
        largest, most = float(max(-low, high)), float(np.finfo(self.dtype).max)
        if largest <= most:
            return -1, largest
        # in float64: in float16 the largest float32 is an infinity itself
        finite = piece.abs().amax(dim=1).to(torch.float64) <= most
        return int(finite.logical_not().nonzero()[0]), 0.0

    def scale_all(self, factor: float) -> None:
        self.arrays()  # which fetches all sums
        super().scale_all(factor)
        self.squares = self.squares.new_tensor(self.state.squared_norm)

    def absorb(self, piece: Any, weights: Any = None) -> None:
        state = self.state
        while len(piece):
            part, piece = piece[: self.room()], piece[self.room() :]
            count, first = len(part), self.capacity - state.fill
            block = self.buffer[first - count : first]
            block.copy_(part.flip(0))  # the newest first, however rows are split into batches
            if self.exponent:
                block.mul_(ldexp(1.0, -self.exponent))
            if not self.setting.center:
                self.squares = self.squares + squares(block).sum()
            state.fill, state.n_rows, state.weight = state.fill + count, state.n_rows + count, state.weight + count
            if not self.room():
                self.flush()

    # -- a shrink --------------------------------------------------------------------------------------------------
    def settle(self) -> None:
        """Centre the new rows, and add the row that corrects for the mean of the rows before: FROSH Algorithm 1, step
        7.

        Differences are taken from a row of the block before anything is rounded to the size of the mean, as in
        csrc/fs_rows.h. What the rounding of `shift` adds to each row is of second order, because centred rows sum to 0.
        """
        fresh: Any = self.new_values()
        state, count = self.state, len(fresh)
        if not (self.setting.center and count):
            return
        base = fresh[0].clone()
        fresh -= base
        shift = torch.zeros_like(self.mean)
        for part in fresh.split(self.setting.sketch_size):  # in parts, as float64 takes twice the memory
            wide = part.to(torch.float64)
            shift += wide.sum(0)
            self.squares = self.squares + squares(wide.view(-1))
        shift /= count
        fresh -= shift.to(fresh.dtype)
        # the mean is moved from that of the larger group, so that the rounding is small relative to the move
        before, total = state.settled_weight, state.settled_weight + count
        block, rest = two_sum(base.to(torch.float64), shift)
        move = (block - self.mean) + (rest - self.mean_low)
        start, low = (block, rest) if count > before else (self.mean, self.mean_low)
        moved, error = two_sum(start, (-before / total if count > before else count / total) * move)
        error += low
        self.mean = moved + error
        self.mean_low = error - (self.mean - moved)
        row = sqrt(before / total) * sqrt(count) * move
        self.buffer[self.capacity - state.fill - 1] = row
        self.squares = self.squares - count * squares(shift) + squares(row)
        state.settled_weight = total
        state.fill += 1

    def flush(self) -> None:
        """Centre the new rows, and shrink the buffer to sketch_size - 1 rows.

        The Gram matrix comes to the CPU, and a matrix of coefficients goes back. One more row than remains is computed,
        for delta.
        """
        self.settle()
        state, r = self.state, self.setting.sketch_size
        rows: Any = self.buffer[self.capacity - state.fill :]
        m, step = len(rows), -(-len(rows) // GRAM_BLOCKS)
        gram = torch.zeros(m, m, dtype=torch.float64, device=rows.device)
        for part in rows.split(PART_COLUMNS if self.dtype == np.float32 else self.n_features, dim=1):
            for i in range(0, m, step):  # the eigensolver reads the upper triangle only
                gram[i : i + step, i:] += product(part[i : i + step], part[i:].T)
        products = self.fetch_lengths(gram.view(-1)).reshape(m, m)
        gain = np.ones(m)
        gain[m - state.kept :] = self.gain[: state.kept][::-1]
        # In the dtype of the rows, as in shrink.pyx. In float64, with eigenvectors rounded to float32 afterwards, the
        # eigensolver took 2.5, 1.5 and 1.7 times as long with l = 64, 128 and 256, and nothing was more accurate: on 40
        # streams of test_certificate.py the error beyond Delta reached 5% of the allowance, and here 3%.
        values, vectors = top_eigh((products * gain * gain[:, np.newaxis]).astype(self.dtype), r)
        rotated = product(UNTYPED.from_numpy((vectors * gain).astype(self.dtype)).to(rows.device), rows)
        self.pending = np.square(vectors, dtype=np.float64).sum(axis=1)[::-1], squares(rotated)
        allowance = ROUNDING_PER_SHRINK * float(np.finfo(self.dtype).eps) * float(values[-1])
        state.rounding = self.joint_rounding(allowance**2)
        state.fill = state.kept = r - 1
        state.age = -1
        self.buffer[self.capacity - r :] = rotated

    def fetch_lengths(self, *gram: Tensor) -> Floats:
        """Fetch the lengths of the rows that the last shrink computed, if they are pending, and set lam and gain.

        The Gram matrix (m * m,) of the next shrink is fetched by the same transfer, and returned.

        Eigenvalues are taken from the rows, not from the eigensolver, whose rounding would shift them in the same
        direction in every shrink (``shorten`` in shrink.pyx).
        """
        if self.pending is None:
            return to_host(gram[0]) if gram else np.zeros(0)
        coefficient_squares, row_squares = self.pending
        numbers, square = np.split(to_host(torch.cat([*gram, row_squares])), [-len(row_squares)])
        lam = square[::-1] / coefficient_squares
        delta = lam[-1]
        lam[self.setting.rows_spared :] -= delta
        lam, square = np.maximum(lam[:-1], 0.0), square[:0:-1]
        self.lam[:], self.gain[:] = 0.0, 0.0
        self.lam[: len(lam)] = lam
        self.gain[: len(lam)] = np.sqrt(np.divide(lam, square, out=np.zeros(len(lam)), where=square > 0))
        self.state.shrinkage += float(delta)
        self.pending = None
        return numbers

    # -- the state -------------------------------------------------------------------------------------------------
    def arrays(self, copy: bool = False) -> Arrays:
        self.fetch_lengths()
        self.state.squared_norm = self.squared_norm
        return super().arrays()

    def saved_from(self, rows: Any) -> Any:
        arrays: dict[str, Any] = super().arrays()
        copies = {name: x.clone() if isinstance(x, Tensor) else x.copy() for name, x in arrays.items()}
        return copies | {"squares": self.squares, "pending": self.pending}

    def restore(self, arrays: Any) -> None:
        """Set the state from arrays or tensors of ``arrays``, of ``saved_from``, or that ``validate`` has accepted."""
        known: Any = {name: x if name == "pending" else torch.as_tensor(x) for name, x in arrays.items()}
        super().restore(known)
        self.squares = known.get("squares", self.squares.new_tensor(self.state.squared_norm))
        self.pending = known.get("pending")

    def clone(self) -> Any:
        """Return a copy on the CPU, an engine of ``fs.FrequentDirections``."""
        host = DenseEngine(self.setting, self.n_features, dtype=self.dtype)
        host.restore({name: torch.as_tensor(x).cpu().numpy() for name, x in self.arrays().items()})
        return host


def two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return a + b as rounded, and its rounding error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)
