"""Random maps Phi (q x m) that turn m rows into q with E[Phi' Phi] = I: what they are, and their random numbers.

Every number is a function of (kind, seed, index of the chunk, place within it): numpy's Philox, a counter-based
generator, of which only the raw 64-bit output is used, since that is the same in every version.
"""

from dataclasses import dataclass, replace

import numpy as np

from fastsketch._kernels import compress as kernel
from fastsketch._validation import as_choice, as_integer

# code of each kind in the generator's key, and which loop of the kernel serves it
KINDS = {"srht": (0, 0), "countsketch": (1, 1), "sparse": (2, 1), "gaussian": (3, 2), "sampling": (4, 1)}

# Chunk of rows that become q: FROSH section 5.2 takes m = 4 d.
ROWS_PER_FEATURE = 4
# Rows of one block of the transform: at least 2 q, so that the q additions of sampled rows are few beside the
# transform; beyond 1,024 its strips no longer fit the second cache.
MOST_BLOCK = 1024
LEAST_BLOCK = 64
# Nonzeros per row of the sparse sign map: with 4 and more it is as accurate as a Gaussian one in practice.
SPARSE_SIGNS = 4

SIGNS, PLACES = 0, 1


@dataclass(frozen=True)
class Compressor:
    """A random map Phi that turns every m rows of a stream into q, with E[Phi' Phi] = I.

    Parameters
    ----------
    kind : {"srht", "countsketch", "sparse", "gaussian", "sampling"}
        Subsampled randomized Hadamard transform (FROSH Algorithm 2), one signed sum a row, four signed sums a row,
        dense Gaussian, uniform sampling of rows.
    rows_out : int, optional
        q >= 1; by default what the sketch behind it keeps.
    block_rows : int, optional
        m >= q; by default 4 d (at least 2 q).
    seed : int, default 0
        Below 2**64. Chunk t of a stream always gets the same random numbers, wherever it is processed.
    first_block : int, default 0
        Index of the first chunk: models that are to be merged take chunks of different indices.

    Notes
    -----
    Cost per element of a chunk: srht log2(2 q) additions, no m x d buffer: memory O((q + p) d) with blocks of p >= 2 q
    rows; countsketch 1, sparse 4, gaussian 2 q flops; sampling a look. Uniform sampling loses rare heavy rows. A chunk
    that ends short of m rows is compressed if it has more than q rows, else kept as it is.

    References
    ----------
    Ailon, Liberty 2008; Tropp 2011; Charikar, Chen, Farach-Colton 2002; Nelson, Nguyen 2013; FROSH, Algorithm 2.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((1000, 50))
    >>> fs.Compressor("srht", 32, 1000).compress(rows).shape
    (32, 50)
    """

    kind: str = "srht"
    rows_out: int | None = None
    block_rows: int | None = None
    seed: int = 0
    first_block: int = 0

    def __post_init__(self):
        as_choice(self.kind, "kind", tuple(KINDS))
        for name, least in (("rows_out", 1), ("block_rows", 1)):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, as_integer(value, name, least))
        for name in ("seed", "first_block"):
            object.__setattr__(self, name, as_integer(getattr(self, name), name, 0))
        if self.seed >= 2**64 or self.first_block >= 2**63:
            raise ValueError("seed must be below 2**64 and first_block below 2**63")
        if self.rows_out and self.block_rows and self.block_rows < self.rows_out:
            raise ValueError(f"block_rows must be at least rows_out, got {self.block_rows} and {self.rows_out}")

    def resolved(self, rows_out, n_features):
        """The same map with all sizes known."""
        q = self.rows_out or rows_out
        m = self.block_rows or max(ROWS_PER_FEATURE * n_features, 2 * q)
        return replace(self, rows_out=q, block_rows=m)

    def compress(self, rows, index=0):
        """Phi rows of one chunk, (q, d); rows: array_like (n, d), one chunk whatever its length.

        float32 stays float32, everything else becomes float64. index: the chunk's, which chooses the random numbers.
        """
        from fastsketch.sketching._chunk import compress_once

        return compress_once(self, rows, as_integer(index, "index", 0))

    # -- for the kernel --------------------------------------------------------------------------------------------
    @property
    def code(self):
        """Which loop of the kernel serves this map."""
        return KINDS[self.kind][1]

    @property
    def scale(self):
        """Factor of the kernel's output: it works with entries +-1 where it can."""
        return 1.0 / np.sqrt(self.rows_out) if self.kind == "srht" else 1.0

    @property
    def padded_rows(self):
        """Rows of the chunk rounded up to what the map works with: absent rows count as zero."""
        m = self.block_rows
        if self.kind == "srht":
            return max(8, 1 << (m - 1).bit_length())
        return -(-m // self.rows_per_call) * self.rows_per_call

    @property
    def rows_per_call(self):
        """p, the rows of one call of the kernel's inner loop; more than q, so that a short chunk can stay as it is."""
        if self.kind == "srht":
            return min(max(8, 1 << (2 * self.rows_out - 1).bit_length()), MOST_BLOCK, self.padded_rows)
        return max(LEAST_BLOCK, -(-(self.rows_out + 1) // 8) * 8)

    def space(self, dtype):
        """Elements of scratch."""
        p = self.rows_per_call
        if self.kind == "srht":
            return self.rows_out + 2 * p + kernel.srht_work(p, dtype)
        return p * SPARSE_SIGNS

    def draw(self, index, dtype):
        """The random numbers of chunk `index`, as the kernel takes them: value, target, hi, s."""
        q, m = self.rows_out, self.padded_rows
        value, target, hi, s = np.empty(0, dtype), np.empty(0, np.int32), np.empty(0, np.int64), 0
        if self.kind == "srht":
            value = _signs(self._raw(index, SIGNS, -(-m // 64)), m, dtype)
            places = np.sort(self._sample(index, m))
            p = self.rows_per_call
            target, hi = (places % p).astype(np.int32), places // p
        elif self.kind == "countsketch":
            s = 1
            target, value = _hashed(self._raw(index, PLACES, m), q, dtype)
        elif self.kind == "sparse":
            # output rows in s groups, one entry of every column in each (the block form of Nelson and Nguyen)
            s = min(SPARSE_SIGNS, q)
            edges = np.arange(s + 1) * q // s
            raw = self._raw(index, PLACES, m * s).reshape(m, s)
            columns = [_hashed(raw[:, t], edges[t + 1] - edges[t], dtype) for t in range(s)]
            target = np.stack([where + edges[t] for t, (where, _) in enumerate(columns)], axis=1).astype(np.int32)
            value = np.stack([sign for _, sign in columns], axis=1) / np.sqrt(dtype.type(s))
        elif self.kind == "gaussian":
            value = (_normal(self._raw(index, PLACES, m * q)) / np.sqrt(q)).astype(dtype)
        else:
            s = 1
            places = np.sort(self._sample(index, self.block_rows))
            value, target = np.zeros(m, dtype), np.zeros(m, np.int32)
            value[places] = np.sqrt(self.block_rows / q)
            target[places] = np.arange(q)
        return {
            "value": np.ascontiguousarray(value).ravel(),
            "target": np.ascontiguousarray(target).ravel(),
            "hi": np.ascontiguousarray(hi),
            "s": s,
        }

    def _raw(self, index, stream, n):
        code = KINDS[self.kind][0]
        return raw_numbers(self.seed, code, index, stream, n)

    def _sample(self, index, m):
        """q different numbers below m, in random order."""
        q = self.rows_out
        if 4 * q >= m:
            return np.argsort(self._raw(index, PLACES, m), kind="stable")[:q]
        # the first q different ones of a sequence: half as many again are nearly always enough
        n = q
        while True:
            n += n // 2 + 8
            drawn = _below(self._raw(index, PLACES, n), m)
            _, first = np.unique(drawn, return_index=True)
            if len(first) >= q:
                return drawn[np.sort(first)[:q]]


def raw_numbers(seed, code, index, stream, n):
    """n uint64 that are a function of the other arguments alone."""
    return np.random.Philox(
        key=np.array([seed, code], np.uint64), counter=np.array([0, stream, index, 0], np.uint64)
    ).random_raw(n)


def _signs(raw, n, dtype):
    bits = np.unpackbits(raw.astype("<u8", copy=False).view(np.uint8), bitorder="little")[:n]
    return (1 - 2 * bits.astype(np.int8)).astype(dtype)


def _below(raw, n):
    """Uniform integers below n < 2**31 from the upper halves (bias n / 2**32)."""
    return (((raw >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32)).astype(np.int64)


def _hashed(raw, n, dtype):
    return _below(raw, n).astype(np.int32), (1.0 - 2.0 * (raw & np.uint64(1))).astype(dtype)


# Key of normal numbers that belong to no compressor.
NORMAL_CODE = 65


def random_normal(seed, stream, n):
    """n standard normal numbers, a function of the arguments."""
    return _normal(raw_numbers(seed, NORMAL_CODE, 0, stream, n))


def _normal(raw):
    from scipy.special import ndtri

    # uniform in the open interval (0, 1), steps of 2**-53
    return ndtri(((raw >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)
