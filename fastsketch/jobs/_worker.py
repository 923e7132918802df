"""Worker processes: what they do, and how their parent speaks to them."""

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

# Seconds that an idle process may take to end by itself.
PATIENCE = 5.0


class Lost(Exception):
    """Error of a process that has ended."""


class WorkerLost(RuntimeError):
    """Error of a task that lost its process too often: it is killed whenever it runs, or runs out of memory.

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
    """Traceback of an error in a worker, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Shared:
    """Value for many tasks, which a process is sent with the first of them alone."""

    def __init__(self, value: Any) -> None:
        self.name = uuid.uuid4().hex
        self.content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


class _Sent:
    """Shared value on its way: what comes out of the pipe is the value."""

    def __init__(self, name: str, content: bytes | None) -> None:
        self._about = name, content

    def __reduce__(self) -> tuple[Any, ...]:
        return shared_value, self._about


# Values that were sent to this process, the last few of them.
_values: dict[str, Any] = {}
MOST_VALUES = 4
_lock = threading.Lock()  # threads of a worker of Dask ask, too


def shared_value(name: str, content: bytes | None) -> Any:
    """Return the value of a name; content if it is new to this process."""
    with _lock:
        if content is not None and name not in _values:
            while len(_values) >= MOST_VALUES:
                del _values[next(iter(_values))]
            _values[name] = pickle.loads(content)
        return _values[name]


class Worker:
    """Spawned process, and the pipe to it."""

    def __init__(self, context: Any) -> None:
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs,), daemon=True, name="fastsketch-worker")
        self._has: set[str] = set()
        with _no_ctrl_c():
            self._process.start()
        theirs.close()  # or the end of the process would not close the pipe

    def ask(self, key: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[bool, Any]:
        """Let the process run a task, and return (True, result) or (False, error).

        Raises
        ------
        Lost
            If the process has ended.
        """
        try:
            self.pipe.send((function, tuple(map(self._as_sent, args))))
            good, value, trace = self.pipe.recv()
        except (EOFError, ConnectionError) as error:
            raise Lost from error
        except StateError as error:  # a model came back that is none
            return False, StateError(f"what came back from {key} is no good: {error}")
        except Exception as error:  # what is sent, or comes back, cannot be pickled
            return False, error
        if trace:
            value.__cause__ = TraceOfWorker(trace)
        return good, value

    def _as_sent(self, argument: Any) -> Any:
        """Return an argument as it is sent: a shared value without its content, if the process has that."""
        if not isinstance(argument, Shared):
            return argument
        content = None if argument.name in self._has else argument.content
        self._has.add(argument.name)
        return _Sent(argument.name, content)

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def join(self) -> int:
        """Wait for its end, which may be forced, and return its exit status: below 0 if a signal has ended it."""
        self._process.join(PATIENCE)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        self.pipe.close()
        return self._process.exitcode or 0


@contextlib.contextmanager
def _no_ctrl_c() -> Generator[None]:
    """Keep Ctrl-C, which a terminal sends to all, from a process that starts in this block: its parent decides."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve(pipe: Any) -> None:
    """Run what comes through the pipe until it closes, or the parent has ended."""
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    warnings.simplefilter("ignore", UserWarning)  # of parts: the model of them all says what is to be said
    with contextlib.suppress(EOFError, ConnectionError), _threads.thread_limit(1):
        while True:
            try:
                function, args = pipe.recv()
            except (EOFError, ConnectionError):
                raise
            except Exception as error:  # an argument is not what it should be
                if isinstance(error, AttributeError | ImportError):
                    error = TypeError(f"a worker does not find what it was sent: {error}; {_IMPORTABLE}")
                pipe.send((False, error, ""))
                continue
            try:
                answer = True, function(*args), ""
            except BaseException as error:
                answer = False, error, traceback.format_exc()
            try:
                pipe.send(answer)
            except (EOFError, ConnectionError):
                raise
            except Exception as error:  # the answer cannot be pickled
                pipe.send((False, TypeError(f"the result or error of a task cannot be sent: {error}"), ""))
            del answer, function, args  # or they lay beside those of the next task


_IMPORTABLE = (
    "define it in a module, or in a script before  if __name__ == '__main__'; in a notebook take engine='threads'"
)


def _end_with_parent() -> None:
    """End this process, even in the middle of a task, when its parent has ended."""
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
