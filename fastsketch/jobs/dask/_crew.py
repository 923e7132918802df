"""Calls beside partitions, on the workers of a distributed client: pure tasks whose results stay where they are.

What was promised is put together here and sent when something is fetched: one graph for all calls until then. A result
lives as long as its promise; what it was made from is known to the scheduler, so that a lost worker costs the tasks
whose results it alone had.
"""

# Dask has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import itertools
import uuid
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from fastsketch._core.threads import thread_limit
from fastsketch.jobs.dask._engine import awaited


class Promise:
    """A result to come: a future, once its task was sent."""

    __slots__ = ("__weakref__", "future", "key")

    def __init__(self, key: str, future: Any = None) -> None:
        self.key, self.future = key, future


class _ResultSlot(NamedTuple):
    """The place of a result among arguments."""

    place: int


class _Call:
    """A function with its arguments but for those that other tasks give: opaque to Dask, which would search it."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        self.function, self.args = function, args

    def __call__(self, *results: Any) -> Any:
        with thread_limit(1):
            return self.function(*_filled(self.args, results))


def _filled(args: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    out: list[Any] = []
    for arg in args:
        if isinstance(arg, _ResultSlot):
            out.append(results[arg.place])
        elif type(arg) is list:
            out.append(_filled(arg, results))
        else:
            out.append(arg)
    return out


def _same(value: Any) -> Any:
    return value


class ClientCrew:
    """The workers of a client, as the crew of a fit."""

    in_place = False  # of a lost worker, tasks are run again

    def __init__(self, client: Any) -> None:
        self._client, self._name = client, f"fastsketch-{uuid.uuid4().hex[:12]}"
        self._numbers = itertools.count()
        self._graph: dict[str, tuple[Any, ...]] = {}
        self._promised: WeakValueDictionary[str, Promise] = WeakValueDictionary()

    def holding(self, future: Any) -> Promise:
        """Return a promise of the result of a future."""
        return Promise(future.key, future)

    def call(self, function: Callable[..., Any], *args: Any) -> Promise:
        results: list[Any] = []
        promise = Promise(f"{function.__name__}-{self._name}-{next(self._numbers)}")
        call = _Call(function, self._emptied(args, results))
        self._graph[promise.key] = (call, *results)
        self._promised[promise.key] = promise
        return promise

    def _emptied(self, args: Sequence[Any], results: list[Any]) -> list[Any]:
        """Return the arguments with slots in place of promises, which go to `results`."""
        out: list[Any] = []
        for arg in args:
            if isinstance(arg, Promise):
                out.append(_ResultSlot(len(results)))
                results.append(arg)
            elif isinstance(arg, list):
                out.append(self._emptied(arg, results))
            else:
                out.append(arg)
        return out

    def put(self, value: Any) -> Promise:
        # a task that returns it: what was scattered would be lost with its worker
        return self.call(_same, value)

    def fetch(self, promises: Sequence[Promise]) -> list[Any]:
        self._send()
        return awaited(self._client, [promise.future for promise in promises])

    def _send(self) -> None:
        graph, self._graph = self._graph, {}
        if not graph:
            return
        wanted = {key: promise for key in graph if (promise := self._promised.get(key)) is not None}
        graph = {
            key: tuple(part if not isinstance(part, Promise) else part.future or part.key for part in task)
            for key, task in graph.items()
        }
        with warnings.catch_warnings():
            # vectors of all columns travel with the graph, of purpose
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            futures = self._client.get(graph, list(wanted), sync=False)
        for promise, future in zip(wanted.values(), futures, strict=True):
            promise.future = future
        self._promised.clear()
