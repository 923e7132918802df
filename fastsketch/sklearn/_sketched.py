"""What estimators that own a sketch share: merging, files without pickle, beginning from a sketch that is there."""

# scikit-learn has no types.
# pyright: basic

import copy
from os import PathLike
from typing import Any, BinaryIO, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fastsketch._kernels.guard import Guard, changes, reads
from fastsketch._model import INCONSISTENT, from_bytes, plain
from fastsketch._validation import as_real
from fastsketch.io import _state as files
from fastsketch.io._state import StateError
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._engines._setting import EXACT_OFFSET, EXACT_SLOPE
from fastsketch.sklearn._begun import Begun

Arrays = dict[str, NDArray[Any]]

# Where d x d is a fair bargain: up to this many times the time of the sketch (a line through the crossings of both).
FAIR_RATIO = 4

# Arrays of d x d float64 that exist at once: the sum, a copy that is read, what becomes of it, a factor.
EXACT_COPIES = 4


def exact_is_fair(n_features: int, sketch_size: int, max_memory: Any) -> bool:
    """Whether the exact matrix fits `max_memory` bytes and takes no more than FAIR_RATIO times the sketch's time."""
    limit = as_real(max_memory, "max_memory", 0.0, float(np.finfo(float).max))
    fits = 8.0 * EXACT_COPIES * n_features**2 <= limit
    return fits and n_features <= FAIR_RATIO * (EXACT_SLOPE * sketch_size + EXACT_OFFSET)


class Sketched(Begun):
    """An estimator that has learned a ``sketch_`` and, perhaps, arrays of its own (``_own``)."""

    # home of the kind in state files
    _HOME: ClassVar = "fastsketch.sklearn"

    sketch_: FrequentDirections
    n_features_in_: int
    feature_names_in_: NDArray[Any]

    # -- what a subclass defines -----------------------------------------------------------------------------------
    def _own(self) -> Arrays:
        """Arrays of what was learned beside the sketch."""
        return {}

    def _put_own(self, arrays: Arrays) -> None:
        """The inverse; ValueError for what cannot belong to ``sketch_``. Nothing: the sketch came alone."""

    def _own_with(self, other: Any) -> Arrays:
        """``_own`` with the other's rows too, before the sketches are merged."""
        return {}

    def _merged_sketch(self, other: FrequentDirections) -> FrequentDirections:
        """A new sketch of the rows of ``sketch_`` and of another."""
        return self.sketch_.copy().merge(other)

    @classmethod
    def _parameters_for(cls, sketch: FrequentDirections) -> dict[str, Any]:
        """The parameters that a sketch has; ValueError for a sketch that the estimator cannot read."""
        raise NotImplementedError

    # -- shared ----------------------------------------------------------------------------------------------------
    @property
    def _guard(self) -> Guard:
        return self.__dict__.setdefault("_entered", Guard())

    @changes
    def merge(self, other: Self) -> Self:
        """Add what another estimator has learned, as if its rows had come here.

        Parameters
        ----------
        other : estimator of the same class
            With the same parameters; it stays as it is. Unfitted, this estimator becomes a copy of it.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If the two do not belong together; this estimator is then as it was.
        NotFittedError
            If the other has learned nothing.
        """
        if not isinstance(other, type(self)):
            raise TypeError(f"other must be a {type(self).__name__}, got {type(other).__name__}")
        if other is self:
            other = copy.deepcopy(self)
        other._give_to(self)
        return self

    @reads
    def _give_to(self, receiver: Any) -> None:
        receiver._take_over(self)

    def _take_over(self, other: Any) -> None:
        check_is_fitted(other, "sketch_")
        begun = hasattr(self, "sketch_")
        mine = self._fixed if begun else self.get_params(deep=False)
        for name, value in other._fixed.items():
            if mine[name] is not value and not np.all(mine[name] == value):
                raise ValueError(f"other has {name}={value!r}, this estimator {mine[name]!r}: they cannot be merged")
        if not begun:
            for name, value in vars(copy.deepcopy(other)).items():
                if name not in self.get_params(deep=False) and name != "_entered":
                    setattr(self, name, value)
            return
        if self.n_features_in_ != other.n_features_in_:
            raise ValueError(f"other has {other.n_features_in_} features, this estimator {self.n_features_in_}")
        mine, theirs = (getattr(estimator, "feature_names_in_", None) for estimator in (self, other))
        if mine is not None and theirs is not None and not np.array_equal(mine, theirs):
            raise ValueError("other has other feature names than this estimator")
        own = self._own_with(other)
        self.sketch_ = self._merged_sketch(other.sketch_)
        self._put_own(own)

    @classmethod
    def from_sketch(cls, model: FrequentDirections, **parameters: Any) -> Self:
        """An estimator that has learned what a sketch has: one of a job, of another process, or merged from many.

        Parameters
        ----------
        model : fastsketch.FrequentDirections
            That has seen rows; a copy is kept.
        **parameters
            Of the estimator, beside those that the sketch has.

        Returns
        -------
        estimator
            ``partial_fit`` goes on from it.

        Raises
        ------
        TypeError, ValueError
            If it is no sketch, has seen no rows, or has other parameters.
        """
        if not isinstance(model, FrequentDirections):
            raise TypeError(f"model must be a fastsketch.FrequentDirections, got {type(model).__name__}")
        if model.n_features is None:
            raise ValueError("model must have seen rows: call its update first")
        found = cls._parameters_for(model)
        for name, value in parameters.items():
            if name in found and found[name] != value:
                raise ValueError(f"{name}={value!r} does not fit the sketch, which has {name}={found[name]!r}")
        out = cls(**{**found, **parameters})
        out.sketch_ = model.copy()
        out.n_features_in_ = model.n_features
        out._put_own({})
        out._fix_parameters()
        return out

    @reads
    def save(self, path: str | PathLike[str]) -> None:
        """Write parameters and all that was learned to a file that ``load`` reads: whole or not at all, no pickle."""
        check_is_fitted(self, "sketch_")
        names = getattr(self, "feature_names_in_", None)
        about = {
            "kind": type(self).__name__,
            "home": self._HOME,
            "parameters": plain(self.get_params(deep=False)),
            "notes": {},
            "state": {"fixed": plain(self._fixed), "feature_names": None if names is None else names.tolist()},
        }
        sketch = np.frombuffer(self.sketch_.to_bytes(), np.uint8)
        files.write(path, files.pack(about, {"sketch": sketch, **self._own()}))

    @classmethod
    def load(cls, source: str | PathLike[str] | BinaryIO) -> Self:
        """Read what ``save`` wrote; it goes on with the same bits.

        Parameters
        ----------
        source : str, path or binary file

        Returns
        -------
        estimator

        Raises
        ------
        StateError
            If the file is missing, damaged, inconsistent, too new, or holds something else.
        """
        about, arrays = files.read(source)
        name = "the state" if hasattr(source, "seek") else str(source)
        if about["kind"] != cls.__name__ or about.get("home") != cls._HOME:
            raise StateError(f"{name} holds a {about['kind']}, not a {cls.__name__}")
        try:
            out = cls(**about["parameters"])
            sketch = from_bytes(arrays.pop("sketch").tobytes())
            if not isinstance(sketch, FrequentDirections) or sketch.n_features is None:
                raise ValueError("it has no sketch that has seen rows")
            out.sketch_, out.n_features_in_ = sketch, sketch.n_features
            out._put_own(arrays)
            state = about["state"]
            out._fixed = {key: state["fixed"][key] for key in out.get_params(deep=False) if key in state["fixed"]}
            if state["feature_names"] is not None:
                if len(state["feature_names"]) != sketch.n_features:
                    raise ValueError(f"{len(state['feature_names'])} names for {sketch.n_features} features")
                out.feature_names_in_ = np.array([str(item) for item in state["feature_names"]], dtype=object)
        except INCONSISTENT as error:
            raise StateError(f"{name}: the {cls.__name__} in it is not consistent: {error}") from error
        return out
