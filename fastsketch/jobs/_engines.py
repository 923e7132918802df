"""Engines that run tasks in this thread, in a thread pool, or in worker processes.

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
from fastsketch.jobs._worker import ProcessEnded, Shared, Worker, WorkerLost

Function = Callable[..., Any]


class TaskStopped(BaseException):
    """Raised inside a task to stop it, because its result is no longer needed."""


class Engine:
    """Base class of engines, which run submitted tasks and return their results in the order in which they finish.

    Attributes
    ----------
    n_workers : int
        Number of tasks that run at the same time.
    here : bool
        Whether tasks run in this process. If so, arguments and results are the objects themselves, otherwise copies.
    """

    n_workers = 1
    in_process = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the tasks that are running, and wait for their end."""

    def max_submitted(self, n_remaining: int) -> int:
        """Return how many tasks the caller should keep submitted, so that no worker waits for one.

        `n_remaining` is the number of tasks that are not submitted yet.
        """
        return 2 * self.n_workers

    def submit(self, key: Hashable, function: Function, *args: Any) -> None:
        """Schedule the task ``function(*args)``; `key` identifies its result.

        The task may run more than once if a worker is lost.
        """
        raise NotImplementedError

    def next_result(self) -> tuple[Any, Any]:
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
        """Return a substitute, to pass to ``submit``, for an argument of many tasks, so that it is sent only once.

        Each process receives the value once. Tasks get the value itself.
        """
        return value


# -- in this process -----------------------------------------------------------------------------------------------
_this_thread = threading.local()


def report_rows(n_rows: int) -> None:
    """Report from within a task that it has processed `n_rows` more rows.

    Raise TaskStopped if the result is no longer needed.
    """
    listener = getattr(_this_thread, "listener", None)
    if listener is not None:
        listener(n_rows)


class Serial(Engine):
    """An engine that runs tasks one after the other in the calling thread.

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

    def max_submitted(self, n_remaining: int) -> int:
        """Return 1, because a task runs only when its result is requested."""
        return 1

    def submit(self, key: Hashable, function: Function, *args: Any) -> None:
        """Schedule ``function(*args)``, which ``next_result`` will run."""
        self._waiting.append((key, function, args))

    def next_result(self) -> tuple[Any, Any]:
        """Run the oldest scheduled task, and return (key, result)."""
        key, function, args = self._waiting.popleft()
        return key, function(*args)


class Threads(Engine):
    """An engine that runs tasks in a thread pool, with one BLAS thread for each task.

    The tasks run in parallel, because compiled kernels release the global interpreter lock.
    """

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
        """Raise TaskStopped if the engine has been closed; tasks call this when they report progress."""
        if self._stopped:
            raise TaskStopped

    def submit(self, key: Hashable, function: Function, *args: Any) -> None:
        """Schedule ``function(*args)`` in the thread pool."""
        future = self._pool.submit(self._perform, key, function, args)
        future.add_done_callback(lambda future: self._done.put((key, future)))

    def _perform(self, key: Hashable, function: Function, args: tuple[Any, ...]) -> Any:
        """Run a task in a thread of the pool, and return its result."""
        return function(*args)

    def next_result(self) -> tuple[Any, Any]:
        """Wait until a task has finished, and return (key, result) or raise the error of the task."""
        key, future = self._done.get()
        return key, future.result()


# -- in processes --------------------------------------------------------------------------------------------------
class Processes(Threads):
    """An engine that runs tasks in spawned processes. A lost process is replaced, and its task is repeated.

    Each thread of the pool has a separate process, to which it sends its tasks. The processes end with this process.
    """

    in_process = False

    def __init__(self, n_workers: int, retries: int) -> None:
        super().__init__(n_workers)
        self._retries = retries
        self._context = get_context("spawn")
        self._limit = nullcontext()
        self._lock = threading.Lock()
        self._thread_local = threading.local()  # the worker of a thread
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
        """Run a task in the worker process of the calling thread, and return its result.

        If the process ends, the task is repeated in a new one. Raise WorkerLost after too many attempts.
        """
        for _ in range(self._retries + 1):
            worker = self._worker_of_thread()
            try:
                return worker.run(key, function, args)
            except ProcessEnded:
                self._thread_local.worker = None
                if (status := worker.join()) > 0:  # it was not killed, so that another process would end as well
                    raise WorkerLost(f"the process of {key} ended with status {status}{_MAIN}") from None
        raise WorkerLost(f"{key} lost its process {self._retries + 1} times: killed, or out of memory?")

    def _worker_of_thread(self) -> Worker:
        """Return the worker process of the calling thread, starting one if there is none."""
        with self._lock:
            self._stop()
            if getattr(self._thread_local, "worker", None) is None:
                self._thread_local.worker = Worker(self._context)
                self._workers.append(self._thread_local.worker)
            return self._thread_local.worker

    def share(self, value: Any) -> Any:
        """Return a substitute, to pass to ``submit``, for an argument of many tasks: its pickle.
        Each process receives it only once.

        Raise the error of pickle if the value cannot be pickled.
        """
        return Shared(value)


_MAIN = ": in a script, jobs must be started under  if __name__ == '__main__'  (standard error says why)"
