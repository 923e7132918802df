"""Worker processes: the loop that runs in each, and the object with which the parent process controls it."""

import contextlib
import os
import pickle
import signal
import threading
import traceback
import uuid
import warnings
from collections.abc import Callable, Generator
from typing import Any

from fastsketch._core import threads as _threads
from fastsketch.data.files._state import StateError

# Seconds that a process may take to end after it was told to, before it is killed.
END_TIMEOUT = 5.0
# Shared values that a process keeps.
MAX_SHARED_VALUES = 4


class ProcessEnded(Exception):
    """Raised if a worker process has ended before it returned a result."""


class WorkerLost(RuntimeError):
    """Raised if a task lost its worker process too often, for example because memory ran out.

    Examples
    --------
    >>> import operator, os
    >>> import fastsketch as fs
    >>> try:
    ...     fs.map_merge(operator.call, [os._exit], engine="processes", retries=0)
    ... except fs.jobs.WorkerLost as error:
    ...     print(str(error).partition(":")[0])
    part 0 lost its process 1 times
    """


class TraceOfWorker(Exception):
    """The traceback of an error in a worker process, as text.

    It is attached as the cause of the error in the parent process.
    """

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Shared:
    """A pickled argument of many tasks, which is sent to each process only once."""

    def __init__(self, value: Any) -> None:
        self.name = uuid.uuid4().hex
        self.content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


class _SharedReference:
    """Stand-in for a shared argument in a message to a worker process, where it is unpickled as the original value."""

    def __init__(self, name: str, content: bytes | None) -> None:
        self._arguments = name, content

    def __reduce__(self) -> tuple[Any, ...]:
        return shared_value, self._arguments


_values: dict[str, Any] = {}
_lock = threading.Lock()  # a Dask worker runs tasks in several threads


def shared_value(name: str, content: bytes | None) -> Any:
    """Return the shared argument with this name, unpickling `content` the first time and caching the value.

    `content` is None if this process has received it before. The cache holds four values.
    """
    with _lock:
        if content is not None and name not in _values:
            while len(_values) >= MAX_SHARED_VALUES:
                del _values[next(iter(_values))]
            _values[name] = pickle.loads(content)
        return _values[name]


class Worker:
    """A worker process and the pipe to it."""

    def __init__(self, context: Any) -> None:
        self._pipe, child_pipe = context.Pipe()
        self._process = context.Process(target=serve_tasks, args=(child_pipe,), daemon=True, name="fastsketch-worker")
        self._received_names: set[str] = set()  # names of the shared values that it has received
        with _no_ctrl_c():
            self._process.start()
        child_pipe.close()  # otherwise the pipe would stay open after the end of the process

    def run(self, key: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Run a task in the worker process, and return its result or raise its error.

        Raise Lost if the process has ended.
        """
        task = pickle.dumps((function, tuple(map(self._as_message_argument, args))), pickle.HIGHEST_PROTOCOL)
        try:
            self._pipe.send_bytes(task)
            answer = self._pipe.recv_bytes()
        except (EOFError, ConnectionError) as error:
            raise ProcessEnded from error
        try:
            succeeded, value, trace = pickle.loads(answer)
        except StateError as error:  # the result contains a model that is not consistent
            raise StateError(f"what came back from {key} is no good: {error}") from None
        if succeeded:
            return value
        raise value from (TraceOfWorker(trace) if trace else None)

    def _as_message_argument(self, argument: Any) -> Any:
        """Return the argument of a task in the form in which it is sent to the process.

        A shared argument is sent without its content if the process already has it.
        """
        if not isinstance(argument, Shared):
            return argument
        content = None if argument.name in self._received_names else argument.content
        self._received_names.add(argument.name)
        return _SharedReference(argument.name, content)

    def terminate(self) -> None:
        """Ask the worker process to end, without waiting for it."""
        self._process.terminate()

    def join(self) -> int:
        """Wait until the worker process ends, and return its exit status.

        The process is killed if it does not end within five seconds. The status is negative for a signal.
        """
        self._process.join(END_TIMEOUT)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        self._pipe.close()
        return self._process.exitcode or 0


@contextlib.contextmanager
def _no_ctrl_c() -> Generator[None]:
    """Block SIGINT (Ctrl-C) in processes that are started inside a ``with`` block.

    A terminal sends the signal to all processes, and the parent decides what to do.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def serve_tasks(pipe: Any) -> None:
    """Run the tasks that arrive through a pipe until it is closed or the parent process ends."""
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    warnings.simplefilter("ignore", UserWarning)  # of one part; the model of all rows warns in the parent
    with contextlib.suppress(EOFError, ConnectionError), _threads.thread_limit(1):
        while True:
            pipe.send_bytes(_run_pickled_task(pipe.recv_bytes()))


def _run_pickled_task(task: bytes) -> bytes:
    """Run a pickled task, and return the pickle of (True, result, "") or (False, error, traceback)."""
    try:
        function, args = pickle.loads(task)
    except Exception as error:
        if isinstance(error, AttributeError | ImportError):
            error = TypeError(f"a worker does not find what it was sent: {error}; {_IMPORTABLE}")
        return pickle.dumps((False, error, ""))
    answer: tuple[bool, Any, str]
    try:
        answer = True, function(*args), ""
    except BaseException as error:
        answer = False, error, traceback.format_exc()
    try:
        return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        return pickle.dumps((False, TypeError(f"the result or error of a task cannot be sent: {error}"), ""))


_IMPORTABLE = (
    "define it in a module, or in a script before  if __name__ == '__main__'; in a notebook take engine='threads'"
)


def _end_with_parent() -> None:
    """Wait for the end of the parent process, then end this process, even in the middle of a task."""
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
