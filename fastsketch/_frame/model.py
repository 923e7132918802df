"""Base classes Model and MergeableModel: parameters, learning, copies, files, merging and thread safety.

A model declares its parameters (``_parameters``) and defines the following hooks:

    class Total(MergeableModel):
        '''Weighted sum of the rows.'''

        scale: float = real(default=1.0)

        @changes                                # one thread at a time
        def update(self, rows, sample_weight=None):
            return self._take_rows(rows, sample_weight)

        def _update(self, rows, sample_weight): # array-like or CSR: learn from all rows or none
            ...

        def _begin(self):                       # the state before the first row
            self._total, self._n = None, 0

        def _state(self):                       # what json can write, and arrays by name
            return {"n": self._n}, {} if self._total is None else {"total": self._total}

        def _restore(self, state, arrays):      # the inverse, on a model that has just begun
            self._total, self._n = arrays.get("total"), state["n"]

        def _validate(self, state, arrays):     # ValueError for invalid states: a file may come from anyone
            as_integer(state["n"], "n", 0)

        n_rows and n_features as properties; _merge(other) if it merges.

From these it gets a keyword constructor with checks, readable parameters, ``copy``, ``deepcopy``, ``pickle``, ``save``,
``to_bytes``, ``load``, ``facts``, ``repr`` and ``merge``; ``fastsketch info`` shows it. ``_take_rows`` gives it
``feature_names``, and sources of rows (batches.py), which are learned as a whole or not at all. Methods that change the
model are decorated with ``changes``, methods that read what those change in place with ``reads`` (_kernels/guard.pyx).
"""

# pyright: reportPrivateUsage=false
# (the functions of this module are part of the frame)
import contextlib
import copy
from collections.abc import Generator, Sequence
from inspect import signature
from os import PathLike
from types import SimpleNamespace
from typing import Any, BinaryIO, ClassVar, Self, cast, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import is_sparse
from fastsketch._frame.batches import (
    FeatureNames,
    WeightedChunks,
    as_names,
    as_source,
    column_order,
    names_in,
    names_of,
    require_same_names,
)
from fastsketch._frame.loading import home_of, kinds, load, name_of, received
from fastsketch._frame.parameters import (
    Parameter,
    choice,
    declare_parameters,
    equal_in_type_and_value,
    flag,
    float_dtype,
    integer,
    parameter,
    plain,
    real,
    seed,
)
from fastsketch._kernels.guard import Guard, changes, reads
from fastsketch.data.files import _state as files
from fastsketch.data.files._state import StateError
from fastsketch.data.sources import Source, naming

Arrays = dict[str, NDArray[Any]]


@dataclass_transform(kw_only_default=True, field_specifiers=(choice, flag, float_dtype, integer, parameter, real, seed))
class Model:
    """Abstract base of all models, which learn from rows and can be saved in files."""

    notes: dict[str, Any]
    _declared: ClassVar[dict[str, Parameter]] = {}
    _values: SimpleNamespace

    def __init_subclass__(cls, *, abstract: bool = False, **kwargs: Any) -> None:
        """Create the constructor of a subclass, and register the class for reading files unless it is abstract."""
        super().__init_subclass__(**kwargs)
        declare_parameters(cls, abstract=abstract)
        if not abstract:
            kinds[home_of(cls), cls.__name__] = cls

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError(f"{type(self).__name__} is no model of its own")  # pragma: no cover  subclasses replace it

    def _set_up(self, given: dict[str, Any]) -> None:
        """Validate and store the constructor's arguments, and set the state of a model without rows. The generated
        constructors call this.
        """
        values: dict[str, Any] = {}
        for name, declared in self._declared.items():
            value = given.get(name, declared.default)
            values[name] = value if value is declared.default else declared.check(value, name)
        self._values = SimpleNamespace(**values)
        self._check()
        self.notes = {}
        self._guard = Guard()
        self._feature_names: FeatureNames | None = None
        self._begin()

    # -- what a subclass defines -----------------------------------------------------------------------------------
    def _check(self) -> None:
        """Validate the parameters together. ValueError if they contradict each other (default: no check).

        Each has already passed its own check.
        """

    def _resolved(self) -> dict[str, Any]:
        """Return {name: value} of the values in use for parameters that were given as None or "auto" (default:
        none).
        """
        return {}

    def _begin(self) -> None:
        """Set the attributes of a model that has not learned any rows. Subclasses define them here instead of in a
        constructor.
        """
        raise NotImplementedError

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        """Return everything that the model has learned, for a file, as (JSON values, arrays by name).

        Parameters and notes are not included. The arrays may be views.
        """
        raise NotImplementedError

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        """Set what the model has learned from the result of ``_state``. The model has no rows yet.

        It may keep the arrays.
        """
        raise NotImplementedError

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        """Validate a state that was read from a file, before ``_restore``. ValueError if no model with these parameters
        can have it.

        Called on a model that has just begun. Must not allocate more memory than the arrays take.
        """

    def _keep_in_memory(self, other: Any) -> None:
        """Copy to another model those attributes that state files do not store; by default there are none.

        ``copy`` calls this.
        """

    def _facts(self) -> dict[str, Any]:
        """Return further entries for the summary that ``facts`` returns, as a dict (default: none)."""
        return {}

    def _learns_targets(self) -> bool:
        """Return True if ``update`` has a parameter `targets`."""
        return "targets" in signature(cast(Any, self).update).parameters

    def _in_order(self) -> str | None:
        """Return the reason, for a message, why rows must be learned in their order. Return None if their order does
        not matter.
        """
        return f"a {type(self).__name__} does not merge"

    def _certificate(self) -> dict[str, float]:
        """Return the error bounds that are known without computation, as a dict (default: none). ``facts`` includes
        them.

        Reports sum them over the parts of a job.
        """
        return {}

    @property
    def n_rows(self) -> int:
        """Return the number of rows learned so far."""
        raise NotImplementedError

    @property
    def n_features(self) -> int | None:
        """Return the number of columns; None before the first row."""
        raise NotImplementedError

    # -- parameters ------------------------------------------------------------------------------------------------
    @property
    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments as a dict, from which a new model like this one can be created.

        ``type(model)(**model.parameters)`` creates it.

        Examples
        --------
        >>> import fastsketch as fs
        >>> fs.SketchHash(16).parameters["sketch_size"], fs.SketchHash(16).parameters["n_bits"]
        (None, 16)
        """
        return {name: value for name, value in vars(self._values).items() if not self._declared[name].fixed}

    @property
    def resolved(self) -> dict[str, Any]:
        """Return all parameters, with the values in use for those given as None or "auto" as soon as they are known.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> s = fs.FrequentDirections(8).update(np.eye(10, dtype=np.float32))
        >>> s.parameters["solver"], s.resolved["solver"], s.resolved["dtype"]
        ('auto', 'exact', dtype('float32'))
        """
        return {**vars(self._values), **self._resolved()}

    def _changed_arguments(self) -> str:
        """Return the constructor's arguments that differ from their defaults, as source text for ``repr``."""
        return ", ".join(
            f"{name}={plain(value)!r}"
            for name, value in self.parameters.items()
            if not equal_in_type_and_value(value, self._declared[name].default)
        )

    # -- rows, and the names of their columns ----------------------------------------------------------------------
    @property
    @reads
    def feature_names(self) -> FeatureNames | None:
        """Return the column names of the first rows that had names; None before.

        For models of items with ids, and rows without names, these are the ids as text.
        """
        return self._column_names()

    def _column_names(self) -> FeatureNames | None:
        """Return ``feature_names`` without acquiring the model's lock, for methods that hold it already."""
        return self._feature_names

    def _update(self, rows: Any, sample_weight: Any) -> Any:
        """Learn a batch of rows in memory, all of them or none, and return self; subclasses define this.

        For models whose ``update`` calls ``_take_rows``.
        """
        raise NotImplementedError

    def _take_rows(self, rows: Any, sample_weight: Any = None) -> Self:
        """Learn rows of any kind (array, table, file): check their column names, read sources in chunks, and call
        ``_update``. Return self.

        If there are several chunks, they are learned by a copy of the model, whose state replaces this one's at the
        end.
        """
        if type(rows) is np.ndarray:
            self._update(rows, sample_weight)
            return self
        source = as_source(rows)
        if source is None:
            names = names_of(rows)  # without any those before stay
            with contextlib.nullcontext() if names is None else self._using_column_names(names, "rows"):
                self._update(rows, sample_weight)
            return self
        names = require_same_names(source.feature_names, self._feature_names, source.name)
        if self.n_features is not None and source.n_features != self.n_features:
            raise ValueError(
                f"{source.name} must have {self.n_features} columns as the rows before, got {source.n_features}"
            )
        working_copy: Self | None = None
        chunks = WeightedChunks(source, sample_weight)
        for rows_chunk, weights in chunks:
            is_only_chunk = working_copy is None and rows_chunk.shape[0] == source.n_rows
            if working_copy is None and not is_only_chunk:
                working_copy = self._copied()
            with naming(source, chunks.row):
                if working_copy is not None:
                    working_copy._update(rows_chunk, weights)
                    continue
                with self._using_column_names(names, source.name):
                    self._update(rows_chunk, weights)
        if working_copy is not None:
            working_copy._feature_names = names
            # in one step: an interrupt finds the state before or the state after
            vars(self).update(
                {name: value for name, value in vars(working_copy).items() if name not in ("notes", "_guard")}
            )
        return self

    def _require_columns(self, rows: Any) -> None:
        """Check the column names of rows for prediction. ValueError if they differ from the learned ones in name or
        order.
        """
        if type(rows) not in (np.ndarray, list, dict):
            self._require_same_names(names_in(rows), "rows")

    def _require_same_names(self, names: FeatureNames | None, whose: str) -> FeatureNames | None:
        """Check that rows have the column names of earlier rows, and return the names. ValueError if they differ."""
        return require_same_names(names, self._feature_names, whose)

    def _column_order(self, rows: Any, name: str = "rows") -> list[int] | None:
        """Return for each learned column its position in `rows`, matched by name. Return None if the order is the same.

        For models whose columns are items with names.
        """
        in_memory = isinstance(rows, np.ndarray | list | tuple) or is_sparse(rows)
        return None if in_memory else column_order(rows, self._column_names(), name)

    def _name_columns(self, source: Source) -> None:
        """Store the column names of a source whose rows are learned next.

        For a model that no other thread knows yet.
        """
        self._feature_names = require_same_names(source.feature_names, self._feature_names, source.name)

    @contextlib.contextmanager
    def _using_column_names(self, names: FeatureNames | None, owner: str) -> Generator[None]:
        """Set the column names while a batch is learned in a ``with`` block. They are reset if the batch is refused.

        ValueError if earlier rows had other names.
        """
        n_rows_before, names_before = self.n_rows, self._feature_names
        self._feature_names = self._require_same_names(names, owner)
        try:
            yield
        except BaseException:
            if self.n_rows == n_rows_before:
                self._feature_names = names_before
            raise

    # -- facts -------------------------------------------------------------------------------------------------
    @reads
    def facts(self) -> dict[str, Any]:
        """Return a summary of the model as JSON values: kind, counts, parameters in use, and more.

        Returns
        -------
        dict
            "kind", "n_rows", "n_features", every parameter in use that is not None, and what the kind adds.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> facts = fs.FrequentDirections(8).update(np.eye(10)).facts()
        >>> facts["kind"], facts["n_rows"], facts["n_features"], facts["solver"]
        ('FrequentDirections', 10, 10, 'exact')
        """
        parameters = plain({name: value for name, value in self.resolved.items() if value is not None})
        counts = {"kind": type(self).__name__, "n_rows": self.n_rows, "n_features": self.n_features}
        names = {} if self._feature_names is None else {"feature_names": list(self._feature_names)}
        return {**counts, **names, **parameters, **plain(self._facts())}

    def __repr__(self) -> str:
        return f"<{type(self).__name__}({self._changed_arguments()}): {self._seen()}>"

    def _seen(self) -> str:
        return "no rows yet" if self.n_features is None else f"{self.n_rows} rows of {self.n_features} features"

    # -- keeping it ------------------------------------------------------------------------------------------------
    @reads
    def copy(self) -> Self:
        """Return an independent copy of the model in the same state.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> first = fs.FrequentDirections(8).update(np.eye(10))
        >>> second = first.copy().update(np.eye(10))
        >>> first.n_rows, second.n_rows
        (10, 20)
        """
        return self._copied()

    def _copied(self) -> Self:
        """Return an independent copy without acquiring the model's lock, for methods that hold it already."""
        state, arrays = self._state()
        duplicate = type(self)._built(
            self.parameters,
            copy.deepcopy(self.notes),
            copy.deepcopy(state),
            {name: array.copy() for name, array in arrays.items()},
            feature_names=self._feature_names,
        )
        self._keep_in_memory(duplicate)
        return duplicate

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    @reads
    def to_bytes(self) -> bytes:
        """Return the model as bytes, from which ``fs.from_bytes`` restores it bitwise identically.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> content = fs.FrequentDirections(8).update(np.eye(10)).to_bytes()
        >>> fs.from_bytes(content).n_rows
        10
        """
        state, arrays = self._state()
        return files.pack(about_of(self, state), arrays)

    def save(self, path: str | PathLike[str]) -> None:
        """Save the model to a file that ``fs.load`` reads; an existing file is replaced atomically.

        Parameters
        ----------
        path : str or path

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np, fastsketch as fs
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fs.FrequentDirections(8).update(np.eye(10)).save(Path(folder, "rows.fsk"))
        ...     print(fs.load(Path(folder, "rows.fsk")).n_rows)
        10
        """
        files.write(path, self.to_bytes())

    @classmethod
    def load(cls, source: str | PathLike[str] | BinaryIO) -> Self:
        """Read a model of this class from a file.

        Parameters
        ----------
        source : str, path or binary file

        Returns
        -------
        model

        Raises
        ------
        StateError
            As for ``fs.load``, and if the file holds a model of another class.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np, fastsketch as fs
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fs.FrequentDirections(8).update(np.eye(10)).save(Path(folder, "rows.fsk"))
        ...     print(fs.FrequentDirections.load(Path(folder, "rows.fsk")).n_rows)
        10
        """
        model = load(source)
        if not isinstance(model, cls):
            raise StateError(f"{name_of(source)} holds a {type(model).__name__}, not a {cls.__name__}")
        return model

    @reads
    def __reduce__(self) -> tuple[Any, ...]:
        state, arrays = self._state()
        # copies: pickle reads them after this call, when another thread may change the model
        copies = {name: array.copy() for name, array in arrays.items()}
        notes_and_state = copy.deepcopy(self.notes), copy.deepcopy(state)
        return received, (type(self), self.parameters, *notes_and_state, copies, self._feature_names)

    @classmethod
    def _built(
        cls,
        parameters: dict[str, Any],
        notes: dict[str, Any],
        state: dict[str, Any],
        arrays: Arrays,
        *,
        feature_names: Any = None,
        trusted: bool = True,
    ) -> Self:
        model = cls(**parameters)
        model.notes = notes
        if not trusted:
            model._validate(state, arrays)
        model._restore(state, arrays)
        model._feature_names = feature_names if trusted else as_names(feature_names, model.n_features)
        return model


class MergeableModel(Model, abstract=True):
    """Abstract base of models that can be merged after they have learned different rows."""

    # Parameters in which two models may differ and still merge.
    _MAY_DIFFER: ClassVar[frozenset[str]] = frozenset({"dtype"})

    # Any instead of Self in these two, as type checkers refuse overrides of methods with an argument of type Self
    def _merge(self, other: Any) -> None:
        """Add what another model has learned to this one, completely or not at all. The other model does not change.
        Subclasses define this.

        Both have seen rows of the same width and dtype.
        """
        raise NotImplementedError

    def _joins_columns(self, other: Any) -> bool:
        """Return True if a model with other columns may be merged into this one, which then matches columns by name."""
        return False

    def _must_agree(self) -> dict[str, Any]:
        """Return {name: value} of the parameters that must be equal in two models that are merged."""
        return {name: value for name, value in vars(self._values).items() if name not in self._MAY_DIFFER}

    @changes
    def merge(self, other: Self) -> Self:
        """Add the rows that another model has seen, as if this model had learned from them.

        Parameters
        ----------
        other : model
            Of the same kind, parameters, width and dtype; it is not changed.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If the two do not match; this model is then unchanged.
        RuntimeError
            If another thread is using either of them.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((500, 40))
        >>> here, there = fs.FrequentDirections(8).update(rows[:200]), fs.FrequentDirections(8).update(rows[200:])
        >>> here.merge(there)
        <FrequentDirections(sketch_size=8): 500 rows of 40 features>
        """
        family = next(base for base in type(self).__mro__ if "_merge" in vars(base))
        if not isinstance(other, family):
            raise TypeError(f"other must be a {family.__name__}, got {type(other).__name__}")
        if other is self:  # which no other call can be at work in
            self._take(self)
        else:
            other._give_to(self)
        return self

    @reads
    def _give_to(self, other: Any) -> None:
        other._take(self)

    def _take(self, other: Any) -> None:
        """Merge another model into this one, in place, after checking that the two match. ValueError if they do not."""
        mine, theirs = self._must_agree(), other._must_agree()
        for name in {**mine, **theirs}:
            if not equal_in_type_and_value(theirs.get(name), mine.get(name)):
                raise ValueError(
                    f"other has {name}={plain(theirs.get(name))!r}, this model has {plain(mine.get(name))!r}: "
                    "they cannot be merged"
                )
        if other.n_features is None:
            return
        dtype = self.resolved.get("dtype")
        if dtype is not None and other.resolved.get("dtype") != dtype:
            raise ValueError(f"other has dtype {plain(other.resolved['dtype'])}, this model has {plain(dtype)}")
        joins = self._joins_columns(other)
        if self.n_features not in (None, other.n_features) and not joins:
            raise ValueError(f"other has n_features={other.n_features}, this model has {self.n_features}")
        with self._using_column_names(None if joins else other._feature_names, "the columns of other"):
            if self.n_features is None:
                self._adopt(other)
            else:
                self._merge(other)

    # -- parts of a job, learned separately and merged ---------------------------------------------------------------
    def _first_blocks(self, lengths: Sequence[int], n_features: int) -> list[int] | None:
        """Return the numbers of the first blocks of consecutive pieces of a stream, or None (default).

        With these numbers, models of the pieces merge to a model that is bitwise identical to that of one pass. None
        means that this kind of model has no such blocks. `lengths` are the numbers of rows of the pieces.
        """
        return None

    def _in_order(self) -> str | None:
        return None

    def _part_rows(self, n_features: int) -> int:
        """Return the number of rows by which the length of every part of a job must be divisible (default: 1)."""
        return 1

    def _state_bytes(self, n_features: int) -> int:
        """Return an estimate of a model's memory in bytes after one part of a job, by which the job limits its workers.
        0 means that it is small.
        """
        return 0

    def _check_passes(self, passes: int) -> None:
        """Raise ValueError if models of this kind cannot use `passes` passes over the rows, which is the default for
        more than one.
        """
        raise ValueError(f"passes must be 1 for a {type(self).__name__}: it has no use for a second pass")

    def _passes_again(self, passes: int) -> Generator[Any, Any, Any]:
        """Improve the model in at most `passes` further passes over the rows, as a generator that returns the result.

        It yields a model for every pass. The caller lets that model learn all rows, and sends it back.
        """
        raise NotImplementedError

    def _for_part(self, part: int, first_block: int = 0) -> Self:
        """Return an empty model with the same parameters, which learns one part of a distributed job.

        It learns the part's blocks from `first_block` on.
        """
        return type(self)(**self.parameters)

    def _for_block(self, number: int) -> Self:
        """Return an empty model with the same parameters, which learns one block of a sliding window."""
        return self._for_part(number)

    def _complete_part(self) -> None:
        """Release memory that is only needed for learning more rows (default: nothing). A job calls this before it
        merges.
        """

    def _adopt(self, other: Any) -> None:
        """Copy the state of another model with the same parameters into this model, which has no rows yet."""
        state, arrays = other._state()
        self._restore(state, {name: array.copy() for name, array in arrays.items()})


def about_of(model: Model, state: dict[str, Any]) -> dict[str, Any]:
    """Return the header of a model's state file as a dict: class, parameters, notes, state and column names."""
    header = {
        "kind": type(model).__name__,
        "home": home_of(type(model)),
        "parameters": plain(model.parameters),
        "notes": model.notes,
        "state": state,
    }
    names = model._feature_names  # a vocabulary is in the state
    return header if names is None else {**header, "feature_names": list(names)}
