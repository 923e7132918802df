"""Base class of models that are computed from a mergeable summary of a stream."""

from collections.abc import Sequence
from copy import deepcopy
from itertools import accumulate
from typing import Any, ClassVar, Final, Literal, Self, get_args

import numpy as np

from fastsketch._core.validation import MOST_SIZE, as_dtype, as_integer, as_rows, natural_dtype
from fastsketch._frame.batches import Batch
from fastsketch._frame.model import Arrays, MergeableModel
from fastsketch._frame.parameters import choice, float_dtype, integer, seed
from fastsketch._kernels.guard import changes, reads
from fastsketch.data.files import _checks as checks
from fastsketch.neighbours.summaries._block_summary import BlockSummary, SummarySetting, validate
from fastsketch.neighbours.summaries._forest import PART_LEVEL, BlockNode

Method = Literal["srht", "fd", "exact", "countsketch", "sparse", "gaussian", "sampling", "auto"]
METHODS: Final[tuple[str, ...]] = get_args(Method)

# Rows of the sample that ITQ is fitted to: with 2,000, recall on MNIST is above that of faiss's ITQ on all rows.
RESERVOIR_ROWS = 2000


class SummaryModel(MergeableModel, abstract=True):
    """Base class of hashes and quantizers. Such a model is computed, when needed, from a mergeable summary of all rows
    (``BlockSummary``).

    A subclass defines the parameters of the summary (``_setting``) and what is computed from it (``_learned_from``),
    which is cached in ``_learned`` until rows are added. It sets ``_merge`` to ``_merge_summary``.
    """

    _MAY_DIFFER: ClassVar = frozenset({"part", "first_block", "dtype"})

    method: Method = choice(METHODS, default="srht")
    sketch_size: int | None = integer(default=None, at_least=2, below=MOST_SIZE)
    block_rows: int | None = integer(default=None, at_least=1, below=MOST_SIZE)
    seed: int = seed(default=0)
    part: int = integer(default=0, below=1 << 30)
    first_block: int = integer(default=0, below=1 << PART_LEVEL)
    reservoir_size: int = integer(default=RESERVOIR_ROWS, at_least=1)
    dtype: np.dtype[Any] | None = float_dtype(default=None)

    def _setting(self, d: int) -> SummarySetting:
        """Return the parameters of the summary for rows with d features, as a SummarySetting.
        ValueError if there are too few features.
        """
        raise NotImplementedError

    @property
    def _size(self) -> int:
        """Sketch size in use: the parameter, or the default if it is None."""
        raise NotImplementedError

    def _learned_from(self, node: BlockNode) -> Any:
        """Compute the hash or quantizer from the summary of all rows, and return it.
        ``_read`` calls this once after each update.

        The result has the attributes ``node`` and ``components``.
        """
        raise NotImplementedError

    def _check(self) -> None:
        size, block_rows = self._size, self.block_rows
        if self.method not in ("fd", "exact") and block_rows is not None and block_rows < size // 2:
            raise ValueError(f"block_rows must be at least sketch_size // 2 = {size // 2}, got {block_rows}")

    def _begin(self) -> None:
        self._summary: BlockSummary | None = None
        self._learned: Any = None  # computed when it is first needed
        self._anchor: Any = None

    # -- learning --------------------------------------------------------------------------------------------------
    @changes
    def update(self, rows: Batch) -> Self:
        """Update the model with one row or a batch of rows.

        Parameters
        ----------
        rows : array_like or scipy.sparse (n, d), or (d,), table, or source
            Real and finite. Sparse rows are converted to dense ones a batch at a time. Tables, sources
            (``fs.open_rows``) and arrays out of memory (h5py, Zarr, Dask, memory maps) are read in chunks.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If rows are not a matrix of finite real numbers of the width seen before, or have fewer features than the
            codes need. The model is then unchanged.
        """
        return self._take_rows(rows)

    def _update(self, rows: Any, sample_weight: Any) -> None:
        checked = as_rows(rows, self.n_features)
        summary = self._summary
        if summary is None or not summary.n_rows:  # an empty batch does not decide the dtype
            dtype = natural_dtype(checked.dtype) if self.dtype is None else self.dtype
            summary = self._empty_summary(checked.shape[1], dtype=dtype)
        self._learned = None
        summary.update(checked)
        self._summary = summary

    def _empty_summary(self, d: int, *, dtype: np.dtype[Any]) -> BlockSummary:
        """Return a summary without rows, for rows with d features, with the parameters of this model."""
        return BlockSummary(self._setting(d), d, dtype=dtype)

    @property
    def _place(self) -> int:
        """Number of this model's first block of rows, which differs between the parts of a distributed job."""
        return (self.part << PART_LEVEL) + self.first_block

    def _must_agree(self) -> dict[str, Any]:
        parameters = super()._must_agree()
        del parameters["sketch_size"]
        return {**parameters, "sketch_size": self._size}  # last: an error names other differences first

    def _merge_summary(self, other: Self) -> None:
        """Merge the summary of another model into that of this one, in place. Subclasses use it as their ``_merge``."""
        mine, theirs = self._summary, other._summary
        assert mine is not None and theirs is not None  # both have seen rows
        self._learned = None
        mine.merge(theirs)
        if other._place < self._place:  # so that the result does not depend on the order
            vars(self._values).update(part=other.part, first_block=other.first_block)

    def _with_distinct_blocks(self, other: Self) -> Self:
        """Return a copy whose blocks are numbered differently from those of another model, so that the two can be
        merged.
        """
        renumbered = self._copied()
        if renumbered._summary is not None and other._summary is not None:
            renumbered._summary, renumbered._learned = renumbered._summary.with_distinct_blocks(other._summary), None
        return renumbered

    def _adopt(self, other: Self) -> None:
        assert other._summary is not None  # it has seen rows
        self._learned = None
        self._anchor = other._anchor if self._anchor is None else self._anchor
        self._summary = other._summary.with_closed_block()
        vars(self._values).update(part=other.part, first_block=other.first_block)

    @changes
    def seal(self) -> Self:
        """Declare this part of a distributed job complete and reduce it to one small summary.

        No more blocks can be added to the part. ``merge`` seals models of different parts. Returns self.
        """
        if self._summary is not None:
            self._learned = None
            self._summary.seal()
        return self

    def _for_part(self, part: int, first_block: int = 0) -> Self:
        position = {"part": self.part + part, "first_block": self.first_block + first_block}
        parameters: dict[str, Any] = {**self.parameters, **position}
        return type(self)(**parameters)

    def _first_blocks(self, lengths: Sequence[int], n_features: int) -> list[int] | None:
        block_rows = self._part_rows(n_features)
        starts = [0, *accumulate(lengths)][:-1]
        return None if any(start % block_rows for start in starts) else [start // block_rows for start in starts]

    def _part_rows(self, n_features: int) -> int:
        dtype = np.dtype(np.float64)  # does not matter
        return self._empty_summary(n_features, dtype=dtype).block_rows

    def _state_bytes(self, n_features: int) -> int:
        setting = self._setting(n_features)
        sketch_rows = n_features if setting.method == "exact" else 4 * setting.sketch_size
        return 8 * n_features * (sketch_rows + (setting.reservoir_size or 0))

    def _complete_part(self) -> None:
        self.seal()

    # -- reading: never changes the state --------------------------------------------------------------------------
    @reads
    def _total(self) -> BlockNode | None:
        """Return the sketch and the mean of all rows seen so far as one node, or None before the first row."""
        if self._learned is not None:
            return self._learned.node
        return None if self._summary is None else self._summary.total()

    def _require_total(self) -> BlockNode:
        """Return the sketch and the mean of all rows seen so far as one node. ValueError before the first row."""
        node = self._total()
        if node is None:
            raise ValueError("the model has seen no rows: call update first")
        return node

    @reads
    def _sample(self) -> np.ndarray:
        """Return the rows of the reservoir sample in random order.

        There are none without a reservoir or before the first row.
        """
        return np.empty((0, 0)) if self._summary is None else self._summary.sample()

    @reads
    def _read(self) -> Any:
        """Return the hash or quantizer that is fitted to the rows seen so far; ValueError before the first row.

        It is computed by ``_learned_from`` once and cached until rows are added.
        """
        if self._learned is None:
            self._learned = self._learned_from(self._require_total())
        return self._learned

    @changes
    def _anchor_at(self, anchor: Any) -> Self:
        """Set the reference to which later codes are aligned, and discard the fitted model. Return self."""
        self._anchor, self._learned = anchor, None
        return self

    @property
    def components(self) -> np.ndarray:
        """Principal directions of the rows, by descending variance.

        They are orthonormal rows (r, d) float64, as many as codes can use.
        """
        return self._read().components.copy()

    @property
    def mean(self) -> np.ndarray | None:
        """Mean of all rows seen, (d,) float64, or None before the first row."""
        node = self._total()
        return None if node is None else node.mean.copy()

    @property
    def shrinkage(self) -> float:
        """Upper bound on how much sketching has reduced the squared singular values of the rows.

        Errors of random maps are not included.
        """
        node = self._total()
        return 0.0 if node is None else node.shrinkage

    @property
    def n_rows(self) -> int:
        """Number of rows seen."""
        return 0 if self._summary is None else self._summary.n_rows

    @property
    def n_features(self) -> int | None:
        """Number of columns; None before the first row."""
        return None if self._summary is None else self._summary.n_features

    def _resolved(self) -> dict[str, Any]:
        out: dict[str, Any] = {"sketch_size": self._size}
        if (summary := self._summary) is not None:
            out["method"] = self._setting(summary.n_features).method
            out["block_rows"], out["dtype"] = summary.block_rows, summary.dtype
        return out

    # -- keeping it ------------------------------------------------------------------------------------------------
    def _copied(self) -> Self:
        """Return an independent copy of the model.

        It shares arrays that are never written to.
        """
        duplicate = type(self)(**self.parameters)
        duplicate.notes, duplicate._feature_names = deepcopy(self.notes), self._feature_names
        duplicate._summary = None if self._summary is None else self._summary.copy()
        duplicate._anchor, duplicate._learned = self._anchor, self._learned
        self._keep_in_memory(duplicate)
        return duplicate

    def _summary_state(self) -> tuple[dict[str, Any], Arrays]:
        """Return the state of the summary for saving. It is empty before the first row."""
        return ({}, {}) if self._summary is None else self._summary.state()

    def _validate_summary(self, state: dict[str, Any], arrays: Arrays) -> int:
        """Validate the saved state of a summary against the parameters of the model. Return its number of features."""
        d, dtype = as_integer(state["n_features"], "n_features", 1, checks.MOST_COLUMNS), as_dtype(state["dtype"])
        if self.dtype is not None and dtype != self.dtype:
            raise ValueError(f"its rows have dtype {dtype}, its parameters {self.dtype}")
        validate(state, arrays, self._setting(d), d, dtype=dtype)
        return d

    def _restore_summary(self, state: dict[str, Any], arrays: Arrays) -> None:
        """Restore the summary from its validated saved state."""
        summary = self._empty_summary(state["n_features"], dtype=as_dtype(state["dtype"]))
        summary.restore(state, arrays)
        self._summary = summary
