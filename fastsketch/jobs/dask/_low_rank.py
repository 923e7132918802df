"""Low-rank models of partitions of rows, fitted where the partitions are."""

# Dask has no types; models have hooks for the parts of a job.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from fastsketch._core.validation import as_integer, as_real
from fastsketch.jobs import WorkerLost
from fastsketch.jobs.dask._engine import await_workers, connected, has_client
from fastsketch.lowrank import LowRankModel
from fastsketch.lowrank._arguments import as_share

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
    from fastsketch.lowrank._fitting import FitHistory
    from fastsketch.lowrank._fitting import fit as fit_entries
    from fastsketch.lowrank._loading import Matrices, load
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

    def fitted(crew: Any, given: Any, memory: float, most: int) -> LowRankModel:
        """Return the model, fitted; memory: of a worker for sums, if it was not given; most: partitions of one."""
        setting, held = model._setting(), share is not None or given.held is not None
        limit = memory if max_memory is None else max_memory
        check_width = partial(check_memory, setting=setting, max_memory=limit, partitions=most)
        entries, apart = load(crew, given, setting, share=share, check_width=check_width)
        watch = FitHistory(held=held, patience=patience, callback=callback)
        out = model.copy()
        out._fitted = fit_entries(entries, setting, watch, apart)[0]
        return out

    if scheduler is None and not has_client():
        from dask.base import compute

        loaded = [None if each is None else list(compute(*each)) for each in (partitions, *lists.values())]
        return fitted(Here(), Matrices(loaded[0] or [], *loaded[1:]), MEMORY, len(partitions))
    from distributed import KilledWorker

    with ExitStack() as stack:
        client = connected(scheduler, stack)
        homes = _homes(client, len(partitions))
        crew = ClientCrew(client)
        given = Matrices(*(_placed(crew, client, each, homes) for each in (partitions, *lists.values())))
        del partitions, lists, sample_weight, validation
        try:
            return fitted(crew, given, _memory(client), max(homes.count(home) for home in homes))
        except KilledWorker as error:
            raise WorkerLost(f"a task lost its worker too often: killed, or out of memory? {error}") from error


def check_memory(n: int, setting: "FitSetting", *, max_memory: float, partitions: int) -> None:
    """Raise ValueError if the sums of a step over n columns take more bytes on the worker that has most partitions."""
    from fastsketch.lowrank._partitions import FAN_IN
    from fastsketch.lowrank._sweeps import bytes_of_sums

    own = bytes_of_sums(n, setting.rank, biases=setting.biases) if setting.sweeps else 0
    each = max(own, 64 * n)
    need = each * (partitions + FAN_IN + 1)
    if need <= max_memory:
        return
    t = setting.rank + setting.biases
    sums = f"{n:,} columns x {t} x {t + 1} / 2 numbers in a sweep" if own > 64 * n else f"{n:,} columns x 8 numbers"
    raise ValueError(
        f"the sums of a step, {sums}, take {each / 1e6:,.0f} MB for a partition and {need / 1e6:,.0f} MB on a "
        f"worker of {partitions} partitions, more than max_memory={max_memory / 1e6:,.0f} MB: lower rank"
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
