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
OF_SKETCH, HELD = "sketch_", "held"


class HeldOutLearner(MergeableModel, abstract=True):
    """Base of models that sketch rows, and hold out a random sample on which the ridge penalty is chosen."""

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
        """Return an empty sketch with the parameters of this model."""
        raise NotImplementedError

    def _faded(self, factor: float) -> dict[str, Any]:
        """Return the attributes that ``fade`` will set, by name, with all weights multiplied by `factor`."""
        raise NotImplementedError

    def _rows_held(self, held: HeldOut) -> Any:
        """Return the rows of a reservoir of held-out rows, in the form that the sketch learns."""
        return held.rows

    # -- learning --------------------------------------------------------------------------------------------------
    @property
    def n_rows(self) -> int:
        """Return the number of rows learned, including empty rows."""
        return self._n

    def _settle(self, learned: dict[str, Any], rows: Any, weights: Any) -> None:
        """Assign new values to the learned attributes, and update the sketch among them with rows.

        If the sketch refuses the rows, all attributes are restored. `learned` contains the sketch under "_sketch".
        """
        sketch: FrequentDirections = learned["_sketch"]
        before, n_rows = {name: getattr(self, name) for name in self.LEARNED}, sketch.n_rows
        try:
            # before the sketch learns, and in one step: nothing remains to be done afterwards
            vars(self).update(learned, _last=None)
            if rows.shape[0]:
                sketch._absorb(rows, weights)  # a row of weight 0 is one that was held out; it ages the others
        except BaseException:
            if rows.shape[0] and sketch.n_rows == n_rows:  # the sketch has refused them, or was interrupted
                vars(self).update(before)
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
        faded, engine = {"_held": self._held.faded(factor), **self._faded(factor)}, self._sketch._engine
        try:
            self._sketch.fade(factor)
        finally:
            if engine is None or self._sketch._engine is not engine:
                vars(self).update(faded, _last=None)
        return self

    def _eat(self, sketch: FrequentDirections, held: HeldOut) -> FrequentDirections:
        """Update a sketch in place with held-out rows, at their decayed weights. Return the sketch."""
        rows = self._rows_held(held)
        if self.decay == 1.0:
            return sketch.update(rows, held.weight) if len(held) else sketch
        # a separate sketch, whose decay the weights divide out; merging it ages nothing
        step = held_out.undone(self.decay)
        for start in range(0, len(held), step):
            part, weight = rows[start : start + step], held.weight[start : start + step]
            powers = self.decay ** -np.arange(len(weight) - 1.0, -1.0, -1.0)
            block = self._empty_sketch(part.shape[1])
            block._absorb(part, weight * powers)
            sketch.merge(block)
        return sketch

    # -- merging ---------------------------------------------------------------------------------------------------
    def _in_order(self) -> str | None:
        return self._empty_sketch(0)._in_order()

    def _state_bytes(self, n_features: int) -> int:
        return self._empty_sketch(n_features)._state_bytes(n_features)

    def _known_held(self, *, came: int | None = None) -> HeldOut:
        """Return the held-out rows with their decayed weights.

        At least one row must have been learned.
        """
        assert self._held is not None
        return self._held.aged(self.decay, self._n, came=came)

    def _joined(self, other: Self) -> tuple[dict[str, Any], HeldOut]:
        """Return the attributes of the merged model, and the held-out rows that do not fit in its reservoir.

        The caller adds these rows to the merged sketch. Neither model is changed.
        """
        n = self._n + other._n
        rows = held_out.joined([model._known_held(came=n - 1) for model in (self, other)])
        held, rest = rows.chosen(slice(0, self.reservoir_size)), rows.chosen(slice(self.reservoir_size, None))
        sketch = self._sketch.copy().merge(other._sketch)
        return {"_n": n, "_sketch": sketch, "_held": held, "_last": None}, rest

    # -- files -----------------------------------------------------------------------------------------------------
    def _held_state(self) -> tuple[Any, Arrays, Arrays]:
        """Return the sketch and the held-out rows for a state file.

        The result is (JSON state of the sketch, arrays of the held-out rows, arrays of the sketch). Rows must have been
        learned.
        """
        assert self._held is not None
        about, arrays = self._sketch._state()
        of_sketch = {OF_SKETCH + name: array for name, array in arrays.items()}
        return about, held_out.arrays_of(self._held, HELD), of_sketch

    def _validate_held(
        self, state: dict[str, Any], arrays: Arrays, d: int, *, width: int, size: int, fewest: int, dtype: Any
    ) -> None:
        """Raise ValueError if the state cannot be that of a sketch with d columns and its held-out rows.

        Held-out rows have `width` columns.
        """
        about = state["sketch"]["engine"]
        if about is not None and about["n_features"] != d:
            raise ValueError(f"its sketch has {about['n_features']} columns, its sums have {d}")
        n_rows = state["n_rows"]
        held_out.validate(arrays, HELD, width, size=size, fewest=fewest, n_rows=n_rows, dtype=np.dtype(dtype))
        self._empty_sketch(d)._validate(state["sketch"], _of_sketch(arrays))

    def _restore_held(self, state: dict[str, Any], arrays: Arrays, d: int, *, width: int) -> None:
        """Restore the sketch and the held-out rows of this model from a state file."""
        self._n, self._sketch = state["n_rows"], self._empty_sketch(d)
        self._held = held_out.from_arrays(arrays, width, HELD)
        self._sketch._restore(state["sketch"], _of_sketch(arrays))


def _of_sketch(arrays: Arrays) -> Arrays:
    """Select the arrays of the sketch from a state file, with the prefix of their names removed."""
    return {name.removeprefix(OF_SKETCH): array for name, array in arrays.items() if name.startswith(OF_SKETCH)}
