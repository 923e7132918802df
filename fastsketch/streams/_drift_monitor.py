"""Drift detection in a stream of rows: DriftMonitor, its alarms, and the columns that changed."""

# pyright: reportPrivateUsage=false
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self, cast

import numpy as np
from scipy import sparse

from fastsketch._core.bottom_k import stacked
from fastsketch._core.sparse import dense_as_csr
from fastsketch._core.validation import MOST_SIZE, as_choice, as_flag, as_integer, as_rows, check_finite, is_sparse
from fastsketch._core.warning import warn_caller
from fastsketch._frame.batches import Batch, FeatureNames
from fastsketch._frame.loading import from_bytes, inner_model
from fastsketch._frame.model import Arrays, Model
from fastsketch._frame.parameters import equal_in_type_and_value, integer, seed
from fastsketch._kernels.guard import changes, reads
from fastsketch.data.files import _checks as checks
from fastsketch.sketching import FrequentDirections
from fastsketch.streams._drift_tests import (
    DEPENDENCE_LEVEL,
    EARLIER_SMALLEST_VARIANCE,
    MAX_VALUE,
    MAX_WATCHED,
    MOMENTS,
    SCORES,
    SMALLEST_VARIANCE,
    Coordinates,
    Floats,
    are_dependent,
    likeliest_length,
    permutation_test,
)


class Carried(NamedTuple):
    """A column that a drift alarm names, with its mean or variance before and after the change.

    Attributes
    ----------
    column : str or int
        Its name, or number.
    what : {"mean", "variance", "direction"}
        What changed: the mean or the variance of the column; "direction" means that the column has a large entry in the
        direction whose variance changed.
    before, after : float
        That mean or variance in the reference and since the change; for "direction" the variance along the direction.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((20_000, 8))
    >>> rows[15_000:, 3] += 1.0
    >>> carried = fs.DriftMonitor().update(rows).alarms[0].columns[0]
    >>> carried.column, carried.what, round(carried.before), round(carried.after)
    (3, 'mean', 0, 1)
    """

    column: str | int
    what: str
    before: float
    after: float


class Alarm(NamedTuple):
    """An alarm of a DriftMonitor, which says where a change began and which columns changed.

    Attributes
    ----------
    row : int
        Number of rows seen when the alarm was raised.
    begin : int
        First row of the block in which the change most likely began.
    score : {"columns", "means", "directions"}
        The group of statistics that deviates most: means and variances of single columns; means along the leading
        directions; or covariances of these directions and the variance outside of them.
    columns : tuple of Carried
        The columns that changed, at most 5, by decreasing deviation. Each deviates at least half as much as the first.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((20_000, 8))
    >>> rows[15_000:, 3] += 1.0
    >>> alarm = fs.DriftMonitor().update(rows).alarms[0]
    >>> alarm.row, alarm.begin
    (15300, 15000)
    """

    row: int
    begin: int
    score: str
    columns: tuple[Carried, ...]


def rows_from_dicts(rows: Any, names: FeatureNames | None) -> tuple[FeatureNames, list[list[Any]]] | None:
    """Convert rows given as a dict {column name: number}, or as a list of such dicts, to (column names, lists of
    values). Return None if rows are not dicts.

    Return None for other rows. Every dict must have the same names as `names`, or as the first dict if `names` is None;
    ValueError otherwise.
    """
    if is_sparse(rows):  # scipy's dok_array is a dict
        return None
    row_list = cast("Any", [rows] if isinstance(rows, Mapping) else rows)
    if not (isinstance(row_list, list | tuple) and row_list and isinstance(row_list[0], Mapping)):
        return None
    dicts = cast("list[Any]", row_list)
    names = tuple(map(str, dicts[0])) if names is None else names
    for i, row in enumerate(dicts):
        if not isinstance(row, Mapping) or cast("Any", row).keys() != set(names):
            raise ValueError(f"row {i} must be a dict of the same names as those before, all text, got {row!r}")
    return names, [[row[name] for name in names] for row in dicts]


def row_arrays(rows: Any) -> Arrays:
    """Return the named arrays in which a saved model stores a dense or CSR matrix of rows."""
    if not is_sparse(rows):
        return {"rows": rows}
    indices, indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    return {"rows": rows.data, "rows_indices": indices, "rows_indptr": indptr}


def rows_from(arrays: Arrays, d: int) -> Any:
    """Rebuild a dense or CSR matrix with d columns from the named arrays of a saved model."""
    if "rows_indptr" not in arrays:
        return arrays["rows"]
    parts = (arrays["rows"], arrays["rows_indices"], arrays["rows_indptr"])
    return sparse.csr_array(parts, shape=(len(parts[2]) - 1, d))


def check_rows(arrays: Arrays, shape: tuple[int, int], *, are_sparse: bool) -> None:
    """Raise ValueError unless a saved model's arrays hold finite float64 rows of the given shape."""
    if not are_sparse:
        checks.finite(arrays, "rows", shape)
        return
    stored = len(arrays.get("rows", ()))
    checks.finite(arrays, "rows", (stored,))
    indptr = checks.array_of(arrays, "rows_indptr", (shape[0] + 1,), np.dtype(np.int64))
    indices = checks.array_of(arrays, "rows_indices", (stored,), np.dtype(np.int64))
    checks.csr_rows(indptr, indices, n_stored=stored, n_columns=shape[1], name="the rows held")


# Largest number of latest blocks that are compared with the others, and of blocks whose rows are held for `sides`.
MAX_LATEST_BLOCKS, MAX_HELD_BLOCKS = 40, 8
# Largest ratio of the length of blocks to `every`: the rows of the block being filled are held in memory.
MAX_LENGTHENING = 16
# Largest entry of a row: covariances are squared when blocks are compared.
LARGEST_ENTRY = 1e150
MAX_COUNT = 2**40
# Largest run_length: an alarm tries about as many arrangements of the blocks, which takes seconds.
MAX_RUN_LENGTH = 100_000
# Largest memory of a monitor, in bytes.
MAX_BYTES = 2**32


class BlockHistory(NamedTuple):
    """What a DriftMonitor knows about completed blocks: reference, statistics of later blocks, and alarms.
    It is never changed; a change creates a new object.
    """

    n_rows: int
    start: int  # first row of the reference
    span: int  # rows of a block
    first: Floats = np.empty((0, 0))  # means of the first blocks: of columns, and along directions once these are known
    sketch: FrequentDirections | None = None  # of the reference
    coordinates: Coordinates | None = None
    table: Floats = np.empty((0, 0))  # features of the blocks of the reference after these, and of the latest
    tried: int = 0  # arrangements in which none deviated as the latest blocks do
    alarms: tuple[Alarm, ...] = ()
    sides: tuple[FrequentDirections, ...] = ()  # reference and changed rows of the latest alarm


class DriftMonitor(Model):
    """Detect changes in a stream of rows and the columns that changed, at a bounded rate of false alarms.

    The first blocks of rows are the reference. After each later block a permutation test compares the latest 3 to 28
    blocks with all others: an alarm is raised if no random permutation of the blocks makes as large a difference. If
    blocks are exchangeable while nothing changes, ``run_length`` bounds the rate of false alarms, whatever the
    distribution of the rows. After an alarm the next blocks are the new reference.

    Parameters
    ----------
    every : int, default 100
        Rows of a block, at least 2. A block should be many times longer than the range over which rows depend on each
        other. If neighbouring blocks of the first reference are correlated, by a test at 1%, blocks become twice as
        long [2]_, up to 16 times `every`, and the reference begins again. A warning names the row from which on blocks
        are compared, and ``facts()`` has "rows_in_block" and "not_armed_because". After an alarm the length of blocks
        stays, and the reference begins again until its blocks are not correlated.
    reference : int, default 60
        Blocks of the reference, at least 10. The first third of them determines the directions and units in which
        blocks are compared.
    run_length : int, default 10,000
        The chance of a false alarm within n blocks is at most n / run_length; at most 100,000.
    sketch_size : int, default 32
        Rows of the sketches, one more than the number of leading directions along which means are compared.
    n_directions : int, default 16
        Number of the leading directions whose covariances are compared. Further directions have less variance, and
        each adds as many covariances as there are directions.
    seed : int, default 0
        Seed of the random permutations.

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
    For each block the monitor records the means and log variances of the columns (of more than 1,024 columns, those
    with the largest variance at the beginning), the means along the leading directions, the covariances of
    ``n_directions`` of these, and the variance outside of them. The averages of these numbers over the latest 3, 4, 6,
    9, 13, 19 and 28 blocks are compared with those over all blocks: the one that deviates most in each group, and each
    group as a whole. If blocks are exchangeable, the observed difference is the largest among run_length random
    permutations once in run_length times [1]_. The monitor detects changes of means and covariances, and no other
    change of distribution: compute columns of your own for these. To watch a model, pass its residuals or scores as a
    column, (n, 1).

    Rows may depend on the rows before them within a block, but blocks that are correlated with the block before are not
    exchangeable. A season must be shorter than a block.

    The monitor keeps two sketches, the directions, the statistics of at most ``reference`` + 40 blocks, and the rows of
    nine blocks. A block that raises an alarm takes run_length permutations, about a second; others take about ten.

    References
    ----------
    .. [1] E. Lehmann, J. Romano, "Testing Statistical Hypotheses", third edition, 15.2 (permutation tests).
    .. [2] G. Fishman, "Grouping Observations in Digital Simulation", Management Science 24(5), 1978. The test is the
       serial correlation of all arrangements: A. Wald, J. Wolfowitz, "An Exact Test for Randomness in the
       Non-Parametric Case Based on Serial Correlation", Annals of Mathematical Statistics 14(4), 1943.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.standard_normal((20_000, 8))
    >>> rows[15_000:, 3] *= 1.5
    >>> alarm, = fs.DriftMonitor().update(rows).alarms
    >>> alarm.begin, alarm.columns[0].column, alarm.columns[0].what
    (15000, 3, 'variance')
    """

    every: int = integer(default=100, at_least=2, below=MAX_COUNT)
    reference: int = integer(default=60, at_least=10, below=MAX_COUNT)
    run_length: int = integer(default=10_000, at_least=10, below=MAX_RUN_LENGTH + 1)
    sketch_size: int = integer(default=32, at_least=2, below=MOST_SIZE)
    n_directions: int = integer(default=16, at_least=1, below=MOST_SIZE)
    seed: int = seed(default=0)

    def _begin(self) -> None:
        self._history = BlockHistory(0, 0, self.every)
        self._held: tuple[Any, ...] = ()  # rows of the block being filled, and of the latest blocks before it
        self._n_filled = 0
        self._d: int | None = None
        self._sparse = False  # as the first rows

    def _empty_sketch(self) -> FrequentDirections:
        """Create an empty sketch with the parameters of this monitor."""
        return FrequentDirections(self.sketch_size, method="tfd", center=True, dtype=np.float64)

    @property
    def _n_permutations(self) -> int:
        """Number of permutations of one test, which follows from ``run_length``.
        A change is reported if none of the permutations deviates as much as the true order of the blocks.
        """
        # reciprocal of the level of a test. Of the streams that do not change 2 DEPENDENCE_LEVEL get longer blocks, and
        # with them a second chance of a false alarm.
        return int(self.run_length / (1.0 - 2.0 * DEPENDENCE_LEVEL))

    @property
    def _n_first(self) -> int:
        """Number of blocks at the start of the reference from which the compared columns and directions are chosen."""
        return self.reference // 3

    @property
    def n_rows(self) -> int:
        """Return the number of rows seen."""
        return self._history.n_rows + self._n_filled

    @property
    def n_features(self) -> int | None:
        """Return the number of columns, or None before the first row."""
        return self._d

    @property
    @reads
    def alarms(self) -> tuple[Alarm, ...]:
        """Return all alarms raised so far, oldest first."""
        names = self._feature_names
        if names is None:
            return self._history.alarms
        return tuple(
            alarm._replace(columns=tuple(item._replace(column=names[int(item.column)]) for item in alarm.columns))
            for alarm in self._history.alarms
        )

    @property
    @reads
    def armed(self) -> bool:
        """Return True if the reference is complete, so that new blocks are compared with it."""
        return self._n_blocks(self._history) >= self.reference

    def _not_armed_because(self) -> str | None:
        """Return the reason, for messages, why the reference is not complete yet. Return None if it is complete."""
        history = self._history
        n_needed = history.span * self.reference
        if (missing := n_needed - (history.n_rows - history.start)) <= 0:
            return None
        reason = f"{missing - self._n_filled} rows of {n_needed} are missing"
        if history.start:
            reason += f" since row {history.start}"
        if history.span > self.every:
            reason += (
                f", as blocks of {self.every} rows resembled the ones before them and became {history.span} rows long"
            )
        return reason

    @property
    @reads
    def evidence(self) -> float:
        """Return the evidence for a change at the latest block, in (0, 1]; an alarm is raised at 1.

        It is the number of random permutations of the blocks up to the first with as large a difference, as a share of
        the number that an alarm needs, about run_length.

        Raises
        ------
        ValueError
            Before the reference is full.
        """
        if (why := self._not_armed_because()) is not None:
            raise ValueError(f"the reference is not full: {why}")
        return (self._history.tried + 1) / (self._n_permutations + 1)

    @property
    @reads
    def sides(self) -> tuple[FrequentDirections, FrequentDirections]:
        """Return sketches of the rows before and after the latest change, for ``fs.compare``.

        The first is of the reference, the second of the latest rows of the change, at most 8 blocks. The comparison has
        no p-value: these rows were selected because they differ, so that a p-value would be too small. The rate of
        false alarms is bounded by ``run_length``.

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
        if not self._history.sides:
            raise ValueError("there has been no alarm yet, and so no rows before and after it")
        before, after = (sketch.copy() for sketch in self._history.sides)
        before._feature_names = after._feature_names = self._feature_names
        return before, after

    # -- rows --------------------------------------------------------------------------------------------------------
    @changes
    def update(self, rows: Batch | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Self:
        """Add one row or many, and append the alarms that they raise to ``alarms``.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), scipy.sparse (n, d), table, dict {name: number}, list of dicts, or source
            The first rows are the reference, and set the number of columns: pass a single column as (n, 1), also if it
            is a single number. Every dict must have the same names, in any order.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For rows of another width, or that are not finite, or of so many columns that the sketches of the reference
            would take more than 4 GiB. The monitor is then as it was before the call.
        """
        if (names_and_rows := rows_from_dicts(rows, self._feature_names)) is None:
            return self._take_rows(rows)
        with self._using_column_names(names_and_rows[0], "rows"):
            self._update(names_and_rows[1], None)
        return self

    def _update(self, rows: Any, sample_weight: Any) -> None:
        if self._d is None and getattr(rows, "ndim", 2) == 1:
            raise ValueError(
                f"the first rows must have two dimensions, got shape {rows.shape}: x[:, None] is a column of numbers, "
                "x[None] one row"
            )
        checked: Any = as_rows(rows, self._d)
        check_finite(checked)
        if checked.size and max(float(checked.max()), -float(checked.min())) > LARGEST_ENTRY:
            raise ValueError(f"rows have entries beyond {LARGEST_ENTRY:g}, their squares leave the range: scale them")
        if not (n := checked.shape[0]):
            return
        are_sparse = self._sparse
        if self._d is None:
            are_sparse = is_sparse(checked)
            self._check_memory(checked)
        if is_sparse(checked) != are_sparse:
            checked = dense_as_csr(checked) if are_sparse else checked.toarray()
        # a copy: the caller may change the rows
        held_rows, n_filled, history = (*self._held, checked.astype(np.float64)), self._n_filled + n, self._history
        if n_filled >= history.span:
            all_rows = stacked([*held_rows])
            while n_filled >= history.span:
                n_filled -= history.span
                history = self._add_block(history, all_rows[: all_rows.shape[0] - n_filled])
            held_rows = (all_rows[all_rows.shape[0] - n_filled - self._n_held_rows(history) :].copy(),)
        form = {"_d": checked.shape[1], "_sparse": are_sparse}
        vars(self).update({"_history": history, "_held": held_rows, "_n_filled": n_filled, **form})

    def _check_memory(self, rows: Any) -> None:
        """Raise ValueError if rows with this many columns would make the monitor larger than MOST_BYTES."""
        d, dense = rows.shape[1], not is_sparse(rows)
        needed = 8 * d * (self._n_first + 4 * self.sketch_size + dense * (MAX_HELD_BLOCKS + 1) * self.every)
        if needed > MAX_BYTES:
            raise ValueError(
                f"rows have {d:,} columns: the monitor would take {needed / 2**30:.1f} GiB; take a smaller every, "
                "sketch_size or reference, or fewer columns"
            )

    def _n_blocks(self, history: BlockHistory) -> int:
        """Return the number of completed blocks since the start of the reference."""
        return (history.n_rows - history.start) // history.span

    def _n_held_rows(self, history: BlockHistory) -> int:
        """Return how many rows of completed blocks after the reference are stored; ``sides`` of an alarm needs them."""
        return max(0, min(history.n_rows - history.start - self.reference * history.span, MAX_HELD_BLOCKS * self.every))

    @changes
    def rearm(self) -> Self:
        """Drop the reference, so that the next rows form a new one.

        The rows of the block being filled are not part of it.

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
        n, history = self.n_rows, self._history
        history = BlockHistory(n, n, history.span, alarms=history.alarms, sides=history.sides)
        vars(self).update({"_history": history, "_held": (), "_n_filled": 0})
        return self

    def _add_block(self, history: BlockHistory, rows: Any) -> BlockHistory:
        """Return a new history to which a completed block is added: to the reference, or after comparison with it.
        It has an alarm if the block raises one.
        """
        block = rows[-history.span :]
        history = history._replace(n_rows=history.n_rows + history.span)
        latest = self._n_blocks(history) - self.reference
        if latest <= 0:
            sketch = self._empty_sketch() if history.sketch is None else history.sketch.copy()
            history = history._replace(sketch=sketch.update(block))
        if history.coordinates is None:
            mean = np.asarray(block.mean(axis=0, dtype=np.float64)).reshape(1, -1)
            history = history._replace(first=np.vstack([history.first, mean]) if history.first.size else mean)
            return history if len(history.first) < self._n_first else self._choose_coordinates(history)
        coordinates = history.coordinates
        features = coordinates.features(block)[np.newaxis]
        table = np.vstack([history.table, features]) if history.table.size else features
        if latest > MAX_LATEST_BLOCKS:
            table, latest = np.delete(table, self.reference - self._n_first, axis=0), MAX_LATEST_BLOCKS
        history = history._replace(table=table)
        if latest > 0:
            return self._test_latest_blocks(history, latest, rows)
        if latest == 0:
            along, variances = coordinates.watched_for_dependence(table)
            history = self._restart_if_dependent(history, np.vstack([history.first, along]), variances)
        return history

    def _choose_coordinates(self, history: BlockHistory) -> BlockHistory:
        """Return a new history with the columns and directions in which later blocks will be compared.
        They are chosen from the first third of the reference.
        """
        assert history.sketch is not None
        coordinates = Coordinates.from_sketch(history.sketch, self.n_directions)
        along = (history.first - coordinates.centre) @ coordinates.directions.T / coordinates.unit
        return self._restart_if_dependent(history._replace(first=along, coordinates=coordinates), along)

    def _restart_if_dependent(self, history: BlockHistory, *values: Floats) -> BlockHistory:
        """Return the history, or one with a new reference of longer blocks if consecutive blocks are correlated.
        Correlation would cause false alarms.

        `values` are tables of statistics of blocks. The rows of this decision are not compared afterwards, so that
        false alarms do not become more frequent. Before the first alarm blocks become twice as long, up to
        MAX_LENGTHENING times `every` (Fishman 1978). After an alarm they keep their length: the earlier reference has
        shown that blocks of this length do not depend on each other, so that dependence now means that the change goes
        on.
        """
        if not any(are_dependent(statistics, self.seed, history.n_rows, len(values)) for statistics in values):
            return history
        n, span = history.n_rows, history.span
        if history.alarms:
            if history.start == history.alarms[-1].row:  # once
                warn_caller(
                    f"the rows after the alarm at row {history.start:,} go on changing: a new reference begins "
                    f"with row {n:,}"
                )
        elif span < MAX_LENGTHENING * self.every:
            span *= 2
            if history.span == self.every:  # once: what follows is in the facts
                warn_caller(
                    f"the monitor is not armed: blocks of {history.span:,} rows resemble the ones before them, and are "
                    f"now {span:,} rows long. Nothing is compared before row {n + span * self.reference:,}, and a "
                    f"change before it may be missed: where that is too late, begin with a smaller reference than "
                    f"{self.reference}, or with a larger every than {self.every:,} if rows remember more of those "
                    "before them"
                )
        else:
            warn_caller(
                f"blocks of {span} rows resemble the ones before them: false alarms may be more frequent than "
                f"run_length={self.run_length} says; take a larger every than {self.every}"
            )
            return history
        return BlockHistory(n, n, span, alarms=history.alarms, sides=history.sides)

    def _test_latest_blocks(self, history: BlockHistory, latest: int, rows: Any) -> BlockHistory:
        """Return a new history after a test whether the last `latest` blocks differ from all others.
        It has an alarm if they do.

        If they do, it has a new alarm and an empty reference.
        """
        assert history.coordinates is not None and history.sketch is not None
        families, table, n = history.coordinates.families, history.table, history.n_rows
        result = permutation_test(table, latest, families, self._n_permutations, self.seed, n)
        if result.n_less < self._n_permutations:
            return history._replace(tried=result.n_less)
        family = families[result.family]
        length = likeliest_length(table, latest, family)
        columns = tuple(
            Carried(*change) for change in history.coordinates.most_changed_columns(table, length, family.score)
        )
        alarm = Alarm(n, n - length * history.span, family.score, columns)
        changed = self._empty_sketch().update(rows[-min(length * history.span, MAX_HELD_BLOCKS * self.every) :])
        # a new reference begins
        return BlockHistory(n, n, history.span, alarms=(*history.alarms, alarm), sides=(history.sketch, changed))

    # -- files -------------------------------------------------------------------------------------------------------
    def _facts(self) -> dict[str, Any]:
        facts = {"n_alarms": len(self._history.alarms), "armed": self.armed, "rows_in_block": self._history.span}
        why = self._not_armed_because()
        return facts if why is None else {**facts, "not_armed_because": why}

    def _seen(self) -> str:
        why = None if self._d is None else self._not_armed_because()
        return super()._seen() if why is None else f"{super()._seen()}, not armed: {why}"

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        history, coordinates = self._history, self._history.coordinates
        sketches = (*(() if history.sketch is None else (history.sketch,)), *history.sides)
        state = {
            "n_rows": history.n_rows,
            "start": history.start,
            "span": history.span,
            "filled": self._n_filled,
            "tried": history.tried,
            "smallest_variance": None if coordinates is None else coordinates.smallest_variance,
            "n_features": self._d,
            "sparse": self._sparse,
            "alarms": [[*alarm[:3], [list(carried) for carried in alarm.columns]] for alarm in history.alarms],
        }
        arrays: Arrays = {f"sketch{k}": np.frombuffer(sketch.to_bytes(), np.uint8) for k, sketch in enumerate(sketches)}
        if self._held:
            arrays |= row_arrays(stacked([*self._held]))
        if coordinates is not None:
            arrays |= {
                "watched": coordinates.watched,
                "centre": coordinates.centre,
                "directions": coordinates.directions,
            }
            arrays |= {"unit": np.array([coordinates.unit]), "table": history.table}
        if history.first.size:
            arrays["first"] = history.first
        return state, arrays

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        n_sketches = sum(name.startswith("sketch") for name in arrays)
        sketches = [from_bytes(arrays[f"sketch{k}"].tobytes()) for k in range(n_sketches)]
        alarms = tuple(
            Alarm(
                row,
                begin,
                score,
                tuple(Carried(column, what, before, after) for column, what, before, after in columns),
            )
            for row, begin, score, columns in state["alarms"]
        )
        reference_sketch = sketches.pop(0) if n_sketches % 2 else None
        counts: dict[str, Any] = {name: state[name] for name in ("n_rows", "start", "span", "tried")}
        history = BlockHistory(**counts, sketch=reference_sketch, alarms=alarms, sides=tuple(sketches))
        if "watched" in arrays:
            smallest_variance = state.get("smallest_variance", EARLIER_SMALLEST_VARIANCE)
            unit = float(arrays["unit"][0])
            coordinates = Coordinates(
                arrays["watched"],
                arrays["centre"],
                unit,
                arrays["directions"],
                self.n_directions,
                smallest_variance,
            )
            history = history._replace(coordinates=coordinates, table=arrays["table"])
        self._history = history._replace(first=arrays["first"]) if "first" in arrays else history
        self._d, self._sparse, self._n_filled = state["n_features"], state["sparse"], state["filled"]
        self._held = (rows_from(arrays, state["n_features"]),) if "rows" in arrays else ()

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        n, span = (
            checks.as_count(state["n_rows"], "n_rows"),
            as_integer(state["span"], "span", 2, MAX_COUNT * MAX_LENGTHENING),
        )
        if span not in (allowed := [self.every << k for k in range(MAX_LENGTHENING.bit_length())]):
            raise ValueError(f"span must be one of {allowed}, got {span}")
        n_blocks, remainder = divmod(n - as_integer(state["start"], "start", 0, n + 1), span)
        if remainder:
            raise ValueError(f"n_rows and start must be whole blocks of {span} rows apart, got {remainder} more")
        filled = as_integer(state["filled"], "filled", 0, span)
        as_flag(state["sparse"], "sparse")
        as_integer(state["tried"], "tried", 0, self._n_permutations)
        has_rows = bool(n or filled)
        d = as_integer(state["n_features"], "n_features", 1, checks.MOST_COLUMNS) if has_rows else 0
        self._check_alarms(state["alarms"], state["start"], d)
        n_held = filled + self._n_held_rows(BlockHistory(n, state["start"], span))
        if "rows" in arrays or n_held:
            check_rows(arrays, (n_held, d), are_sparse=state["sparse"])
        n_whole = min(n_blocks, self.reference) * span
        sizes = [(n_whole, n_whole)] if n_blocks else []
        if state["alarms"]:
            sizes += [(self.reference * self.every, self.reference * span), (2, MAX_HELD_BLOCKS * self.every)]
        for k, limits in enumerate(sizes):
            self._check_sketch(arrays, f"sketch{k}", limits, d)
        names = [f"sketch{k}" for k in range(len(sizes))]
        names += ["rows"] if state["sparse"] is False else ["rows", "rows_indices", "rows_indptr"]
        if n_blocks < self._n_first:
            checks.only(arrays, *names, *(["first"] if n_blocks else []))
            if n_blocks:
                checks.finite(arrays, "first", (n_blocks, d))
            return
        checks.only(arrays, *names, "first", "watched", "centre", "directions", "unit", "table")
        smallest_variance = state.get("smallest_variance", EARLIER_SMALLEST_VARIANCE)
        if smallest_variance not in (SMALLEST_VARIANCE, EARLIER_SMALLEST_VARIANCE):
            values = f"{SMALLEST_VARIANCE} or {EARLIER_SMALLEST_VARIANCE}"
            raise ValueError(f"smallest_variance must be {values}, got {smallest_variance!r}")
        watched = checks.array_of(arrays, "watched", (min(d, MAX_WATCHED),), np.dtype(np.intp))
        if (np.diff(watched) <= 0).any() or watched[0] < 0 or watched[-1] >= d:
            raise ValueError(f"watched must be ascending columns of {d}")
        v = checks.finite(arrays, "directions", (len(arrays.get("directions", ())), d))
        checks.number_within(len(v), "directions", 0, min(self.sketch_size, d))
        checks.number_within(checks.finite(arrays, "unit", (1,))[0], "unit", np.finfo(float).tiny, LARGEST_ENTRY)
        if len(v):
            checks.finite(arrays, "first", (self._n_first, len(v)))
        coordinates = Coordinates(watched, checks.finite(arrays, "centre", (d,)), 1.0, v, self.n_directions)
        n_scored = min(n_blocks - self._n_first, self.reference - self._n_first + MAX_LATEST_BLOCKS)
        table = checks.finite(arrays, "table", (n_scored, coordinates.ends[-1]) if n_scored else (0, 0))
        checks.number_within(np.abs(table).max(initial=0.0), "table", 0.0, MAX_VALUE)

    def _check_alarms(self, alarms: Any, start: int, d: int) -> None:
        """Raise ValueError if a saved monitor's alarms are invalid.

        `start` is the first row of the reference, `d` the number of columns.
        """
        if (ends := [alarm[0] for alarm in alarms]) != sorted(ends) or ends[-1:] > [start]:
            raise ValueError("alarms must be in order, and the reference after the latest")
        for row, begin, score, columns in alarms:
            checks.number_within(as_integer(begin, "begin", 0), "begin", 0, as_integer(row, "row", 1, start + 1))
            as_choice(score, "score", SCORES)
            for column, what, before, after in columns:
                as_integer(column, "column", 0, d)
                as_choice(what, "what", MOMENTS)
                checks.as_figure(before, "before")
                checks.as_figure(after, "after")

    def _check_sketch(self, arrays: Arrays, name: str, rows: tuple[int, int], d: int) -> None:
        """Raise ValueError unless the named array holds a sketch with this monitor's parameters.

        It must have rows[0] to rows[1] rows and d columns.
        """
        expected = self._empty_sketch()
        sketch = inner_model(arrays, name, type(expected))
        if type(sketch) is not type(expected) or not equal_in_type_and_value(expected.parameters, sketch.parameters):
            raise ValueError(f"a sketch must be a {expected!r}, got {sketch!r}")
        if not rows[0] <= sketch.n_rows <= rows[1]:
            raise ValueError(f"a sketch has {sketch.n_rows} rows, expected {rows[0]} to {rows[1]}")
        if sketch.n_features != d:
            raise ValueError(f"a sketch has {sketch.n_features} columns, expected {d}")
