"""A second pass whose rows come in parts: batches, chunks of files, partitions on other machines."""

# pyright: reportPrivateUsage=false, reportImportCycles=false
# (the sketch is here for its type alone)

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import as_rows, as_weights, rows_with_weight
from fastsketch._frame.batches import Batch
from fastsketch._frame.loading import inner_model
from fastsketch._frame.model import Arrays, MergeableModel
from fastsketch._kernels.guard import changes, reads
from fastsketch.data.files import _checks as checks
from fastsketch.sketching._rows_again import Product, StoredForm, blocks_of
from fastsketch.sketching._second_reads import SecondReads

if TYPE_CHECKING:
    from fastsketch.sketching._frequent_directions import FrequentDirections

# Directions of a state are orthonormal up to this.
ORTHONORMAL = 1e-6


class SecondPass(MergeableModel):
    """The rows of a sketch, read once more: ``FrequentDirections.refine`` for rows that come in parts.

    ``SecondPass.of(sketch)`` begins it, ``update`` takes rows, ``finish`` gives the refined sketch. Passes that began
    with the same sketch and have read different rows merge. It is saved and loaded as any model is, in the middle too.

    Attributes
    ----------
    n_rows, n_features : int
        Rows read again so far, and columns d; n_features is None without a sketch.
    notes : dict
        Anything that json can write; saved with the state.

    Notes
    -----
    Memory: beside the sketch its r directions and their products with A'A, (d, r) float64 each, twice for a moment.
    Cost: 4 n d r flops. The result depends on how rows are cut into batches, and on the order of merges, by rounding
    alone.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((500, 40)) * 0.8 ** np.arange(40)
    >>> sketch = fs.FrequentDirections(16, solver="gram").update(rows)
    >>> again = fs.sketching.SecondPass.of(sketch)
    >>> for part in np.array_split(rows, 5):
    ...     again = again.update(part)
    >>> values = again.finish().singular_values[:5]
    >>> bool(np.allclose(values, np.linalg.svd(rows, compute_uv=False)[:5], rtol=1e-3))
    True
    """

    def _begin(self) -> None:
        self._sketch: FrequentDirections | None = None
        self._vt = np.zeros((0, 0))
        self._view: StoredForm | None = None
        self._sum = Product.none(np.zeros((0, 0)))

    @classmethod
    def of(cls, model: "FrequentDirections") -> Self:
        """Begin a second pass over the rows of a sketch.

        Parameters
        ----------
        model : FrequentDirections
            A sketch that has seen rows, without decay and without compressor; it is copied.

        Returns
        -------
        SecondPass

        Raises
        ------
        TypeError, ValueError
            If it is no such sketch.
        """
        if not isinstance(model, SecondReads):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"model must be a FrequentDirections, got {type(model).__name__}")
        model._rereadable("a second pass")
        own = model.copy()
        return cls._along(own, own._basis())

    @classmethod
    def _along(cls, sketch: "FrequentDirections", vt: NDArray[np.float64]) -> Self:
        """Begin a pass that multiplies by any orthonormal rows."""
        made = cls()
        made._start(sketch, vt)
        return made

    def _start(self, sketch: "FrequentDirections", vt: NDArray[np.float64]) -> None:
        self._sketch, self._vt, self._view = sketch, vt, sketch._basis_view()
        self._feature_names = sketch.feature_names
        self._sum = Product.none(vt.T)

    def _begun(self) -> "tuple[FrequentDirections, StoredForm]":
        if self._sketch is None or self._view is None:
            raise ValueError("there is no sketch: begin with SecondPass.of(sketch)")
        return self._sketch, self._view

    @changes
    def update(self, rows: Batch, sample_weight: ArrayLike | None = None) -> Self:
        """Read some of the rows again.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d), table, or source
            Real and finite; rounded to the dtype of the sketch. Read as ``FrequentDirections.update`` reads them.
        sample_weight : array_like (n,) or float, optional
            The weights that they had.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For anything that is no matrix of finite real numbers of the width of the sketch; none has been read then.
        """
        return self._take_rows(rows, sample_weight)

    def _update(self, rows: Any, sample_weight: Any) -> None:
        _, view = self._begun()
        checked = as_rows(rows, view.n_features)
        checked, weights = rows_with_weight(checked, as_weights(sample_weight, checked.shape[0]))
        q = np.ascontiguousarray(self._vt.T)
        products = Product.none(q)
        for block, part, first in blocks_of(checked, weights, q.shape[1]):
            products = products.adding(view.multiply(block, part, q, offset=first))
        self._sum = self._sum.plus(products)

    @reads
    def finish(self) -> "FrequentDirections":
        """Return the refined sketch, a new one: that of ``FrequentDirections.refine`` on all rows read again.

        Returns
        -------
        FrequentDirections

        Raises
        ------
        ValueError
            If no rows have been read again.

        Warns
        -----
        UserWarning
            If the rows differ from those of the sketch, in number or in squared norm.
        """
        out = self._begun()[0].copy()
        if not self._sum.n_rows:
            raise ValueError("the second pass has read no rows: call update first")
        if not out._is_exact():
            out._take_products(self._vt, self._sum)
        return out

    @property
    @reads
    def sketch(self) -> "FrequentDirections":
        """Return a copy of the sketch of the first pass."""
        return self._begun()[0].copy()

    def _merge(self, other: Self) -> None:
        mine, theirs = self._begun()[0], other._begun()[0]
        if mine.n_rows != theirs.n_rows or not np.array_equal(self._vt, other._vt):
            raise ValueError("other reads the rows of another sketch again: they cannot be merged")
        self._sum = self._sum.plus(other._sum)

    def _for_part(self, part: int, first_block: int = 0) -> Self:
        return self.copy()  # all begin with the same sketch

    # -- required by the frame -------------------------------------------------------------------------------------
    @property
    def n_rows(self) -> int:
        """Return the number of rows read again."""
        return self._sum.n_rows

    @property
    def n_features(self) -> int | None:
        """Return the number d of columns; None without a sketch."""
        return None if self._sketch is None else self._sketch.n_features

    def _facts(self) -> dict[str, Any]:
        return {"rows_to_read": 0 if self._sketch is None else self._sketch.n_rows}

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        if self._sketch is None:
            return {"n_rows": 0}, {}
        sums = self._sum
        return {"n_rows": sums.n_rows}, {
            "sketch": np.frombuffer(self._sketch.to_bytes(), np.uint8),
            "vt": self._vt,
            "product": sums.product,
            "book": np.array([sums.squared_norm, sums.magnitude]),
        }

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        n_rows = checks.as_count(state["n_rows"], "n_rows")
        if not arrays:
            checks.number_within(n_rows, "n_rows", 0, 0)
            return
        checks.only(arrays, "sketch", "vt", "product", "book")
        sketch = inner_model(arrays, "sketch", SecondReads)
        sketch._rereadable("a second pass")
        r, d = len(arrays["vt"]), sketch.n_features or 0
        checks.number_within(r, "directions", 0, d)
        vt = checks.finite(arrays, "vt", (r, d))
        if r and np.abs(vt @ vt.T - np.eye(r)).max() > ORTHONORMAL:
            raise ValueError("array 'vt' must hold orthonormal rows")
        checks.finite(arrays, "product", (d, r))
        checks.not_negative(arrays, "book", (2,))

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._begin()
        if arrays:
            self._start(inner_model(arrays, "sketch", SecondReads), arrays["vt"])
            squared_norm, magnitude = arrays["book"].tolist()
            self._sum = Product(arrays["product"], squared_norm, state["n_rows"], magnitude)
