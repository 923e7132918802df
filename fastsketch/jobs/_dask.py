"""Engine "dask": tasks on a cluster of dask.distributed, which runs them again if their worker dies."""

# Dask has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import logging
import os
import pickle
import queue
import time
import uuid
import warnings
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

from fastsketch._core import threads as _threads
from fastsketch._kernels import pool as cores
from fastsketch.data.sources import Source
from fastsketch.data.sources._dask_array import DaskSource, array_in, with_array
from fastsketch.jobs._worker import WorkerLost, shared_value

# Seconds until a scheduler that does not answer is an error, until a scheduler without workers is an error, and until
# it is an error that all workers have died: their owner may replace them.
PATIENCE, PATIENCE_FOR_WORKERS, PATIENCE_FOR_OTHERS = 5.0, 30.0, 120.0
# Seconds between two looks at the number of workers, which may change.
SECONDS_BETWEEN_LOOKS = 2.0
# Tasks that read blocks of a Dask array are all submitted together, so that the cluster computes each block once.
ALL_TASKS = 1 << 30
# Bytes of a model that is sent with every task. A longer model is a task whose result the others need. Short ones are
# not, because the cluster gives all tasks to the workers that have the result, and leaves other workers idle at first.
MAX_BYTES_WITH_TASKS = 1 << 20
# Environment of workers that are started here (glibc). Dask's defaults give freed memory back at once, so that every
# chunk of rows comes with its pages cleared again: up to 70 % more time for 64-bit codes.
WORKER_ENVIRONMENT = {"MALLOC_TRIM_THRESHOLD_": 128 << 20, "MALLOC_MMAP_THRESHOLD_": 32 << 20}


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise ImportError("engine 'dask' needs dask and distributed: pip install 'fastsketch[dask]'") from error
    return distributed


class _Copy(NamedTuple):
    """Pickle of a model that is sent with every task and unpickled once in each process."""

    name: str
    content: bytes


class _Dependencies(NamedTuple):
    """Placeholder in the arguments of a task: the results of other tasks, from `first` to before `stop`."""

    first: int
    stop: int
    source: Source | None  # the rows whose blocks they are; None for a model, which is one result


def _perform(function: Callable[..., Any], args: Sequence[Any], *results: Any) -> Any:
    """Run a task on a worker: put in shared models and the results of other tasks, and limit BLAS to one thread."""

    def argument(value: Any) -> Any:
        if isinstance(value, _Copy):
            return shared_value(*value)
        if not isinstance(value, _Dependencies):
            return value
        if value.source is None:
            return results[value.first]
        blocks = cast("DaskSource", array_in(value.source)).given(list(results[value.first : value.stop]))
        return with_array(value.source, blocks)

    with _threads.thread_limit(1):
        return function(*map(argument, args))


@dataclass
class _Task:
    """Task with its future, and how often it lost its worker while no other task was running."""

    key: Hashable
    delayed: Any
    future: Any = None
    n_lost: int = 0


class Cluster:
    """Engine "dask" of ``fs.run`` and ``fs.map_rows``: a context manager, see ``fastsketch.jobs.Engine``.

    Parameters
    ----------
    scheduler : str, distributed.Client, a cluster or None
        The address of a scheduler or the name of a scheduler file. None: the active client, or, if there is none, a
        cluster of processes on this machine for as long as the job runs.
    n_workers : int
        Most tasks that run at the same time; 0 for as many as the cluster has threads.
    retries : int
        Times that a task may lose its worker before that is an error.
    """

    here = False

    def __init__(self, scheduler: Any, n_workers: int, *, retries: int) -> None:
        self._distributed = _distributed()
        self._scheduler, self._limit, self._retries = scheduler, n_workers, retries
        self._stack = ExitStack()
        self._client: Any = None
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()  # futures
        self._waiting: list[_Task] = []  # not yet submitted
        self._running: dict[str, _Task] = {}  # by the keys of their futures
        self._suspects: list[_Task] = []  # that may have killed workers
        self._alone: _Task | None = None  # the suspect that was started while no other task was running
        self._reads_blocks = False
        self._n_threads, self._looked, self._had_workers = 0, 0.0, 0.0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._client = self._connected(stack)
            try:
                self._client.wait_for_workers(1, timeout=PATIENCE_FOR_WORKERS)
            except TimeoutError:
                address = self._client.scheduler.address
                raise ConnectionError(
                    f"the Dask scheduler at {address} has no workers: `dask worker {address}` starts one"
                ) from None
            self._had_workers = time.monotonic()
            self._look()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):  # the scheduler may have gone
            self._client.cancel([task.future for task in self._running.values()])
        self._running.clear()
        self._stack.close()

    # -- the cluster -----------------------------------------------------------------------------------------------
    def _connected(self, stack: ExitStack) -> Any:
        """Return a client; what is opened for it is closed with the stack."""
        distributed, scheduler = self._distributed, self._scheduler
        if isinstance(scheduler, distributed.Client):
            return scheduler
        if scheduler is None:
            with suppress(ValueError):
                return distributed.Client.current()
            scheduler = self._local_cluster(stack)
        if not isinstance(scheduler, str):
            return stack.enter_context(distributed.Client(scheduler, set_as_default=False))
        at = {"scheduler_file" if Path(scheduler).is_file() else "address": scheduler}
        try:
            return stack.enter_context(distributed.Client(**at, timeout=PATIENCE, set_as_default=False))
        except Exception as error:  # depends on what answers there, if anything does
            why = str(error) or type(error).__name__
            raise ConnectionError(
                f"no Dask scheduler answers at {scheduler} (`dask scheduler` starts one): {why}"
            ) from error

    def _local_cluster(self, stack: ExitStack) -> Any:
        from dask import config

        stack.callback(_restore_environment, dict(os.environ))
        environment = {f"distributed.nanny.pre-spawn-environ.{key}": n for key, n in WORKER_ENVIRONMENT.items()}
        # after this time without any worker Dask no longer replaces those that have died
        stack.enter_context(config.set({"distributed.deploy.lost-worker-timeout": "1 day", **environment}))
        return stack.enter_context(
            self._distributed.LocalCluster(
                n_workers=self._limit or cores.usable,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",  # any port: that of the default may be in use
                silence_logs=logging.ERROR,
            )
        )

    def _look(self) -> None:
        """Count the threads of all workers; ConnectionError if the scheduler or, for long, all workers have gone."""
        now = time.monotonic()
        if now - self._looked < SECONDS_BETWEEN_LOOKS:
            return
        address = self._client.scheduler.address
        if self._client.status in ("closing", "closed"):
            raise ConnectionError(f"the Dask scheduler at {address} has gone")
        threads = sum(self._client.nthreads().values()) if self._client.status == "running" else 0
        self._n_threads, self._looked = max(1, threads), now
        if threads:
            self._had_workers = now
        elif now - self._had_workers > PATIENCE_FOR_OTHERS:
            raise ConnectionError(
                f"the Dask scheduler at {address} has had no workers for {PATIENCE_FOR_OTHERS:g} s: all died"
            )

    @property
    def n_workers(self) -> int:
        """Number of tasks that run at the same time: threads of all workers, which may change during the job."""
        return min(self._n_threads, self._limit or self._n_threads)

    def room(self, left: int) -> int:
        """See Engine. One task waits on every busy worker; not near the end, when another worker may be free first."""
        if self._reads_blocks:
            return ALL_TASKS
        n = self.n_workers
        return n if left <= n or n < self._n_threads else 2 * n

    # -- tasks -----------------------------------------------------------------------------------------------------
    def share(self, value: Any) -> Any:
        """See Engine."""
        try:
            content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except Exception:  # a lambda
            import cloudpickle  # type: ignore[import-untyped]  # a dependency of Dask

            content = cloudpickle.dumps(value)
        if len(content) <= MAX_BYTES_WITH_TASKS:
            return _Copy(uuid.uuid4().hex, content)
        # a task, which can run again: data that are scattered are lost with their worker
        return self._client.submit(pickle.loads, content, pure=False)

    def submit(self, key: Hashable, function: Callable[..., Any], *args: Any) -> None:
        """See Engine."""
        from dask.delayed import delayed

        sent: list[Any] = list(args)
        results: list[Any] = []
        for position, value in enumerate(args):
            if (array := array_in(value)) is not None:
                blocks, source = array.delayed_blocks(), with_array(value, array.without_blocks())
                self._reads_blocks = True
            elif isinstance(value, self._distributed.Future):
                blocks, source = [value], None
            else:
                continue
            sent[position] = _Dependencies(len(results), len(results) + len(blocks), source)
            results += blocks
        # a partial is opaque to Dask, which would search the arguments for tasks
        perform: Any = delayed(partial(_perform, function, sent), pure=False, traverse=False)
        name = f"fastsketch-{getattr(function, '__name__', 'task')}-{uuid.uuid4().hex}"
        self._waiting.append(_Task(key, perform(*results, dask_key_name=name)))

    def _start(self) -> None:
        """Submit the waiting tasks in one graph; if there are suspects, wait until each of them has run alone."""
        if self._suspects:
            if not self._running:
                self._alone = self._suspects.pop(0)
                self._alone.future.retry()
                self._watch(self._alone)
            return
        tasks, self._waiting = self._waiting, []
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # rows in memory and models have to be sent
            futures = self._client.compute([task.delayed for task in tasks]) if tasks else []
        for task, future in zip(tasks, futures, strict=True):
            task.future = future
            self._watch(task)

    def _watch(self, task: _Task) -> None:
        self._running[task.future.key] = task
        task.future.add_done_callback(self._done.put)

    def next(self) -> tuple[Any, Any]:
        """See Engine."""
        while True:
            self._start()
            future = self._next_done()
            task = self._running.pop(future.key)
            try:
                return task.key, future.result()
            except self._distributed.KilledWorker as error:
                # Dask counts the death of a worker against all tasks that were assigned to it. Which of them killed
                # the worker is found by running each of them alone.
                if task is self._alone:
                    task.n_lost = max(task.n_lost, error.allowed_failures) + 1
                    if task.n_lost > self._retries:
                        raise WorkerLost(
                            f"{task.key} lost its worker {task.n_lost} times: killed, or out of memory?"
                        ) from error
                self._suspects.append(task)

    def _next_done(self) -> Any:
        """Wait for the next future that has finished, with a result that is on the cluster or with an error."""
        while True:
            self._look()
            with suppress(queue.Empty):
                future = self._done.get(timeout=1.0)
                if future.status == "cancelled":
                    address, task = self._client.scheduler.address, self._running[future.key].key
                    raise ConnectionError(f"the Dask scheduler at {address} let go of {task}: was it restarted?")
                if future.status != "lost":
                    return future
                future.add_done_callback(self._done.put)  # its worker has died since: another one runs the task again


def _restore_environment(before: dict[str, str]) -> None:
    """Undo what Dask's nannies write to the environment of this process."""
    for name in (*WORKER_ENVIRONMENT, "PYTHONHASHSEED", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.pop(name, None)
        if name in before:
            os.environ[name] = before[name]
