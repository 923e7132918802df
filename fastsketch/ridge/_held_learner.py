"""Base class of models that sketch most rows and keep a random sample of held-out rows."""

# pyright: reportPrivateUsage=false

from typing import Any, ClassVar, Self

import numpy as np

from fastsketch._core.validation import as_real
from fastsketch._frame.model import Arrays, MergeableModel
from fastsketch._kernels.guard import changes
from fastsketch.ridge import _held_out as held_out
from fastsketch.ridge._held_out import HeldOut
from fastsketch.sketching import FrequentDirections

# Prefixes of the names of arrays in a state file.
SKETCH_PREFIX, RESERVOIR_PREFIX = "sketch_", "held"


class HeldOutLearner(MergeableModel, abstract=True):
    """Base class of models that sketch most rows, and hold out a random sample of rows on which the ridge penalty is
    chosen.
    """

    # parameters that subclasses declare
    decay: float
    reservoir_size: int
    seed: int

    # Attributes that an update changes; subclasses add theirs.
    LEARNED: ClassVar[tuple[str, ...]] = ("_n", "_sketch", "_held", "_last", "_feature_names")

    def _begin(self) -> None:
        self._n = 0
        self._sketch = self._empty_sketch(0)
        self._held: HeldOut | None = None
        self._last: Any = None  # cached answers

    # -- what a subclass defines -----------------------------------------------------------------------------------
    def _empty_sketch(self, n_features: int) -> FrequentDirections:
        """Return an empty sketch for rows of `n_features` columns, with the parameters of this model."""
        raise NotImplementedError

    def _faded_attributes(self, factor: float) -> dict[str, Any]:
        """Return {name: new value} of the attributes that change when ``fade`` multiplies earlier weights by `factor`.
        The model does not change.
        """
        raise NotImplementedError

    def _sketch_rows(self, reservoir: HeldOut) -> Any:
        """Return the rows of a reservoir as the sketch learns them.
        Subclasses remove columns that are only targets.
        """
        return reservoir.rows

    # -- learning --------------------------------------------------------------------------------------------------
    @property
    def n_rows(self) -> int:
        """Return the number of rows learned, including empty rows."""
        return self._n

    def _commit_update(self, attributes: dict[str, Any], rows: Any, weights: Any) -> None:
        """Set this model's attributes after a batch, and let its sketch learn rows; all or nothing.

        `attributes` maps names of attributes to values, and has the sketch as "_sketch". If the sketch raises an error
        before it has learned the rows, all attributes are restored.
        """
        sketch: FrequentDirections = attributes["_sketch"]
        previous, n_rows_before = {name: getattr(self, name) for name in self.LEARNED}, sketch.n_rows
        try:
            # in one step and before the sketch learns, so that nothing remains to be done after an interrupt
            vars(self).update(attributes, _last=None)
            if rows.shape[0]:
                sketch._absorb(rows, weights)  # a row of weight 0 stands for a held-out one: earlier rows decay by it
        except BaseException:
            if rows.shape[0] and sketch.n_rows == n_rows_before:  # the sketch has refused them, or was interrupted
                vars(self).update(previous)
            raise

    @changes
    def fade(self, factor: float) -> Self:
        """Multiply the weight of everything learned so far by a factor, for instance once a day.

        Parameters
        ----------
        factor : float in (0, 1]

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> X = np.random.default_rng(0).standard_normal((500, 5))
        >>> model = fs.SketchedRidge().update(X, X[:, 0])
        >>> model.fade(0.5).total_weight
        250.0
        """
        factor = as_real(factor, "factor", 0.0, 1.0, low_open=True)
        if self._held is None:
            return self
        new_attributes, engine = (
            {"_held": self._held.faded(factor), **self._faded_attributes(factor)},
            self._sketch._engine,
        )
        try:
            self._sketch.fade(factor)
        finally:
            if engine is None or self._sketch._engine is not engine:
                vars(self).update(new_attributes, _last=None)
        return self

    def _learn_held_out_rows(self, sketch: FrequentDirections, held: HeldOut) -> FrequentDirections:
        """Let a sketch learn held-out rows, in place, at their present weights, and return the sketch."""
        rows = self._sketch_rows(held)
        if self.decay == 1.0:
            return sketch.update(rows, held.weight) if len(held) else sketch
        # Learn a separate sketch, with weights that compensate its decay. Merging it makes no row decay.
        max_rows = held_out.rows_per_decay_block(self.decay)
        for start in range(0, len(held), max_rows):
            block_rows, block_weights = rows[start : start + max_rows], held.weight[start : start + max_rows]
            powers = self.decay ** -np.arange(len(block_weights) - 1.0, -1.0, -1.0)
            block_sketch = self._empty_sketch(block_rows.shape[1])
            block_sketch._absorb(block_rows, block_weights * powers)
            sketch.merge(block_sketch)
        return sketch

    # -- merging ---------------------------------------------------------------------------------------------------
    def _in_order(self) -> str | None:
        return self._empty_sketch(0)._in_order()

    def _state_bytes(self, n_features: int) -> int:
        return self._empty_sketch(n_features)._state_bytes(n_features)

    def _decayed_reservoir(self, *, row_number: int | None = None) -> HeldOut:
        """Return the held-out rows with their weights decayed to the present, as a new reservoir.
        At least one row must have been learned.
        """
        assert self._held is not None
        return self._held.apply_decay(self.decay, self._n, row_number=row_number)

    def _merged_attributes(self, other: Self) -> tuple[dict[str, Any], HeldOut]:
        """Return ({name: value} of the merge of two models, held-out rows that exceed its reservoir).
        Neither model changes.

        The caller adds these rows to the merged sketch.
        """
        n = self._n + other._n
        rows = held_out.merge_reservoirs([model._decayed_reservoir(row_number=n - 1) for model in (self, other)])
        reservoir, overflow = rows.take(slice(0, self.reservoir_size)), rows.take(slice(self.reservoir_size, None))
        sketch = self._sketch.copy().merge(other._sketch)
        return {"_n": n, "_sketch": sketch, "_held": reservoir, "_last": None}, overflow

    # -- files -----------------------------------------------------------------------------------------------------
    def _sketch_and_reservoir_state(self) -> tuple[Any, Arrays, Arrays]:
        """Return (JSON state of the sketch, arrays of the held-out rows, arrays of the sketch), for a state file.

        Rows must have been learned.
        """
        assert self._held is not None
        sketch_state, arrays = self._sketch._state()
        sketch_arrays = {SKETCH_PREFIX + name: array for name, array in arrays.items()}
        return sketch_state, held_out.state_arrays(self._held, RESERVOIR_PREFIX), sketch_arrays

    def _validate_sketch_and_reservoir(
        self, state: dict[str, Any], arrays: Arrays, d: int, *, width: int, max_rows: int, min_entries: int, dtype: Any
    ) -> None:
        """Validate the saved sketch and held-out rows of this model. ValueError unless they can be those of a sketch
        with d columns.

        Held-out rows have `width` columns, of type `dtype`. The other arguments are those of
        ``_held_out.validate_state_arrays``.
        """
        engine_state = state["sketch"]["engine"]
        if engine_state is not None and engine_state["n_features"] != d:
            raise ValueError(f"its sketch has {engine_state['n_features']} columns, its sums have {d}")
        n_rows = state["n_rows"]
        held_out.validate_state_arrays(
            arrays,
            RESERVOIR_PREFIX,
            width,
            max_rows=max_rows,
            min_entries=min_entries,
            n_rows=n_rows,
            dtype=np.dtype(dtype),
        )
        self._empty_sketch(d)._validate(state["sketch"], select_sketch_arrays(arrays))

    def _restore_sketch_and_reservoir(self, state: dict[str, Any], arrays: Arrays, d: int, *, width: int) -> None:
        """Set the sketch (d columns) and the held-out rows (`width` columns) of this model from a validated saved
        state.
        """
        self._n, self._sketch = state["n_rows"], self._empty_sketch(d)
        self._held = held_out.reservoir_from_arrays(arrays, width, RESERVOIR_PREFIX)
        self._sketch._restore(state["sketch"], select_sketch_arrays(arrays))


def select_sketch_arrays(arrays: Arrays) -> Arrays:
    """Return the arrays of a state file that belong to the sketch, under the names that the sketch itself uses."""
    return {name.removeprefix(SKETCH_PREFIX): array for name, array in arrays.items() if name.startswith(SKETCH_PREFIX)}
