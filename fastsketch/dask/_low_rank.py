"""Low-rank models of partitions of rows, fitted where the partitions are."""

# Dask has no types; models have hooks for the parts of a job.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from contextlib import ExitStack
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

from fastsketch._validation import as_integer, as_real
from fastsketch.dask._engine import await_workers, connected
from fastsketch.jobs import WorkerLost
from fastsketch.lowrank import LowRankModel

if TYPE_CHECKING:
    from fastsketch.lowrank._climb import Callback

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
    """See fastsketch.dask.fit; partitions, sample_weight and validation are lists of delayed partitions."""
    from fastsketch.dask._crew import ClientCrew
    from fastsketch.lowrank._crew import Here
    from fastsketch.lowrank._spread_data import Given

    if model.n_features is not None:
        raise ValueError(f"model must have seen no rows, it has been fitted to {model.n_rows}")
    if max_memory is not None:
        max_memory = as_real(max_memory, "max_memory", 0.0, 1e300, low_open=True)
    if patience is not None:
        patience = as_integer(patience, "patience", 1)
    share, held = None, None
    if isinstance(validation, Real) and not isinstance(validation, bool):
        share = as_real(validation, "validation", 0.0, 1.0, low_open=True, high_open=True)
    elif validation is not None:
        held = validation
    lists = {"sample_weight": sample_weight, "validation": held}
    for name, given in lists.items():
        if given is not None and len(given) != len(partitions):
            raise ValueError(f"{name} must have the {len(partitions)} partitions of the data, got {len(given)}")
    asked = Asked(model, share, patience, callback, max_memory)
    if scheduler is None and not _active():
        from dask.base import compute

        parts, weights, apart = (
            None if each is None else list(compute(*each)) for each in (partitions, *lists.values())
        )
        return _fitted(asked, Here(), Given(parts or [], weights, apart), MEMORY, len(partitions))
    from distributed import KilledWorker

    with ExitStack() as stack:
        client = connected(scheduler, stack)
        homes = _homes(client, len(partitions))
        crew = ClientCrew(client)
        given = Given(*(_placed(crew, client, each, homes) for each in (partitions, *lists.values())))
        del partitions, lists, sample_weight, validation, held
        try:
            return _fitted(asked, crew, given, _memory(client), max(homes.count(home) for home in homes))
        except KilledWorker as error:
            raise WorkerLost(f"a task lost its worker too often: killed, or out of memory? {error}") from error


class Asked(NamedTuple):
    """A fit."""

    model: LowRankModel
    share: float | None
    patience: int | None
    callback: "Callback | None"
    max_memory: float | None


def _fitted(asked: Asked, crew: Any, given: Any, memory: float, most: int) -> LowRankModel:
    """memory: of a worker for sums, if it was not given; most: partitions of one."""
    from fastsketch.lowrank._spread import Room, fitted_over

    model = asked.model
    fitted = fitted_over(
        crew,
        given,
        model._wanted(),
        dtype=model.dtype,
        scaling=model.scaling,
        share=asked.share,
        patience=asked.patience,
        callback=asked.callback,
        room=Room(memory if asked.max_memory is None else asked.max_memory, most),
    )
    out = model.copy()
    out._fitted = fitted
    return out


def _placed(crew: Any, client: Any, given: Sequence[Any] | None, homes: list[str]) -> Any:
    """Promises of partitions, each at its home, and wherever else if that is lost."""
    if given is None:
        return None
    return [
        crew.holding(client.compute(each, workers=[home], allow_other_workers=True))
        for each, home in zip(given, homes, strict=True)
    ]


def _active() -> bool:
    """Whether there is a client; without one Dask's threads load the partitions, and they are fitted here."""
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
    """The worker of each partition: neighbours together, as many for each thread."""
    threads = [address for address, about in sorted(_workers(client).items()) for _ in range(about["nthreads"])]
    return [threads[number * len(threads) // count] for number in range(count)]


def _memory(client: Any) -> float:
    """A quarter of what the smallest worker may take."""
    limits = [about.get("memory_limit") or 0 for about in _workers(client).values()]
    return 0.25 * min(limits) if all(limits) else MEMORY
