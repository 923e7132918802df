"""The options that all jobs have in common, and the choice of the engine."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Self

from fastsketch._core import threads as _threads
from fastsketch._core.validation import as_choice, as_flag, as_integer
from fastsketch.data.sources._source import Source
from fastsketch.jobs._engines import Engine, Processes, Serial, Threads
from fastsketch.jobs._workers import choose_n_workers

EngineName = Literal["threads", "processes", "dask"]
NAMES = ("processes", "threads", "dask")


def engine_of(name: str, n_workers: int, *, retries: int, scheduler: Any = None) -> Engine:
    """Create the engine with the given name: "threads", "processes" or "dask".

    For "dask", n_workers=0 means all workers of the cluster.
    """
    as_choice(name, "engine", NAMES)
    if name == "dask":
        from fastsketch.jobs._dask import Cluster  # Dask is imported only where it is used

        return Cluster(scheduler, n_workers)
    return Threads(n_workers) if name == "threads" else Processes(n_workers, retries)


class Job(NamedTuple):
    """The options that ``fs.run`` and ``fs.map_rows`` have in common, such as workers, engine and resume."""

    workers: int | str = "auto"
    engine: str = "processes"
    scheduler: Any = None
    resume: bool = False
    progress: Any = None
    retries: int = 3

    def checked(self) -> Self:
        """Return the options unchanged. Raise TypeError or ValueError for an invalid one."""
        as_choice(self.engine, "engine", NAMES)
        as_integer(self.retries, "retries", 0)
        as_flag(self.resume, "resume")
        if self.workers != "auto":
            as_integer(self.workers, "workers", 1)
        return self

    def engine_for(
        self, parts: Sequence[Source], model_bytes: Callable[[], int], listener: Callable[[int], None]
    ) -> Engine:
        """Return a new engine, of the kind that these options select, that is to process the given parts.

        If there is one worker, or if rows cannot be read again, tasks run in this thread and call `listener` with
        numbers of rows. `model_bytes` returns the memory of a worker for models.
        """
        read_once = not all(part.repeatable for part in parts)
        if read_once and self.workers not in ("auto", 1):
            raise ValueError("workers must be 1: these rows can be read only once, in this process")
        n_workers = 1 if read_once or not parts else choose_n_workers(self.workers, self.engine, parts, model_bytes)
        if read_once or (n_workers == 1 and self.engine != "dask"):
            return Serial(_threads.blas_limit(), listener)
        return engine_of(self.engine, n_workers, retries=self.retries, scheduler=self.scheduler)
