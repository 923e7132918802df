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
from dataclasses import dataclass, field
from math import frexp, ldexp, sqrt
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastsketch._kernels.sketching.shrink import top_eigh
from fastsketch._kernels.sketching.state import NOTHING_SEEN, ROUNDING_PER_SHRINK, SketchState
from fastsketch.sketching._engines import DenseEngine, EngineSetting, exponent_for
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
    settled_rows: float = 0.0  # number of rows that have been centred, that is, which the mean includes
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

    def copy(self) -> "RowBuffer":
        """Return an independent copy."""
        other = type(self)(**self.__dict__)
        for name, value in self.__dict__.items():
            if isinstance(value, Tensor | np.ndarray):
                setattr(other, name, value.clone() if isinstance(value, Tensor) else value.copy())
        return other

    def to(self, device: torch.device) -> "RowBuffer":
        """Return the buffer with its tensors on a device: this one, if they are there already."""
        if device == self.rows.device:
            return self
        fields: dict[str, Any] = {**self.__dict__}
        fields |= {name: value.to(device) for name, value in fields.items() if isinstance(value, Tensor)}
        return type(self)(**fields)

    # -- a batch ---------------------------------------------------------------------------------------------------
    def would_rescale(self, largest: float) -> bool:
        """Return True if rows of this largest absolute entry change the power of two by which rows are divided."""
        top = max(frexp(largest)[1], self.top) if largest else self.top
        return top != NOTHING_SEEN and exponent_for(top, NUMPY_DTYPES[self.rows.dtype]) != self.exponent

    def take(self, rows: Tensor, largest: float) -> None:
        """Add finite rows (n, d), whose largest absolute entry is given. The buffer is shrunk whenever it is full."""
        if largest:
            self.rescale(max(frexp(largest)[1], self.top))
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
            start += count
            if not self.room:
                self.flush()

    def rescale(self, top: int) -> None:
        """Adjust the power of two by which rows are divided to the binary exponent of the largest entry."""
        exponent = exponent_for(top, NUMPY_DTYPES[self.rows.dtype])
        if exponent != self.exponent:
            self.fetch_lengths()
            factor = ldexp(1.0, max(-1022, min(1022, self.exponent - exponent)))
            for values in (self.new, self.gain, self.mean, self.mean_low):
                values *= factor
            for _ in range(2):  # the square of a factor may overflow where the product does not
                self.lam *= factor
                self.shrinkage *= factor
                self.squared_norm *= factor
                self.rounding *= factor * factor if 1e-150 < factor < 1e150 else factor
        self.exponent, self.top = exponent, top

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
        row = self.include_mean(base, shift, count)
        self.rows[self.first - 1] = row
        self.fill += 1
        self.squared_norm += squares(row)

    def include_mean(self, base: Tensor, shift: Tensor, count: float) -> Tensor:
        """Include `count` rows of mean base + shift in the mean of all rows, and return the correction row (d,) in
        float64, sqrt(n count / (n + count)) times the difference of the two means.

        The mean is moved from that of the larger group, so that the rounding is small relative to the move.
        """
        before, total = self.settled_rows, self.settled_rows + count
        block, rest = two_sum(base.to(torch.float64), shift)
        move = (block - self.mean) + (rest - self.mean_low)
        start, low = (block, rest) if count > before else (self.mean, self.mean_low)
        step = -before / total if count > before else count / total
        moved, error = two_sum(start, step * move)
        error += low
        self.mean = moved + error
        self.mean_low = error - (self.mean - moved)
        self.settled_rows = total
        return sqrt(before / total) * sqrt(count) * move

    def flush(self) -> None:
        """Centre the new rows, and shrink the buffer to sketch_size - 1 rows."""
        self.settle()
        self.rows[len(self.rows) - self.setting.sketch_size :] = self.shrunk(self.rows[self.first :])

    def shrunk(self, rows: Tensor) -> Tensor:
        """Shrink rows (m, d), of which the last `kept` are the retained ones, and account for it. Return the rows
        (sketch_size, d), the longest last, of which the first serves to compute delta only.

        The Gram matrix comes to the CPU, and a matrix of coefficients goes back.
        """
        m, d, r = len(rows), rows.shape[1], self.setting.sketch_size
        half = m // 2
        gram = torch.zeros(m, m, dtype=torch.float64, device=rows.device)
        step = PART_COLUMNS if rows.dtype == torch.float32 else d
        for start in range(0, d, step):
            part = rows[:, start : start + step]
            gram[:half] += part[:half] @ part.T
            gram[half:, half:] += part[half:] @ part[half:].T  # the eigensolver reads the upper triangle only
        self.fetch_lengths(gram.view(-1), out := np.empty((m, m)))
        gain = np.ones(m)
        gain[m - self.kept :] = self.gain[: self.kept][::-1]
        values, vectors = top_eigh(out * gain * gain[:, np.newaxis], r)
        vectors = vectors.astype(NUMPY_DTYPES[rows.dtype])
        self.coefficient_squares = np.square(vectors, dtype=np.float64).sum(axis=1)[::-1]
        turn = UNTYPED.from_numpy((vectors * gain).astype(vectors.dtype)).to(rows.device)
        rotated = turn @ rows
        self.row_squares = squares(rotated)
        eps = torch.finfo(rows.dtype).eps
        self.rounding = self.joint_rounding((ROUNDING_PER_SHRINK * eps * float(values[-1])) ** 2)
        self.fill = self.kept = r - 1
        self.age = -1
        return rotated

    def joint_rounding(self, other: float) -> float:
        """Combine two allowances for rounding, given as squares: float32 errors have random signs, as lengths are
        summed in float64; those of float64 may have the same sign in every shrink.
        """
        if self.rows.dtype == torch.float32:
            return self.rounding + other
        return (sqrt(self.rounding) + sqrt(other)) ** 2

    def fetch_lengths(self, gram: Tensor | None = None, out: Floats | None = None) -> None:
        """Fetch the lengths of the rows that the last shrink computed, if they are pending, and set lam and gain.

        A Gram matrix of the next shrink is fetched into `out` by the same transfer.

        Eigenvalues are taken from the rows, not from the eigensolver, whose rounding would shift them in the same
        direction in every shrink (``shorten`` in shrink.pyx).
        """
        parts = [part for part in (gram, self.row_squares) if part is not None]
        if not parts:
            return
        numbers = to_host(torch.cat(parts))
        if out is not None:
            out[:] = numbers[: out.size].reshape(out.shape)
        if self.row_squares is None:
            return
        square = numbers[len(numbers) - len(self.row_squares) :][::-1]
        lam = square / self.coefficient_squares
        n_keep = len(lam) - 1
        delta = lam[n_keep]
        lam[self.setting.rows_spared :] -= delta
        lam = np.maximum(lam[:n_keep], 0.0)
        self.lam[:], self.gain[:] = 0.0, 0.0
        self.lam[:n_keep] = lam
        np.divide(lam, square[:n_keep], out=self.gain[:n_keep], where=square[:n_keep] > 0)
        np.sqrt(self.gain, out=self.gain)
        self.shrinkage += float(delta)
        self.row_squares = None

    # -- merges ----------------------------------------------------------------------------------------------------
    def reduce(self) -> Tensor:
        """Reduce the buffer to at most sketch_size rows of their true lengths, by a shrink if there are more, and
        return a view of them.
        """
        most = min(self.setting.sketch_size, len(self.rows) - 1 - self.setting.center)
        if self.fill + (self.setting.center and self.fill > self.kept) > most:
            self.flush()
        self.settle()
        self.fetch_lengths()
        self.replace(self.rows[self.first :] * self.gains(self.fill)[:, None])
        return self.rows[self.first :]

    def gains(self, m: int) -> Tensor:
        """Return the factors of the last m rows of the buffer, 1 for new rows, on the device in the rows' dtype."""
        gain = np.ones(m)
        gain[m - self.kept :] = self.gain[: self.kept][::-1]
        return UNTYPED.from_numpy(gain).to(self.rows.device, self.rows.dtype)

    def replace(self, rows: Tensor) -> None:
        """Replace the contents of the buffer by these rows, at most sketch_size, as rows left by a shrink."""
        self.rows[len(self.rows) - len(rows) :] = rows
        self.fill = self.kept = len(rows)
        self.gain[:] = 1.0
        self.age = -1

    def merge(self, other: "RowBuffer") -> None:
        """Merge another buffer of the same setting, which is reduced: stack the rows of both and the correction row
        between their means, and shrink them if they are too many.
        """
        low, high = sorted((self, other), key=lambda buffer: buffer.top)
        low.rescale(high.top)
        rows = [self.reduce(), other.reduce()]
        if self.setting.center and other.settled_rows:
            row = self.include_mean(other.mean, other.mean_low, other.settled_rows)
            self.squared_norm += squares(row)
            rows.append(row.to(self.rows.dtype)[None])
        self.squared_norm += other.squared_norm
        self.shrinkage += other.shrinkage
        self.rounding = self.joint_rounding(other.rounding)
        self.n_rows += other.n_rows
        stacked = torch.cat(rows)
        if len(stacked) > min(self.setting.sketch_size, len(self.rows) - 1 - self.setting.center):
            self.kept = 0
            stacked = self.shrunk(stacked)[1:]
            self.fetch_lengths()
            stacked = stacked * self.gains(len(stacked))[:, None]
        self.replace(stacked)

    def packed(self) -> tuple[Tensor, Tensor]:
        """Reduce the buffer, and return its rows (sketch_size, d), padded with zeros in front, and all other numbers as
        a vector of float64.

        The shapes depend on the setting only.
        """
        rows = torch.zeros_like(self.rows[: self.setting.sketch_size])
        kept = self.reduce()
        rows[len(rows) - len(kept) :] = kept
        named = self.arrays()
        order = ("book", "count", "mean", "mean_low")
        return rows, torch.cat([named[name].to(rows.device, torch.float64) for name in order])

    def unpack(self, rows: Tensor, numbers: Tensor) -> None:
        """Set the state from what ``packed`` returned."""
        sizes = (len(SketchState.SUMS), len(SketchState.COUNTS), len(self.mean), len(self.mean))
        book, count, mean, mean_low = numbers.split(sizes)
        lam, gain = torch.zeros(len(self.lam), dtype=torch.float64), torch.ones(len(self.gain), dtype=torch.float64)
        count = count.to("cpu", torch.int64)
        fill = int(count[SketchState.COUNTS.index("fill")])
        self.restore(
            {"book": book, "count": count, "lam": lam, "gain": gain, "mean": mean, "mean_low": mean_low}
            | {"buffer": rows[len(rows) - fill :]}
        )

    # -- the state -------------------------------------------------------------------------------------------------
    def arrays(self) -> dict[str, Tensor]:
        """Return the state as tensors under the names of ``DenseEngine.arrays``; large ones are views."""
        self.fetch_lengths()
        known = {
            "shrinkage": self.shrinkage,
            "squared_norm": float(self.squared_norm),
            "weight": float(self.n_rows),
            "settled_weight": self.settled_rows,
            "rounding": self.rounding,
        }
        named = {**self.__dict__, **known}
        return {
            "book": torch.tensor([named[name] for name in SketchState.SUMS], dtype=torch.float64),
            "count": torch.tensor([named[name] for name in SketchState.COUNTS], dtype=torch.int64),
            "lam": UNTYPED.from_numpy(self.lam.copy()),
            "gain": UNTYPED.from_numpy(self.gain.copy()),
            "root": torch.ones(self.fill - self.kept, dtype=torch.float64),
            "mean": self.mean,
            "mean_low": self.mean_low,
            "buffer": self.rows[self.first :],
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        """Set the state from tensors that ``arrays`` returned, or which ``DenseEngine.validate`` has accepted."""
        named = dict(zip(SketchState.SUMS, arrays["book"].tolist(), strict=True))
        named |= dict(zip(SketchState.COUNTS, arrays["count"].tolist(), strict=True))
        self.settled_rows = named["settled_weight"]
        for name in ("shrinkage", "rounding", "fill", "kept", "age", "n_rows", "exponent", "top"):
            setattr(self, name, named[name])
        self.squared_norm.fill_(named["squared_norm"])
        self.lam[:], self.gain[:] = arrays["lam"].numpy(), arrays["gain"].numpy()
        self.mean.copy_(arrays["mean"])
        self.mean_low.copy_(arrays["mean_low"])
        self.rows[self.first :] = arrays["buffer"]
        self.row_squares = None


def two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return a + b as rounded, and its rounding error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)
