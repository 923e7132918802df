"""How many cores this process may really use."""

import math
import os
from pathlib import Path

_GROUPS, _MINE = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def _quota() -> float:
    """Cores by the limits of the control groups that this process is in; infinite without any."""
    best = math.inf
    try:
        lines = _MINE.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return best
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = _GROUPS / controllers if controllers else _GROUPS
        # a limit may stand in the group or in any above it; in a container the path may be that of the host
        inner = Path(path.lstrip("/"))
        for group in (inner, *inner.parents, Path()):
            best = min(best, _limit_of(root / group))
    return best


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


def usable() -> int:
    """Cores by affinity, by the quota of a container (rounded up) and by OMP_NUM_THREADS, if that is set."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    if quota < count:
        count = max(1, math.ceil(quota))
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if asked.isdecimal() and int(asked) >= 1:
        count = min(count, int(asked))
    return count
