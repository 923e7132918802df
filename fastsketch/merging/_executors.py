"""Where tasks run. An executor is a context manager that gives run(function, argument tuples) -> list of results."""

import contextlib
import queue
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

from fastsketch import _threads
from fastsketch._kernels import pool as cores
from fastsketch.io._state import StateError

Run = Callable[[Callable[..., Any], list[Any]], list[Any]]


class WorkerLost(RuntimeError):
    """A task lost its process more often than was allowed: it is killed whenever it runs, or runs out of memory."""


@contextlib.contextmanager
def serial(workers: int | None, retries: int) -> Generator[Run]:
    """One task after the other, here."""

    def run(function: Callable[..., Any], arguments: list[Any]) -> list[Any]:
        return [function(*args) for args in arguments]

    with _threads.thread_limit(1):
        yield run


@contextlib.contextmanager
def threads(workers: int | None, retries: int) -> Generator[Run]:
    """Python threads: the kernels release the interpreter lock. One limit on BLAS for all of them."""
    with _threads.thread_limit(1), ThreadPoolExecutor(workers or cores.usable) as pool:

        def run(function: Callable[..., Any], arguments: list[Any]) -> list[Any]:
            futures = [pool.submit(function, *args) for args in arguments]
            try:
                return [future.result() for future in futures]
            except BaseException:
                for future in futures:
                    future.cancel()
                raise

        yield run


def _serve(pipe: Any) -> None:
    """A worker's life: run what comes through the pipe until it closes."""
    while True:
        try:
            function, args = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        except Exception as error:  # an argument is not what it should be
            pipe.send((False, error))
            continue
        try:
            with _threads.thread_limit(1):
                answer = True, function(*args)
        except BaseException as error:
            answer = False, error
        try:
            pipe.send(answer)
        except BrokenPipeError:
            return
        except Exception as error:  # the answer cannot be pickled
            pipe.send((False, TypeError(f"the result or error of a task cannot be sent: {error}")))


class _Worker:
    """One spawned process, replaced when it dies. A pool would lose what its other processes were doing as well."""

    def __init__(self) -> None:
        self._context = get_context("spawn")
        self.process: Any = None
        self._pipe: Any = None

    def _start(self) -> None:
        self._pipe, theirs = self._context.Pipe()
        self.process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()  # or the end of the process would not close the pipe

    def call(self, function: Callable[..., Any], args: Any, retries: int) -> tuple[bool, Any]:
        for _ in range(retries + 1):
            if self.process is None:
                self._start()
            try:
                self._pipe.send((function, args))
                return self._pipe.recv()
            except (EOFError, ConnectionError):
                self.stop()
        return False, WorkerLost(f"a task lost its process {retries + 1} times: killed, or out of memory?")

    def stop(self) -> None:
        if self.process is not None:
            self._pipe.close()
            self.process.terminate()
            self.process.join()
            self.process = None


@contextlib.contextmanager
def processes(workers: int | None, retries: int) -> Generator[Run]:
    """Spawned processes, each fed by a thread here; what a lost one was doing is done again by a new one."""
    crew = [_Worker() for _ in range(workers or cores.usable)]

    def run(function: Callable[..., Any], arguments: list[Any]) -> list[Any]:
        waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for number, args in enumerate(arguments):
            waiting.put((number, args))
        results: list[Any] = [None] * len(arguments)
        failure: list[Any] = []

        def feed(worker: _Worker) -> None:
            while not failure:
                try:
                    number, args = waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    good, value = worker.call(function, args, retries)
                except StateError as error:  # a model came back that is none
                    good, value = False, StateError(f"what came back from task {number} is no good: {error}")
                except Exception as error:  # the task cannot be pickled
                    good, value = False, error
                if good:
                    results[number] = value
                else:
                    failure.append(value)

        feeders = [threading.Thread(target=feed, args=(worker,), daemon=True) for worker in crew[: len(arguments)]]
        for feeder in feeders:
            feeder.start()
        for feeder in feeders:
            feeder.join()
        if failure:
            raise failure[0]
        return results

    try:
        yield run
    finally:
        for worker in crew:
            worker.stop()


EXECUTORS = {"serial": serial, "thread": threads, "process": processes}
