"""The observed entries of a fit, in partitions of rows that stay where they are: functions go there, sums come back.

A fit knows of its surroundings only what `Crew` says: in this process (`Here`), where a matrix in memory is one
partition, or on the workers of a cluster (jobs/dask). The functions can be imported and change nothing that they
are given, so that whoever lost a worker calls them again; `in_place` tells those whose state would be copied in vain.
Bits depend on the partitions, not on who computes them.
"""

import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastsketch.lowrank._data import Array, Observed

# Neighbours whose sums are added by one call: the shape of the tree, and with it the bits, depend on nothing else.
FAN_IN = 4

T = TypeVar("T")
Counts = tuple[NDArray[np.int64], NDArray[np.int64]]


# -- where functions are called ----------------------------------------------------------------------------------------
class Crew(Protocol):
    """Workers that hold the partitions."""

    in_place: bool  # whether states may be changed: nobody will call a function again

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return a promise of function(*args); arguments may be promises, and lists of promises."""
        ...

    def put(self, value: Any) -> Any:
        """Return a promise of a value that many calls will need."""
        ...

    def fetch(self, promises: Sequence[Any]) -> list[Any]:
        """Return what was promised, or raise the exception of the first call that failed."""
        ...


class Here:
    """Calls that are done at once, in this process: promises are values."""

    in_place = True
    call: Any = staticmethod(operator.call)
    fetch: Any = staticmethod(list[Any])

    @staticmethod
    def put(value: Any) -> Any:
        return value


class Each(list[T]):
    """A list of one thing, or promise of one, for every partition."""


class Partitions:
    """Partitions, and the crew that calls functions beside them."""

    own: Any = Each  # a list for all partitions as the argument of `each` that has for every one its own

    def __init__(self, crew: Crew, places: Sequence[Any]) -> None:
        self.crew, self.in_place = crew, crew.in_place
        self.alone = len(places) == 1  # then steps over the columns are done beside the rows, in one call
        self.places, self.numbers = self.own(places), self.own(range(len(places)))

    def put(self, value: Any) -> Any:
        """Return promise a value that many calls will need."""
        return self.crew.put(value)

    def each(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return promise function(*args) of every partition; of an argument that is Each, it gets its own."""
        out: Each[Any] = Each()
        for k in range(len(self.places)):
            own: list[Any] = [arg[k] if isinstance(arg, Each) else arg for arg in args]
            out.append(self.crew.call(function, *own))
        return out

    def items(self, answers: Any, k: int) -> Any:
        """Return promise the k-th part of each of these answers."""
        return Each(self.crew.call(operator.getitem, answer, k) for answer in answers)

    def together(self, things: Sequence[Any]) -> Any:
        """Return a list for every partition of what it has of each of these things."""
        return Each([thing[k] for thing in things] for k in range(len(self.places)))

    def fetch(self, answers: Any) -> list[Any]:
        """Return these answers, as they are."""
        return self.crew.fetch(answers)

    def sum_of(self, answers: Any, k: int) -> Any:
        """Return the sum of the k-th parts of these answers."""
        return added(self.crew.fetch(self.items(answers, k)))

    def total(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return the sum of function(*args) of every partition: few numbers."""
        return added(self.crew.fetch(self.each(function, *args)))

    def tree_total(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return that sum, added along a tree: some numbers for every column."""
        return added(self.crew.fetch(self.nodes(self.each(function, *args))))

    def nodes(self, answers: Sequence[Any]) -> list[Any]:
        """Return promise at most FAN_IN sums, which together are the sum of all answers: added along a tree."""
        nodes = list(answers)
        while len(nodes) > FAN_IN:
            nodes = [self.crew.call(added, nodes[k : k + FAN_IN]) for k in range(0, len(nodes), FAN_IN)]
        return nodes


class InMemory(Partitions):
    """One partition in this process: what would be promised of each is there, as it is."""

    own: Any = operator.itemgetter(0)
    each: Any = staticmethod(operator.call)
    total: Any = each
    tree_total: Any = each
    items: Any = staticmethod(operator.getitem)
    sum_of: Any = items

    def put(self, value: Any) -> Any:
        return value

    def together(self, things: Sequence[Any]) -> Any:
        return things

    def fetch(self, answers: Any) -> list[Any]:
        return [answers]


# -- sums --------------------------------------------------------------------------------------------------------------
def added(answers: Sequence[Any]) -> Any:
    """Return the sum of answers in their order, of tuples field by field; a value's type says what adding it means."""
    total = answers[0]
    if len(answers) == 1:
        return total
    make: Any = getattr(total, "_make", tuple)
    if isinstance(total, tuple):
        return make(map(added, zip(*answers, strict=True)))
    total = total + answers[1]
    for value in answers[2:]:
        if isinstance(total, np.ndarray):
            total += value
        else:
            total = total + value
    return total


@dataclass(frozen=True)
class Largest:
    """A value of which the largest is kept."""

    value: Any

    def __add__(self, other: "Largest") -> "Largest":
        return other if other.value > self.value else self


@dataclass(frozen=True)
class Smallest:
    """A value of which the smallest is kept."""

    value: Any

    def __add__(self, other: "Smallest") -> "Smallest":
        return other if other.value < self.value else self


@dataclass(frozen=True)
class First:
    """A value that is the same in all answers: the first is kept."""

    value: Any

    def __add__(self, other: "First") -> "First":
        return self


@dataclass(frozen=True)
class Moments:
    """The mean of some numbers and their squared distances from it; the sum of two is that of all their numbers."""

    size: int
    mean: float
    squares: float

    def __add__(self, other: "Moments") -> "Moments":
        if not other.size:
            return self
        count, apart = self.size + other.size, other.mean - self.mean
        squares = self.squares + other.squares + apart**2 * self.size * other.size / count
        return Moments(count, self.mean + apart * other.size / count, squares)

    @property
    def deviation(self) -> float:
        """Return the standard deviation; 0 without any number."""
        return float(np.sqrt(self.squares / self.size)) if self.size else 0.0


def moments(values: NDArray[Any]) -> Moments:
    """Return the moments of values (k,), in float64."""
    if not len(values):
        return Moments(0, 0.0, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        apart = values.astype(np.float64)
        mean = float(apart.mean())
        apart -= mean
        apart *= apart
        return Moments(len(values), mean, float(apart.sum()))


# -- the entries -------------------------------------------------------------------------------------------------------
class Partition(NamedTuple):
    """Some rows of the matrix with all columns."""

    data: Observed
    held: Observed | None  # entries held out for validation
    left: Array  # (m,) degree scaling of its rows
    first_row: int


class Entries(Partitions):
    """All entries of a fit, and what is known of them."""

    def __init__(
        self,
        crew: Crew,
        places: Sequence[Any],
        *,
        m: int,
        n: int,
        dtype: np.dtype[Any],
        n_observations: int,
        n_held: int,
        weighted: bool,
        occurring_rows: int,
        column_counts: NDArray[np.int64],
        right: Array,
    ) -> None:
        """Take Partitions (`places`), (m, n) of the whole, rows with entries, and the scaling `right` (n,)."""
        super().__init__(crew, places)
        self.data = self.items(self.places, 0)
        self.m, self.n, self.dtype = m, n, dtype
        self.n_observations, self.n_held, self.weighted = n_observations, n_held, weighted
        self.column_counts, self.right = column_counts, right
        self.occurring = occurring_rows, int(np.count_nonzero(column_counts))
        self.right_there = self.put(right)

    @cached_property
    def spread(self) -> tuple[float, float]:
        """Return (standard deviation, largest size) of the values."""
        values, largest = self.total(_spread, self.places)
        return values.deviation, largest.value

    @cached_property
    def largest_weight(self) -> float:
        """Return the largest weight of an entry."""
        return self.total(_largest_weight, self.places).value if self.weighted else 1.0

    @cached_property
    def counts(self) -> tuple[Counts, Counts]:
        """Return, for rows and for columns, the numbers of observations that occur and how many have each."""
        rows: Counter[int] = self.total(_alike_rows, self.places)
        observations, many = np.array(sorted(rows.items())).T
        return (observations, many), np.unique(self.column_counts[self.column_counts > 0], return_counts=True)

    def gathered(self, rows: Any) -> tuple[Array, Array]:
        """Return factors (m, t) and biases (m,) of all rows, whose sides are fetched one after the other."""
        factors, biases = zip(*[self.crew.fetch([own])[0] for own in rows], strict=True)
        return np.concatenate(factors), np.concatenate(biases)


class EntriesInMemory(InMemory, Entries):
    """The entries of one partition in this process."""

    def gathered(self, rows: Any) -> tuple[Array, Array]:
        return rows


Rest = Callable[[], Entries] | None  # makes the entries again, some of them held out


def _spread(place: Partition) -> tuple[Moments, Largest]:
    o = place.data.o
    return moments(o), Largest(max(float(o.max(initial=0.0)), -float(o.min(initial=0.0))))


def _largest_weight(place: Partition) -> Largest:
    return Largest(float(place.data.c.max(initial=0.0)))


def _alike_rows(place: Partition) -> Counter[int]:
    """Return how many rows have each number of observations; such counts add up."""
    counts = place.data.counts[0]
    values, many = np.unique(counts[counts > 0], return_counts=True)
    return Counter(dict(zip(values.tolist(), many.tolist(), strict=True)))
