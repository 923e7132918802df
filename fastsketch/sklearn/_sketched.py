"""What estimators of a model that merges share: merging, beginning from a sketch, taking part in jobs, sources."""

# scikit-learn has no types.
# pyright: basic

import copy
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from fastsketch._batches import WeightedChunks, agreed, as_source, is_table
from fastsketch._kernels.guard import changes, reads
from fastsketch._model import Model
from fastsketch._validation import as_real
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._engines._engine_setting import EXACT_OFFSET, EXACT_SLOPE
from fastsketch.sklearn._learned import Arrays, Learned
from fastsketch.sources import Source, naming

__all__ = ["Arrays", "Merging", "Sketched", "exact_is_fair"]

# Where d x d is a fair bargain: up to this many times the time of the sketch (a line through the crossings of both).
FAIR_RATIO = 4

# Arrays of d x d float64 that exist at once: the sum, a copy that is read, what becomes of it, a factor.
EXACT_COPIES = 4


def exact_is_fair(n_features: int, sketch_size: int, max_memory: Any) -> bool:
    """Whether the exact matrix fits `max_memory` bytes and takes no more than FAIR_RATIO times the sketch's time."""
    limit = as_real(max_memory, "max_memory", 0.0, float(np.finfo(float).max))
    fits = 8.0 * EXACT_COPIES * n_features**2 <= limit
    return fits and n_features <= FAIR_RATIO * (EXACT_SLOPE * sketch_size + EXACT_OFFSET)


class Merging(Learned):
    """An estimator whose model merges, so that parts of the rows can be learned from apart."""

    # -- what a subclass defines -----------------------------------------------------------------------------------
    def _template(self, n_rows: int | None, n_features: int, dtype: np.dtype[Any] | None) -> Model:
        """The model with which learning from such rows begins; None: it is not known, or the model's own choice."""
        raise NotImplementedError

    def _own_with(self, other: Any) -> Arrays:
        """``_own`` with the other's rows too, before the models are merged."""
        return {}

    def _merged_model(self, other: Any) -> Any:
        """A new model of the rows of this one's and of another."""
        return self._learner.copy().merge(other)

    # -- shared ----------------------------------------------------------------------------------------------------
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
        check_is_fitted(other, self._MODEL)
        begun = hasattr(self, self._MODEL)
        mine = self._fixed if begun else self.get_params(deep=False)
        for name, value in other._fixed.items():
            if mine[name] is not value and not np.all(mine[name] == value):
                raise ValueError(f"other has {name}={value!r}, this estimator {mine[name]!r}: they cannot be merged")
        if not begun:
            self._become(copy.deepcopy(other))
            return
        if self.n_features_in_ != other.n_features_in_:
            raise ValueError(f"other has {other.n_features_in_} features, this estimator {self.n_features_in_}")
        mine, theirs = (getattr(estimator, "feature_names_in_", None) for estimator in (self, other))
        if mine is not None and theirs is not None and not np.array_equal(mine, theirs):
            raise ValueError("other has other feature names than this estimator")
        own = self._own_with(other)
        model = self._merged_model(other._learner)
        setattr(self, self._MODEL, model)
        if mine is None and theirs is not None:
            self.feature_names_in_ = theirs.copy()
        self._put_own(own)

    @classmethod
    def from_sketch(cls, model: Any, **parameters: Any) -> Self:
        """An estimator that has learned what a sketch has: one of a job, of another process, or merged from many.

        Parameters
        ----------
        model : the kind of model that this estimator learns
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
            If it is no such model, has seen no rows, or has other parameters.
        """
        return cls._from(model, parameters)

    # -- jobs and sources ------------------------------------------------------------------------------------------
    def _job(self, source: Source) -> tuple[Model, Callable[[Any], Any]]:
        """(model to learn from the rows of a source, what makes of it an estimator like this one, fitted)."""
        dtype = None if source.dtype is None else np.dtype(np.float32 if source.dtype == np.float32 else np.float64)
        template = self._template(source.n_rows, source.n_features, dtype)

        def finish(model: Any) -> Any:
            out: Any = clone(self)
            out._own_model(model)
            return out

        return template, finish

    def _fit_source(self, X: Any) -> bool:
        """Whether X is no array but a source of rows, or an array elsewhere: then all of it has been learned from."""
        source = as_far_source(X)
        if source is None:
            return False
        template, finish = self._job(source)
        self._become(finish(template._take_rows(source)))
        return True

    def _partial_fit_source(self, X: Any) -> bool:
        """The same for ``partial_fit``: a copy learns chunk by chunk, and takes the place of this one at the end."""
        source = as_far_source(X)
        if source is None:
            return False
        begun = hasattr(self, self._MODEL)
        if begun and source.n_features != self.n_features_in_:
            raise ValueError(f"X has {source.n_features} features, but learning began with {self.n_features_in_}")
        mine = getattr(self, "feature_names_in_", None)
        names = agreed(source.feature_names, None if mine is None else tuple(map(str, mine)), "X")
        work: Any = copy.deepcopy(self)
        chunks = WeightedChunks(source, None)
        for rows, _ in chunks:
            with naming(source, chunks.row):
                work.partial_fit(rows)
        if names is not None:
            work.feature_names_in_ = np.array(names, dtype=object)
            work._name_features(work._learner)
        self._become(work)
        return True

    def _become(self, other: Any) -> None:
        """Take all that another estimator has learned, in one step; parameters stay."""
        own = {*self.get_params(deep=False), "_entered"}
        learned = {name: value for name, value in vars(other).items() if name not in own}
        for name in vars(self).keys() - learned.keys() - own:  # names of columns, which the rows before had
            delattr(self, name)
        self.__dict__.update(learned)


def as_far_source(X: Any) -> Source | None:
    """Rows that are read in chunks; None for arrays and tables, which scikit-learn checks and converts whole."""
    return None if isinstance(X, np.ndarray) or is_table(X) else as_source(X)


class Sketched(Merging):
    """An estimator that has learned a ``sketch_``, Frequent Directions."""

    _MODEL: ClassVar = "sketch_"
    _KIND: ClassVar = FrequentDirections

    sketch_: FrequentDirections
    feature_names_in_: NDArray[Any]
