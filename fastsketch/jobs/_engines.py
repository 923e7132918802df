"""Engines that run tasks: here, in threads, in processes that may die, or on a cluster. None of them knows models.

An engine is a context manager. Tasks are submitted by key; their results come as they finish, in any order. A key is
what messages call the task. The same tasks have the same results on every engine.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from typing import Any, Literal, Protocol, Self, cast

from fastsketch._core import threads as _threads
from fastsketch._core.validation import as_choice
from fastsketch.jobs._worker import Lost, Shared, Worker, WorkerLost

EngineName = Literal["threads", "processes", "dask"]

Function = Callable[..., Any]


class TaskStopped(BaseException):
    """Signal of ``tell`` to a task whose result nobody waits for any more."""


class Engine(Protocol):
    """Runner of tasks.

    Attributes
    ----------
    n_workers : int
        Tasks that run at the same time.
    here : bool
        Whether tasks run in this process: what they are given and return is then the object itself, else a pickle.

    Examples
    --------
    An engine of one's own need not do more than this:

    >>> class OneAfterAnother:
    ...     n_workers, here = 1, True
    ...     def __enter__(self):
    ...         self.tasks = []
    ...         return self
    ...     def __exit__(self, *_): ...
    ...     def room(self, left):
    ...         return 1
    ...     def submit(self, key, function, *args):
    ...         self.tasks.append((key, function, args))
    ...     def next(self):
    ...         key, function, args = self.tasks.pop(0)
    ...         return key, function(*args)
    ...     def share(self, value):
    ...         return value
    >>> with OneAfterAnother() as engine:
    ...     engine.submit("first part", sum, [1, 2, 3])
    ...     engine.next()
    ('first part', 6)
    """

    @property
    def n_workers(self) -> int: ...
    @property
    def here(self) -> bool: ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None:
        """Stop what is still running, and wait for its end."""
        ...

    def room(self, left: int) -> int:
        """Return how many tasks to have under way so that no worker waits; `left` are yet to come."""
        ...

    def submit(self, key: Hashable, function: Function, *args: Any) -> None:
        """Begin ``function(*args)``, or let it wait for a worker; pure, since it may run again after one was lost.

        Parameters
        ----------
        key : hashable
            What messages call the task, and what its result comes with.
        function : callable
            It can be pickled, unless tasks run here.
        *args
            Of the function.
        """
        ...

    def next(self) -> tuple[Any, Any]:
        """Wait for a task that has finished, and return (key, result).

        Raises
        ------
        WorkerLost
            If a task has lost its worker more often than the engine's retries.
        Exception
            What a task raised, or what keeps it or its result from being sent.
        """
        ...

    def share(self, value: Any) -> Any:
        """Return what stands for a value in the arguments of many tasks: it is sent to every worker once."""
        ...


# -- in this process -----------------------------------------------------------------------------------------------
_this_thread = threading.local()


def tell(n_rows: int) -> None:
    """Say within a task that more rows are in; raises TaskStopped if nobody waits for its result."""
    listener = getattr(_this_thread, "listener", None)
    if listener is not None:
        listener(n_rows)


class Serial:
    """Engine of one task after the other, in this thread. `limit`: of BLAS and the pool meanwhile."""

    n_workers, here = 1, True

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

    def share(self, value: Any) -> Any:
        """See Engine."""
        return value


class Threads:
    """Engine of Python threads: the kernels release the interpreter lock. BLAS has one thread in each."""

    here = True

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self._crew = ThreadPoolExecutor(n_workers, initializer=setattr, initargs=(_this_thread, "listener", self._stop))
        self._done: queue.SimpleQueue[tuple[Hashable, Future[Any]]] = queue.SimpleQueue()
        self._stopped = False
        self._limit = _threads.thread_limit(1)

    def __enter__(self) -> Self:
        self._limit.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._stopped = True
            self._crew.shutdown(cancel_futures=True)
        finally:
            self._limit.__exit__()

    def _stop(self, _: int) -> None:
        if self._stopped:
            raise TaskStopped

    def room(self, left: int) -> int:
        """See Engine; one task waits for every worker that is busy."""
        return 2 * self.n_workers

    def submit(self, key: Hashable, function: Function, *args: Any) -> None:
        """See Engine."""
        self._crew.submit(function, *args).add_done_callback(lambda future: self._done.put((key, future)))

    def next(self) -> tuple[Any, Any]:
        """See Engine."""
        key, future = self._done.get()
        return key, future.result()

    def share(self, value: Any) -> Any:
        """See Engine."""
        return value


# -- in processes --------------------------------------------------------------------------------------------------
class _Task:
    """Task of a process, and how often it was lost."""

    def __init__(self, key: Hashable, function: Function, args: tuple[Any, ...]) -> None:
        self.key, self.function, self.args, self.lost = key, function, args, 0


class Processes:
    """Engine of spawned processes, which die with this one; the task of a lost one is done again by a new one."""

    here = False

    def __init__(self, n_workers: int, retries: int) -> None:
        self.n_workers = n_workers
        self._retries = retries
        self._context = get_context("spawn")
        self._waiting: deque[_Task] = deque()
        self._idle: list[Worker] = []
        self._busy: dict[Any, tuple[Worker, _Task]] = {}  # by the pipe that the answer comes through
        self._failures: deque[BaseException] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        crew = [*self._idle, *(worker for worker, _ in self._busy.values())]
        self._idle, self._busy = [], {}
        for worker in crew:
            worker.terminate()
        for worker in crew:
            worker.join()

    def room(self, left: int) -> int:
        """See Engine; one task waits for every worker that is busy."""
        return 2 * self.n_workers

    def submit(self, key: Hashable, function: Function, *args: Any) -> None:
        """See Engine."""
        self._waiting.append(_Task(key, function, args))
        self._assign()

    def _assign(self) -> None:
        """Give what waits to who is idle; new workers come one by one, as there are tasks for them."""
        while self._waiting and len(self._busy) < self.n_workers:
            worker = self._idle.pop() if self._idle else Worker(self._context)
            task = self._waiting.popleft()
            self._busy[worker.pipe] = worker, task
            try:
                worker.send((task.function, tuple(worker.known(arg) for arg in task.args)))
            except Lost:
                self._lose(worker.pipe)
            except Exception as error:  # the task cannot be pickled: nothing has been sent
                del self._busy[worker.pipe]
                self._idle.append(worker)
                self._failures.append(error)

    def _lose(self, pipe: Any) -> None:
        worker, task = self._busy.pop(pipe)
        refuses = worker.refuses()
        worker.terminate()
        worker.join()
        task.lost += 1
        if refuses:
            self._failures.append(WorkerLost(f"a worker process could not begin{_MAIN}"))
        elif task.lost > self._retries:
            self._failures.append(
                WorkerLost(f"{task.key} lost its process {task.lost} times: killed, or out of memory?")
            )
        else:
            self._waiting.appendleft(task)

    def next(self) -> tuple[Any, Any]:
        """See Engine."""
        from multiprocessing.connection import wait

        while True:
            if self._failures:
                raise self._failures.popleft()
            for pipe in cast("list[Any]", wait(list(self._busy))):
                worker, task = self._busy[pipe]
                try:
                    answer = worker.receive(task.key)
                except Lost:
                    self._lose(pipe)
                    self._assign()
                    break
                if answer is None:  # it has just begun
                    continue
                del self._busy[pipe]
                self._idle.append(worker)
                self._assign()  # before the result is looked at: nobody waits for that
                good, value = answer
                if not good:
                    raise value
                return task.key, value

    def share(self, value: Any) -> Any:
        """See Engine; raises what pickle does if it cannot be sent."""
        return Shared(value)


_MAIN = ": in a script, what begins a job must stand under  if __name__ == '__main__'  (it says why on standard error)"

NAMES = ("processes", "threads", "dask")


def engine_of(name: str, n_workers: int, *, retries: int, scheduler: Any = None) -> Engine:
    """Return an engine by its name; "dask" takes n_workers 0 for all there are."""
    as_choice(name, "engine", NAMES)
    if name == "dask":
        from fastsketch.jobs._dask import Cluster  # Dask is imported only where it is used

        return Cluster(scheduler, n_workers, retries=retries)
    return Threads(n_workers) if name == "threads" else Processes(n_workers, retries)
