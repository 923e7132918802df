"""A model of the latest blocks of a stream, whatever the model is, as long as it merges."""

# pyright: reportPrivateUsage=false
# (a window is made of models by the frame's hooks)

import contextlib
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import as_integer, as_rows, as_weights
from fastsketch._frame.batches import Batch, agreed, as_source
from fastsketch._frame.loading import _class_of, from_bytes, home_of
from fastsketch._frame.model import Arrays, MergeableModel, Model
from fastsketch._frame.parameters import flag, integer, parameter, same
from fastsketch._kernels.guard import changes, reads
from fastsketch.data.files import _checks as checks
from fastsketch.data.sources import Source, naming, open_rows
from fastsketch.streams._moments import as_block_length, as_moments, microseconds_in
from fastsketch.streams._sliding_merge import Node, SlidingMerge, joined

MOST = 1 << 62  # a number of a block


@dataclass(frozen=True)
class Template:
    """What the models of a window's blocks are made from."""

    home: str
    kind: str
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])

    def model(self, number: int = 0) -> Any:
        """Return an empty model for a block; no two blocks of a stream draw the same random numbers."""
        cls = _class_of(self.kind, self.home)
        if cls is None:
            raise ValueError(f"model is a {self.kind!r} of {self.home!r}, which is not known here")
        model = cls(**self.parameters)
        return model._for_part(number) if number else model


def as_template(value: Any, name: str) -> Template:
    """Return the template of an empty model that merges."""
    if isinstance(value, Template):
        return value
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        if given.keys() == {"home", "kind", "parameters"}:  # as a state file has it
            value = Template(given["home"], given["kind"], dict(given["parameters"])).model()
    if not (isinstance(value, MergeableModel) and hasattr(value, "update")):
        kind = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(cast(Any, value)).__name__}"
        raise TypeError(f"{name} must be a model that learns from rows and merges, got {kind}")
    if "targets" in signature(cast(Any, value).update).parameters:
        raise TypeError(
            f"{name} must learn from rows alone, got a {type(value).__name__}, which has targets: learn a model for "
            "each block, and fs.merge those of the latest"
        )
    if (why := value._in_order()) is not None:
        raise ValueError(f"{name} must take rows in blocks: {why}; the window forgets in the place of a decay")
    if value.n_features is not None:
        raise ValueError(f"{name} must have seen no rows, got one of {value.n_rows}: they would belong to no block")
    return Template(home_of(type(value)), type(value).__name__, value.parameters)


class Window(Model):
    """Model of the latest blocks of a stream: older rows are forgotten as if they had never come.

    Each block of rows is learned by a model of its own, and ``model`` is their merge: an ordinary model, whose
    certificate counts its own rows alone. A block of rows is whole or forgotten: with W blocks of n rows the window
    has between (W - 1) n + 1 and W n rows, those of the block being filled included.

    Parameters
    ----------
    model : model
        Empty; any that merges and learns by ``update(rows)``: FrequentDirections, SketchHash, SketchQuantizer,
        SketchedEASE or your own. It is copied, and has no decay.
    blocks : int, default 24
        W, at least 2: the most blocks in the window, with the one being filled.
    every : int or str, default 1000
        Rows of a block; or its length of time such as "30s", "15min", "1h", "1d", when every row comes with a time
        (`by` of ``update``). Blocks of time begin at multiples of their length since 1970 in UTC.
    keep_blocks : bool, default False
        Keep the model of every block too, for ``block_models``, ``forget`` and the significance of ``fs.compare``.

    Attributes
    ----------
    n_rows, n_features : int
        Rows seen since the beginning, and columns d. ``window.model.n_rows`` are those of the window.
    notes : dict
        Anything that json can write; saved with the state.

    Raises
    ------
    TypeError, ValueError
        For a model that does not merge, has a decay or has seen rows, or a parameter out of range.

    Notes
    -----
    A block costs at most two merges when it is full, and never more at once; ``model`` three. It holds at most W + 2
    models (with ``keep_blocks`` 2 W + 1). Blocks should have several times the rows that a sketch keeps: else merges
    are most of the work. Rows that come one by one are learned by the model's own ``update``.

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
    keep_blocks: bool = flag(default=False)

    def _set_up(self, given: dict[str, Any]) -> None:
        super()._set_up(given)
        self._length = self.every if isinstance(self.every, int) else microseconds_in(self.every, "every")

    def _begin(self) -> None:
        self._template: Template = vars(self._values)["model"]
        self._n = 0
        self._number: int | None = None  # of the block being filled: its first row, or moment, divided by the length
        self._opened = 0  # blocks that rows came for
        self._filling: Any = self._template.model()
        self._closed = SlidingMerge(self.blocks - 1)
        self._kept: tuple[tuple[int, Node], ...] = ()  # with keep_blocks: closed blocks by number
        self._d: int | None = None
        self._dtype: np.dtype[Any] | None = None  # of the first rows, and so of all blocks

    @property
    def n_rows(self) -> int:
        """Return the number of rows seen since the beginning, forgotten ones included."""
        return self._n

    @property
    def n_features(self) -> int | None:
        """Return the number of columns; None before the first row."""
        return self._d

    def _given(self) -> str:
        model = self._template.model()
        given = [f"{type(model).__name__}({model._given()})"]
        others = {name: item.default for name, item in self._declared.items() if name != "model"}
        given += [f"{name}={getattr(self, name)!r}" for name, usual in others.items() if getattr(self, name) != usual]
        return ", ".join(given)

    @reads
    def _window_model(self) -> Any:
        """Return the model of the window's rows, a new one that may be changed; an empty one before the first row."""
        filling = self._filling if self._filling.n_rows else None
        model = joined(self._closed.merged(), filling)
        model = self._filling if model is None else model
        # what nothing was merged into is still the window's own
        model = model.copy() if any(model is node for node in (self._filling, *self._closed.nodes)) else model
        model._feature_names = self._feature_names
        return model

    # -- rows --------------------------------------------------------------------------------------------------------
    @changes
    def update(self, rows: Batch, sample_weight: ArrayLike | None = None, *, by: Any = None) -> Self:
        """Add one row or many; what is older than the window's blocks is forgotten.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), scipy.sparse (n, d), table, or source
            As the model takes them.
        sample_weight : array_like (n,) or float, optional
            For models that take weights.
        by : str, int, or array_like (n,)
            With blocks of time: the column of the rows that has their times, by name or position, which the rows are
            then without; or the times. datetime64, datetimes, ISO 8601 text, or seconds since 1970; those without a
            time zone are taken for UTC. Not before the block being filled.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For rows that the model refuses, for times that are missing or go back to a block that is closed. The
            window is then as it was before the call.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((6, 4))
        >>> times = np.datetime64("2024-03-01T10:50") + np.arange(6) * np.timedelta64(20, "m")
        >>> window = fs.Window(fs.FrequentDirections(3), blocks=2, every="1h").update(rows, by=times)
        >>> window.n_rows, window.model.n_rows  # since 11:00: from 11:10 to 12:30
        (6, 5)
        """
        if isinstance(self.every, int):
            if by is not None:
                raise ValueError(f'by belongs to blocks of time, such as every="1h", got every={self.every} rows')
            return self._take_rows(rows, sample_weight)
        named = isinstance(by, str | int) and not isinstance(by, bool)
        source = open_rows(rows, beside=cast("str | int", by)) if named else as_source(rows)
        if by is None and (source is None or source.beside is None):
            raise ValueError(f"by must give the times of the rows, as the blocks of the window are {self.every} long")
        if source is None:
            self._learn(rows, sample_weight, by)
            return self
        names = agreed(source.feature_names, self._feature_names, source.name)
        work, first = self._copied(), 0
        for part, times, weights in _timed(source, None if named else by, sample_weight):
            with naming(source, first):
                work._learn(part, weights, times)
            first += part.shape[0]
        work._feature_names = names
        vars(self).update({name: value for name, value in vars(work).items() if name not in ("notes", "_guard")})
        return self

    def _update(self, rows: Any, sample_weight: Any) -> None:
        self._learn(rows, sample_weight, None)

    def _learn(self, rows: Any, sample_weight: Any, times: Any) -> None:
        checked: Any = as_rows(rows, self._d)
        if self._dtype is not None and checked.dtype != self._dtype:
            checked = checked.astype(self._dtype)
        k, n = checked.shape[0], self._n
        weights: tuple[Any, ...] = () if sample_weight is None else (as_weights(sample_weight, k),)
        if times is None and n // self._length == (n + k - 1) // self._length == self._number:
            self._learn_here(checked, weights)
            return
        # numbers of the rows' blocks: of moments rounded down, before 1970 too
        places: NDArray[np.int64] = np.arange(n, n + k, dtype=np.int64) if times is None else as_moments(times, k)
        numbers = places // self._length
        self._check_order(numbers)
        if not k:
            return
        if numbers[0] == numbers[-1] == self._number:
            self._learn_here(checked, weights)
            return
        ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), k]
        filling, number, opened, past = self._filling, self._number, self._opened, (self._closed, self._kept)
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            here = int(numbers[start])
            if here == number:
                filling = filling.copy()
            else:
                past = past if number is None else self._with_closed(*past, filling, number, here)
                filling, number, opened = self._template.model(opened), here, opened + 1
            with _counted_from(start):
                filling.update(checked[start:end], *(column[start:end] for column in weights))
        closed, kept = past
        changed = {"_filling": filling, "_number": number, "_opened": opened, "_closed": closed, "_kept": kept}
        vars(self).update(changed | {"_n": n + k, "_d": checked.shape[1], "_dtype": checked.dtype})

    def _learn_here(self, rows: Any, weights: tuple[Any, ...]) -> None:
        """Learn from rows of the block being filled alone."""
        n, before = self._n, self._filling.n_rows
        try:
            self._n = n + rows.shape[0]
            self._filling.update(rows, *weights)
        except BaseException:
            if self._filling.n_rows == before:  # it has refused them, or was interrupted
                self._n = n
            raise

    def _check_order(self, numbers: NDArray[np.int64]) -> None:
        """Raise ValueError if a row is of a block before that of the rows before it."""
        latest = numbers[:1] if self._number is None else self._number
        back = np.flatnonzero(np.diff(numbers, prepend=latest) < 0)
        if back.size:
            begin = self._begin_of(int(numbers[back[0]]))
            raise ValueError(
                f"by: row {back[0]} is of the block that begins at {begin}, and rows of a later one have come: sort "
                "rows by time; from a clock that is set back take times in UTC"
            )

    def _with_closed(
        self, closed: SlidingMerge, kept: tuple[tuple[int, Node], ...], block: Node, number: int, following: int
    ) -> tuple[SlidingMerge, tuple[tuple[int, Node], ...]]:
        """Return the closed blocks, with one more and those without rows up to the block that follows."""
        if cast("type[MergeableModel]", type(block))._complete_part is not MergeableModel._complete_part:
            block = block.copy()
            block._complete_part()
        node = block if block.n_rows else None
        if following - number >= self.blocks:  # all of them are older than the window
            closed = SlidingMerge(self.blocks - 1)
        else:
            closed = closed.pushed(node, *[None] * (following - number - 1))
        if self.keep_blocks:
            oldest = following - self.blocks
            kept = tuple(item for item in (*kept, (number, node)) if item[0] > oldest and item[1] is not None)
        return closed, kept

    # -- blocks kept -------------------------------------------------------------------------------------------------
    def _begin_of(self, number: int) -> Any:
        """Return what a block is called: its first row, or the moment that it begins at."""
        begin = number * self._length
        return begin if isinstance(self.every, int) else np.datetime64(begin, "us")

    def _require_blocks(self) -> None:
        if not self.keep_blocks:
            raise ValueError(
                "blocks are kept by Window(..., keep_blocks=True) alone: this window has only their merges"
            )

    def _number_of(self, begin: Any) -> int:
        """Return the number of the block that holds a row, or a moment; ValueError if it is no block kept."""
        self._require_blocks()
        whole = isinstance(self.every, int)
        number = (as_integer(begin, "begin", 0) if whole else int(as_moments([begin], 1)[0])) // self._length
        if number != self._number and number not in dict(self._kept):
            raise ValueError(f"the window holds no block at {begin}: see block_models for those that it holds")
        return number

    @property
    @reads
    def block_models(self) -> dict[Any, Any]:
        """Return the model of each block that has rows, oldest first, by its first row or the moment it begins at.

        Copies; only with ``keep_blocks``. The block being filled is the last one.
        """
        self._require_blocks()
        held = [*self._kept, *([] if self._number is None else [(self._number, self._filling)])]
        copies = {self._begin_of(number): model.copy() for number, model in held if model.n_rows}
        for model in copies.values():
            model._feature_names = self._feature_names
        return copies

    @changes
    def forget(self, begin: Any) -> Self:
        """Forget the rows of one block that is held, as if they had never come: at most 2 W merges.

        Parameters
        ----------
        begin : int or time
            Any row of the block, counted from 0 over the whole stream; or any moment of it.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Without ``keep_blocks``, or if the window holds no such block.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((350, 4))
        >>> window = fs.Window(fs.FrequentDirections(3), blocks=3, every=100, keep_blocks=True).update(rows)
        >>> window.model.n_rows, list(window.block_models)
        (250, [100, 200, 300])
        >>> window.forget(200).model.n_rows
        150
        """
        number = self._number_of(begin)
        if number == self._number:
            vars(self).update({"_filling": self._template.model(self._opened), "_opened": self._opened + 1})
            return self
        assert self._number is not None  # blocks are kept
        kept = tuple(item for item in self._kept if item[0] != number)
        by_number, v = dict(kept), self.blocks - 1
        nodes = [by_number.get(place) for place in range(self._number - v, self._number)]
        vars(self).update({"_kept": kept, "_closed": SlidingMerge.of(v, nodes)})
        return self

    # -- files -------------------------------------------------------------------------------------------------------
    def _facts(self) -> dict[str, Any]:
        model = self._window_model()
        return {"rows_in_window": model.n_rows, **{f"window_{name}": x for name, x in model._certificate().items()}}

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        models: dict[int, tuple[int, Any]] = {}  # each once, by what it is
        places = [
            None if node is None else models.setdefault(id(node), (len(models), node))[0]
            for node in (self._filling, *self._closed.nodes, *(node for _, node in self._kept))
        ]
        state = {
            "n_rows": self._n,
            "n_features": self._d,
            "dtype": None if self._dtype is None else self._dtype.name,
            "number": self._number,
            "opened": self._opened,
            "sizes": [len(self._closed.older), len(self._closed.before), len(self._closed.chunk)],
            "kept": [number for number, _ in self._kept],
            "places": places,
        }
        return state, {f"model{k}": np.frombuffer(node.to_bytes(), np.uint8) for k, node in models.values()}

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        models = [from_bytes(arrays[f"model{k}"].tobytes()) for k in range(len(arrays))]
        filling, *nodes = (None if place is None else models[place] for place in state["places"])
        n_older, n_before, n_chunk = state["sizes"]
        older, nodes = tuple(nodes[:n_older]), nodes[n_older:]
        before, whole, nodes = tuple(nodes[:n_before]), nodes[n_before], nodes[n_before + 1 :]
        chunk, prefix, nodes = tuple(nodes[:n_chunk]), nodes[n_chunk], nodes[n_chunk + 1 :]
        self._closed = SlidingMerge(self.blocks - 1, older, before, whole, chunk, prefix)
        self._kept = tuple(zip(state["kept"], nodes, strict=True))
        self._n, self._d, self._number = state["n_rows"], state["n_features"], state["number"]
        self._filling, self._opened = filling, state["opened"]
        self._dtype = None if state["dtype"] is None else np.dtype(state["dtype"])

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        n = checks.as_count(state["n_rows"], "n_rows")
        d = as_integer(state["n_features"], "n_features", 1, checks.MOST_COLUMNS) if n else None
        opened = checks.as_count(state["opened"], "opened")
        if state["dtype"] not in (("float32", "float64") if n else (None,)):
            raise ValueError(f"dtype must be that of the window's rows, got {state['dtype']!r}")
        checks.only(arrays, *(f"model{k}" for k in range(len(arrays))))
        m = self.blocks // 2  # blocks in a chunk: half of those that are closed, rounded up
        n_older, n_before, n_chunk = (checks.as_count(size, "sizes") for size in state["sizes"])
        if not (n_older <= m and n_before in (0, m) and n_chunk < m):
            raise ValueError(f"sizes must be those of {self.blocks} blocks, got {state['sizes']}")
        if (state["number"] is None) != (n == 0) or (n and not opened):
            raise ValueError("number and opened must be there with rows, and with rows alone")
        number = as_integer(state["number"], "number", -MOST, MOST) if n else 0
        kept = [as_integer(item, "kept", number - self.blocks + 1, number) for item in state["kept"]]
        if sorted(set(kept)) != kept or (kept and not self.keep_blocks):
            raise ValueError("kept must be ascending numbers of blocks in the window")
        places = state["places"]
        if len(places) != 3 + n_older + n_before + n_chunk + len(kept) or places[0] is None:
            raise ValueError("places must have one for each model of the window")
        used = [as_integer(place, "places", 0, len(arrays)) for place in places if place is not None]
        if set(used) != set(range(len(arrays))) or None in places[len(places) - len(kept) :]:
            raise ValueError("places must name each model that is there, and a model for each block kept")
        for k in range(len(arrays)):
            content = checks.array_of(arrays, f"model{k}", arrays[f"model{k}"].shape, np.dtype(np.uint8))
            self._check_model(from_bytes(content.tobytes()), n, d, k == places[0])

    def _check_model(self, model: Any, n_rows: int, n_features: int | None, filling: bool) -> None:
        """Raise ValueError unless a model can be one of this window's, of so many rows in all."""
        own = self._template.model()
        if type(model) is not type(own):
            raise ValueError(f"the window is of {type(own).__name__}, and holds a {type(model).__name__}")
        mine, theirs = own._must_agree(), model._must_agree()
        if any(not same(theirs.get(name), value) for name, value in mine.items()):
            raise ValueError(f"a {type(own).__name__} in the window has other parameters than its template")
        if model.n_features not in ((None, n_features) if filling else (n_features,)) or model.n_rows > n_rows:
            raise ValueError(f"a model in the window has {model.n_rows} rows of {model.n_features} columns")


@contextlib.contextmanager
def _counted_from(start: int) -> Generator[None]:
    """Let a model's errors about rows of a block name the rows of the batch."""
    try:
        yield
    except ValueError as error:
        before, row, after = (re.split(r"\brow (\d+)", str(error), maxsplit=1) + ["", ""])[:3]
        raise ValueError(f"{before}row {int(row) + start}{after}" if row else before) from None


def _timed(source: Source, times: Any, sample_weight: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (rows, times, weights) of a source; `times` None: of the column beside its rows."""
    given = None if times is None else np.asarray(times)
    weights = None if sample_weight is None or np.ndim(sample_weight) == 0 else np.asarray(sample_weight)
    first = 0
    for rows, *beside in source.chunks_beside() if given is None else source.chunks():
        stop = first + rows.shape[0]
        yield (
            rows,
            beside[0] if given is None else given[first:stop],
            sample_weight if weights is None else weights[first:stop],
        )
        first = stop
    for name, column in (("by", given), ("sample_weight", weights)):
        if column is not None and len(column) != first:
            raise ValueError(f"{name} must have one entry for each of the {first} rows, got {len(column)}")
