"""The buffer of CSR rows for solver gram: new rows stay sparse, kept rows lie feature-major."""

import numpy as np

from fastsketch._kernels import dense as dense_kernel
from fastsketch._kernels import sparse as kernel
from fastsketch._validation import is_sparse
from fastsketch.sketching._engines._base import Engine
from fastsketch.sketching._engines._dense import DenseEngine
from fastsketch.sketching._engines._layout import AGE, FILL, KEPT, SOLVERS

# New rows per kept row. The dense part of a shrink (d * l^2) is paid once for all of them, and the error falls with
# their number; beyond about 6 the eigensolver of size 7 l takes back what is gained (bench/README.md).
BLOCK = 6


class SparseEngine(Engine):
    """z (d x (l + 1)): kept rows as columns, one column to spare for centring; new rows as growing CSR arrays."""

    kind = "sparse"

    def __init__(self, setting, n_features, *, dtype):
        block = BLOCK * setting.sketch_size if setting.buffer_size is None else setting.buffer_size
        capacity = setting.sketch_size + block
        super().__init__(setting, n_features, dtype=dtype, capacity=capacity)
        reals, integers, doubles = dense_kernel.work_sizes(
            capacity + 1, n_features, setting.sketch_size - 1, SOLVERS["gram"], dtype
        )
        self.z = np.zeros((n_features, setting.sketch_size + 1), dtype)
        self.a.update(
            capacity=capacity,
            gram=np.zeros(capacity * capacity),
            vectors=np.zeros(3 * (capacity + 2)),
            indptr=np.zeros(capacity + 2, np.int64),
            head=np.full(n_features, -1, np.int32),
            work=np.empty(reals, dtype),
            iwork=np.empty(integers, np.intc),
            small=np.empty(doubles),
        )
        self._make_room(1)

    def _make_room(self, nnz):
        """Arrays for nnz values of new rows; what they hold is kept."""
        used = int(self.a["indptr"][self.new_rows])
        if "data" in self.a and len(self.a["data"]) >= nnz:
            return
        if nnz > 2**31 - 1:
            raise OverflowError("one block of sparse rows has 2**31 or more nonzeros: use a smaller buffer_size")
        nnz += nnz // 4  # blocks differ: grow seldom
        grown = {
            "data": np.zeros(nnz, self.dtype),
            "indices": np.zeros(nnz, np.int32),
            "next": np.empty(nnz, np.int32),
            "owner": np.empty(nnz, np.int32),
        }
        for name in ("data", "indices"):
            if used:
                grown[name][:used] = self.a[name][:used]
        self.a.update(grown)

    @property
    def new_rows(self):
        return int(self.a["count"][FILL] - self.a["count"][KEPT])

    def root_slice(self):
        return slice(0, self.new_rows)

    def fits(self, rows):
        return is_sparse(rows)

    def bytes_per_row(self, rows):
        if not is_sparse(rows):
            return self.n_features * self.dtype.itemsize
        return 1 + rows.nnz * (self.dtype.itemsize + 4) // max(1, rows.shape[0])

    def cut(self, rows):
        if not is_sparse(rows):
            from scipy.sparse import csr_array

            rows = csr_array(rows)
        with np.errstate(over="ignore"):
            return (
                np.ascontiguousarray(rows.indptr, np.int64),
                np.ascontiguousarray(rows.indices, np.int32),
                np.ascontiguousarray(rows.data, self.dtype),
            )

    def scan(self, piece):
        indptr, _, data = piece
        return kernel.scan(indptr, data)

    def absorb(self, piece, weights, scale):
        indptr, indices, data = piece
        stored = int(self.a["indptr"][self.new_rows])
        later = self.capacity - self.setting.center - self.a["n_keep"]
        self._make_room(stored + kernel.largest_block(indptr, min(self.room(), len(indptr) - 1), later))
        kernel.absorb(indptr, indices, data, weights, scale, self.z, self.a)

    def flush(self):
        kernel.flush_now(self.z, self.a)

    def own_arrays(self):
        used = int(self.a["indptr"][self.new_rows])
        return {
            "z": self.z[:, : int(self.a["count"][KEPT])],
            "indptr": self.a["indptr"][: self.new_rows + 1],
            "indices": self.a["indices"][:used],
            "data": self.a["data"][:used],
        }

    def put_arrays(self, own):
        self._make_room(max(1, len(own["data"])))
        self.z[:, : own["z"].shape[1]] = own["z"]
        self.a["indptr"][: len(own["indptr"])] = own["indptr"]
        for name in ("indices", "data"):
            self.a[name][: len(own[name])] = own[name]

    def settled_rows(self):
        """Rows of the buffer after decay and centring, as a new dense array (at most sketch_size rows)."""
        kept = int(self.a["count"][KEPT])
        if self.new_rows and (self.setting.center or self.setting.decay != 1.0):
            # Few rows: let the dense buffer settle them.
            setting = self.setting.dense(self.capacity - self.setting.sketch_size)
            twin = DenseEngine(setting, self.n_features, dtype=self.dtype)
            mine = self.arrays()
            # the dense buffer holds the newest row first, the longest kept row last
            buffer = np.vstack([self._new_dense()[::-1], self.z[:, :kept].T[::-1]])
            twin.restore({**mine, "root": mine["root"][::-1], "buffer": buffer})
            rows = twin.settled_rows().copy()
            for name in ("book", "count", "lam", "gain", "mean"):
                self.a[name][:] = twin.a[name]
            return rows
        gain = self.a["gain"][:kept, np.newaxis].astype(self.dtype)
        return np.vstack([self.z[:, :kept].T * gain, self._new_dense()])

    def _new_dense(self):
        own = self.own_arrays()
        out = np.zeros((self.new_rows, self.n_features), self.dtype)
        owner = np.repeat(np.arange(self.new_rows), np.diff(own["indptr"]))
        out[owner, own["indices"]] = own["data"]
        return out

    def replace_rows(self, rows):
        self.z[:, : len(rows)] = rows.T
        self.a["count"][FILL] = self.a["count"][KEPT] = len(rows)
        self.a["count"][AGE] = -1  # the rows need not be orthogonal
        self.a["gain"][:] = 1.0
        self.a["indptr"][0] = 0

    def multiply(self, factor):
        """Multiply everything stored by a factor (rows; squares by its square)."""
        self.a["gain"] *= factor
        self.a["data"][: int(self.a["indptr"][self.new_rows])] *= self.dtype.type(factor)
        for _ in range(2):  # the square of a factor may leave the range though the product does not
            self.a["lam"] *= factor
