"""The buffer of dense rows, for solvers gram, svd and exact: arrays, growth of scale, copies and merges."""

import numpy as np

from fastsketch._kernels import dense as kernel
from fastsketch._kernels.shrink import top_eigh
from fastsketch.sketching._engines._base import Engine
from fastsketch.sketching._engines._layout import AGE, FILL, KEPT, SHRINKAGE, SOLVERS

# Rows that the exact accumulator collects for one rank-k update: fewer, and dsyrk runs below its rate.
EXACT_BLOCK = 256


class DenseEngine(Engine):
    """Buffer of `capacity` rows, used from its end: last the KEPT rows of the last shrink (longest at the very end),
    before them the new rows, the newest first. With `exact`, a d x d sum too."""

    kind = "dense"

    def __init__(self, setting, n_features, *, dtype):
        solver = setting.solver
        block = setting.sketch_size if setting.buffer_size is None else setting.buffer_size
        capacity = setting.sketch_size + block
        if solver == "exact":
            capacity = max(capacity, EXACT_BLOCK)
        super().__init__(setting, n_features, dtype=dtype, capacity=capacity)
        reals, integers, doubles = kernel.work_sizes(
            capacity, n_features, setting.sketch_size - 1, SOLVERS[solver], dtype
        )
        self.exact = exact = solver == "exact"
        self.buffer = np.zeros((capacity, n_features), dtype)
        self.a.update(
            solver=SOLVERS[solver],
            square=np.zeros(capacity + 1),
            work=np.empty(1 if exact else reals, dtype),
            iwork=np.empty(integers, np.intc),
            small=np.empty(doubles),
            # the lower triangle, column-major; float64 whatever the rows are
            cov=np.zeros((n_features, n_features) if exact else (0, 0)),
            part=np.empty((n_features, n_features) if exact and dtype == np.float32 else (0, 0), dtype),
        )

    def fits(self, rows):
        """Whether the kernel can read the batch where it lies: right dtype, aligned, columns contiguous."""
        size = self.dtype.itemsize
        return (
            isinstance(rows, np.ndarray)
            and rows.dtype == self.dtype
            and rows.flags.aligned
            and (rows.strides[1] == size or rows.shape[1] == 1)
            and rows.strides[0] % size == 0
        )

    def bytes_per_row(self, rows):
        return self.n_features * self.dtype.itemsize

    def cut(self, rows):
        if self.fits(rows):
            return rows
        if not isinstance(rows, np.ndarray):
            rows = rows.toarray()  # one slice of a sparse batch, no longer than the buffer
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(rows, self.dtype)

    def scan(self, piece):
        return kernel.scan(piece)

    def absorb(self, piece, weights, scale):
        kernel.absorb(piece, weights, scale, self.buffer, self.a)

    def flush(self):
        kernel.flush_now(self.buffer, self.a)

    def root_slice(self):
        return slice(self.capacity - self.fill, self.capacity - int(self.a["count"][KEPT]))

    def own_arrays(self):
        own = {"buffer": self.buffer[self.capacity - self.fill :]}
        if self.exact:
            own["cov"] = self.a["cov"]
        return own

    def put_arrays(self, own):
        self.buffer[self.capacity - len(own["buffer"]) :] = own["buffer"]
        if self.exact:
            self.a["cov"][:] = own["cov"]

    def settled_rows(self):
        """Rows of the buffer after decay and centring, at their true length, a view."""
        kernel.settle_now(self.buffer, self.a)
        kept = int(self.a["count"][KEPT])
        self.buffer[self.capacity - kept :] *= self.a["gain"][:kept][::-1, np.newaxis].astype(self.dtype)
        self.a["gain"][:] = 1.0
        return self.buffer[self.capacity - self.fill :]

    def replace_rows(self, rows, *, kept=True):
        """Make these settled rows the whole buffer: as kept ones (at most sketch_size), or as new ones."""
        self.buffer[self.capacity - len(rows) :] = rows
        self.a["count"][FILL] = len(rows)
        self.a["count"][KEPT] = len(rows) if kept else 0
        self.a["count"][AGE] = -1  # the rows need not be orthogonal
        self.a["gain"][:] = 1.0

    def multiply(self, factor):
        """Multiply everything stored by a factor (rows; squares by its square)."""
        self.buffer[self.root_slice()] *= self.dtype.type(factor)
        self.a["gain"] *= factor
        for _ in range(2):  # the square of a factor may leave the range though the product does not
            self.a["lam"] *= factor
            self.a["cov"] *= factor

    # -- the exact accumulator -------------------------------------------------------------------------------------
    @property
    def accumulated(self):
        """Whether cov holds rows already; until then the buffer alone is the whole, exact sketch."""
        return self.exact and self.a["count"][AGE] > 0

    def gram(self):
        """The full d x d matrix A'A that an exact engine has accumulated; settles the buffer."""
        if self.fill:
            self.flush()
        lower = self.a["cov"].T  # the kernel's column-major is this array transposed
        return np.tril(lower) + np.tril(lower, -1).T

    def reduce(self):
        if not self.exact:
            return super().reduce()
        if not self.accumulated:
            rows = self.settled_rows()
            if len(rows) <= self.setting.sketch_size:
                return rows
            self.a["count"][KEPT] = self.fill  # settled rows are not to be settled again
        # One shrink of the exact matrix; only as many rows as columns: nothing to remove.
        if self.fill:
            self.flush()
        d, size = self.n_features, self.setting.sketch_size
        keep = d if d <= size else size - 1
        values, vectors = top_eigh(self.a["cov"].copy(), keep)
        values = np.maximum(values, 0.0)
        delta = 0.0 if keep == d else float(values[d - size])
        kept = values[d - keep :][::-1].copy()
        spared = min(self.setting.rows_spared, keep)
        kept[spared:] -= delta
        self.a["book"][SHRINKAGE] += delta
        rows = np.sqrt(np.maximum(kept, 0.0))[:, np.newaxis] * vectors[::-1]
        self.a["count"][FILL] = self.a["count"][KEPT] = 0
        return rows.astype(self.dtype)

    def add_exact(self, other):
        """Add what another engine of the same scale has seen: C += C', or R'R of the other's settled rows."""
        if self.fill:
            self.flush()
        if getattr(other, "accumulated", False):
            if other.fill:
                other.flush()
            self.a["cov"] += other.a["cov"]
            rows = np.empty((0, self.n_features), self.dtype)
        else:
            rows = other.settled_rows()
        correction = self.take_over(other)
        if correction is not None:
            rows = np.vstack([rows, correction])
        for start in range(0, len(rows), self.capacity):
            self.replace_rows(rows[start : start + self.capacity])
            self.flush()
        self.a["count"][AGE] = 1
