"""Partitions that stay where they are: calls go to them, and sums come back.

A fit over partitions knows of its surroundings only what `Crew` says. Functions that are called are pure and can be
imported: whoever lost a worker calls them again.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

# Neighbours whose sums are added by one call: the shape of the tree, and with it the bits, depend on nothing else.
FAN_IN = 4

T = TypeVar("T")


class Crew(Protocol):
    """Who computes, somewhere."""

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """A promise of function(*args); arguments may be promises, and lists of promises."""
        ...

    def put(self, value: Any) -> Any:
        """A promise of a value that many calls will need."""
        ...

    def fetch(self, promises: Sequence[Any]) -> list[Any]:
        """What was promised, or the exception of the first call that failed."""
        ...


class Here:
    """Calls that are done at once, in this process: promises are values."""

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def put(self, value: Any) -> Any:
        return value

    def fetch(self, promises: Sequence[Any]) -> list[Any]:
        return list(promises)


class Each(list[T]):
    """One thing, or promise of one, for every partition."""


class Partitions:
    """The partitions of a crew in their order."""

    def __init__(self, crew: Crew, places: Sequence[Any]) -> None:
        self.crew, self.places = crew, Each(places)

    def __len__(self) -> int:
        return len(self.places)

    def each(self, function: Callable[..., Any], *args: Any) -> Each[Any]:
        """A promise of function(place, *args) for every partition; of an argument that is Each, it gets its own."""
        return Each(self.crew.call(function, place, *_own(args, k)) for k, place in enumerate(self.places))

    def all(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """What the partitions answer, in their order: small things."""
        return self.crew.fetch(self.each(function, *args))

    def total(self, function: Callable[..., Any], *args: Any) -> Any:
        """What they answer, added: few numbers."""
        return added(self.all(function, *args))

    def nodes(self, answers: Sequence[Any]) -> list[Any]:
        """At most FAN_IN promises, of which the sum is that of all answers: added along a tree."""
        nodes = list(answers)
        while len(nodes) > FAN_IN:
            nodes = [self.crew.call(added, nodes[k : k + FAN_IN]) for k in range(0, len(nodes), FAN_IN)]
        return nodes

    def summed(self, function: Callable[..., Any], *args: Any, then: Callable[..., Any], also: Sequence[Any]) -> Any:
        """A promise of then(what they answer, added, *also): many numbers, of which few come of `then`."""
        return self.crew.call(_then, then, self.nodes(self.each(function, *args)), *also)

    def gathered(self, function: Callable[..., Any], *args: Any) -> Any:
        """What they answer, added: some numbers for every column."""
        return added(self.crew.fetch(self.nodes(self.each(function, *args))))


def _own(args: tuple[Any, ...], k: int) -> list[Any]:
    return [arg[k] if isinstance(arg, Each) else arg for arg in args]


def _then(then: Callable[..., Any], nodes: list[Any], *also: Any) -> Any:
    return then(added(nodes), *also)


def item(of: Any, k: int) -> Any:
    """The k-th part of an answer."""
    return of[k]


def added(answers: Sequence[Any]) -> Any:
    """Named tuples of numbers and arrays, added field by field in their order; of fields most_* the largest is kept, of
    least_* the least, of same_* the first.
    """
    first = answers[0]
    if len(answers) == 1:
        return first
    out: list[Any] = []
    for k, name in enumerate(first._fields):
        values = [answer[k] for answer in answers]
        if name.startswith("same_"):
            out.append(values[0])
        elif name.startswith("most_"):
            out.append(max(values))
        elif name.startswith("least_"):
            out.append(min(values))
        else:
            out.append(_sum(values))
    return type(first)(*out)


def _sum(values: list[Any]) -> Any:
    total = values[0] + values[1]
    for value in values[2:]:
        if isinstance(total, np.ndarray):
            total += value
        else:
            total = total + value
    return total
