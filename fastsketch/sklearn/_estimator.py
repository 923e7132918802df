"""Base classes of the estimators: validation of rows, state files, merging, and learning from sources.

``ModelEstimator`` has learned a model; ``MergingEstimator`` is one whose models merge, which also learns from sources.
"""

# scikit-learn has no types.
# pyright: basic

import copy
import numbers
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, BinaryIO, ClassVar, Self, TypeVar, dataclass_transform

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from fastsketch._core.sparse import as_csr, check_width, without_long_double
from fastsketch._core.validation import (
    as_real,
    as_seed,
    as_weights,
    is_sparse,
    refuse_dicts,
    refuse_final_nul,
    refuse_iterator,
    require_array_like,
    rows_with_weight,
    to_numpy,
)
from fastsketch._frame.batches import WeightedChunks, as_source, is_table, labels_of, names_of, require_same_names
from fastsketch._frame.keywords import named_keywords
from fastsketch._frame.loading import INCONSISTENT, inner_model, state_being_read
from fastsketch._frame.model import Model, plain
from fastsketch._kernels.guard import Guard, changes, reads, update_with
from fastsketch.data.files import _state as files
from fastsketch.data.files._state import StateError
from fastsketch.data.names._id_columns import is_missing
from fastsketch.data.sources import Source, naming
from fastsketch.sketching._engines._setting import EXACT_OFFSET, EXACT_SLOPE
from fastsketch.sklearn._words import ENCODE, columns_of_words, holds_times

Arrays = dict[str, NDArray[Any]]
Estimator = TypeVar("Estimator", bound=BaseEstimator)

# Name of the array with the bytes of the model in a state file.
MODEL = "sketch"

# An exact d x d matrix is used up to this many times the time of a sketch (a line fitted to measured crossings).
FAIR_RATIO = 4

# Number of d x d float64 arrays at a time: the sum, a copy of it, the covariance, and a factor.
EXACT_COPIES = 4


# -- rows and seeds as scikit-learn has them ---------------------------------------------------------------------------
def consistent_rows(X: Any, *, sum_duplicates: bool = True) -> Any:
    """Return any array, table or sparse matrix in a form that scikit-learn can validate; TypeError for iterators.

    Labels of a data frame that are not strings become names, see ``names_of_labels``, so that scikit-learn checks them
    too.
    """
    X = to_numpy(X, "X")
    require_array_like(X, "X")
    if getattr(X, "ndim", None) != 2:  # scikit-learn reports other shapes
        refuse_iterator(X, "X")
        return X
    if is_sparse(X):
        return as_csr(X, "X", sum_duplicates=sum_duplicates)
    check_width(X.shape[1], "X")
    if hasattr(X, "set_axis") and not any(isinstance(label, str) for label in labels_of(X)):
        names = names_of(X, "X")
        return X if names is None else X.set_axis(list(names), axis=1)
    return X


def checked(estimator: BaseEstimator, X: Any, *, sum_duplicates: bool = True, **options: Any) -> Any:
    """Return rows, and targets if given, after validating them with scikit-learn's ``validate_data``.
    The estimator's columns are recorded or compared.

    Errors name the columns that do not hold numbers.

    If an exception is raised the attributes of the estimator are unchanged.
    """
    if isinstance(X, str | PathLike | Source):  # scikit-learn would report a string that is not a number
        if "y" in options:
            advice = "partial_fit(rows, y) learns the chunks of fs.open_rows(X) one after another"
        elif options.get("reset", True):
            advice = "np.concatenate(list(fs.open_rows(X))) is the array of all rows, if it fits into memory"
        else:
            method = "transform" if hasattr(type(estimator), "transform") else "predict"
            advice = f"fs.map_rows(estimator.{method}, X, output=...) writes what a method says of each"
        name = "a source" if isinstance(X, Source) else "the name of a file"
        raise TypeError(f"X is {name}, and this method takes rows: {advice}")
    refuse_dicts(X, "X")
    if "y" in options:
        options["y"] = to_numpy(options["y"], "y")
    require_array_like(options.get("y"), "y")
    rows = consistent_rows(X, sum_duplicates=sum_duplicates)
    if holds_times(rows):  # scikit-learn takes them for numbers, in units of the resolution of their dtype
        raise ValueError(f"X must hold numbers, got {columns_of_words(rows)}: {ENCODE}")
    try:
        with restored_on_error(estimator):  # scikit-learn sets names and widths before it checks the numbers
            out: Any = validate_data(estimator, rows, accept_sparse="csr", **options)
            return (out[0], storable(out[1])) if isinstance(out, tuple) else out
    except (ValueError, np.exceptions.DTypePromotionError):  # the latter for a mixture of dates and numbers
        if odd := columns_of_words(X):
            raise ValueError(f"X must hold numbers, got {odd}: {ENCODE}") from None
        raise
    except OverflowError as error:  # an integer of Python that exceeds float64
        raise ValueError(f"X must hold numbers that float64 holds: {error}") from None


def storable(y: NDArray[Any], name: str = "y") -> NDArray[Any]:
    """Return targets in a dtype that state files support: long double becomes float64, others stay.

    TypeError for dates and records.
    """
    if y.dtype.kind in "mMV":
        raise TypeError(
            f"{name} must hold numbers, bools or strings, got dtype {y.dtype}: astype(str) makes labels of it"
        )
    return without_long_double(y)


def refuse_labels(labels: Any, name: str = "y") -> None:
    """Raise TypeError if a label is missing (None or NaN) or numbers and strings are mixed.

    ValueError if a label ends in a NUL character.
    """
    labels = to_numpy(labels, name)
    require_array_like(labels, name)
    refuse_final_nul(labels, name)
    given: Any = np.asarray(labels)
    if given.dtype.kind in "OU" and isinstance(labels, list | tuple):
        given = np.asarray(labels, object)  # else NaN among strings becomes a string
    if given.dtype != object or given.ndim == 0:
        return
    values = given.ravel().tolist()
    for row, label in enumerate(values):
        if is_missing(label) or (isinstance(label, float) and label != label):
            raise TypeError(f"{name} must have a label for every row: that of row {row} is {label!r}")
        if isinstance(label, str) != isinstance(values[0], str):  # NumPy would convert the numbers to strings
            raise TypeError(f"{name} must hold labels of one kind, numbers or strings, got {values[0]!r} and {label!r}")


def distinct_labels(labels: Any, name: str) -> NDArray[Any]:
    """Return the distinct labels in sorted order. The errors are those of ``refuse_labels``."""
    refuse_labels(labels, name)
    return np.unique(storable(np.asarray(to_numpy(labels, name)), name))


@contextmanager
def restored_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """Restore all attributes of an estimator if the ``with`` block raises an exception."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__ = before
        raise


def seed_of(random_state: int | RandomState | None) -> int:
    """Convert scikit-learn's random_state to the integer seed of a model.

    An integer is the seed itself; None and a RandomState draw one.
    """
    if isinstance(random_state, numbers.Integral):
        return as_seed(random_state, "random_state")
    return int(check_random_state(random_state).randint(2**31))


def weights_of_fit(sample_weight: Any, n_rows: int) -> NDArray[np.float64] | None:
    """Return the row weights of ``fit`` after checking them, or None; ValueError if all of them are 0."""
    weights = as_weights(sample_weight, n_rows)
    if weights is not None and not weights.any():
        raise ValueError("sample_weight must not be zero for all rows")
    return weights


def as_far_source(X: Any) -> Source | None:
    """Return rows as a source if they must be read in chunks (files, lazy arrays), and None for an array or table."""
    return None if isinstance(X, np.ndarray) or is_table(X) else as_source(X)


def as_unweighted_source(X: Any, sample_weight: Any) -> Source | None:
    """Return rows as a source if they must be read in chunks, otherwise None.
    TypeError if such rows come with weights.
    """
    if sample_weight is None:
        return as_far_source(X)
    if isinstance(X, str | PathLike | Source):
        raise TypeError(
            "sample_weight must be None where X is a source or the name of a file: partial_fit(rows, "
            "sample_weight=...) learns the chunks of fs.open_rows(X) with their weights, one after another"
        )
    return None


def exact_is_fair(n_features: int, sketch_size: int, max_memory: Any) -> bool:
    """Return True if an estimator may use the exact d x d matrix, because it fits into memory and is hardly slower than
    a sketch.

    It must fit into `max_memory` bytes, EXACT_COPIES times, and take at most FAIR_RATIO times the time of the sketch.
    """
    limit = as_real(max_memory, "max_memory", 0.0, float(np.finfo(float).max))
    fits = 8.0 * EXACT_COPIES * n_features**2 <= limit
    return fits and n_features <= FAIR_RATIO * (EXACT_SLOPE * sketch_size + EXACT_OFFSET)


# -- estimators --------------------------------------------------------------------------------------------------------
@dataclass_transform(eq_default=False, field_specifiers=(field,))
def estimator(cls: type[Estimator]) -> type[Estimator]:
    """Decorate an estimator class, so that its annotated attributes become parameters of the constructor."""
    return named_keywords(dataclass(eq=False, repr=False)(cls))


def checked_score(mixin: Any) -> Callable[..., float]:
    """Return the method ``score`` of scikit-learn's mixin, with a check of its arguments.

    Without the check, masks of masked arrays would be dropped silently.
    """

    def score(self: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the accuracy of a classifier, or R^2 of a regressor, on rows with known targets.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)
        y : array_like (n_samples,) or (n_samples, n_targets)
            True labels or targets.
        sample_weight : array_like (n_samples,), optional
            Row weights.

        Returns
        -------
        float
        """
        y, sample_weight = to_numpy(y, "y"), to_numpy(sample_weight, "sample_weight")
        require_array_like(y, "y")
        require_array_like(sample_weight, "sample_weight")
        if is_sparse(sample_weight):
            raise TypeError("sample_weight must be a vector of numbers, got a sparse matrix")
        return mixin.score(self, X, y, sample_weight)

    score.__qualname__ = "score"
    return score


def read_once(estimator: Any, name: str, read: Callable[..., Any], *options: Any) -> Any:
    """Return the result of `read(*options)` for an estimator with a sketch, cached under `name`.

    It is computed again when the sketch has learned more rows or the options change.
    """
    check_is_fitted(estimator, "sketch_")
    key = estimator.sketch_._seen_engine(), estimator.sketch_.n_rows, *options
    cache = vars(estimator).setdefault("_read_out", {})
    entry = cache.get(name)
    if entry is None or entry[0] != key:
        entry = cache[name] = key, read(*options)
    return entry[1]


class ModelEstimator(BaseEstimator):
    """Base of all estimators: a fitted fastsketch model with scikit-learn's interface.

    The model is in the attribute named by ``_MODEL``. Subclasses may have further arrays.
    """

    # module name in state files
    _HOME: ClassVar = "fastsketch.sklearn"
    # name of the attribute with the model, and the class of the model
    _MODEL: ClassVar[str]
    _KIND: ClassVar[Any]  # a class, or a tuple of classes
    # parameters that may change between two calls of partial_fit
    _FREE: ClassVar[frozenset[str]] = frozenset()
    # {parameter of the estimator: parameter of the model}, where the names differ
    _OF_MODEL: ClassVar[dict[str, str]] = {"random_state": "seed"}

    n_features_in_: int
    feature_names_in_: NDArray[Any]
    _fixed: dict[str, Any]  # parameters that must not change once learning has begun
    _read_out: dict[str, Any]  # cache of ``read_once``

    # -- what a subclass defines -----------------------------------------------------------------------------------
    def _own(self) -> Arrays:
        """Return {name: array} of the estimator's own arrays, which a state file stores alongside the model."""
        return {}

    def _restore_own(self, arrays: Arrays) -> None:
        """Set the fitted attributes of this class from the arrays of a state file, or from the model if there are none.

        Raises
        ------
        ValueError
            If the arrays do not fit the model.
        """

    @classmethod
    def _parameters_for(cls, model: Any) -> dict[str, Any]:
        """Return parameters with which this estimator could have learned the given model, for ``from_model``.
        ValueError if none can.
        """
        given = model.parameters
        names = {name: cls._OF_MODEL.get(name, name) for name in cls._get_param_names()}
        return {name: given[theirs] for name, theirs in names.items() if theirs in given}

    @classmethod
    def _revived(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return parameters, read as JSON from a state file, in the types that they had before saving."""
        weights = parameters.get("class_weight")  # a dict with labels other than strings was written as pairs
        return {**parameters, "class_weight": dict(weights)} if isinstance(weights, list) else parameters

    # -- shared ----------------------------------------------------------------------------------------------------
    def _fix_parameters(self) -> None:
        """Record the present parameters. ``partial_fit`` refuses to continue if they are changed later."""
        self.__dict__.update(self._begun())

    def _begun(self) -> dict[str, Any]:
        """Return {name: value} of the attributes to set when the first rows are learned.

        ``_fixed`` has the parameters that must not change.
        """
        parameters = self.get_params(deep=False).items()
        return {"_fixed": {name: value for name, value in parameters if name not in self._FREE}, "_read_out": {}}

    def _check_parameters(self) -> None:
        """Raise ValueError if a parameter has been changed since learning began, except those that may change."""
        for name, fixed in getattr(self, "_fixed", {}).items():
            value = getattr(self, name)
            if value is not fixed and not np.all(value == fixed):
                raise ValueError(
                    f"{name} is {value!r} but learning began with {name}={fixed!r}, which partial_fit cannot change: "
                    "set it back, or begin again with fit"
                )

    @property
    def _guard(self) -> Guard:
        return self.__dict__.setdefault("_entered", Guard())

    @property
    def _learner(self) -> Any:
        check_is_fitted(self, self._MODEL)
        return getattr(self, self._MODEL)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> Any:
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("_entered", "_read_out")}

    def _drop(self, *names: str) -> None:
        """Delete the named learned attributes that exist."""
        for name in names:
            self.__dict__.pop(name, None)

    @classmethod
    def from_model(cls, model: Any, **parameters: Any) -> Self:
        """Make a fitted estimator from a copy of a fastsketch model.

        The model may come from a file or a job, for instance.

        Parameters
        ----------
        model : model of the kind that this estimator learns
            It must have learned rows. A copy is kept.
        **parameters
            Parameters of the estimator that the model does not have.

        Returns
        -------
        estimator
            If it has ``partial_fit``, learning continues from the model.

        Raises
        ------
        TypeError, ValueError
            If the model is of another kind, has learned nothing, or contradicts a parameter.
        """
        if not isinstance(model, cls._KIND):
            kind: Any = cls._KIND[0] if isinstance(cls._KIND, tuple) else cls._KIND
            raise TypeError(f"model must be a fastsketch.{kind.__name__}, got {type(model).__name__}")
        if model.n_features is None:
            raise ValueError(
                "model must have learned from rows of one width: call its update first"
                if model.n_rows
                else "model must have seen rows: call its update first"
            )
        known = cls._parameters_for(model)
        for name, value in parameters.items():
            if name in known and known[name] != value:
                kind = "sketch" if cls._MODEL == "sketch_" else "model"
                raise ValueError(f"{name}={value!r} does not fit the {kind}, which has {name}={known[name]!r}")
        out = cls(**{**known, **parameters})
        out._own_model(model.copy())
        return out

    def _own_model(self, model: Any, arrays: Arrays | None = None) -> None:
        """Make this estimator a fitted one, in place, that uses the given model without copying it."""
        setattr(self, self._MODEL, model)
        self.n_features_in_ = model.n_features
        if model.feature_names is not None:
            self.feature_names_in_ = np.array(model.feature_names, dtype=object)
        self._restore_own(arrays or {})
        self._fix_parameters()

    def _name_features(self, model: Model) -> None:
        """Give a new model the column names that this estimator has recorded."""
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            model._feature_names = tuple(map(str, names))

    @reads
    def save(self, path: str | PathLike[str]) -> None:
        """Save the parameters and everything learned to a file that ``load`` reads.

        The file is written completely or not at all.

        Parameters
        ----------
        path : str or path
        """
        model = self._learner
        names = getattr(self, "feature_names_in_", None)
        parameters, fixed = self.get_params(deep=False), dict(getattr(self, "_fixed", {}))
        for values in (parameters, fixed):
            if isinstance(values.get("random_state"), np.random.RandomState):
                values["random_state"] = getattr(model, "seed", None)  # the seed that it gave
        about = {
            "kind": type(self).__name__,
            "home": self._HOME,
            "parameters": plain(parameters),
            "notes": {},
            "state": {
                "fixed": plain(fixed),
                "feature_names": None if names is None else names.tolist(),
            },
        }
        files.write(path, files.pack(about, {MODEL: np.frombuffer(model.to_bytes(), np.uint8), **self._own()}))

    @classmethod
    def load(cls, source: str | PathLike[str] | BinaryIO) -> Self:
        """Load an estimator from a file that ``save`` has written.

        It continues with bitwise identical results.

        Parameters
        ----------
        source : str, path or binary file

        Returns
        -------
        estimator

        Raises
        ------
        StateError
            If the file is missing, damaged, inconsistent, of a newer version, or holds something else.
        """
        name = "the state" if hasattr(source, "seek") else str(source)
        about = files.read_header(source)
        if about["kind"] != cls.__name__ or about.get("home") != cls._HOME:
            raise StateError(f"{name} holds a {about['kind']}, not a {cls.__name__}")
        with state_being_read(name):
            return cls._loaded_from(source, name)

    @classmethod
    def _loaded_from(cls, source: str | PathLike[str] | BinaryIO, name: str) -> Self:
        about, arrays = files.read(source)
        try:
            out = cls(**cls._revived(about["parameters"]))
            model = inner_model(arrays, MODEL, cls._KIND)
            del arrays[MODEL]
            if model.n_features is None:
                raise ValueError(f"it has no {cls._KIND.__name__} that has seen rows")
            out._own_model(model, arrays)
            state = about["state"]
            fixed = cls._revived(state["fixed"])
            out._fixed = {key: fixed[key] for key in out.get_params(deep=False) if key in fixed}
            if state["feature_names"] is not None:
                if len(state["feature_names"]) != model.n_features:
                    raise ValueError(f"{len(state['feature_names'])} names for {model.n_features} features")
                out.feature_names_in_ = np.array([str(item) for item in state["feature_names"]], dtype=object)
        except INCONSISTENT as error:
            raise StateError(f"{name}: the {cls.__name__} in it is not consistent: {error}") from error
        return out


class MergingEstimator(ModelEstimator):
    """Base of estimators that can be merged after learning different parts of the rows."""

    # -- what a subclass defines -----------------------------------------------------------------------------------
    def _template(self, n_rows: int | None, n_features: int, dtype: np.dtype[Any] | None) -> Model:
        """Return an empty model with the parameters of this estimator, for rows of the given number, width and dtype.

        n_rows None is unknown; dtype None leaves the choice to the model.
        """
        raise NotImplementedError

    def _own_with(self, other: Any) -> Arrays:
        """Return {name: array} of the arrays to store alongside the merge of this estimator's model with another's.

        It is called before the models are merged.
        """
        return {}

    def _merged(self, other: Any) -> tuple[Any, Arrays]:
        """Return (new model that merges those of two estimators, arrays to store alongside it).
        Neither estimator changes.
        """
        own = self._own_with(other)
        return self._merged_model(other._learner), own

    def _merged_model(self, other: Any) -> Any:
        """Return a new model that merges this estimator's model with another one."""
        return self._learner.copy().merge(other)

    # -- shared ----------------------------------------------------------------------------------------------------
    def _checked(self, X: Any, *, reset: bool) -> Any:
        """Validate rows, and return them. With `reset` their columns are recorded, otherwise compared with those of
        earlier rows.

        With `reset` they define the number and the names of the columns.
        """
        if not reset:
            check_is_fitted(self, self._MODEL)
        return checked(self, X, reset=reset, dtype=[np.float64, np.float32])

    def _checked_all(self, X: Any, sample_weight: Any) -> tuple[Any, Any]:
        """Validate the rows and weights of ``fit``, and return them without rows of weight 0."""
        rows = self._checked(X, reset=True)
        return rows_with_weight(rows, weights_of_fit(sample_weight, rows.shape[0]), checked=True)

    def _checked_more(self, X: Any) -> Any:
        """Validate a batch of ``partial_fit``, and return it. ValueError if a parameter has been changed since the
        first batch.
        """
        begun = hasattr(self, self._MODEL)
        if begun:
            self._check_parameters()
        return self._checked(X, reset=not begun)

    def _model_for(self, rows: Any) -> Any:
        """Return the model that is to learn these rows: the one learned so far, or an empty one before any batch."""
        begun = hasattr(self, self._MODEL)
        return self._learner if begun else self._template(rows.shape[0], rows.shape[1], rows.dtype)

    def _atomic_batch(self) -> AbstractContextManager[None]:
        """Return a context manager, for ``partial_fit``, that restores all attributes if the first batch is refused.

        Later batches need no such context, since nothing is changed before ``_teach``, which changes everything in one
        step.
        """
        return nullcontext() if hasattr(self, self._MODEL) else restored_on_error(self)

    def _teach(self, model: Any, rows: Any, *sample_weight: Any, **attributes: Any) -> None:
        """Let a model learn checked rows, and then set it and further attributes on this estimator. If the model
        refuses the rows, nothing changes.
        """
        if model is not vars(self).get(self._MODEL):
            self._name_features(model)
            attributes |= self._begun()
        update_with(model, (rows, *sample_weight), self.__dict__, {self._MODEL: model, **attributes})

    @changes
    def merge(self, other: Self) -> Self:
        """Merge another estimator into this one, as if its rows had been learned here.

        Parameters
        ----------
        other : estimator of the same class
            It must have the same parameters, and is not changed. An unfitted estimator becomes a copy of it.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If the two cannot be merged; this estimator is then unchanged.
        NotFittedError
            If the other estimator has learned nothing.
        """
        if not isinstance(other, type(self)):
            raise TypeError(f"other must be a {type(self).__name__}, got {type(other).__name__}")
        if other is self:
            other = copy.deepcopy(self)
        other._give_to(self)
        return self

    @reads
    def _give_to(self, receiver: Any) -> None:
        """Merge this estimator into `receiver`, which changes; this one is only read, under a lock."""
        receiver._merge_from(self)

    def _merge_from(self, other: Any) -> None:
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
        work = copy.copy(self)
        model, own = self._merged(other)
        setattr(work, self._MODEL, model)
        if mine is None and theirs is not None:
            work.feature_names_in_ = theirs.copy()
        work._restore_own(own)
        self._become(work)

    @property
    def n_samples_seen_(self) -> int:
        """Return the number of rows learned."""
        return self._learner.n_rows

    # -- jobs and sources ------------------------------------------------------------------------------------------
    def _job(self, source: Source) -> tuple[Model, Callable[[Any], Any]]:
        """Return (empty model, function that makes a fitted estimator of the learned model), for a distributed fit."""
        dtype = None if source.dtype is None else np.dtype(np.float32 if source.dtype == np.float32 else np.float64)
        template = self._template(source.n_rows, source.n_features, dtype)

        def finish(model: Any) -> Any:
            out: Any = clone(self)
            out._own_model(model)
            return out

        return template, finish

    def _fit_source(self, source: Source) -> Self:
        """Fit a new model to all rows of a source, and replace what was learned before. Return self."""
        template, finish = self._job(source)
        model = template._take_rows(source)
        if model.n_features is None:
            raise ValueError(f"{source.name}: a fit needs at least one row, and there is none")
        self._become(finish(model))
        return self

    def _partial_fit_source(self, source: Source) -> Self:
        """Learn all rows of a source in addition to earlier rows, or none if an error occurs. Return self.

        A copy learns chunk by chunk, and replaces this estimator's state at the end.
        """
        begun = hasattr(self, self._MODEL)
        if begun and source.n_features != self.n_features_in_:
            raise ValueError(f"X has {source.n_features} features, but learning began with {self.n_features_in_}")
        mine = getattr(self, "feature_names_in_", None)
        names = require_same_names(source.feature_names, None if mine is None else tuple(map(str, mine)), "X")
        work: Any = copy.deepcopy(self)
        chunks = WeightedChunks(source, None)
        for rows, _ in chunks:
            with naming(source, chunks.row):
                work.partial_fit(rows)
        if names is not None:
            work.feature_names_in_ = np.array(names, dtype=object)
            work._name_features(work._learner)
        self._become(work)
        return self

    def _become(self, other: Any) -> None:
        """Replace everything that this estimator has learned by what another one has, in one assignment.

        The parameters stay.
        """
        own = {*self.get_params(deep=False), "_entered"}
        stays = {name: value for name, value in vars(self).items() if name in own}
        learned = {name: value for name, value in vars(other).items() if name not in own}
        self.__dict__ = {**stays, **learned}  # one assignment, which an interrupt cannot divide
