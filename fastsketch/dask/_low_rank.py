"""Low-rank models of partitions of rows, fitted where the partitions are."""

# Dask has no types; models have hooks for the parts of a job.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from fastsketch._validation import as_integer, as_real
from fastsketch.lowrank import LowRankModel

if TYPE_CHECKING:
    from fastsketch.lowrank._climb import Callback

# Where no worker says how much memory it may take.
MEMORY = 2 << 30


def fit(
    model: LowRankModel,
    partitions: Sequence[Any],
    *,
    sample_weight: Sequence[Any] | None = None,
    validation: Any = None,
    patience: int | None = None,
    callback: "Callback | None" = None,
    max_memory: float | None = None,
) -> LowRankModel:
    """See fastsketch.dask.fit; partitions, sample_weight and validation are lists of delayed partitions."""
    from dask.base import compute

    from fastsketch.lowrank._crew import Here
    from fastsketch.lowrank._spread import Room, fitted_over
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
    client, count = _client(), len(partitions)
    if client is None:
        crew: Any = Here()
        parts, *others = ([None if each is None else list(compute(*each))] for each in (partitions, *lists.values()))
        loaded = Given(parts[0] or [], others[0][0], others[1][0])
        room = Room(MEMORY if max_memory is None else max_memory, count)
    else:
        from fastsketch.dask._crew import ClientCrew

        crew, homes = ClientCrew(client), _homes(client, count)

        def placed(given: Sequence[Any] | None) -> list[Any] | None:
            if given is None:
                return None
            # there, and wherever else if that worker is lost
            return [
                crew.holding(client.compute(each, workers=[home], allow_other_workers=True, optimize_graph=True))
                for each, home in zip(given, homes, strict=True)
            ]

        loaded = Given(placed(partitions) or [], placed(sample_weight), placed(held))
        most = max(homes.count(home) for home in homes)
        room = Room(_memory(client) if max_memory is None else max_memory, most)
    wanted = model._wanted()
    fitted = fitted_over(
        crew,
        loaded,
        wanted,
        dtype=model.dtype,
        scaling=model.scaling,
        share=share,
        patience=patience,
        callback=callback,
        room=room,
    )
    out = model.copy()
    out._fitted = fitted
    return out


def _client() -> Any:
    """The active client, or None: Dask's threads load the partitions, and they are fitted here."""
    try:
        from distributed import default_client
    except ImportError:
        return None
    try:
        return default_client()
    except ValueError:
        return None


def _workers(client: Any) -> dict[str, Any]:
    client.wait_for_workers(1)
    return client.scheduler_info(n_workers=-1)["workers"]


def _homes(client: Any, count: int) -> list[str]:
    """The worker of each partition: neighbours together, as many for each thread."""
    threads = [address for address, about in sorted(_workers(client).items()) for _ in range(about["nthreads"])]
    return [threads[number * len(threads) // count] for number in range(count)]


def _memory(client: Any) -> float:
    """A quarter of what the smallest worker may take."""
    limits = [about.get("memory_limit") or 0 for about in _workers(client).values()]
    return 0.25 * min(limits) if all(limits) else MEMORY
