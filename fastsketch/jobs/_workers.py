"""Choose the number of workers of a job."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fastsketch._core.validation import as_integer
from fastsketch._kernels import pool
from fastsketch._kernels.cpus import groups_of
from fastsketch.data.sources._source import CHUNK_BYTES, Source

# Bytes of rows from which a worker is worth its start, of about a second. Smaller jobs run in this process, where
# models use several threads.
BYTES_OF_A_WORKER = 512 << 20
# Memory of an idle worker: the interpreter and the imported modules.
BYTES_OF_A_PROCESS = 100 << 20
# Chunks that a worker has in memory: the one being learned, its conversion, and those that are read ahead.
CHUNKS = 6


def workers_of(wanted: int | str, engine: str, parts: Sequence[Source], model_bytes: Callable[[], int]) -> int:
    """Return the number of workers; "auto" considers cores, memory and the size of the job, or gives 0 (all) for Dask.

    Parameters
    ----------
    wanted : int or "auto"
    engine : str
    parts : sequence of Source
        No more workers than parts are used.
    model_bytes : callable() -> int
        Returns the memory of a worker for models. Called only if there may be several workers.
    """
    if wanted != "auto":
        return as_integer(wanted, "workers", 1)
    if engine == "dask":
        return 0
    n_bytes = sum(part.n_bytes or part.size for part in parts)
    most = min(len(parts), max(1, n_bytes // BYTES_OF_A_WORKER))
    most = most if most == 1 else min(most, pool.get())
    if most == 1:
        return 1
    need = model_bytes() + CHUNKS * CHUNK_BYTES + (BYTES_OF_A_PROCESS if engine == "processes" else 0)
    room = free_memory()
    return max(1, most if room is None else min(most, int(0.8 * room) // need))


def free_memory() -> int | None:
    """Return the memory available to this process in bytes, or None if it is unknown.

    It is limited by the machine and by control groups (containers).
    """
    known = [size for size in (_of_machine(), *_of_groups()) if size is not None]
    return min(known, default=None)


def _of_machine() -> int | None:
    """Return the available memory of the machine in bytes, or None if it is unknown.

    Without /proc/meminfo the total memory is returned.
    """
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _of_groups() -> Iterator[int]:
    """Yield the free memory in bytes of each control group of this process, counting inactive file cache as free."""
    for folder in groups_of("memory"):
        for limit, used, droppable in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            try:
                most = (folder / limit).read_text(encoding="ascii").strip()
                if most == "max":
                    continue
                taken = int((folder / used).read_text(encoding="ascii"))
                words = (folder / "memory.stat").read_text(encoding="ascii").split()  # names before their numbers
                free = int(words[words.index(droppable) + 1]) if droppable in words else 0
                yield max(0, int(most) - taken + free)
            except (OSError, ValueError):
                continue
