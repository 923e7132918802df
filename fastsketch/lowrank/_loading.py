"""From the matrices of a user, each with some of the rows, to the entries of a fit: checked, and cut by validation."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.losses import LOSSES, as_targets
from fastsketch.lowrank._arguments import as_share
from fastsketch.lowrank._data import Array, Observed, observed
from fastsketch.lowrank._partitions import (
    Crew,
    Entries,
    EntriesInMemory,
    Here,
    InMemory,
    Partition,
    Partitions,
    Rest,
    Smallest,
)
from fastsketch.lowrank._setting import FitSetting

# Degree scaling: rows and columns count as if seen this much more often; weighted trace norm, spec of the field.
DAMPING = 30.0
# Sum of the squares of the values, by size of the dtype: beyond it products of a fit leave the range of numbers.
MOST_SQUARES = {4: 1e36, 8: 1e300}
# Share of the entries that a fit holds out for itself, where it has to choose: not where these were fewer than ENOUGH,
# which tell too little.
SHARE, ENOUGH = 0.1, 30


class Matrices(NamedTuple):
    """Promises of the arguments of a fit, for every partition."""

    rows: list[Any]
    weights: list[Any] | None
    held: list[Any] | None  # validation


def load(
    crew: Crew,
    given: Matrices,
    setting: FitSetting,
    *,
    share: float | None = None,
    named: bool = True,
    check_width: Callable[[int], None] | None = None,
) -> tuple[Entries, Rest]:
    """Return all entries, ready for a fit; and if some are to choose for it, what makes the same with some held out.

    share: of the entries, to be held out; if it is None and so is given.held, that which the setting asks for. named:
    whether errors name the partition. check_width(n) raises if so many columns will not do.
    """
    none, parts = [None] * len(given.rows), (Partitions if named else InMemory)(crew, given.rows)
    weights, held = parts.own(given.weights or none), parts.own(given.held or none)
    about = parts.numbers if named else None, setting.loss.name, setting.dtype
    checked = parts.each(_check, parts.places, weights, held, *about)
    looks: list[Look] = parts.fetch(parts.items(checked, 0))
    sizes, widths, counts, dtypes, zeros, minus, counts_held, weights_differ = zip(*looks, strict=True)
    check_alike(widths, zeros, minus)
    m, n, total, weighted = sum(sizes), widths[0], sum(counts), any(weights_differ)
    if check_width is not None:
        check_width(n)
    if total == 0:
        of_weight = "" if given.weights is None else " of a weight above 0"
        what = "the partitions" if named else "X"
        raise ValueError(f"{what} must hold at least one observation{of_weight}, got none")
    if given.held is not None and not any(counts_held):
        raise ValueError("validation must have at least one entry")
    check_rank(setting.rank, m, n)
    dtype = np.dtype(np.float32 if set(dtypes) == {"float32"} else np.float64)
    rows_before, entries_before = parts.own([0, *accumulate(sizes)]), parts.own([0, *accumulate(counts)])

    def entries(share: float | None) -> Entries:
        cut = parts.each(_cut, checked, dtype, weighted, share, setting.seed, entries_before)
        sums: CutSums = parts.sum_of(cut, 1)
        column_counts = parts.tree_total(_column_counts, cut)
        places = parts.each(_partition, cut, rows_before, setting.scaling, sums.least_count.value)
        return (Entries if named else EntriesInMemory)(
            crew,
            places if named else [places],
            m=m,
            n=n,
            dtype=dtype,
            n_observations=sums.n_observations,
            n_held=sums.n_held,
            weighted=weighted,
            occurring_rows=sums.occurring_rows,
            column_counts=column_counts,
            right=degree_scale(column_counts, dtype, setting.scaling),
        )

    def apart(share: float) -> Entries:
        rest = entries(share)
        if not (rest.n_observations and rest.n_held):
            raise ValueError(f"validation={share:g} leaves no entry on one side of {total}")
        left, rows = rest.occurring[0], whole.occurring[0]
        if 2 * left < rows:
            raise ValueError(f"validation={share:g} leaves entries in {left} of {rows} rows alone: hold out fewer")
        return rest

    whole = entries(None)
    if share is None and given.held is None and setting.chooses and SHARE * total >= ENOUGH:
        share = SHARE
    return whole, None if share is None else partial(apart, share)


def load_matrix(X: Any, sample_weight: Any, validation: Any, setting: FitSetting) -> tuple[Entries, Rest]:
    """Return the entries of one matrix in memory, as `load`; validation: a share of them, a matrix, or None."""
    share = as_share(validation)
    held = None if share is not None or validation is None else [validation]
    matrices = Matrices([X], None if sample_weight is None else [sample_weight], held)
    return load(Here(), matrices, setting, share=share, named=False)


def check_rank(rank: int, m: int, n: int) -> None:
    """Raise ValueError if a matrix (m, n) has not so many ranks."""
    if rank > min(m, n):
        raise ValueError(f"rank must be at most min(m, n) = {min(m, n)} for {m:,} rows and {n:,} columns, got {rank}")


def degree_scale(counts: NDArray[np.int64], dtype: np.dtype[Any], scaling: bool, least: int | None = None) -> Array:
    """Return the scale of rows or columns with so many observations: at most 1, and 1 without `scaling`.

    least: observations of the row or column that has fewest, where these are not all.
    """
    if not scaling:
        return np.ones(len(counts), dtype)
    scale = (counts + DAMPING) ** -0.25
    return (scale / (scale.max() if least is None else (least + DAMPING) ** -0.25)).astype(dtype)


# -- checks ------------------------------------------------------------------------------------------------------------
class Look(NamedTuple):
    """Facts of a partition that was checked."""

    m: int
    n: int
    nnz: int
    dtype: str
    zeros: bool  # among labels
    minus: bool
    n_held: int
    weighted: bool  # whether a weight is not 1


def _check(
    rows: Any, weights: Any, held: Any, number: int | None, loss: str, dtype: Any
) -> tuple[Look, Observed, Observed | None]:
    """Return the entries of a partition as the loss takes them, and those held out; errors name its number."""
    try:
        data, zeros, minus = _targets(rows, loss, sample_weight=weights, dtype=dtype)
        apart = None
        if held is not None:
            apart, also, less = _targets(held, loss, dtype=data.o.dtype, n_columns=data.n, name="validation")
            zeros, minus = zeros or also, minus or less
            if apart.m != data.m:
                raise ValueError(f"validation must have the {data.m} rows of X, got {apart.m}")
            _check_apart(data, apart)
    except (TypeError, ValueError) as error:
        if number is None:
            raise
        raise type(error)(f"partition {number}: {error}") from error
    n_held = 0 if apart is None else len(apart.o)
    return Look(data.m, data.n, len(data.o), data.o.dtype.name, zeros, minus, n_held, len(data.c) > 0), data, apart


def _check_apart(data: Observed, held: Observed) -> None:
    """Raise ValueError if an entry that is held out is one of those to be fitted, too."""
    places, others = (each.rows * each.n + each.indices for each in (data, held))
    both = np.intersect1d(places, others, assume_unique=True)
    if len(both):
        first, entries = divmod(int(both[0]), data.n), "entry" if len(both) == 1 else "entries"
        raise ValueError(f"validation has {len(both)} {entries} of X, the first is entry {first}: take them out of X")


def _targets(rows: Any, loss: str, *, name: str = "X", **options: Any) -> tuple[Observed, bool, bool]:
    """Return (entries, whether labels are 0, or -1): all partitions must have the same two."""
    if LOSSES[loss].targets != "label":
        data = observed(rows, loss=loss, name=name, **options)
        if loss == "square":
            _check_squares(data.o, name)
        return data.with_weight(), False, False
    data = observed(rows, loss="square", name=name, **options)
    checked = replace(data, o=as_targets(data.o, loss, name)).with_weight()
    labels = data.with_weight().o  # as they came: 0 for the lower one, or -1
    return checked, bool((labels == 0).any()), bool((labels == -1).any())


def _check_squares(values: Array, name: str) -> None:
    """Raise ValueError if the squares of values leave the range in which their products are numbers."""
    most = MOST_SQUARES[values.dtype.itemsize]
    largest = float(np.abs(values).max(initial=0.0))
    if largest > (most / max(len(values), 1)) ** 0.5:  # else the sum is below, and need not be made
        unit = values.astype(np.float64) / largest
        if not float(unit @ unit) <= most / largest / largest:
            raise ValueError(
                f"the squares of {name} must not sum up to more than {most:g} for loss='square', but a value is "
                f"{largest:g}: scale {name} down"
            )


def check_alike(widths: Sequence[int], zeros: Sequence[bool], minus: Sequence[bool]) -> None:
    """Raise ValueError unless all partitions have as many columns, and the same two labels."""
    for number, width in enumerate(widths):
        if width != widths[0]:
            raise ValueError(
                f"partition {number} has {width} columns, partition 0 has {widths[0]}: all must have the same"
            )
    if len(widths) > 1 and any(zeros) and any(minus):
        first, other = zeros.index(True), minus.index(True)
        raise ValueError(f"partition {first} holds labels 0 and 1, partition {other} labels -1 and +1")


# -- partitions --------------------------------------------------------------------------------------------------------
class CutSums(NamedTuple):
    """Sums over the entries of a partition."""

    n_observations: int
    n_held: int
    occurring_rows: int
    least_count: Smallest  # observations of a row


def _cut(
    checked: tuple[Look, Observed, Observed | None],
    dtype: np.dtype[Any],
    weighted: bool,
    share: float | None,
    seed: int,
    before: int,
) -> tuple[Observed, CutSums, Observed | None]:
    """Hold out a share of the entries, those that one fit of all would: `before` are in the partitions before.

    weighted: whether entries of any partition have weights.
    """
    data, held = _as(checked[1], dtype), checked[2] and _as(checked[2], dtype)
    if weighted and not len(data.c):
        data = replace(data, c=np.ones(len(data.o), dtype))
    if share is not None:
        numbers = np.random.PCG64(seed)
        numbers.advance(before)
        chosen = np.random.Generator(numbers).random(len(data.o)) < share
        data, held = data.part(~chosen), data.part(chosen)
    counts = data.counts[0]
    least = Smallest(int(counts.min()) if data.m else 2**62)
    sums = CutSums(len(data.o), 0 if held is None else len(held.o), int(np.count_nonzero(counts)), least)
    return data, sums, held


def _as(data: Observed, dtype: np.dtype[Any]) -> Observed:
    return data if data.o.dtype == dtype else replace(data, o=data.o.astype(dtype), c=data.c.astype(dtype))


def _column_counts(cut: tuple[Observed, CutSums, Observed | None]) -> NDArray[np.int64]:
    """Return the observations of every column (n,)."""
    return cut[0].counts[1]


def _partition(cut: tuple[Observed, CutSums, Observed | None], first_row: int, scaling: bool, least: int) -> Partition:
    data, _, held = cut
    return Partition(data, held, degree_scale(data.counts[0], data.o.dtype, scaling, least), first_row)
