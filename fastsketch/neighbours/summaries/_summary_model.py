"""Base of the models that learn from a summary of a stream in blocks: update, merge, seal, parts, files."""

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

# Rows that ITQ learns from: 2,000 gave more on MNIST than all rows gave faiss (bench/README.md).
RESERVOIR_ROWS = 2000


class SummaryModel(MergeableModel, abstract=True):
    """Base of the models that are a function of a ``BlockSummary``: a subclass reads it.

    It declares how many directions it needs (``_setting``), learns from the summary (``_learned_from``) what is kept in
    ``_learned`` until rows come in, and defines ``_merge`` as ``_merge_summary``: models of one class alone merge.
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
        """Return the summary of rows of d features; ValueError if these are too few."""
        raise NotImplementedError

    @property
    def _size(self) -> int:
        """Return the l in use."""
        raise NotImplementedError

    def _learned_from(self, node: BlockNode) -> Any:
        """Return what the model answers by, its ``node`` and ``components`` among it."""
        raise NotImplementedError

    def _check(self) -> None:
        size, block_rows = self._size, self.block_rows
        if self.method not in ("fd", "exact") and block_rows is not None and block_rows < size // 2:
            raise ValueError(f"block_rows must be at least sketch_size // 2 = {size // 2}, got {block_rows}")

    def _begin(self) -> None:
        self._summary: BlockSummary | None = None
        self._learned: Any = None  # of the rows seen so far, as soon as it is needed
        self._anchor: Any = None

    # -- learning --------------------------------------------------------------------------------------------------
    @changes
    def update(self, rows: Batch) -> Self:
        """Learn from one row or many.

        Parameters
        ----------
        rows : array_like or scipy.sparse (n, d), or (d,), table, or source
            Real and finite. Sparse rows are expanded a few at a time. Tables, sources (``fs.open_rows``) and arrays
            that lie elsewhere (h5py, Zarr, Dask, memory maps) are read in chunks.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If rows are no matrix of finite real numbers of the width seen before, or have fewer features than the codes
            need. The model is then as it was before the call.
        """
        return self._take_rows(rows)

    def _update(self, rows: Any, sample_weight: Any) -> None:
        checked = as_rows(rows, self.n_features)
        summary = self._summary
        if summary is None or not summary.n_rows:  # no rows came that could decide
            dtype = natural_dtype(checked.dtype) if self.dtype is None else self.dtype
            summary = self._empty_summary(checked.shape[1], dtype=dtype)
        self._learned = None
        summary.update(checked)
        self._summary = summary

    def _empty_summary(self, d: int, *, dtype: np.dtype[Any]) -> BlockSummary:
        return BlockSummary(self._setting(d), d, dtype=dtype)

    @property
    def _place(self) -> int:
        """Return the place of the first block."""
        return (self.part << PART_LEVEL) + self.first_block

    def _must_agree(self) -> dict[str, Any]:
        wanted = super()._must_agree()
        del wanted["sketch_size"]
        return {**wanted, "sketch_size": self._size}  # the last: where others differ, an error names those

    def _merge_summary(self, other: Self) -> None:
        mine, theirs = self._summary, other._summary
        assert mine is not None and theirs is not None  # both have seen rows
        self._learned = None
        mine.merge(theirs)
        if other._place < self._place:  # the merged model is the same whichever took the other one in
            vars(self._values).update(part=other.part, first_block=other.first_block)

    def _beside(self, other: Self) -> Self:
        """Return a copy whose blocks are none of another model's: its own, or as a part of its own."""
        out = self._copied()
        if out._summary is not None and other._summary is not None:
            out._summary, out._learned = out._summary.beside(other._summary), None
        return out

    def _adopt(self, other: Self) -> None:
        assert other._summary is not None  # it has seen rows
        self._learned = None
        self._anchor = other._anchor if self._anchor is None else self._anchor
        self._summary = other._summary.closed()
        vars(self._values).update(part=other.part, first_block=other.first_block)

    @changes
    def seal(self) -> Self:
        """Say that this part is complete: it becomes one node, the smallest to send and to merge.

        ``merge`` does so with models of different parts. Returns self.
        """
        if self._summary is not None:
            self._learned = None
            self._summary.seal()
        return self

    def _for_part(self, part: int, first_block: int = 0) -> Self:
        place = {"part": self.part + part, "first_block": self.first_block + first_block}
        parameters: dict[str, Any] = {**self.parameters, **place}
        return type(self)(**parameters)

    def _first_blocks(self, lengths: Sequence[int], n_features: int) -> list[int] | None:
        block_rows = self._part_rows(n_features)
        starts = [0, *accumulate(lengths)][:-1]
        return None if any(start % block_rows for start in starts) else [start // block_rows for start in starts]

    def _part_rows(self, n_features: int) -> int:
        dtype = np.dtype(np.float64)  # of no influence
        return self._empty_summary(n_features, dtype=dtype).block_rows

    def _state_bytes(self, n_features: int) -> int:
        setting = self._setting(n_features)
        of_sketch = n_features if setting.method == "exact" else 4 * setting.sketch_size
        return 8 * n_features * (of_sketch + (setting.reservoir_size or 0))

    def _complete_part(self) -> None:
        self.seal()

    # -- reading: never changes the state --------------------------------------------------------------------------
    @reads
    def _total(self) -> BlockNode | None:
        """Return all rows as one node; None before the first."""
        if self._learned is not None:
            return self._learned.node
        return None if self._summary is None else self._summary.total()

    def _require_total(self) -> BlockNode:
        """Return all rows as one node, or ValueError without rows."""
        node = self._total()
        if node is None:
            raise ValueError("the model has seen no rows: call update first")
        return node

    @reads
    def _sample(self) -> np.ndarray:
        """Return the sampled rows, in a random order; none without a reservoir, or before the first."""
        return np.empty((0, 0)) if self._summary is None else self._summary.sample()

    @reads
    def _read(self) -> Any:
        """Return what has been learned so far, or ValueError without rows."""
        if self._learned is None:
            self._learned = self._learned_from(self._require_total())
        return self._learned

    @changes
    def _anchor_at(self, anchor: Any) -> Self:
        self._anchor, self._learned = anchor, None
        return self

    @property
    def components(self) -> np.ndarray:
        """Return orthonormal principal directions (r, d) float64, the most important first: what may have bits."""
        return self._read().components.copy()

    @property
    def mean(self) -> np.ndarray | None:
        """Return the mean of all rows, (d,) float64; None before the first."""
        node = self._total()
        return None if node is None else node.mean.copy()

    @property
    def shrinkage(self) -> float:
        """Return the most that shrinks removed from any squared singular value; a random map's error comes on top."""
        node = self._total()
        return 0.0 if node is None else node.shrinkage

    @property
    def n_rows(self) -> int:
        """Return the number of rows seen."""
        return 0 if self._summary is None else self._summary.n_rows

    @property
    def n_features(self) -> int | None:
        """Return the number of columns; None before the first row."""
        return None if self._summary is None else self._summary.n_features

    def _resolved(self) -> dict[str, Any]:
        out: dict[str, Any] = {"sketch_size": self._size}
        if (summary := self._summary) is not None:
            out["method"] = self._setting(summary.n_features).method
            out["block_rows"], out["dtype"] = summary.block_rows, summary.dtype
        return out

    # -- keeping it ------------------------------------------------------------------------------------------------
    def _copied(self) -> Self:
        """Return an independent model; the two share the arrays that never change."""
        other = type(self)(**self.parameters)
        other.notes, other._feature_names = deepcopy(self.notes), self._feature_names
        other._summary = None if self._summary is None else self._summary.copy()
        other._anchor, other._learned = self._anchor, self._learned
        self._keep_in_memory(other)
        return other

    def _summary_state(self) -> tuple[dict[str, Any], Arrays]:
        """Return the state of the summary alone: empty before the first row."""
        return ({}, {}) if self._summary is None else self._summary.state()

    def _validate_summary(self, state: dict[str, Any], arrays: Arrays) -> int:
        """Raise ValueError unless a model of these parameters could have this summary; returns its features."""
        d, dtype = as_integer(state["n_features"], "n_features", 1, checks.MOST_COLUMNS), as_dtype(state["dtype"])
        if self.dtype is not None and dtype != self.dtype:
            raise ValueError(f"its rows have dtype {dtype}, its parameters {self.dtype}")
        validate(state, arrays, self._setting(d), d, dtype=dtype)
        return d

    def _restore_summary(self, state: dict[str, Any], arrays: Arrays) -> None:
        summary = self._empty_summary(state["n_features"], dtype=as_dtype(state["dtype"]))
        summary.restore(state, arrays)
        self._summary = summary
