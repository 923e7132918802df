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


def choose_n_workers(requested: int | str, engine: str, parts: Sequence[Source], model_bytes: Callable[[], int]) -> int:
    """Return the number of workers of a job: the requested one, or one chosen by the cores, the memory and the size of
    the job.

    `requested` is a number, or "auto": then cores, memory and the size of the job decide. 0 stands for all workers of a
    Dask cluster. `model_bytes` returns the memory that a worker needs for models.
    """
    if requested != "auto":
        return as_integer(requested, "workers", 1)
    if engine == "dask":
        return 0
    n_bytes = sum(part.n_bytes or part.size for part in parts)
    n_workers = min(len(parts), max(1, n_bytes // BYTES_OF_A_WORKER))
    n_workers = n_workers if n_workers == 1 else min(n_workers, pool.get())
    if n_workers == 1:
        return 1
    bytes_per_worker = model_bytes() + CHUNKS * CHUNK_BYTES + (BYTES_OF_A_PROCESS if engine == "processes" else 0)
    free_bytes = free_memory()
    return max(1, n_workers if free_bytes is None else min(n_workers, int(0.8 * free_bytes) // bytes_per_worker))


def free_memory() -> int | None:
    """Return the memory available to this process in bytes, or None if it is unknown.

    It is limited by the machine and by control groups (containers).
    """
    sizes = [size for size in (_machine_memory(), *_group_memory()) if size is not None]
    return min(sizes, default=None)


def _machine_memory() -> int | None:
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


def _group_memory() -> Iterator[int]:
    """Yield the free memory in bytes of each control group of this process, counting inactive file cache as free."""
    for folder in groups_of("memory"):
        for limit_file, used_file, cache_field in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            try:
                limit_text = (folder / limit_file).read_text(encoding="ascii").strip()
                if limit_text == "max":
                    continue
                used_bytes = int((folder / used_file).read_text(encoding="ascii"))
                fields = (folder / "memory.stat").read_text(encoding="ascii").split()  # names before their numbers
                cache_bytes = int(fields[fields.index(cache_field) + 1]) if cache_field in fields else 0
                yield max(0, int(limit_text) - used_bytes + cache_bytes)
            except (OSError, ValueError):
                continue
