"""Low-rank models of partitions of rows, fitted where the partitions are."""

# Dask has no types; models have hooks for the parts of a job.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fastsketch._core.validation import as_integer, as_real
from fastsketch.jobs import WorkerLost
from fastsketch.jobs.dask._engine import await_workers, connected
from fastsketch.lowrank import LowRankModel
from fastsketch.lowrank._setting import as_share

if TYPE_CHECKING:
    from fastsketch.lowrank._fitting import Callback
    from fastsketch.lowrank._setting import FitSetting

# Where no worker says how much memory it may take.
MEMORY = 2 << 30


def fit(
    model: LowRankModel,
    partitions: Sequence[Any],
    scheduler: Any = None,
    *,
    sample_weight: Sequence[Any] | None = None,
    validation: Any = None,
    patience: int | None = None,
    callback: "Callback | None" = None,
    max_memory: float | None = None,
) -> LowRankModel:
    """Fit a model as ``fit`` does; partitions, sample_weight, validation: lists of delayed partitions."""
    from fastsketch.jobs.dask._crew import ClientCrew
    from fastsketch.lowrank._loading import Matrices
    from fastsketch.lowrank._partitions import Here

    if model.n_features is not None:
        raise ValueError(f"model must have seen no rows, it has been fitted to {model.n_rows}")
    if max_memory is not None:
        max_memory = as_real(max_memory, "max_memory", 0.0, 1e300, low_open=True)
    if patience is not None:
        patience = as_integer(patience, "patience", 1)
    share = as_share(validation)
    lists = {"sample_weight": sample_weight, "validation": None if share is not None else validation}
    for name, given in lists.items():
        if given is not None and len(given) != len(partitions):
            raise ValueError(f"{name} must have the {len(partitions)} partitions of the data, got {len(given)}")
    asked = Asked(model, share, patience, callback, max_memory)
    if scheduler is None and not _active():
        from dask.base import compute

        loaded = [None if each is None else list(compute(*each)) for each in (partitions, *lists.values())]
        return _fitted(asked, Here(), Matrices(loaded[0] or [], *loaded[1:]), MEMORY, len(partitions))
    from distributed import KilledWorker

    with ExitStack() as stack:
        client = connected(scheduler, stack)
        homes = _homes(client, len(partitions))
        crew = ClientCrew(client)
        given = Matrices(*(_placed(crew, client, each, homes) for each in (partitions, *lists.values())))
        del partitions, lists, sample_weight, validation
        try:
            return _fitted(asked, crew, given, _memory(client), max(homes.count(home) for home in homes))
        except KilledWorker as error:
            raise WorkerLost(f"a task lost its worker too often: killed, or out of memory? {error}") from error


class Asked(NamedTuple):
    """The arguments of a fit."""

    model: LowRankModel
    share: float | None
    patience: int | None
    callback: "Callback | None"
    max_memory: float | None


def _fitted(asked: Asked, crew: Any, given: Any, memory: float, most: int) -> LowRankModel:
    """Return the model, fitted; memory: of a worker for sums, if it was not given; most: partitions of one worker."""
    from fastsketch.lowrank._fitting import FitHistory, fit
    from fastsketch.lowrank._loading import load

    setting = asked.model._setting()
    watch = FitHistory(
        held=asked.share is not None or given.held is not None, patience=asked.patience, callback=asked.callback
    )
    room = StepMemory(memory if asked.max_memory is None else asked.max_memory, most)
    entries = load(crew, given, setting, share=asked.share, check_width=lambda n: room.check(n, setting))
    out = asked.model.copy()
    out._fitted = fit(entries, setting, watch)[0]
    return out


@dataclass(frozen=True)
class StepMemory:
    """Memory of a worker for the sums of one step."""

    max_memory: float  # bytes
    partitions: int  # of the worker that has most

    def check(self, n: int, setting: "FitSetting") -> None:
        """Raise ValueError if the sums over n columns would take more."""
        from fastsketch.lowrank._partitions import FAN_IN
        from fastsketch.lowrank._sweeps import bytes_of_sums

        own = bytes_of_sums(n, setting.rank, biases=setting.biases) if setting.sweeps else 0
        each = max(own, 64 * n)
        need = each * (self.partitions + FAN_IN + 1)
        if need <= self.max_memory:
            return
        t = setting.rank + setting.biases
        sums = f"{n:,} columns x {t} x {t + 1} / 2 numbers in a sweep" if own > 64 * n else f"{n:,} columns x 8 numbers"
        raise ValueError(
            f"the sums of a step, {sums}, take {each / 1e6:,.0f} MB for a partition and {need / 1e6:,.0f} MB on a "
            f"worker of {self.partitions} partitions, more than max_memory={self.max_memory / 1e6:,.0f} MB: lower rank"
            f"{' (or sweeps to 0)' if own > 64 * n else ''}, have fewer partitions a worker, or raise max_memory"
        )


def _placed(crew: Any, client: Any, given: Sequence[Any] | None, homes: list[str]) -> Any:
    """Return promises of partitions, each at its home, and wherever else if that is lost."""
    if given is None:
        return None
    return [
        crew.holding(client.compute(each, workers=[home], allow_other_workers=True))
        for each, home in zip(given, homes, strict=True)
    ]


def _active() -> bool:
    """Return whether there is a client; without one Dask's threads load the partitions, and they are fitted here."""
    try:
        from distributed import Client

        Client.current()
    except (ImportError, ValueError):
        return False
    return True


def _workers(client: Any) -> dict[str, Any]:
    await_workers(client)
    return client.scheduler_info(n_workers=-1)["workers"]


def _homes(client: Any, count: int) -> list[str]:
    """Return the worker of each partition: neighbours together, as many for each thread."""
    threads = [address for address, about in sorted(_workers(client).items()) for _ in range(about["nthreads"])]
    return [threads[number * len(threads) // count] for number in range(count)]


def _memory(client: Any) -> float:
    """Return a quarter of the memory that the smallest worker may take."""
    limits = [about.get("memory_limit") or 0 for about in _workers(client).values()]
    return 0.25 * min(limits) if all(limits) else MEMORY
