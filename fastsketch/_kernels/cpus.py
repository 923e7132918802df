"""The number of CPU cores that this process may use."""

import math
import os
from pathlib import Path

_GROUPS, _MINE = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def groups_of(controller: str) -> list[Path]:
    """Return the folders that may hold this process's cgroup limits for a controller, such as "cpu".

    Those of parent groups are included.
    """
    try:
        lines = _MINE.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        # the folder of version 1 may have the names in another order, or one of them alone
        names = (controllers, controller, "cpu,cpuacct") if controllers else ()
        roots = [_GROUPS, *[_GROUPS / name for name in names]]
        # a limit may stand in the group or in any above it; in a container the path may be that of the host
        inner = Path(path.lstrip("/"))
        for group in (inner, *inner.parents, Path()):
            folders += [root / group for root in roots]
    return folders


def _quota() -> float:
    """Return the CPU quota of this process's control groups in cores; infinity without a quota."""
    return min((_limit_of(folder) for folder in groups_of("cpu")), default=math.inf)


def _limit_of(folder: Path) -> float:
    try:
        if (folder / "cpu.max").exists():
            time, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        else:
            time = (folder / "cpu.cfs_quota_us").read_text(encoding="ascii").strip()
            period = (folder / "cpu.cfs_period_us").read_text(encoding="ascii").strip()
        return math.inf if time in ("max", "-1") else int(time) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf


def limits() -> dict[str, float | None]:
    """Return the limits on the number of CPU cores as a dict: affinity, container quota and OMP_NUM_THREADS.

    The quota is in cores, and may be a fraction. A limit that is not set is None.
    """
    quota = _quota()
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return {
        "affinity": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "quota": quota if math.isfinite(quota) else None,
        "OMP_NUM_THREADS": int(asked) if asked.isdecimal() and int(asked) >= 1 else None,
    }


def usable(bounds: dict[str, float | None] | None = None) -> int:
    """Return the number of usable CPU cores: the smallest limit, rounded up.

    bounds: what ``limits()`` returned, by default the current limits.
    """
    known = [limit for limit in (bounds or limits()).values() if limit is not None]
    return max(1, math.ceil(min(known)))
