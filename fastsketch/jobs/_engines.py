"""Engines that run tasks: here, in threads, in processes that may die, or on a cluster. None of them knows models.

An engine is a context manager. Tasks are submitted by key; their results come as they finish, in any order. A key is
what messages call the task. The same tasks have the same results on every engine.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from multiprocessing import get_context
from typing import Any, Self

from fastsketch._core import threads as _threads
from fastsketch.jobs._worker import Lost, Shared, Worker, WorkerLost

Function = Callable[..., Any]


class TaskStopped(BaseException):
    """Signal to a task whose result nobody waits for any more."""


class Engine:
    """Runner of tasks: the base of all.

    Attributes
    ----------
    n_workers : int
        Tasks that run at the same time.
    here : bool
        Whether tasks run in this process: what they are given and return is then the object itself, else a pickle.
    """

    n_workers = 1
    here = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop what is still running, and wait for its end."""

    def room(self, left: int) -> int:
        """Return how many tasks to have under way so that no worker waits; `left` are yet to come."""
        return 2 * self.n_workers

    def submit(self, key: Hashable, function: Function, *args: Any) -> None:
        """Begin ``function(*args)``, or let it wait for a worker; pure, since it may run again after one was lost."""
        raise NotImplementedError

    def next(self) -> tuple[Any, Any]:
        """Wait for a task that has finished, and return (key, result).

        Raises
        ------
        WorkerLost
            If a task has lost its worker more often than the engine's retries.
        Exception
            What a task raised, or what keeps it or its result from being sent.
        """
        raise NotImplementedError

    def share(self, value: Any) -> Any:
        """Return what stands for a value in the arguments of many tasks: it is sent to every worker once."""
        return value


# -- in this process -----------------------------------------------------------------------------------------------
_this_thread = threading.local()


def tell(n_rows: int) -> None:
    """Say within a task that more rows are in; raises TaskStopped if nobody waits for its result."""
    listener = getattr(_this_thread, "listener", None)
    if listener is not None:
        listener(n_rows)


class Serial(Engine):
    """Engine of one task after the other, in this thread. `limit`: of BLAS and the pool meanwhile."""

    def __init__(self, limit: Any = None, listener: Callable[[int], None] | None = None) -> None:
        self._limit, self._listener = limit, listener
        self._waiting: deque[tuple[Any, Function, tuple[Any, ...]]] = deque()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if self._limit is not None:
            self._stack.enter_context(self._limit)
        before = getattr(_this_thread, "listener", None)
        self._stack.callback(setattr, _this_thread, "listener", before)
        _this_thread.listener = self._listener
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def room(self, left: int) -> int:
        """See Engine."""
        return 1

    def submit(self, key: Hashable, function: Function, *args: Any) -> None:
        """See Engine."""
        self._waiting.append((key, function, args))

    def next(self) -> tuple[Any, Any]:
        """See Engine."""
        key, function, args = self._waiting.popleft()
        return key, function(*args)


class Threads(Engine):
    """Engine of Python threads: the kernels release the interpreter lock. BLAS has one thread in each."""

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self._crew = ThreadPoolExecutor(n_workers, initializer=setattr, initargs=(_this_thread, "listener", self._stop))
        self._done: queue.SimpleQueue[tuple[Hashable, Future[Any]]] = queue.SimpleQueue()
        self._stopped = False
        self._limit: AbstractContextManager[Any] = _threads.thread_limit(1)

    def __enter__(self) -> Self:
        self._limit.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._stopped = True
            self._crew.shutdown(cancel_futures=True)
        finally:
            self._limit.__exit__(None, None, None)

    def _stop(self, _: int) -> None:
        if self._stopped:
            raise TaskStopped

    def submit(self, key: Hashable, function: Function, *args: Any) -> None:
        """See Engine."""
        future = self._crew.submit(self._perform, key, function, args)
        future.add_done_callback(lambda future: self._done.put((key, future)))

    def _perform(self, key: Hashable, function: Function, args: tuple[Any, ...]) -> Any:
        """Run a task in one of the threads."""
        return function(*args)

    def next(self) -> tuple[Any, Any]:
        """See Engine."""
        key, future = self._done.get()
        return key, future.result()


# -- in processes --------------------------------------------------------------------------------------------------
class Processes(Threads):
    """Engine of spawned processes, which die with this one; the task of a lost one is done again by a new one.

    Each of the threads sends its tasks to a process, and waits for the results.
    """

    here = False

    def __init__(self, n_workers: int, retries: int) -> None:
        super().__init__(n_workers)
        self._retries = retries
        self._context = get_context("spawn")
        self._limit = nullcontext()
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._all: list[Worker] = []

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._stopped = True
            for worker in self._all:
                worker.terminate()
        super().__exit__()
        for worker in self._all:
            worker.join()

    def _perform(self, key: Hashable, function: Function, args: tuple[Any, ...]) -> Any:
        for _ in range(self._retries + 1):
            worker = self._idle_worker()
            try:
                good, value = worker.ask(key, function, args)
            except Lost:
                if (status := worker.join()) > 0:  # it was not killed, and another one would end, too
                    raise WorkerLost(f"the process of {key} ended with status {status}{_MAIN}") from None
                continue
            with self._lock:
                self._idle.append(worker)
            if not good:
                raise value
            return value
        raise WorkerLost(f"{key} lost its process {self._retries + 1} times: killed, or out of memory?")

    def _idle_worker(self) -> Worker:
        """Return a process that is idle; a new one if none is."""
        with self._lock:
            if self._stopped:
                raise TaskStopped
            if self._idle:
                return self._idle.pop()
            worker = Worker(self._context)
            self._all.append(worker)
            return worker

    def share(self, value: Any) -> Any:
        """See Engine; raises what pickle does if it cannot be sent."""
        return Shared(value)


_MAIN = ": in a script, what begins a job must stand under  if __name__ == '__main__'  (it says why on standard error)"
