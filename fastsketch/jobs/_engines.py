"""Engines run tasks: in this thread, in a pool of threads, or in worker processes. ``_dask`` has one for clusters.

An engine is a context manager. Tasks are submitted with a key, which names them in messages; their results come in the
order in which they finish. A task returns the same result on every engine. Engines know nothing of models.
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
    """Raised inside a task whose result is no longer needed."""


class Engine:
    """Base class of all engines.

    Attributes
    ----------
    n_workers : int
        Number of tasks that run at the same time.
    here : bool
        Whether tasks run in this process. If so, arguments and results are the objects themselves, otherwise copies.
    """

    n_workers = 1
    here = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the tasks that are running, and wait for their end."""

    def room(self, left: int) -> int:
        """Return how many tasks should be submitted and unfinished, so that no worker waits; `left` follow later."""
        return 2 * self.n_workers

    def submit(self, key: Hashable, function: Function, *args: Any) -> None:
        """Schedule ``function(*args)``. It may run more than once, if a worker is lost."""
        raise NotImplementedError

    def next(self) -> tuple[Any, Any]:
        """Wait until a task has finished, and return (key, result).

        Raises
        ------
        WorkerLost
            If a task lost its worker more often than the engine retries.
        Exception
            The error of a task, or of sending its arguments or its result.
        """
        raise NotImplementedError

    def share(self, value: Any) -> Any:
        """Return a substitute for a value that is an argument of many tasks, so that it is sent to a worker once."""
        return value


# -- in this process -----------------------------------------------------------------------------------------------
_this_thread = threading.local()


def tell(n_rows: int) -> None:
    """Report within a task that n_rows more rows are done. Raises TaskStopped if the result is no longer needed."""
    listener = getattr(_this_thread, "listener", None)
    if listener is not None:
        listener(n_rows)


class Serial(Engine):
    """Engine that runs one task after the other in this thread.

    Parameters
    ----------
    limit : context manager, optional
        Limits the threads of BLAS and of the kernels while the engine is open.
    listener : callable, optional
        Called with the number of rows whenever a task reports some.
    """

    def __init__(self, limit: Any = None, listener: Callable[[int], None] | None = None) -> None:
        self._limit, self._listener = limit, listener
        self._waiting: deque[tuple[Any, Function, tuple[Any, ...]]] = deque()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._limit or nullcontext())
        self._stack.callback(setattr, _this_thread, "listener", getattr(_this_thread, "listener", None))
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
    """Engine of a thread pool; compiled kernels release the interpreter lock. BLAS runs on one thread in each task."""

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self._pool = ThreadPoolExecutor(n_workers, initializer=setattr, initargs=(_this_thread, "listener", self._stop))
        self._done: queue.SimpleQueue[tuple[Hashable, Future[Any]]] = queue.SimpleQueue()
        self._stopped = False
        self._limit: AbstractContextManager[Any] = _threads.thread_limit(1)

    def __enter__(self) -> Self:
        self._limit.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._stopped = True
            self._pool.shutdown(cancel_futures=True)
        finally:
            self._limit.__exit__(None, None, None)

    def _stop(self, _: int = 0) -> None:
        if self._stopped:
            raise TaskStopped

    def submit(self, key: Hashable, function: Function, *args: Any) -> None:
        """See Engine."""
        future = self._pool.submit(self._perform, key, function, args)
        future.add_done_callback(lambda future: self._done.put((key, future)))

    def _perform(self, key: Hashable, function: Function, args: tuple[Any, ...]) -> Any:
        """Run a task in a thread of the pool."""
        return function(*args)

    def next(self) -> tuple[Any, Any]:
        """See Engine."""
        key, future = self._done.get()
        return key, future.result()


# -- in processes --------------------------------------------------------------------------------------------------
class Processes(Threads):
    """Engine of spawned processes, which end with this process. A lost process is replaced and its task repeated.

    Each thread of the pool has a process of its own, to which it sends its tasks.
    """

    here = False

    def __init__(self, n_workers: int, retries: int) -> None:
        super().__init__(n_workers)
        self._retries = retries
        self._context = get_context("spawn")
        self._limit = nullcontext()
        self._lock = threading.Lock()
        self._own = threading.local()  # the worker of a thread
        self._workers: list[Worker] = []

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._stopped = True
            for worker in self._workers:
                worker.terminate()
        super().__exit__()
        for worker in self._workers:
            worker.join()

    def _perform(self, key: Hashable, function: Function, args: tuple[Any, ...]) -> Any:
        for _ in range(self._retries + 1):
            worker = self._worker_of_thread()
            try:
                return worker.run(key, function, args)
            except Lost:
                self._own.worker = None
                if (status := worker.join()) > 0:  # it was not killed, so that another process would end as well
                    raise WorkerLost(f"the process of {key} ended with status {status}{_MAIN}") from None
        raise WorkerLost(f"{key} lost its process {self._retries + 1} times: killed, or out of memory?")

    def _worker_of_thread(self) -> Worker:
        """Return the process of this thread, which is started if there is none."""
        with self._lock:
            self._stop()
            if getattr(self._own, "worker", None) is None:
                self._own.worker = Worker(self._context)
                self._workers.append(self._own.worker)
            return self._own.worker

    def share(self, value: Any) -> Any:
        """See Engine. Raises the error of pickle if the value cannot be sent."""
        return Shared(value)


_MAIN = ": in a script, jobs must be started under  if __name__ == '__main__'  (standard error says why)"
