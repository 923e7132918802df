"""Random maps Phi (q x m) that turn m rows into q with E[Phi' Phi] = I: the public choice of one."""

from dataclasses import dataclass, field
from typing import Any, cast

from numpy.typing import NDArray

from fastsketch._core.validation import MOST_SIZE, Rows, as_choice, as_integer, as_rows, as_seed
from fastsketch.sketching._mapped_block import map_once
from fastsketch.sketching._sized_map import MAP_KINDS, MapKind, SizedMap

# Rows of a block that become q: FROSH section 5.2 takes m = 4 d.
ROWS_PER_FEATURE = 4


@dataclass(frozen=True)
class Compressor:
    """A random map Phi that turns every m rows of a stream into q, with E[Phi' Phi] = I.

    Parameters
    ----------
    kind : {"srht", "countsketch", "sparse", "gaussian", "sampling"}, default "srht"
        Subsampled randomized Hadamard transform (FROSH Algorithm 2), one signed sum a row, four signed sums a row,
        dense Gaussian, uniform sampling of rows.
    rows_out : int, optional
        q >= 1; by default the ``sketch_size`` of the sketch behind it.
    block_rows : int, optional
        m >= q; by default 4 d (at least 2 q).
    seed : int, default 0
        Below 2**64. Block t of a stream always gets the same random numbers, wherever it is processed.
    first_block : int, default 0
        Index of the first block: models that are to be merged take blocks of different indices.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range; the message names it.

    Notes
    -----
    Cost per element of a block: srht log2(2 q) additions, no m x d buffer: memory O((q + p) d) with steps of p >= 2 q
    rows; countsketch 1, sparse 4, gaussian 2 q flops; sampling a look. Uniform sampling loses rare heavy rows. A block
    that ends short of m rows is compressed if it has more than q rows, else kept as it is.

    References
    ----------
    Ailon, Liberty 2008; Tropp 2011; Charikar, Chen, Farach-Colton 2002; Nelson, Nguyen 2013; FROSH, Algorithm 2.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((1000, 50))
    >>> rows[7] *= 30  # nearly as heavy as all others, and a sample would miss it
    >>> few = fs.Compressor("srht", 32, block_rows=1000).compress(rows)
    >>> few.shape, bool(abs(np.sum(few**2) / np.sum(rows**2) - 1) < 0.2)
    ((32, 50), True)
    """

    kind: MapKind = "srht"
    rows_out: int | None = None
    block_rows: int | None = field(default=None, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    first_block: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        as_choice(self.kind, "kind", MAP_KINDS)
        for name in ("rows_out", "block_rows"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, as_integer(value, name, 1, MOST_SIZE))
        object.__setattr__(self, "seed", as_seed(self.seed))
        object.__setattr__(self, "first_block", as_integer(self.first_block, "first_block", 0, 1 << 63))
        if self.rows_out and self.block_rows and self.block_rows < self.rows_out:
            raise ValueError(f"block_rows must be at least rows_out, got {self.block_rows} and {self.rows_out}")

    def compress(self, rows: Rows, index: int = 0) -> NDArray[Any]:
        """Return Phi times the rows of one block.

        Parameters
        ----------
        rows : array_like or scipy.sparse (n, d)
            One block: real and finite, rows_out <= n <= block_rows.
        index : int, default 0
            The block's index, which chooses the random numbers.

        Returns
        -------
        ndarray (rows_out, d)
            float32 for float32 rows, else float64.

        Raises
        ------
        TypeError, ValueError
            If ``rows_out`` was not given, or the rows are no such block.
        """
        index, checked = as_integer(index, "index", 0, 1 << 62), as_rows(rows)
        n, q = checked.shape[0], self.rows_out
        if n == 0:
            raise ValueError("rows must hold at least one row")
        if self.block_rows is not None and n > self.block_rows:
            raise ValueError(f"rows must fit one block of {self.block_rows}, got {n}")
        if q is None:
            raise ValueError("rows_out must be given")
        if n < q:
            raise ValueError(f"rows must be at least rows_out = {q}, got {n}")
        return map_once(SizedMap(self.kind, q, self.block_rows or n, self.seed), checked, index=index)


def sized(compressor: Compressor, *, rows_out: int, n_features: int) -> SizedMap:
    """Return the map with all sizes known; `rows_out` counts where the compressor leaves it open."""
    q = compressor.rows_out or rows_out
    m = compressor.block_rows or max(ROWS_PER_FEATURE * n_features, 2 * q)
    return SizedMap(compressor.kind, q, m, compressor.seed)


def as_compressor(value: Any, name: str = "compressor") -> Compressor | MapKind:
    """Return a Compressor: given as one, by its kind, or as the dict that a state file holds."""
    if isinstance(value, Compressor):
        return value
    if isinstance(value, str):
        return Compressor(cast("MapKind", value)).kind
    if isinstance(value, dict):
        return Compressor(**cast("dict[str, Any]", value))
    raise TypeError(f"{name} must be a Compressor, the name of a kind or None, got {type(value).__name__}")
