"""Alarms when a stream is no longer as it was: blocks of rows against a reference, at a stated rate of false alarms."""

# pyright: reportPrivateUsage=false
# (a monitor is made of sketches, by the frame's hooks)

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import islice, pairwise
from typing import Any, NamedTuple, Self, cast

import numpy as np
from scipy import sparse

from fastsketch._core.validation import as_choice, as_flag, as_integer, as_rows
from fastsketch._frame.batches import Batch, FeatureNames
from fastsketch._frame.loading import from_bytes
from fastsketch._frame.model import Arrays, Model
from fastsketch._frame.parameters import integer, same, seed
from fastsketch._kernels.guard import changes, reads
from fastsketch.data.files import _checks as checks
from fastsketch.sketching import FrequentDirections
from fastsketch.streams._block_scores import MOMENTS, SCORES, Usual, directions_of, usual_of
from fastsketch.streams._evidence import EXPONENTS, Floats, accumulated, conformal, likeliest_begin
from fastsketch.streams._sliding_merge import joined

TABLES = ("scores", "evidence", "location", "scale")
# Latest blocks that are kept to say what an alarm is about.
MOST_RECENT = 8
# Covariances of blocks are squared in turn when they are ranked.
LARGEST_ENTRY = 1e150
MANY = 2**40
# Bytes of the sketches of the reference, at most.
MOST_BYTES = 2**32


class Carried(NamedTuple):
    """A column that carries a change.

    Attributes
    ----------
    column : str or int
        Its name, or number.
    what : {"mean", "variance", "direction"}
        Moment of the column that changed; "direction": the column is a part of the direction whose variance changed.
    before, after : float
        That moment in the reference and since the change; of a direction the variance along it.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((20_000, 8))
    >>> rows[15_000:, 3] += 1.0
    >>> carried = fs.DriftMonitor(every=100).update(rows).alarms[0].columns[0]
    >>> carried.column, carried.what, round(carried.before), round(carried.after)
    (3, 'mean', 0, 1)
    """

    column: str | int
    what: str
    before: float
    after: float


class Alarm(NamedTuple):
    """A change of a stream.

    Attributes
    ----------
    row : int
        Rows seen when it was said.
    begin : int
        First row of the block with which the change began, most likely.
    score : {"columns", "means", "directions"}
        What said it: the column whose mean or variance is farthest from what is usual, the means of leading directions
        together, or the covariances of these.
    columns : tuple of Carried
        Columns that carry the change, the most unusual first: at most 5, and not all of them where others deviate less.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((20_000, 8))
    >>> rows[15_000:, 3] += 1.0
    >>> alarm = fs.DriftMonitor(every=100).update(rows).alarms[0]
    >>> alarm.row, alarm.begin
    (15500, 15000)
    """

    row: int
    begin: int
    score: str
    columns: tuple[Carried, ...]


class Past(NamedTuple):
    """What is known of the closed blocks; an immutable value."""

    n_rows: int = 0
    start: int = 0  # first row of the reference
    learning: tuple[FrequentDirections, ...] = ()  # its blocks, until there are enough
    usual: Usual | None = None
    scores: Floats = np.empty((0, len(SCORES)))  # of the blocks after the reference
    evidence: Floats = np.zeros((len(SCORES), len(EXPONENTS)))
    recent: tuple[FrequentDirections, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    sides: tuple[FrequentDirections, ...] = ()  # reference and changed rows of the latest alarm


def _dtype_of(rows: Any) -> np.dtype[Any]:
    """Return the dtype of the sketches of such rows."""
    return np.dtype(np.float32 if rows.dtype in (np.float16, np.float32) else np.float64)


def _with_names(rows: Any, names: FeatureNames | None) -> tuple[FeatureNames, list[list[Any]]] | None:
    """Return the names and values of a dict {name: number} or a list of them; None of other rows."""
    listed = cast("Any", [rows] if isinstance(rows, Mapping) else rows)
    if not (isinstance(listed, list | tuple) and listed and isinstance(listed[0], Mapping)):
        return None
    dicts = cast("list[Any]", listed)
    names = tuple(map(str, dicts[0])) if names is None else names
    for place, row in enumerate(dicts):
        if not isinstance(row, Mapping) or cast("Any", row).keys() != set(names):
            raise ValueError(f"row {place} must be a dict of the same names as those before, all text, got {row!r}")
    return names, [[row[name] for name in names] for row in dicts]


class DriftMonitor(Model):
    """Say when a stream is no longer as it was, and which columns carry the change, at a stated rate of false alarms.

    The first blocks of rows are the reference. Each later block is scored against it, and ranked among the blocks so
    far: if blocks are exchangeable while nothing changes, false alarms are as rare as ``run_length`` says, whatever the
    distribution of the rows. After an alarm the next blocks are the new reference.

    Parameters
    ----------
    every : int, default 250
        Rows of a block, at least 2: many times as many as rows remember.
    reference : int, default 40
        Blocks of the reference, at least 10. Changes are seen well once as many again have been scored; one that comes
        within the first of them, also after an alarm or ``rearm``, may never be: it becomes what is usual.
    run_length : int, default 10,000
        Average run length: blocks from an alarm to the next false one, on average, at least. The chance of a false
        alarm within n blocks is n / run_length at most.
    sketch_size : int, default 32
        Rows of the sketch of a block.
    seed : int, default 0
        For ties among scores.

    Attributes
    ----------
    n_rows, n_features : int
    alarms : tuple of Alarm
        Since the beginning, in order.
    notes : dict
        Anything that json can write; saved with the state.

    Raises
    ------
    TypeError, ValueError
        For a parameter out of range.

    Notes
    -----
    Scores are the farthest of the means and variances of columns, in standard deviations over the reference; the
    squares of those of the means along its 16 leading directions, added; and the farthest of the covariances of these
    and of the variance outside of them. Each has conformal p-values, ranks among all blocks since the reference, and a
    Shiryaev-Roberts sum of bets on small ones [1]_; an alarm is the first to reach 3 run_length. Means and covariances
    are seen, and no other change of shape: watch columns of your own for it. Of a model watch the residuals or scores,
    as a column: (n, 1).

    Rows that depend on the ones before are fine within a block; blocks that resemble the block before are not
    exchangeable. A season must be shorter than a block, or one of its own columns.

    It holds at most ``reference`` sketches of ``sketch_size`` rows, then nine, and 24 bytes a block.

    References
    ----------
    .. [1] V. Vovk, I. Petej, I. Nouretdinov, E. Ahlberg, L. Carlsson, A. Gammerman, "Retrain or not retrain: conformal
       test martingales for change-point detection", COPA 2021.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.standard_normal((20_000, 8))
    >>> rows[15_000:, 3] *= 1.5
    >>> alarm, = fs.DriftMonitor(every=100).update(rows).alarms
    >>> alarm.begin, alarm.columns[0].column, alarm.columns[0].what
    (15000, 3, 'variance')
    """

    every: int = integer(default=250, at_least=2, below=MANY)
    reference: int = integer(default=40, at_least=10, below=MANY)
    run_length: int = integer(default=10_000, at_least=10, below=MANY)
    sketch_size: int = integer(default=32, at_least=2)
    seed: int = seed(default=0)

    def _begin(self) -> None:
        self._past = Past()
        self._filling = self._empty_block()
        self._d: int | None = None
        self._dtype: np.dtype[Any] | None = None  # of the first rows, and so of all blocks
        self._sparse = False

    def _empty_block(self) -> FrequentDirections:
        return FrequentDirections(self.sketch_size, method="tfd", center=True)

    @property
    def n_rows(self) -> int:
        """Return the number of rows seen."""
        return self._past.n_rows + self._filling.n_rows

    @property
    def n_features(self) -> int | None:
        """Return the number of columns; None before the first row."""
        return self._d

    @property
    @reads
    def alarms(self) -> tuple[Alarm, ...]:
        """Return the alarms since the beginning, in order."""
        names = self._feature_names
        if names is None:
            return self._past.alarms
        return tuple(
            alarm._replace(columns=tuple(item._replace(column=names[int(item.column)]) for item in alarm.columns))
            for alarm in self._past.alarms
        )

    @property
    @reads
    def armed(self) -> bool:
        """Return whether the reference is full: only then blocks are scored."""
        return self._past.usual is not None

    @property
    @reads
    def evidence(self) -> float:
        """Return how much speaks for a change now: at 1 there is an alarm.

        Raises
        ------
        ValueError
            Before the reference is full.
        """
        if self._past.usual is None:
            rows = self.every * self.reference - (self.n_rows - self._past.start)
            raise ValueError(f"the reference is not full: {rows} rows of {self.every * self.reference} are missing")
        return float(self._past.evidence.mean(axis=1).max()) / self._threshold

    @property
    @reads
    def sides(self) -> tuple[FrequentDirections, FrequentDirections]:
        """Return sketches of the reference and of the changed rows of the latest alarm, for ``fs.compare``.

        The changed rows are those of at most 8 blocks. The comparison has no p-value: these rows were chosen because
        they differ, so that chance would seem too small; how rare a false alarm is, ``run_length`` says.

        Raises
        ------
        ValueError
            Before the first alarm.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((20_000, 8))
        >>> rows[15_000:, 3] *= 1.5
        >>> changed = fs.compare(*fs.DriftMonitor(every=100).update(rows).sides, n=1)
        >>> changed.columns(1)[0][0]
        3
        """
        if not self._past.sides:
            raise ValueError("there has been no alarm yet, and so no rows before and after it")
        before, after = (sketch.copy() for sketch in self._past.sides)
        before._feature_names = after._feature_names = self._feature_names
        return before, after

    @property
    def _threshold(self) -> float:
        return float(len(SCORES) * self.run_length)

    # -- rows --------------------------------------------------------------------------------------------------------
    @changes
    def update(self, rows: Batch | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Self:
        """Add one row or many; ``alarms`` has those that they raise.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), scipy.sparse (n, d), table, dict {name: number}, list of dicts, or source
            The reference first. Of a column of numbers (n, 1). Every dict has the same names, in any order.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For rows of another width, or that are not finite, or of so many columns that the sketches of the reference
            would take more than 4 GiB. The monitor is then as it was before the call.
        """
        if (found := _with_names(rows, self._feature_names)) is None:
            return self._take_rows(rows)
        with self._named(found[0], "rows"):
            self._update(found[1], None)
        return self

    def _update(self, rows: Any, sample_weight: Any) -> None:
        checked: Any = as_rows(rows, self._d)
        if checked.size and LARGEST_ENTRY < max(float(checked.max()), -float(checked.min())) < np.inf:
            raise ValueError(f"rows have entries beyond {LARGEST_ENTRY:g}, their squares leave the range: scale them")
        if self._d is None:
            needed = self.reference * min(self.sketch_size, self.every) * checked.shape[1] * _dtype_of(checked).itemsize
            if needed > MOST_BYTES:
                raise ValueError(
                    f"rows have {checked.shape[1]:,} columns: the sketches of the reference would take "
                    f"{needed / 2**30:.1f} GiB; take a smaller sketch_size or reference, or fewer columns"
                )
        else:
            checked = checked if checked.dtype == self._dtype else checked.astype(self._dtype)
            if sparse.issparse(checked) != self._sparse:
                checked = sparse.csr_array(checked) if self._sparse else checked.toarray()
        n, room = checked.shape[0], self.every - self._filling.n_rows
        past, filling = self._past, self._filling
        if n and n < room and self._d is not None:
            filling.update(checked)  # all or nothing
        elif n:
            filling = filling.copy()
            for start, stop in pairwise([0, *range(room, n, self.every), n]):
                filling.update(checked[start:stop])
                if filling.n_rows == self.every:
                    past, filling = self._closed(past, filling), self._empty_block()
            kind = {"_d": checked.shape[1], "_dtype": _dtype_of(checked), "_sparse": sparse.issparse(checked)}
            vars(self).update({"_past": past, "_filling": filling, **kind})

    @changes
    def rearm(self) -> Self:
        """Make the rows that come next the reference; those of the block being filled are left out.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> monitor = fs.DriftMonitor(every=10, reference=10).update(np.random.default_rng(0).random((200, 3)))
        >>> monitor.armed, monitor.rearm().armed, monitor.n_rows
        (True, False, 200)
        """
        past = Past(self.n_rows, self.n_rows, alarms=self._past.alarms, sides=self._past.sides)
        vars(self).update({"_past": past, "_filling": self._empty_block()})
        return self

    def _closed(self, past: Past, block: FrequentDirections) -> Past:
        """Return what is known with one more block."""
        past = past._replace(n_rows=past.n_rows + block.n_rows)
        if past.usual is None:
            learning = (*past.learning, block)
            if len(learning) < self.reference:
                return past._replace(learning=learning)
            return past._replace(learning=(), usual=usual_of(learning))
        new = past.usual.scores(block)
        evidence = accumulated(past.evidence, conformal(past.scores, new, self.seed, len(past.alarms)))
        past = past._replace(
            scores=np.vstack([past.scores, new]),
            evidence=evidence,
            recent=(*past.recent, block)[-MOST_RECENT:],
        )
        which = int(np.argmax(evidence.mean(axis=1)))
        return self._alarmed(past, which) if evidence[which].mean() >= self._threshold else past

    def _alarmed(self, past: Past, which: int) -> Past:
        """Return what is known when a score has said that the stream has changed: a new reference begins."""
        assert past.usual is not None
        begin = likeliest_begin(past.scores[:, which])
        changed = past.recent[begin - len(past.scores) :]
        first = past.start + self.every * (self.reference + begin)
        columns = tuple(Carried(*change) for change in past.usual.carrying(changed, which))
        alarm = Alarm(past.n_rows, first, SCORES[which], columns)
        sides = past.usual.sketch, reduce(joined, changed)
        return Past(past.n_rows, past.n_rows, alarms=(*past.alarms, alarm), sides=sides)

    # -- files -------------------------------------------------------------------------------------------------------
    def _facts(self) -> dict[str, Any]:
        return {"n_alarms": len(self._past.alarms), "armed": self._past.usual is not None}

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        past, usual = self._past, self._past.usual
        whole = () if usual is None else (usual.sketch,)
        groups = ((self._filling,), past.learning, whole, past.recent, past.sides)
        state = {
            "n_rows": past.n_rows,
            "start": past.start,
            "n_features": self._d,
            "dtype": None if self._dtype is None else self._dtype.name,
            "sparse": self._sparse,
            "sizes": [len(group) for group in groups],
            "alarms": [[*alarm[:3], [list(carried) for carried in alarm.columns]] for alarm in past.alarms],
        }
        blocks = (block for group in groups for block in group)
        arrays: Arrays = {f"block{k}": np.frombuffer(block.to_bytes(), np.uint8) for k, block in enumerate(blocks)}
        if usual is not None:
            arrays |= {name: getattr(past, name) for name in ("scores", "evidence")}
            arrays |= {"location": usual.location, "scale": usual.scale}
        return state, arrays

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        blocks = iter([from_bytes(arrays[f"block{k}"].tobytes()) for k in range(sum(state["sizes"]))])
        (self._filling,), learning, whole, recent, sides = (tuple(islice(blocks, size)) for size in state["sizes"])
        usual = Usual(whole[0], arrays["location"], arrays["scale"]) if whole else None
        tables: dict[str, Any] = {name: arrays[name] for name in ("scores", "evidence")} if whole else {}
        alarms = tuple(
            Alarm(row, first, score, tuple(Carried(column, what, old, new) for column, what, old, new in columns))
            for row, first, score, columns in state["alarms"]
        )
        counts: dict[str, Any] = {name: state[name] for name in ("n_rows", "start")}
        self._past = Past(**counts, learning=learning, usual=usual, **tables, recent=recent, alarms=alarms, sides=sides)
        self._d, self._dtype = state["n_features"], None if state["dtype"] is None else np.dtype(state["dtype"])
        self._sparse = state["sparse"]

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        n = checks.as_count(state["n_rows"], "n_rows")
        n_blocks, rest = divmod(n - as_integer(state["start"], "start", 0, n + 1), self.every)
        armed, scored = n_blocks >= self.reference, max(0, n_blocks - self.reference)
        sizes = [1, 0 if armed else n_blocks, int(armed), min(scored, MOST_RECENT), 2 * bool(state["alarms"])]
        if rest or state["sizes"] != sizes:
            raise ValueError(f"sizes must be those of {n_blocks} whole blocks, {sizes}, got {state['sizes']}")
        d = (
            None
            if state["n_features"] is None
            else as_integer(state["n_features"], "n_features", 1, checks.MOST_COLUMNS)
        )
        if state["dtype"] not in ((None,) if d is None else ("float32", "float64")):
            raise ValueError(f"dtype must be that of the rows, got {state['dtype']!r}")
        as_flag(state["sparse"], "sparse")
        if (ends := [alarm[0] for alarm in state["alarms"]]) != sorted(ends) or ends[-1:] > [state["start"]]:
            raise ValueError("alarms must be in order, and the reference after the latest")
        for row, begin, score, columns in state["alarms"]:
            checks.number_within(as_integer(begin, "begin", 0), "begin", 0, as_integer(row, "row", 1, n + 1))
            as_choice(score, "score", SCORES)
            for column, what, before, after in columns:
                as_integer(column, "column", 0, d)
                as_choice(what, "what", MOMENTS)
                checks.as_figure(before, "before")
                checks.as_figure(after, "after")
        names = [f"block{k}" for k in range(sum(sizes))]
        checks.only(arrays, *names, *(TABLES if armed else ()))
        blocks = [
            from_bytes(checks.array_of(arrays, name, arrays[name].shape, np.dtype(np.uint8)).tobytes())
            for name in names
        ]
        one, whole = (self.every, self.every), (self.every * self.reference, self.every * self.reference)
        of_groups = ((0, self.every - 1), one, whole, one)
        limits = [rows for rows, size in zip(of_groups, sizes, strict=False) for _ in range(size)]
        for block, rows in zip(blocks, [*limits, whole, (self.every, MOST_RECENT * self.every)], strict=False):
            self._check_block(block, rows, d, state["dtype"])
        if armed:
            q = len(directions_of(blocks[1]))
            features = 2 * blocks[1].n_features + q + q * (q + 1) // 2 + 1
            checks.finite(arrays, "location", (features,))
            if not checks.not_negative(arrays, "scale", (features,)).all():
                raise ValueError("scale must be positive")
            checks.not_negative(arrays, "scores", (scored, len(SCORES)))
            evidence = checks.not_negative(arrays, "evidence", (len(SCORES), len(EXPONENTS)))
            if evidence.mean(axis=1).max() >= self._threshold or (evidence.any() and not scored):
                raise ValueError(f"evidence must be that of {scored} blocks without an alarm")

    def _check_block(self, block: Any, rows: tuple[int, int], d: int | None, dtype: str | None) -> None:
        """Raise ValueError unless a model can be one of this monitor's blocks, of so many rows."""
        own = self._empty_block()
        if type(block) is not type(own) or not same(own.parameters, block.parameters):
            raise ValueError(f"a block must be a {own!r}, got {block!r}")
        if not rows[0] <= block.n_rows <= rows[1] or block.n_rows % self.every and rows[0]:
            raise ValueError(f"a block has {block.n_rows} rows, expected {rows[0]} to {rows[1]}")
        if block.n_features != (d if block.n_rows else None) or (block.n_rows and block.resolved["dtype"] != dtype):
            raise ValueError(f"a block has {block.n_features} columns, or another dtype: expected {d} of {dtype}")
