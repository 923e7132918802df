"""An engine that runs tasks on a cluster of dask.distributed, which repeats a task if its worker dies."""

# Dask has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import pickle
import queue
import time
import uuid
import warnings
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple, Self

from fastsketch._core import threads as _threads
from fastsketch.data.sources import Source
from fastsketch.data.sources._dask_array import array_in, with_blocks, without_blocks
from fastsketch.jobs._engines import Engine
from fastsketch.jobs._worker import WorkerLost, shared_value

# Seconds until a scheduler that does not answer is an error, until a scheduler without workers is an error, and until
# it is an error that all workers have died: their owner may replace them.
CONNECT_TIMEOUT, WORKERS_TIMEOUT, LOST_WORKERS_TIMEOUT = 5.0, 30.0, 120.0
# Seconds between two looks at the number of workers, which may change.
SECONDS_BETWEEN_UPDATES = 2.0
# Tasks that read blocks of a Dask array are all submitted together, so that the cluster computes each block once.
ALL_TASKS = 1 << 30
# Bytes of a model that is sent with every task. A longer model is a task whose result the others need. Short ones are
# not, because the cluster gives all tasks to the workers that have the result, and leaves other workers idle at first.
MAX_BYTES_WITH_TASKS = 1 << 20


def _distributed() -> Any:
    """Import and return dask.distributed. ImportError names the extra to install."""
    try:
        import distributed
    except ImportError as error:
        raise ImportError("engine 'dask' needs dask and distributed: pip install 'fastsketch[dask]'") from error
    return distributed


class _Copy(NamedTuple):
    """A pickled model that is sent with every task and unpickled once in each process."""

    name: str
    content: bytes


class _Dependencies(NamedTuple):
    """Placeholder in a task's arguments that stands for the results [first, stop) of other tasks."""

    first: int
    stop: int
    source: Source | None  # the rows whose blocks they are; None for a model, which is one result


def _perform(function: Callable[..., Any], args: Sequence[Any], *results: Any) -> Any:
    """Call ``function(*args)`` on a Dask worker with one BLAS thread, and return its result.

    Placeholders in the arguments are first replaced by shared models and by results of other tasks.
    """

    def argument(value: Any) -> Any:
        if isinstance(value, _Copy):
            return shared_value(*value)
        if not isinstance(value, _Dependencies):
            return value
        if value.source is None:
            return results[value.first]
        return with_blocks(value.source, results[value.first : value.stop])

    with _threads.thread_limit(1):
        return function(*map(argument, args))


class Cluster(Engine):
    """An engine that runs tasks on a Dask cluster, for ``fs.run`` and ``fs.map_rows`` with engine="dask".

    Parameters
    ----------
    scheduler : str, distributed.Client, a cluster or None
        The address of a scheduler, a client or a cluster. None for the active client.
    n_workers : int
        Maximal number of tasks that run at the same time; 0 for the number of threads of the cluster.

    Notes
    -----
    How often a task may lose its worker is ``distributed.scheduler.allowed-failures`` of Dask's configuration.
    """

    in_process = False

    def __init__(self, scheduler: Any, n_workers: int) -> None:
        self._distributed = _distributed()
        self._scheduler, self._limit = scheduler, n_workers
        self._stack = ExitStack()
        self._client: Any = None
        self._finished_futures: queue.SimpleQueue[Any] = queue.SimpleQueue()  # futures
        self._waiting: list[tuple[Hashable, Any]] = []  # keys and tasks, not yet submitted
        self._running: dict[str, tuple[Hashable, Any]] = {}  # keys and futures, by the keys of the futures
        self._reads_blocks = False
        self._n_threads, self._last_update, self._had_workers = 0, 0.0, 0.0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._client = self._connected(stack)
            try:
                self._client.wait_for_workers(1, timeout=WORKERS_TIMEOUT)
            except TimeoutError:
                address = self._client.scheduler.address
                raise ConnectionError(
                    f"the Dask scheduler at {address} has no workers: `dask worker {address}` starts one"
                ) from None
            self._had_workers = time.monotonic()
            self._update_n_threads()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):  # the scheduler may have gone
            self._client.cancel([future for _, future in self._running.values()])
        self._running.clear()
        self._stack.close()

    # -- the cluster -----------------------------------------------------------------------------------------------
    def _connected(self, stack: ExitStack) -> Any:
        """Return the Dask client to use. A client that is created here is closed with `stack`."""
        distributed, scheduler = self._distributed, self._scheduler
        if isinstance(scheduler, distributed.Client):
            return scheduler
        try:
            if scheduler is None:
                return distributed.Client.current()
            return stack.enter_context(distributed.Client(scheduler, timeout=CONNECT_TIMEOUT, set_as_default=False))
        except Exception as error:  # depends on what answers there, if anything does
            if scheduler is None:
                raise ValueError(
                    "engine 'dask' needs a scheduler, or a client that is active: `with distributed.Client():` begins "
                    "workers on this machine"
                ) from None
            why = str(error) or type(error).__name__
            raise ConnectionError(
                f"no Dask scheduler answers at {scheduler} (`dask scheduler` starts one): {why}"
            ) from error

    def _update_n_threads(self) -> None:
        """Update the number of threads of the cluster, if the last update is more than two seconds old.

        Raise ConnectionError if the scheduler is closed, or if all workers have been dead for two minutes.
        """
        now = time.monotonic()
        if now - self._last_update < SECONDS_BETWEEN_UPDATES:
            return
        address = self._client.scheduler.address
        if self._client.status in ("closing", "closed"):
            raise ConnectionError(f"the Dask scheduler at {address} has gone")
        threads = sum(self._client.nthreads().values()) if self._client.status == "running" else 0
        self._n_threads, self._last_update = max(1, threads), now
        self.n_workers = min(self._n_threads, self._limit or self._n_threads)  # may change during the job
        if threads:
            self._had_workers = now
        elif now - self._had_workers > LOST_WORKERS_TIMEOUT:
            raise ConnectionError(
                f"the Dask scheduler at {address} has had no workers for {LOST_WORKERS_TIMEOUT:g} s: all died"
            )

    def max_submitted(self, n_remaining: int) -> int:
        """Return how many tasks to keep submitted to the cluster, given that `n_remaining` are not submitted yet.

        A second task waits on each worker, but not at the end of a job, when another worker may be free first.
        """
        if self._reads_blocks:
            return ALL_TASKS
        n = self.n_workers
        return n if n_remaining <= n or n < self._n_threads else 2 * n

    # -- tasks -----------------------------------------------------------------------------------------------------
    def share(self, value: Any) -> Any:
        """Return a substitute, to pass to ``submit``, for an argument of many tasks, which is sent only once.

        Each worker receives the value only once. A short value is pickled and sent with the tasks; a long one becomes
        the result of a task, on which the others depend.
        """
        try:
            content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except Exception:  # a lambda
            import cloudpickle  # type: ignore[import-untyped]  # a dependency of Dask

            content = cloudpickle.dumps(value)
        if len(content) <= MAX_BYTES_WITH_TASKS:
            return _Copy(uuid.uuid4().hex, content)
        # a task can run again, whereas scattered data are lost with their worker
        return self._client.submit(pickle.loads, content, pure=False)

    def submit(self, key: Hashable, function: Callable[..., Any], *args: Any) -> None:
        """Schedule ``function(*args)``, with Dask arrays and shared values among the arguments as dependencies."""
        from dask.delayed import delayed

        task_args: list[Any] = list(args)
        results: list[Any] = []
        for position, value in enumerate(args):
            if (array := array_in(value)) is not None:
                blocks, source = array.delayed_blocks(), without_blocks(value)
                self._reads_blocks = True
            elif isinstance(value, self._distributed.Future):
                blocks, source = [value], None
            else:
                continue
            task_args[position] = _Dependencies(len(results), len(results) + len(blocks), source)
            results += blocks
        # a partial is opaque to Dask, which would search the arguments for tasks
        perform: Any = delayed(partial(_perform, function, task_args), pure=False, traverse=False)
        name = f"fastsketch-{getattr(function, '__name__', 'task')}-{uuid.uuid4().hex}"
        self._waiting.append((key, perform(*results, dask_key_name=name)))

    def _start(self) -> None:
        """Send all scheduled tasks to the cluster in one graph.

        Each block of a Dask array is computed once for all tasks of the graph.
        """
        tasks, self._waiting = self._waiting, []
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # rows in memory and models have to be sent
            futures = self._client.compute([task for _, task in tasks]) if tasks else []
        for (key, _), future in zip(tasks, futures, strict=True):
            self._running[future.key] = key, future
            future.add_done_callback(self._finished_futures.put)

    def next_result(self) -> tuple[Any, Any]:
        """Wait until a task has finished, and return (key, result).

        Dask repeats a task if its worker dies, even if its result existed but was not fetched yet.
        """
        self._start()
        future = None
        while future is None:
            self._update_n_threads()
            with suppress(queue.Empty):
                future = self._finished_futures.get(timeout=1.0)
        key, _ = self._running.pop(future.key)
        if future.status == "cancelled":
            address = self._client.scheduler.address
            raise ConnectionError(f"the Dask scheduler at {address} let go of {key}: was it restarted?")
        try:
            return key, future.result()
        except self._distributed.KilledWorker as error:
            n = error.allowed_failures + 1
            raise WorkerLost(f"{key} lost its worker {n} times: killed, or out of memory?") from error
