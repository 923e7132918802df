"""Reading ahead: what an iterator gives next is made while the last is worked on."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

# Of chunks that are alive at a time: one is worked on, one waits, one is being made.
ALIVE = 3


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the items, made by a thread that is at most two ahead and ends when this iterator does, however that is."""
    reading = _Reading(items)
    owner = os.getpid()
    reading.thread.start()
    try:
        while (item := reading.next()) is not None:
            yield item[0]
            item = None
    finally:
        if os.getpid() == owner:  # a child that was forked meanwhile has no such thread, and its locks are anyone's
            reading.end()


class _Reading(Generic[T]):
    """A thread that goes through an iterator."""

    def __init__(self, items: Iterator[T]) -> None:
        self.thread = threading.Thread(target=self._run, name="fastsketch-read", daemon=True)
        self._items = items
        self._made: deque[tuple[T]] = deque()
        self._changed = threading.Condition()
        self._stopped = self._done = False
        self._error: BaseException | None = None

    def next(self) -> tuple[T] | None:
        """Return the next item in a tuple, None at the end; errors of the iterator come through."""
        with self._changed:
            while not self._made and not self._done:
                self._changed.wait()
            if self._made:
                item = self._made.popleft()
                self._changed.notify_all()
                return item
        if self._error is not None:
            raise self._error
        return None

    def end(self) -> None:
        """Let the thread end after what it is at, and wait for that."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self.thread.join()
        self._error = None  # its traceback holds this frame

    def _run(self) -> None:
        try:
            for item in self._items:
                with self._changed:
                    while self._made and not self._stopped:
                        self._changed.wait()
                    if self._stopped:
                        break
                    self._made.append((item,))
                    self._changed.notify_all()
                del item
        except BaseException as error:  # noqa: BLE001  it is raised where the items are wanted
            self._error = error
        finally:
            close: Callable[[], object] | None = getattr(self._items, "close", None)
            if close is not None:
                close()
            with self._changed:
                self._done = True
                self._changed.notify_all()


class Spaces:
    """Memory for chunks, used again after `alive` of them."""

    def __init__(self, alive: int = ALIVE) -> None:
        self._spaces: list[NDArray[np.uint8]] = [np.empty(0, np.uint8)] * alive
        self._last = 0

    def next(self, shape: tuple[int, ...], dtype: Any, order: Any = "C") -> NDArray[Any]:
        """Return an array whose entries are anything."""
        self._last = (self._last + 1) % len(self._spaces)
        dtype = np.dtype(dtype)
        n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if self._spaces[self._last].size < n_bytes:
            self._spaces[self._last] = np.empty(0, np.uint8)  # before there are two
            self._spaces[self._last] = np.empty(n_bytes, np.uint8)
        return self._spaces[self._last][:n_bytes].view(dtype).reshape(shape, order=order)
