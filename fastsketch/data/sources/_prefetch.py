"""Prefetch items of an iterator in a thread while the caller works on the previous item."""

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar, cast

T = TypeVar("T")

# Chunks in memory at a time: one in use, one waiting, one being read.
ALIVE = 3


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """Yield the items of an iterator while a thread computes up to two further items in advance.

    The thread ends with this generator.
    """
    owner, end = os.getpid(), object()
    thread = ThreadPoolExecutor(1, "fastsketch-read")
    coming: deque[Future[Any]] = deque()
    try:
        coming += [thread.submit(next, items, end) for _ in range(ALIVE - 1)]
        while (item := coming.popleft().result()) is not end:
            coming.append(thread.submit(next, items, end))
            yield item
            item = None  # free the chunk before waiting for the next one
    finally:
        if os.getpid() == owner:  # a forked child process does not have the thread
            for future in coming:
                future.cancel()
            if hasattr(items, "close"):
                thread.submit(cast("Any", items).close)
            thread.shutdown()
