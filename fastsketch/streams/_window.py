"""Sliding windows over a stream: Window keeps one model per block of rows, and merges those of the latest blocks."""

# pyright: reportPrivateUsage=false
import contextlib
import inspect
import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import (
    as_array,
    as_integer,
    as_rows,
    as_weights,
    is_sparse,
    natural_dtype,
    require_array_like,
)
from fastsketch._frame.batches import Batch, as_source, names_of, require_same_names
from fastsketch._frame.loading import _find_class, from_bytes, home_of, inner_model
from fastsketch._frame.model import Arrays, MergeableModel, Model
from fastsketch._frame.parameters import equal_in_type_and_value, integer, parameter
from fastsketch._kernels.guard import changes, reads
from fastsketch.data.files import _checks as checks
from fastsketch.data.sources import Source, naming, open_rows, rename_beside_in_errors
from fastsketch.data.sources._column_names import positions
from fastsketch.data.sources._extra_column import SplitColumns

SECOND = 1_000_000
UNITS = {"ms": SECOND // 1000, "s": SECOND, "min": 60 * SECOND, "h": 3600 * SECOND, "d": 86400 * SECOND}
MISSING = np.iinfo(np.int64).min  # as numpy has NaT
LATEST = 1 << 62


def as_block_length(value: Any, name: str) -> int | str:
    """Validate a block length, a number of rows or a duration such as "15min", and return it."""
    if isinstance(value, str):
        microseconds_in(value, name)
        return value
    return as_integer(value, name, 1, LATEST)


def microseconds_in(text: str, name: str) -> int:
    """Convert a duration such as "15min" to microseconds. Raise ValueError for other texts."""
    match = re.fullmatch(r"(\d{1,9})\s*(ms|s|min|h|d)", text.strip())
    if match is None or int(match[1]) == 0:
        raise ValueError(
            f'{name} must be a number of rows, or a time such as "30s", "15min", "1h" or "1d", got {text!r}'
        )
    length = int(match[1]) * UNITS[match[2]]
    if length > LATEST:
        raise ValueError(f"{name} must be at most {LATEST // UNITS['d']:,} days, got {text!r}")
    return length


def as_moments(values: Any, n_rows: int) -> NDArray[np.int64]:
    """Return the times of rows in microseconds since 1970, int64 (n,).
    ValueError or TypeError names the first row with an invalid time.

    Times are datetime64, seconds since 1970, ISO 8601 text or datetimes. Those without a time zone are taken as UTC.
    """
    given = as_array(values, "by")
    if given.shape != (n_rows,):
        raise ValueError(f"by must have one time for each of the {n_rows} rows, got shape {given.shape}")
    if given.dtype.kind == "M":
        microseconds = given.astype("datetime64[us]")
        beyond = ~np.isnat(given) & (microseconds.astype(given.dtype) != given)  # of coarse units, which wrap
        if beyond.any() and np.datetime_data(given.dtype)[0] not in ("ns", "ps", "fs", "as"):
            raise ValueError(f"by: row {np.flatnonzero(beyond)[0]} has a time out of range")
        moments = microseconds.astype(np.int64)
    elif given.dtype.kind in "iuf":
        seconds = given.astype(np.float64)
        wrong = ~(np.abs(seconds) < LATEST / SECOND)  # NaN too
        moments = np.where(wrong, MISSING, np.rint(np.where(wrong, 0.0, seconds) * SECOND)).astype(np.int64)
    elif given.dtype.kind in "OUS":
        moments = np.fromiter((_moment_of(value, row) for row, value in enumerate(given.tolist())), np.int64, n_rows)
    else:
        raise TypeError(f"by must hold times: datetime64, seconds since 1970 or ISO 8601 text, got dtype {given.dtype}")
    if (missing := np.flatnonzero(moments == MISSING)).size:
        raise ValueError(f"by: row {missing[0]} has no time")
    return moments


def _moment_of(value: Any, row: int) -> int:
    """Convert one time to microseconds since 1970. Return MISSING for None, empty text, NaN or seconds out of range."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if value is None or value == "" or value != value:
        return MISSING
    if isinstance(value, np.datetime64):
        return int(value.astype("datetime64[us]").astype(np.int64))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return round(value * SECOND) if abs(value) < LATEST / SECOND else MISSING
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise ValueError(f"by: row {row} has the time {value!r}, which is not ISO 8601") from None
    if not isinstance(value, datetime):
        raise TypeError(f"by: row {row} has the time {value!r}: times are datetimes, seconds since 1970 or text")
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * SECOND + since.microseconds


def merge_pair(one: Any, two: Any) -> Any:
    """Return a new model that merges two models; if one of them is None, return the other itself."""
    if one is None or two is None:
        return two if one is None else one
    return one.copy().merge(two)


def merge_blocks(blocks: Mapping[int, bytes], end: int, n_blocks: int) -> list[Any]:
    """Merge the saved models of the last `n_blocks` blocks before block `end`, and return at most three models.

    Blocks are grouped into chunks of ceil(n_blocks / 2) by their numbers, so that the last n_blocks blocks lie in at
    most three chunks. The first chunk is merged from its last block to its first, the others from their first block to
    their last. Every merge is of neighbours in this order, which depends on the numbers alone.

    blocks: the state files of those of the n_blocks that have rows, by number, ascending.
    """
    length = -(-n_blocks // 2)
    first = (end - n_blocks) // length
    in_first, later = ([at for at in blocks if (at // length == first) == wanted] for wanted in (True, False))
    parts: dict[int, Any] = {}
    for number in [*reversed(in_first), *later]:
        chunk, model = number // length, from_bytes(blocks[number])
        if chunk in parts:
            model = model.merge(parts[chunk]) if chunk == first else parts[chunk].merge(model)
        parts[chunk] = model
    return list(parts.values())


MOST = 1 << 62  # a number of a block


@dataclass(frozen=True)
class Template:
    """Class and parameters from which a window creates the model of each block."""

    home: str
    kind: str
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])

    def model(self, number: int = 0) -> Any:
        """Return an empty model for block `number`. Its random numbers differ from those of other blocks."""
        cls = _find_class(self.kind, self.home)
        if cls is None:
            raise ValueError(f"model is a {self.kind!r} of {self.home!r}, which is not known here")
        model = cls(**self.parameters)
        return model._for_block(number) if number else model


def as_template(value: Any, name: str) -> Template:
    """Return the class and parameters of an empty model that the user gives, as a ``Template``.
    TypeError or ValueError if a window cannot use such models.
    """
    if isinstance(value, Template):
        return value
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        if given.keys() == {"home", "kind", "parameters"}:  # as a state file has it
            value = Template(given["home"], given["kind"], dict(given["parameters"])).model()
    if not (isinstance(value, MergeableModel) and hasattr(value, "update")):
        kind = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(cast(Any, value)).__name__}"
        raise TypeError(f"{name} must be a model that learns from rows and merges, got {kind}")
    if (why := value._in_order()) is not None:
        raise ValueError(f"{name} must take rows in blocks: {why}; the window forgets in the place of a decay")
    if value.n_features is not None:
        raise ValueError(f"{name} must have seen no rows, got one of {value.n_rows}: they would belong to no block")
    return Template(home_of(type(value)), type(value).__name__, value.parameters)


class Window(Model):
    """A model of the latest blocks of a stream, which forgets older rows as if they had never been seen.

    Each block of rows is learned by a model of its own. ``model`` merges them to an ordinary model, whose certificate
    counts only the rows of the window. Blocks are kept or forgotten as a whole: with W blocks of n rows the window has
    between (W - 1) n + 1 and W n rows, those of the block being filled included.

    Parameters
    ----------
    model : model
        An empty model that merges and learns by ``update(rows)`` or ``update(rows, targets)``: FrequentDirections,
        SketchHash, SketchQuantizer, SketchedEASE, SketchedRidge or your own. It is copied, and must not have a decay.
    blocks : int, default 24
        W, at least 2: the largest number of blocks in the window, the one being filled included.
    every : int or str, default 1000
        Rows of a block; or its length of time, such as "30s", "15min", "1h", "1d", if every row comes with a time (`by`
        of ``update``). Blocks of time begin at multiples of their length since 1970 in UTC.

    Attributes
    ----------
    n_rows, n_features : int
        Number of rows seen since the beginning, and of columns d. ``window.model.n_rows`` is the number of rows in the
        window.
    notes : dict
        Anything that json can write; saved with the state.

    Raises
    ------
    TypeError, ValueError
        For a model that does not merge, has a decay or has seen rows, or a parameter out of range.

    Notes
    -----
    Blocks are learned by the model's own ``update``, and merged whenever ``model`` is read, which takes W - 1 merges.
    The window holds the model of the block being filled, and the state files of the others. The file of a sketch has
    the rows of the sketch and those rows of its buffer that are not reduced yet: l + ``buffer_size`` rows at most.
    Results do not depend on when ``model`` was read, bit for bit.

    A model without a dtype parameter takes that of the window's first rows, as it would alone: float32 for float16 and
    float32, else float64. Later rows of any dtype are converted to it.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rng = np.random.default_rng(0)
    >>> before, after = rng.standard_normal((5000, 30)), rng.standard_normal((2000, 30)) * 3
    >>> window = fs.Window(fs.FrequentDirections(16, method="tfd"), blocks=4, every=500).update(before).update(after)
    >>> window.n_rows, window.model.n_rows
    (7000, 2000)
    >>> top = window.model.spectrum()
    >>> exact = np.linalg.eigvalsh(after.T @ after)[-1]
    >>> bool(top.low[0] <= exact <= top.high[0])
    True
    """

    model: Any = parameter(as_template, reads="_window_model", kw_only=False)
    blocks: int = integer(default=24, at_least=2, kw_only=False)
    every: int | str = parameter(as_block_length, default=1000)

    def _set_up(self, given: dict[str, Any]) -> None:
        super()._set_up(given)
        self._length = self.every if isinstance(self.every, int) else microseconds_in(self.every, "every")

    def _begin(self) -> None:
        self._template: Template = vars(self._values)["model"]
        self._n = 0
        self._number: int | None = None  # of the block being filled: its first row, or moment, divided by the length
        self._opened = 0  # number of blocks that have had rows
        self._filling: Any = self._template.model()
        # state files of closed blocks that have rows, by number, ascending: a model would hold an empty buffer, too
        self._blocks: dict[int, bytes] = {}
        self._d: int | None = None
        self._dtype: np.dtype[Any] | None = None  # which a model takes from the window's first rows
        self._form: tuple[int, ...] = ()  # shape of the targets of a row

    @property
    def n_rows(self) -> int:
        """Return the number of rows seen since the beginning, forgotten ones included."""
        return self._n

    @property
    def n_features(self) -> int | None:
        """Return the number of columns, or None before the first row."""
        return self._d

    def _given(self) -> str:
        model = self._template.model()
        given = [f"{type(model).__name__}({model._given()})"]
        others = {name: item.default for name, item in self._declared.items() if name != "model"}
        given += [f"{name}={getattr(self, name)!r}" for name, usual in others.items() if getattr(self, name) != usual]
        return ", ".join(given)

    @reads
    def _window_model(self) -> Any:
        """Return a new model of all rows in the window, merged from the models of its blocks.
        Before the first row it is empty.
        """
        parts = [] if self._number is None else merge_blocks(self._blocks, self._number, self.blocks - 1)
        first, *others = [*parts, self._filling] if self._filling.n_rows or not parts else parts
        model = first if parts else first.copy()
        for part in others:
            model.merge(part)
        model._feature_names = self._feature_names
        return model

    # -- rows --------------------------------------------------------------------------------------------------------
    @changes
    def update(
        self, rows: Batch, targets: Any = None, *, sample_weight: ArrayLike | None = None, by: Any = None
    ) -> Self:
        """Add one row or many, and forget the blocks that are then too old for the window.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), scipy.sparse (n, d), table, or source
            As the model takes them.
        targets : array_like (n,) or (n, c), str, or tuple of str, optional
            For models that learn from targets, as they take them; or names of columns of a table or source, which are
            then not part of the rows. They may be omitted if a source has them in addition to its rows (``beside`` of
            ``fs.open_rows``, labels of svmlight text).
        sample_weight : array_like (n,) or float, optional
            For models that take weights. A row of weight 0 is checked and then ignored: it does not fill a block of
            rows, and its time does not begin a block.
        by : str, int, or array_like (n,)
            With blocks of time: the column of the rows that has their times, by name or position, which is then not
            part of the rows; or the times. datetime64, datetimes, ISO 8601 text, or seconds since 1970; those without a
            time zone are taken as UTC. Times must not be earlier than the block being filled.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For rows that the model refuses, and for times that are missing or belong to a block that is closed. The
            window is then unchanged.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((6, 4))
        >>> times = np.datetime64("2024-03-01T10:50") + np.arange(6) * np.timedelta64(20, "m")
        >>> window = fs.Window(fs.FrequentDirections(3), blocks=2, every="1h").update(rows, by=times)
        >>> window.n_rows, window.model.n_rows  # since 11:00: from 11:10 to 12:30
        (6, 5)
        """
        timed, learns = isinstance(self.every, str), self._learns_targets()
        if by is not None and not timed:
            raise ValueError(f'by belongs to blocks of time, such as every="1h", got every={self.every} rows')
        if targets is not None and not learns:
            raise TypeError(
                f"targets must be left out: a {self._template.kind} learns from rows alone (weights are sample_weight=)"
            )
        if (
            sample_weight is not None
            and "sample_weight" not in inspect.signature(self._template.model().update).parameters
        ):
            raise TypeError(f"sample_weight must be left out: a {self._template.kind} learns without weights")
        named = isinstance(by, str | int) and not isinstance(by, bool)
        with rename_beside_in_errors("by"):
            source = open_rows(rows, beside=cast("str | int", by)) if named else as_source(rows)
        if timed and by is None and (source is None or source.beside is None):
            raise ValueError(f"by must give the times of the rows, as the blocks of the window are {self.every} long")
        if source is None:
            if learns and targets is None:
                raise TypeError("targets must be given with rows in memory: one for each row")
            with self._using_column_names(names_of(rows), "rows"):
                self._learn(rows, targets, sample_weight, by)
            return self
        beside = "times" if timed and (named or by is None) else "targets" if learns and targets is None else ""
        pieces = Pieces(source, beside, targets, None if named else by, sample_weight)
        if learns and targets is None and not (beside == "targets" and (source.beside or source.labelled)):
            raise TypeError(f"targets must be given: no column of them lies beside the rows of {source.name}")
        work = self._copied()
        work._feature_names = require_same_names(pieces.feature_names, self._feature_names, source.name)
        for first, piece in pieces:
            with naming(source, first):
                work._learn(*piece)
        vars(self).update({name: value for name, value in vars(work).items() if name not in ("notes", "_guard")})
        return self

    def _learns_targets(self) -> bool:
        return self._template.model()._learns_targets()

    def _learn(self, rows: Any, targets: Any, sample_weight: Any, times: Any) -> None:
        checked: Any = as_rows(rows, self._d)
        dtype = natural_dtype(checked.dtype) if self._dtype is None else self._dtype
        # Without this each block would take its dtype from its own first rows, and models of different dtypes do not
        # merge. Not needed for a model that was given a dtype, or always computes in one.
        if natural_dtype(checked.dtype) != dtype and self._template.parameters.get("dtype", dtype) is None:
            with np.errstate(over="ignore"):  # the model refuses what float32 cannot hold
                checked = checked.astype(dtype)
        k, n = checked.shape[0], self._n
        answers: tuple[Any, ...] = () if targets is None else (self._as_targets(targets, k),)
        own_weights = as_weights(sample_weight, k)
        weights: dict[str, Any] = {} if own_weights is None else {"sample_weight": own_weights}
        moments = None if times is None else as_moments(times, k)
        # rows of weight 0, which the models check and ignore, belong to the block of the last weighted row before them
        kept: NDArray[np.int64] = np.arange(k, dtype=np.int64)
        if own_weights is not None:
            kept = kept[own_weights > 0]
        k = len(kept)
        if not k:
            if checked.shape[0]:
                self._filling.copy().update(checked, *answers, **weights)
            return
        if moments is None and n // self._length == (n + k - 1) // self._length == self._number:
            self._learn_here(checked, answers, weights, k)
            return
        # block numbers of the rows; times are rounded down, also before 1970
        places: NDArray[np.int64] = np.arange(n, n + k, dtype=np.int64) if moments is None else moments[kept]
        numbers = places // self._length
        self._check_order(numbers, kept)
        if numbers[0] == numbers[-1] == self._number:
            self._learn_here(checked, answers, weights, k)
            return
        firsts: list[int] = [
            0,
            *(np.flatnonzero(np.diff(numbers)) + 1).tolist(),
        ]  # of each block, among the rows of some weight
        starts: list[int] = [0, *kept[firsts[1:]].tolist()]
        filling, number, opened, blocks = self._filling, self._number, self._opened, self._blocks
        for first, start, end in zip(firsts, starts, [*starts[1:], checked.shape[0]], strict=True):
            here = int(numbers[first])
            if here == number:
                filling = filling.copy()
            else:
                blocks = self._with_closed(blocks, filling, number, here)
                filling, number, opened = self._template.model(opened), here, opened + 1
            with _counted_from(start):
                own = {name: column[start:end] for name, column in weights.items()}
                filling.update(checked[start:end], *(column[start:end] for column in answers), **own)
        form = answers[0].shape[1:] if answers else ()
        changed = {"_filling": filling, "_number": number, "_opened": opened, "_blocks": blocks, "_form": form}
        vars(self).update(changed | {"_n": n + k, "_d": checked.shape[1], "_dtype": dtype})

    def _learn_here(self, rows: Any, answers: tuple[Any, ...], weights: dict[str, Any], k: int) -> None:
        """Learn rows that all belong to the current block in that block's model; `k` of them have a positive weight."""
        n, before = self._n, self._filling.n_rows
        try:
            self._n = n + k
            self._filling.update(rows, *answers, **weights)
        except BaseException:
            if self._filling.n_rows == before:  # it has refused them, or was interrupted
                self._n = n
            raise

    def _as_targets(self, targets: Any, k: int) -> Any:
        """Return the targets of k rows as an array.
        ValueError if their number of rows, or their shape, does not fit.
        """
        values = as_array(targets, "targets")
        values = values.reshape(1) if values.ndim == 0 and k == 1 and not is_sparse(targets) else values
        if values.ndim == 0 or len(values) != k:
            what = f"one entry, or one row, for each of the {k} rows"
            raise ValueError(f"targets must have {what}, got shape {values.shape}")
        if self._number is not None and values.shape[1:] != self._form:
            raise ValueError(f"targets must have shape (n, *{self._form}) as before, got {values.shape}")
        return values

    def _check_order(self, numbers: NDArray[np.int64], rows: NDArray[np.intp]) -> None:
        """Raise ValueError if a row belongs to an earlier block than a row before it."""
        latest = numbers[:1] if self._number is None else self._number
        back = np.flatnonzero(np.diff(numbers, prepend=latest) < 0)
        if back.size:
            begin = self._begin_of(int(numbers[back[0]]))
            raise ValueError(
                f"by: row {rows[back[0]]} is of the block that begins at {begin}, and rows of a later one have come: "
                "sort rows by time; from a clock that is set back take times in UTC"
            )

    def _with_closed(
        self, blocks: dict[int, bytes], block: Any, number: int | None, following: int
    ) -> dict[int, bytes]:
        """Return the window's closed blocks after block `number` is closed too.
        Blocks that are too old once block `following` starts are left out.
        """
        if number is None:
            return blocks
        if cast("type[MergeableModel]", type(block))._complete_part is not MergeableModel._complete_part:
            block = block.copy()
            block._complete_part()
        every = {**blocks, number: block.to_bytes()} if block.n_rows else blocks
        return {at: state for at, state in every.items() if at > following - self.blocks}

    # -- blocks by their names -----------------------------------------------------------------------------------------
    def _begin_of(self, number: int) -> Any:
        """Return by what users refer to a block: the index of its first row, or the time at which it begins."""
        begin = number * self._length
        return begin if isinstance(self.every, int) else np.datetime64(begin, "us")

    def _number_of(self, begin: Any) -> int:
        """Return the internal number of the block that contains a given row index or time. ValueError if the window has
        no such block.
        """
        whole = isinstance(self.every, int)
        number = (as_integer(begin, "begin", 0) if whole else int(as_moments([begin], 1)[0])) // self._length
        if number != self._number and number not in self._blocks:
            raise ValueError(f"the window holds no block at {begin}: see block_models for those that it holds")
        return number

    @property
    @reads
    def block_models(self) -> dict[Any, Any]:
        """Return a copy of each block's model, oldest first, keyed by the block's first row or start time.

        Blocks without rows are left out. The block being filled is the last one.
        """
        copies = {self._begin_of(number): from_bytes(state) for number, state in self._blocks.items()}
        if self._number is not None and self._filling.n_rows:
            copies[self._begin_of(self._number)] = self._filling.copy()
        for model in copies.values():
            model._feature_names = self._feature_names
        return copies

    @changes
    def forget(self, begin: Any) -> Self:
        """Forget the rows of one block, as if they had never been seen.

        Parameters
        ----------
        begin : int or time
            Any row of the block, counted from 0 over the whole stream; or any time within it.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the window has no such block.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((350, 4))
        >>> window = fs.Window(fs.FrequentDirections(3), blocks=3, every=100).update(rows)
        >>> window.model.n_rows, list(window.block_models)
        (250, [100, 200, 300])
        >>> window.forget(200).model.n_rows
        150
        """
        number = self._number_of(begin)
        if number == self._number:
            vars(self).update({"_filling": self._template.model(self._opened), "_opened": self._opened + 1})
            return self
        kept = {at: node for at, node in self._blocks.items() if at != number}
        vars(self).update({"_blocks": kept})
        return self

    # -- files -------------------------------------------------------------------------------------------------------
    def _facts(self) -> dict[str, Any]:
        model = self._window_model()
        return {"rows_in_window": model.n_rows, **{f"window_{name}": x for name, x in model._certificate().items()}}

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        models = [*self._blocks.values(), self._filling.to_bytes()]
        state = {
            "n_rows": self._n,
            "n_features": self._d,
            "dtype": None if self._dtype is None else self._dtype.name,
            "form": list(self._form),
            "number": self._number,
            "opened": self._opened,
            "blocks": list(self._blocks),
        }
        return state, {f"model{k}": np.frombuffer(content, np.uint8) for k, content in enumerate(models)}

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        *models, filling = (arrays[f"model{k}"].tobytes() for k in range(len(arrays)))
        self._filling = from_bytes(filling)
        self._blocks = dict(zip(state["blocks"], models, strict=True))
        self._n, self._d, self._number = state["n_rows"], state["n_features"], state["number"]
        self._opened, self._form = state["opened"], tuple(state["form"])
        self._dtype = None if state["dtype"] is None else np.dtype(state["dtype"])

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        n = checks.as_count(state["n_rows"], "n_rows")
        d = as_integer(state["n_features"], "n_features", 1, checks.MOST_COLUMNS) if n else None
        opened = checks.as_count(state["opened"], "opened")
        if state["dtype"] not in (("float32", "float64") if n else (None,)):
            raise ValueError(f"dtype must be that of the window's rows, got {state['dtype']!r}")
        if (state["number"] is None) != (n == 0) or (n and not opened):
            raise ValueError("number and opened must be there with rows, and with rows alone")
        form = [as_integer(size, "form", 1, checks.MOST_COLUMNS) for size in state["form"]]
        if len(form) > 1:
            raise ValueError(f"form must be that of the targets of a row, got {form}")
        number = as_integer(state["number"], "number", -MOST, MOST) if n else 0
        blocks = [as_integer(item, "blocks", number - self.blocks + 1, number) for item in state["blocks"]]
        if sorted(set(blocks)) != blocks or (blocks and not n):
            raise ValueError("blocks must be ascending numbers of blocks in the window")
        checks.only(arrays, *(names := [f"model{k}" for k in range(len(blocks) + 1)]))
        rows = 0
        for name in names:
            model = inner_model(arrays, name, cast("type[Any]", type(self._template.model())))
            rows += self._check_model(model, d, filling=name == names[-1])
        checks.number_within(rows, "rows of the window", 0, n)

    def _check_model(self, model: Any, n_features: int | None, *, filling: bool) -> int:
        """Raise ValueError unless a loaded model can be one of this window's blocks. Return its number of rows."""
        own = self._template.model()
        if type(model) is not type(own):
            raise ValueError(f"the window is of {type(own).__name__}, and holds a {type(model).__name__}")
        mine, theirs = own._must_agree(), model._must_agree()
        if any(not equal_in_type_and_value(theirs.get(name), value) for name, value in mine.items()):
            raise ValueError(f"a {type(own).__name__} in the window has other parameters than its template")
        if model.n_features not in ((None, n_features) if filling else (n_features,)):
            raise ValueError(f"a model in the window has {model.n_features} columns, the window {n_features}")
        return model.n_rows


@contextlib.contextmanager
def _counted_from(start: int) -> Generator[None]:
    """Add `start` to the row number in a ValueError that a ``with`` block raises.
    The number then refers to the whole batch.
    """
    try:
        yield
    except ValueError as error:
        before, row, after = (re.split(r"\brow (\d+)", str(error), maxsplit=1) + ["", ""])[:3]
        raise ValueError(f"{before}row {int(row) + start}{after}" if row else before) from None


class Pieces:
    """The chunks of a source of rows, each with the matching targets, weights and times, as an iterable."""

    def __init__(self, source: Source, beside: str, targets: Any, times: Any, sample_weight: Any) -> None:
        """Store a source of rows, and the targets, times and weights of all rows. `beside` says what the source's extra
        column holds: "targets", "times" or "".
        """
        self._source, self._beside, self.feature_names = source, beside, source.feature_names
        self._apart: SplitColumns | None = None
        columns: Any = (targets,) if isinstance(targets, str) else targets
        if isinstance(columns, tuple) and all(isinstance(name, str) for name in cast(Any, columns) or (None,)):
            self._apart = SplitColumns(source, cast(Any, targets), positions(source, cast(Any, columns), "targets"))
            self.feature_names = self._apart.feature_names
        require_array_like(sample_weight, "sample_weight")
        require_array_like(times, "by")
        self._given: dict[str, Any] = {
            "targets": None if self._apart is not None or targets is None else as_array(targets, "targets"),
            "sample_weight": sample_weight if np.ndim(sample_weight) == 0 else np.asarray(sample_weight),
            "by": None if times is None else np.asarray(times),
        }

    def __iter__(self) -> Iterator[tuple[int, tuple[Any, Any, Any, Any]]]:
        """Yield each chunk as (index of its first row, (rows, targets, weights, times))."""
        first, given = 0, self._given
        for rows, *values in self._source.chunks_beside() if self._beside else self._source.chunks():
            stop = first + rows.shape[0]
            targets, weights, times = (each if np.ndim(each) == 0 else each[first:stop] for each in given.values())
            if self._apart is not None:
                rows, targets = self._apart.split(rows)
            targets = values[0] if self._beside == "targets" else targets
            yield first, (rows, targets, weights, values[0] if self._beside == "times" else times)
            first = stop
        for name, column in given.items():
            if np.ndim(column) and len(column) != first:
                raise ValueError(f"{name} must have one entry for each of the {first} rows, got {len(column)}")
