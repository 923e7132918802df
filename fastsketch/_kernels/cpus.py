"""How many cores this process may really use."""

import math
import os
from pathlib import Path

_GROUPS, _MINE = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def groups_of(controller: str) -> list[Path]:
    """Return folders with the limits of a controller for the control groups of this process, and for those above."""
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
    """Return cores by the limits of the control groups that this process is in; infinite without any."""
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
    """Return what bounds the cores.

    Affinity, the quota of a container in cores, OMP_NUM_THREADS; None for what is not set.
    """
    quota = _quota()
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return {
        "affinity": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "quota": quota if math.isfinite(quota) else None,
        "OMP_NUM_THREADS": int(asked) if asked.isdecimal() and int(asked) >= 1 else None,
    }


def usable(bounds: dict[str, float | None] | None = None) -> int:
    """Return the smallest of these limits, or of those now, rounded up."""
    known = [limit for limit in (bounds or limits()).values() if limit is not None]
    return max(1, math.ceil(min(known)))
