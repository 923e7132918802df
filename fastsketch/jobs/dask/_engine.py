"""Dask as an engine of jobs: tasks on a cluster, whose results stay there until they are asked for."""

# Dask has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import asyncio
import json
import logging
import os
import pickle
import queue
import time
import uuid
import warnings
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

from fastsketch._core import threads as _threads
from fastsketch._kernels import pool as cores
from fastsketch.data.sources import Source
from fastsketch.data.sources._dask_array import DaskSource, array_in, with_array
from fastsketch.jobs import WorkerLost
from fastsketch.jobs._parts import JobNode
from fastsketch.jobs._worker import shared_value

# Seconds until a scheduler that does not answer is an error, until one without workers is, and until one is whose
# workers have all died: who has begun them may replace them.
PATIENCE, PATIENCE_FOR_WORKERS, PATIENCE_FOR_OTHERS = 5.0, 30.0, 120.0
# How long what was read of the number of workers counts: it may change.
FRESH = 2.0
# Tasks over blocks of one array, of which all are submitted at once.
ALL = 1 << 30
# Bytes of a model that go with every task. A longer one is a task of its own; the cluster would give all that need it
# to the workers that have it, as long as those are few, and leave the others idle until these are overrun.
SENT_WITH_TASKS = 1 << 20
# How workers that are begun here use memory (glibc): Dask lets them give it back at once, and every chunk of rows then
# comes with its pages cleared anew. distributed.nanny.pre-spawn-environ of Dask's configuration sets it for others.
KEEPING_MEMORY = {"MALLOC_TRIM_THRESHOLD_": 128 << 20, "MALLOC_MMAP_THRESHOLD_": 32 << 20}
# Joins go before leaves, so that what waits on the cluster is little.
BEFORE = 10


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise ImportError("engine 'dask' needs dask and distributed: pip install 'fastsketch[dask]'") from error
    return distributed


def _check_that_it_answers(distributed: Any, address: str) -> None:
    """Raise what is wrong with a scheduler: a client that reaches none goes on trying when nobody waits for it."""

    async def ask() -> None:
        security = distributed.security.Security().get_connection_args("client")
        async with distributed.rpc(address, timeout=PATIENCE, connection_args=security) as scheduler:
            about = await scheduler.identity()
        if about["type"] != "Scheduler":
            raise ValueError(f"a {about['type']} does")

    with ThreadPoolExecutor(1) as thread:  # this one may have an event loop of its own
        thread.submit(lambda: asyncio.run(asyncio.wait_for(ask(), PATIENCE))).result()


class _ClusterTask:
    """Task that was submitted, and its future: a result that was lost can be made again."""

    def __init__(self, key: Hashable, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.key, self.function, self.args = key, function, args
        self.future: Any = None  # None once nobody needs the result any more
        self.made_of: list[_ClusterTask] = []
        self.lost = 0


class _OfBlocks(_ClusterTask):
    """Task over blocks of a dask array: all are handed to the cluster at once, which computes no block twice."""


class _Model(_ClusterTask):
    """Model for many tasks. A task makes it, since what is scattered goes with the workers that have it."""


class _Copy(NamedTuple):
    """Pickle of a model that goes with every task, and is opened once in a process: not by the scheduler."""

    name: str
    content: bytes


class Elsewhere:
    """Bytes of a model that lie on the cluster, as long as this object lives."""

    def __init__(self, task: _ClusterTask) -> None:
        self.task = task

    def fetch(self) -> bytes:
        """Return the bytes."""
        return cast("bytes", self.task.future.result()[1])


class _TaskSlot(NamedTuple):
    """Slot of a result in the arguments of a task, and the node that it belongs to, without content."""

    number: int
    node: JobNode | None
    blocks: int = 0  # so many results are the rows of one part
    part: Source | None = None


def _perform(function: Callable[..., Any], args: tuple[Any, ...], *results: Any) -> tuple[Any, bytes | None]:
    """Run a task on a worker, and return (its result, without the bytes of a model; these bytes or None)."""

    def filled(value: Any) -> Any:
        if isinstance(value, _TaskSlot):
            if value.part is not None:
                array = cast("DaskSource", array_in(value.part))
                blocks = list(results[value.number : value.number + value.blocks])
                return with_array(value.part, array.given(blocks))
            result, content = results[value.number]
            return result if value.node is None else value.node._replace(content=content)
        if isinstance(value, _Copy):
            return shared_value(*value)
        return [filled(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value

    with _threads.thread_limit(1):
        result = function(*[filled(value) for value in args])
    if isinstance(result, JobNode) and isinstance(result.content, bytes):
        return result._replace(content=None), result.content
    return result, None


def _without_bytes(result: tuple[Any, bytes | None]) -> tuple[Any, bool]:
    return result[0], result[1] is not None


class Cluster:
    """Engine "dask" of ``fs.run`` and ``fs.map_rows``: a context manager, see ``fastsketch.jobs.Engine``.

    Parameters
    ----------
    scheduler : str, distributed.Client, a cluster or None
        The address of a scheduler or the name of a scheduler file; None for the active client, or, if there is none, a
        cluster of processes on this machine for as long as the job runs.
    n_workers : int
        Most tasks that run at the same time; 0 for all that there is room for.
    retries : int
        Times a task may lose its worker before that is an error.
    """

    here = False

    def __init__(self, scheduler: Any, n_workers: int, *, retries: int) -> None:
        self._distributed = _distributed()
        self._scheduler, self._limit, self._retries = scheduler, n_workers, retries
        self._stack = ExitStack()
        self._client: Any = None
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._tasks: dict[str, tuple[_ClusterTask, Any]] = {}  # under way, by the name of what is waited for, and that
        self._run = uuid.uuid4().hex[:8]
        self._count = 0
        self._together: list[_ClusterTask] = []  # what is yet to be submitted
        self._of_blocks = False
        self._suspects: list[_ClusterTask] = []  # tried one by one, when nothing else is under way
        self._alone: _ClusterTask | None = None
        self._workers = 0, 0.0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._client = self._connected(stack)
            await_workers(self._client)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):  # a scheduler that is gone
            self._client.cancel([task.future for task, _ in self._tasks.values()])
        self._tasks.clear()
        self._stack.close()

    # -- the cluster -----------------------------------------------------------------------------------------------
    def _connected(self, stack: ExitStack) -> Any:
        from dask import config

        distributed = self._distributed
        client = connected(self._scheduler, stack)
        if client is not None:
            return client
        stack.callback(_take_back, dict(os.environ))
        # so long after a worker has died Dask gives up its place for good if nobody is in it just then
        stack.enter_context(config.set({"distributed.deploy.lost-worker-timeout": "1 day"}))
        with keeping_memory():
            cluster = distributed.LocalCluster(
                n_workers=self._limit or cores.usable,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",  # any port: that of the default may be taken
                silence_logs=logging.ERROR,
            )
        return stack.enter_context(distributed.Client(stack.enter_context(cluster), set_as_default=False))

    @property
    def n_workers(self) -> int:
        """Number of tasks that run at the same time: threads of all workers, which may come and go."""
        return min(self._threads(), self._limit) if self._limit else self._threads()

    def _threads(self) -> int:
        count, when = self._workers
        if not count or time.monotonic() - when > FRESH:
            count = max(1, sum(self._client.nthreads().values()))
            self._workers = count, time.monotonic()
        return count

    def room(self, left: int) -> int:
        """See Engine.

        One task waits on every worker that is busy, where it begins at once; not the last ones, which another one that
        is free by then could have begun earlier.
        """
        if self._of_blocks:
            return ALL
        n = self.n_workers
        return n if left <= n or n < self._threads() else 2 * n

    # -- tasks -----------------------------------------------------------------------------------------------------
    def submit(self, key: Hashable, function: Callable[..., Any], *args: Any) -> None:
        """See Engine."""
        if any(array_in(value) is not None for value in args):
            self._together.append(_OfBlocks(key, function, args))
            self._of_blocks = True
        elif self._suspects:
            self._suspects.append(_ClusterTask(key, function, args))
        else:
            task = _ClusterTask(key, function, args)
            self._await(task, self._submitted(task))

    def _await(self, task: _ClusterTask, future: Any) -> None:
        """Wait for what may be told of the result of a task that was submitted."""
        task.future = future
        told = self._client.submit(_without_bytes, future, key=f"{future.key}-told", pure=False, priority=BEFORE)
        self._tasks[told.key] = task, told
        told.add_done_callback(self._done.put)

    def _submitted(self, task: _ClusterTask) -> Any:
        if isinstance(task, _OfBlocks):
            return self._computed([task])[0]
        task.made_of = []
        args = tuple(self._sendable(value, task.made_of) for value in task.args)
        futures = [self._future_of(other) for other in task.made_of]
        first = isinstance(task, _Model) or any(not isinstance(other, _Model) for other in task.made_of)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # rows that are in memory here have to be sent
            return self._client.submit(
                *(_perform, task.function, args, *futures),
                key=self._name_of(task),
                pure=False,
                priority=BEFORE if first else 0,
            )

    def _computed(self, tasks: list[_ClusterTask]) -> list[Any]:
        """Return the futures of tasks over blocks of arrays, which are submitted in one graph."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")
            return self._client.compute([self._delayed(task) for task in tasks])

    def _name_of(self, task: _ClusterTask) -> str:
        self._count += 1
        return f"fastsketch-{task.function.__name__}-{self._run}-{self._count}"

    def _delayed(self, task: _ClusterTask) -> Any:
        """Return a task with all that computes its blocks."""
        from dask.delayed import delayed

        made_of: list[_ClusterTask] = []
        args = [self._sendable(value, made_of) for value in task.args]
        results: list[Any] = [self._future_of(other) for other in made_of]
        for at, value in enumerate(task.args):
            if (array := array_in(value)) is not None:
                blocks = array.delayed_blocks()
                args[at] = _TaskSlot(len(results), None, len(blocks), with_array(value, array.without_blocks()))
                results += blocks
        perform: Any = delayed(partial(_perform, task.function, tuple(args)), pure=False, traverse=False)
        return perform(*results, dask_key_name=self._name_of(task))

    def _sendable(self, value: Any, made_of: list[_ClusterTask]) -> Any:
        """Return an argument with slots in the place of what is on the cluster."""
        if isinstance(value, list):
            return [self._sendable(item, made_of) for item in cast("list[Any]", value)]
        if isinstance(value, JobNode) and isinstance(value.content, Elsewhere):
            made_of.append(value.content.task)
            return _TaskSlot(len(made_of) - 1, value._replace(content=None))
        if isinstance(value, _Model):
            made_of.append(value)
            return _TaskSlot(len(made_of) - 1, None)
        return value

    def _future_of(self, task: _ClusterTask) -> Any:
        """Return the future of a result: made again if the cluster has let go of it, or has given it up."""
        if task.future is None or task.future.status in ("error", "cancelled", "lost"):
            task.future = self._submitted(task)
        return task.future

    def next(self) -> tuple[Any, Any]:
        """See Engine."""
        tasks, self._together = self._together, []
        for task, future in zip(tasks, self._computed(tasks) if tasks else [], strict=True):
            self._await(task, future)
        while True:
            if self._suspects and not self._tasks:
                self._alone = self._suspects.pop(0)
                self._await(self._alone, self._submitted(self._alone))
            told = self._next_done()
            task, _ = self._tasks.pop(told.key)
            if told.status == "cancelled":
                address = self._client.scheduler.address
                raise ConnectionError(f"the Dask scheduler at {address} let go of {task.key}: was it restarted?")
            error = told.exception()
            if error is None:
                try:
                    result, left = told.result()
                except self._distributed.KilledWorker as killed:
                    error = killed  # its worker died before it told, and so did those that made it again
                else:
                    for other in task.made_of:
                        if not isinstance(other, _Model):
                            other.future = None
                    return task.key, result._replace(content=Elsewhere(task)) if left else result
            if not isinstance(error, self._distributed.KilledWorker):
                raise error
            # Dask counts a worker's death against all that the worker had: who is to blame shows when it is alone
            if task is self._alone:
                task.lost += error.allowed_failures + 1
                if task.lost > self._retries:
                    raise WorkerLost(
                        f"{task.key} lost its worker {task.lost} times: killed, or out of memory?"
                    ) from error
                self._suspects.insert(0, task)
            else:
                self._suspects.append(task)

    def _next_done(self) -> Any:
        workers = _Workers(self._client)
        while True:
            with suppress(queue.Empty):
                told = self._done.get(timeout=1.0)
                if told.status != "lost":
                    return told
                self._done.put(told)  # its worker has died since: another one makes it again
                time.sleep(0.05)
            workers.check()

    def share(self, value: Any) -> Any:
        """See Engine."""
        try:
            content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except Exception:  # a lambda
            import cloudpickle  # type: ignore[import-untyped]  # it comes with dask

            content = cloudpickle.dumps(value)
        if len(content) <= SENT_WITH_TASKS:
            return _Copy(uuid.uuid4().hex, content)
        return _Model("the model", pickle.loads, (content,))


def await_workers(client: Any) -> None:
    """Wait until there are workers.

    Raises
    ------
    ConnectionError
        If there are none for long.
    """
    try:
        client.wait_for_workers(1, timeout=PATIENCE_FOR_WORKERS)
    except TimeoutError:
        address = client.scheduler.address
        raise ConnectionError(
            f"the Dask scheduler at {address} has no workers: `dask worker {address}` starts one"
        ) from None


class _Workers:
    """Watch over the workers of a client while somebody waits for them."""

    def __init__(self, client: Any) -> None:
        self._client, self._seen = client, time.monotonic()

    def check(self) -> None:
        """Raise ConnectionError if the scheduler has gone, or has had no workers for long."""
        address = self._client.scheduler.address
        if self._client.status in ("closing", "closed"):
            raise ConnectionError(f"the Dask scheduler at {address} has gone")
        if self._client.status == "running" and self._client.nthreads():
            self._seen = time.monotonic()
        elif time.monotonic() - self._seen > PATIENCE_FOR_OTHERS:
            raise ConnectionError(
                f"the Dask scheduler at {address} has had no workers for {PATIENCE_FOR_OTHERS:g} s: all died"
            )


def awaited(client: Any, futures: list[Any]) -> list[Any]:
    """Wait for results.

    Raises
    ------
    ConnectionError
        If the workers die, and for long nobody replaces them.
    """
    workers = _Workers(client)
    for future in futures:
        while True:
            try:
                future.exception(timeout=FRESH)
                break
            except TimeoutError:
                workers.check()
    return list(client.gather(futures))


def _take_back(before: dict[str, str]) -> None:
    """Undo what nannies leave in the environment of this process, which is that of all that it begins later."""
    for name in (*KEEPING_MEMORY, "PYTHONHASHSEED", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        if name in before:
            os.environ[name] = before[name]
        else:
            os.environ.pop(name, None)


def keeping_memory() -> Any:
    """Return a ``with`` block in which Dask starts workers that keep freed memory for their next task."""
    from dask import config

    return config.set({f"distributed.nanny.pre-spawn-environ.{k}": v for k, v in KEEPING_MEMORY.items()})


def connected(scheduler: Any, stack: ExitStack) -> Any:
    """Return a client of a scheduler, for as long as the stack lasts; for None the active one, or None without one.

    Raises
    ------
    ConnectionError
        If no scheduler answers there.
    """
    distributed = _distributed()
    if scheduler is None:
        with suppress(ValueError):
            return distributed.Client.current()
        return None
    if isinstance(scheduler, distributed.Client):
        return scheduler
    if not isinstance(scheduler, str):  # a cluster
        return stack.enter_context(distributed.Client(scheduler, set_as_default=False))
    address = scheduler
    try:
        if Path(scheduler).is_file():
            address = str(json.loads(Path(scheduler).read_text(encoding="utf-8"))["address"])
        _check_that_it_answers(distributed, address)
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except Exception as error:  # whatever a server that is none says, a TimeoutError nothing
        why = str(error) or type(error).__name__
        raise ConnectionError(
            f"no Dask scheduler answers at {scheduler} (`dask scheduler` starts one): {why}"
        ) from error
    return stack.enter_context(client)


def has_client() -> bool:
    """Return whether there is an active client; without one Dask's threads compute."""
    try:
        from distributed import Client

        Client.current()
    except (ImportError, ValueError):
        return False
    return True


def computed(delayed: Any, scheduler: Any) -> Any:
    """Compute a delayed result on the cluster of a scheduler or of the active client, else on Dask's threads."""
    if scheduler is None and not has_client():
        return delayed.compute()
    from distributed import KilledWorker

    with ExitStack() as stack:
        client = connected(scheduler, stack)
        try:
            return awaited(client, [client.compute(delayed)])[0]
        except KilledWorker as error:
            raise WorkerLost(f"a task lost its worker too often: killed, or out of memory? {error}") from error
