"""What estimators that own a model share: files without pickle, and beginning from a model that is there."""

# scikit-learn has no types.
# pyright: basic

from os import PathLike
from typing import Any, BinaryIO, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fastsketch._kernels.guard import Guard, reads
from fastsketch._loading import INCONSISTENT, from_bytes
from fastsketch._model import Model, plain
from fastsketch.io import _state as files
from fastsketch.io._state import StateError
from fastsketch.sklearn._begun import Begun

Arrays = dict[str, NDArray[Any]]

# The array of a file that holds the bytes of the model.
MODEL = "sketch"


class Learned(Begun):
    """An estimator that has learned a model, its attribute ``_MODEL``, and perhaps arrays of its own (``_own``)."""

    # home of the kind in state files
    _HOME: ClassVar = "fastsketch.sklearn"
    # the attribute, and the kind of model in it
    _MODEL: ClassVar[str]
    _KIND: ClassVar[type[Model]]
    # {parameter of the estimator: of the model}, where the two have different names
    _OF_MODEL: ClassVar[dict[str, str]] = {"random_state": "seed"}

    n_features_in_: int
    feature_names_in_: NDArray[Any]

    # -- what a subclass defines -----------------------------------------------------------------------------------
    def _own(self) -> Arrays:
        """Arrays of what was learned beside the model."""
        return {}

    def _put_own(self, arrays: Arrays) -> None:
        """The inverse; ValueError for what cannot belong to the model. Nothing: the model came alone."""

    @classmethod
    def _parameters_for(cls, model: Any) -> dict[str, Any]:
        """The parameters that a model has; ValueError for a model that the estimator cannot read."""
        found = model.parameters
        names = {name: cls._OF_MODEL.get(name, name) for name in cls._get_param_names()}
        return {name: found[theirs] for name, theirs in names.items() if theirs in found}

    @classmethod
    def _revived(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        """Parameters as json has written them, as they were."""
        return parameters

    # -- shared ----------------------------------------------------------------------------------------------------
    @property
    def _guard(self) -> Guard:
        return self.__dict__.setdefault("_entered", Guard())

    @property
    def _learner(self) -> Any:
        check_is_fitted(self, self._MODEL)
        return getattr(self, self._MODEL)

    def __getstate__(self) -> Any:
        kept: Any = super().__getstate__()
        return {name: value for name, value in kept.items() if name != "_entered"}

    @classmethod
    def _from(cls, model: Any, parameters: dict[str, Any]) -> Self:
        """An estimator of a copy of a model."""
        if not isinstance(model, cls._KIND):
            raise TypeError(f"model must be a fastsketch.{cls._KIND.__name__}, got {type(model).__name__}")
        if model.n_features is None:
            raise ValueError(
                "model must have learned from rows of one width: call its update first"
                if model.n_rows
                else "model must have seen rows: call its update first"
            )
        found = cls._parameters_for(model)
        for name, value in parameters.items():
            if name in found and found[name] != value:
                kind = "sketch" if cls._MODEL == "sketch_" else "model"
                raise ValueError(f"{name}={value!r} does not fit the {kind}, which has {name}={found[name]!r}")
        out = cls(**{**found, **parameters})
        out._own_model(model.copy())
        return out

    def _own_model(self, model: Any, arrays: Arrays | None = None) -> None:
        """Take a model that has learned, as if this estimator had begun it, with arrays of its own."""
        setattr(self, self._MODEL, model)
        self.n_features_in_ = model.n_features
        if model.feature_names is not None:
            self.feature_names_in_ = np.array(model.feature_names, dtype=object)
        self._put_own(arrays or {})
        self._fix_parameters()

    def _name_features(self, model: Model) -> None:
        """Give a model that has begun with rows of this estimator the names of their columns."""
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            model._feature_names = tuple(map(str, names))

    @reads
    def save(self, path: str | PathLike[str]) -> None:
        """Write parameters and all that was learned to a file that ``load`` reads: whole or not at all, no pickle.

        Parameters
        ----------
        path : str or path
        """
        model = self._learner
        names = getattr(self, "feature_names_in_", None)
        parameters, fixed = self.get_params(deep=False), dict(getattr(self, "_fixed", {}))
        for values in (parameters, fixed):
            if isinstance(values.get("random_state"), np.random.RandomState):
                values["random_state"] = model.seed  # that it gave
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
            out = cls(**cls._revived(about["parameters"]))
            model = from_bytes(arrays.pop(MODEL).tobytes())
            if not isinstance(model, cls._KIND) or model.n_features is None:
                raise ValueError(f"it has no {cls._KIND.__name__} that has seen rows")
            setattr(out, cls._MODEL, model)
            out.n_features_in_ = model.n_features
            out._put_own(arrays)
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


class FromModel(Learned):
    """An estimator whose model does not merge: it is there as a whole."""

    @classmethod
    def from_model(cls, model: Any, **parameters: Any) -> Self:
        """An estimator that has learned what a model has: one of a file, of the command line, of another process.

        Parameters
        ----------
        model : the kind of model that this estimator learns
            That has learned; a copy is kept.
        **parameters
            Of the estimator, beside those that the model has.

        Returns
        -------
        estimator

        Raises
        ------
        TypeError, ValueError
            If it is no such model, has learned nothing, or has other parameters.
        """
        return cls._from(model, parameters)
