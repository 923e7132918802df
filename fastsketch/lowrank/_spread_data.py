"""Partitions of rows on their way to a fit: checked one by one, cut by validation, and what is known of all of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._losses import LOSSES, as_targets
from fastsketch.lowrank._crew import Crew, Each, Partitions, added, item
from fastsketch.lowrank._data import Observed, observed
from fastsketch.lowrank._model import check_rank, degree_scale
from fastsketch.lowrank._place import Moments, Place, merged_moments, moments
from fastsketch.lowrank._spread_pursuit import Overview


class Given(NamedTuple):
    """Promises of what a user has given, for every partition."""

    rows: list[Any]
    weights: list[Any] | None
    held: list[Any] | None  # validation


class Looked(NamedTuple):
    """At one partition."""

    m: int
    n: int
    nnz: int
    dtype: str
    zeros: bool  # among labels
    minus: bool
    n_held: int


class Loaded(NamedTuple):
    """A partition that has been checked."""

    looked: Looked
    data: Observed
    held: Observed | None


def load(rows: Any, weights: Any, held: Any, number: int, loss: str, dtype: Any) -> Loaded:
    """Its entries as the loss takes them; what it refuses names the partition."""
    try:
        data, zeros, minus = _targets(rows, loss, sample_weight=weights, dtype=dtype)
        apart = None
        if held is not None:
            apart, also, less = _targets(held, loss, dtype=data.o.dtype, n_columns=data.n, name="validation")
            zeros, minus = zeros or also, minus or less
            if apart.m != data.m:
                raise ValueError(f"validation must have the {data.m} rows of X, got {apart.m}")
    except (TypeError, ValueError) as error:
        raise type(error)(f"partition {number}: {error}") from error
    n_held = 0 if apart is None else len(apart.o)
    return Loaded(Looked(data.m, data.n, len(data.o), data.o.dtype.name, zeros, minus, n_held), data, apart)


def _targets(rows: Any, loss: str, *, name: str = "X", **options: Any) -> tuple[Observed, bool, bool]:
    """(entries, whether labels are 0, or -1): all partitions must have the same two."""
    if LOSSES[loss].targets != "label":
        return observed(rows, loss=loss, name=name, **options), False, False
    found = observed(rows, loss="square", name=name, **options)
    zeros, minus = bool((found.o == 0).any()), bool((found.o == -1).any())
    return replace(found, o=as_targets(found.o, loss, name)), zeros, minus


class Cut(NamedTuple):
    """A partition whose held-out entries are apart."""

    data: Observed
    held: Observed | None
    sums: "CutSums"
    moments: Moments  # of the values
    alike: tuple[NDArray[np.int64], NDArray[np.int64]]


class CutSums(NamedTuple):
    """Of a partition's entries; of all of them added."""

    n_observations: int
    n_held: int
    weight: float
    weighted_sum: float  # of the values
    most_size: float
    most_weight: float
    least_count: int  # observations of a row


def cut(loaded: Loaded, dtype: np.dtype[Any], share: float | None, seed: int, before: int) -> Cut:
    """share: of the entries held out, of which `before` are in the partitions before: those that one fit would take."""
    data, held = (None if each is None else _as(each, dtype) for each in loaded[1:])
    assert data is not None
    if share is not None:
        numbers = np.random.PCG64(seed)
        numbers.advance(before)
        chosen = np.random.Generator(numbers).random(len(data.o)) < share
        data, held = data.part(~chosen), data.part(chosen)
    o, c = data.o, data.c
    counts = data.counts[0]
    weight = float(c.sum(dtype=np.float64)) if len(c) else float(len(o))
    value = float((c * o.astype(np.float64)).sum()) if len(c) else float(o.sum(dtype=np.float64))
    sums = CutSums(
        len(o),
        0 if held is None else len(held.o),
        weight,
        value,
        float(np.abs(o).max(initial=0.0)),
        float(c.max(initial=0.0)) if len(c) else 1.0,
        int(counts.min()) if data.m else 2**62,
    )
    return Cut(data, held, sums, moments(o), np.unique(counts[counts > 0], return_counts=True))


def _as(data: Observed, dtype: np.dtype[Any]) -> Observed:
    return data if data.o.dtype == dtype else replace(data, o=data.o.astype(dtype), c=data.c.astype(dtype))


class Columns(NamedTuple):
    """Of a partition's entries."""

    counts: NDArray[np.int64]  # (n,)


def column_counts(cut: Cut) -> Columns:
    """Observations of every column."""
    return Columns(cut.data.counts[1])


def placed(cut: Cut, first_row: int, scaling: bool, least: int) -> Place:
    """With the degree scaling of its rows."""
    counts = cut.data.counts[0]
    return Place(cut.data, cut.held, degree_scale(counts, cut.data.o.dtype, scaling, least), first_row)


def spread_out(
    crew: Crew,
    given: Given,
    *,
    loss: str,
    dtype: np.dtype[Any] | None,
    share: float | None,
    seed: int,
    scaling: bool,
    rank: int,
    check: Callable[[int], None],
) -> tuple[Partitions, Overview]:
    """The partitions where a fit needs them, and what is known of all. check(n): whether so many columns will do."""
    weights, held = (none if each is None else each for none, each in (
        ([None] * len(given.rows), given.weights),
        ([None] * len(given.rows), given.held),
    ))  # fmt: skip
    each = list(zip(given.rows, weights, held, strict=True))
    loaded = [crew.call(load, *parts, number, loss, dtype) for number, parts in enumerate(each)]
    looked: list[Looked] = crew.fetch([crew.call(item, own, 0) for own in loaded])
    m, n = _shape(looked)
    check(n)
    total = sum(own.nnz for own in looked)
    if total == 0:
        raise ValueError("the partitions must hold at least one observation, got none")
    if given.held is not None and not any(own.n_held for own in looked):
        raise ValueError("validation must have at least one entry")
    kind = np.dtype(np.float32 if all(own.dtype == "float32" for own in looked) else np.float64)
    firsts = [sum(own.m for own in looked[:p]) for p in range(len(looked))]
    befores = [sum(own.nnz for own in looked[:p]) for p in range(len(looked))]
    cuts: Each[Any] = Each(
        crew.call(cut, own, kind, share, seed, before) for own, before in zip(loaded, befores, strict=True)
    )
    del loaded
    sums: CutSums = added(crew.fetch([crew.call(item, own, 2) for own in cuts]))
    if share is not None and not (sums.n_observations and sums.n_held):
        raise ValueError(f"validation={share:g} leaves no entry on one side of {total}")
    check_rank(rank, m, n)
    spread = merged_moments(crew.fetch([crew.call(item, own, 3) for own in cuts]))
    columns = Partitions(crew, cuts).gathered(column_counts).counts
    least = sums.least_count
    places = Each(crew.call(placed, own, first, scaling, least) for own, first in zip(cuts, firsts, strict=True))
    about = Overview(
        m=m,
        n=n,
        dtype=kind,
        n_observations=sums.n_observations,
        total_weight=sums.weight,
        mean=sums.weighted_sum / sums.weight if sums.weight > 0 else 0.0,
        spread=float(np.sqrt(spread.squares / spread.size)),
        largest=sums.most_size,
        most_weight=sums.most_weight,
        columns=columns,
        rows=_together(crew.fetch([crew.call(item, own, 4) for own in cuts])),
        weighted=given.weights is not None,
        right=degree_scale(columns, kind, scaling),
        n_held=sums.n_held,
        sizes=tuple(own.m for own in looked),
    )
    return Partitions(crew, places), about


def _shape(looked: list[Looked]) -> tuple[int, int]:
    """(rows, columns); partitions must have the same columns, and labels."""
    n = looked[0].n
    for number, own in enumerate(looked):
        if own.n != n:
            raise ValueError(f"partition {number} has {own.n} columns, partition 0 has {n}: all must have the same")
    zeros, minus = ([k for k, own in enumerate(looked) if own[field]] for field in (4, 5))
    if zeros and minus:
        raise ValueError(f"partition {zeros[0]} holds labels 0 and 1, partition {minus[0]} labels -1 and +1")
    return sum(own.m for own in looked), n


def _together(alike: list[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of all rows, from those of partitions."""
    values, many = (np.concatenate([own[k] for own in alike]) for k in (0, 1))
    found, where = np.unique(values, return_inverse=True)
    return found, np.bincount(where, many, len(found)).astype(np.int64)
