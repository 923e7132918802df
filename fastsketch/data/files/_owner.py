"""Whose a file is that lies there only while a process lives: a lock, or a file that is being written."""

import contextlib
import functools
import os
import platform
import re
import sys
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple


class Owner(NamedTuple):
    """A process: its number is given out again later, so its start counts too, and the place where numbers hold."""

    pid: int
    started: str  # "" where the system does not tell
    place: str
    host: str  # for people

    @property
    def mark(self) -> str:
        """The owner as part of the name of a file."""
        return f"{self.pid}-{self.started}-{self.place}"

    def is_here(self) -> bool:
        """Return whether it ran where this process runs, so that its end can be seen from here."""
        return self.place == _place()

    def may_live(self) -> bool:
        """Return False only if the process has ended for certain."""
        if not self.is_here():
            return True
        if not _exists(self.pid):
            return False
        now = _start(self.pid)
        return now is None or (now != ENDED and (not self.started or now == self.started))


MARK = re.compile(r"(\d+)-([0-9a-z]*)-([0-9a-f]{8})")
ENDED = "ended"


def this_process() -> Owner:
    """Return the process that asks."""
    return _process(os.getpid())


@functools.cache
def _process(pid: int) -> Owner:
    return Owner(pid, _start(pid) or "", _place(), platform.node())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.cache_clear)


def of_mark(text: str) -> Owner | None:
    """Return the owner of whom this is the mark, None if it is no mark."""
    match = MARK.fullmatch(text)
    return Owner(int(match[1]), match[2], match[3], "") if match else None


def _text(path: str) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return Path(path).read_text(encoding="ascii").strip()
    return ""


def _place() -> str:
    """Return the name of the machine and, on Linux, of the namespace of process numbers: each container has its own.

    Machines may have one host name, and containers of one image one machine-id: all three are needed.
    """
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return blake2b(f"{platform.node()} {_text('/etc/machine-id')} {namespace}".encode(), digest_size=4).hexdigest()


def _start(pid: int) -> str | None:
    """Return when a process began: ticks, and the boot that they count from; None where the system does not tell."""
    stat = _text(f"/proc/{pid}/stat")
    fields = stat.rpartition(")")[2].split()  # the name before it may hold blanks and brackets
    if len(fields) < 20:
        return None
    if fields[0] in "ZX":  # it has ended, and its parent has not asked yet
        return ENDED
    return f"{int(fields[19]):x}x{_text('/proc/sys/kernel/random/boot_id')[:8]}"


if sys.platform == "win32":  # os.kill(pid, 0) is Ctrl-C there

    def _exists(pid: int) -> bool:
        """Return whether a process of this number may be running."""
        import ctypes

        kernel = ctypes.windll.kernel32
        handle = kernel.OpenProcess(0x1000, False, pid)  # PROCESS_QUERY_LIMITED_INFORMATION
        if not handle:
            return kernel.GetLastError() == 5  # access denied
        status = ctypes.c_ulong()
        asked = kernel.GetExitCodeProcess(handle, ctypes.byref(status))
        kernel.CloseHandle(handle)
        return not asked or status.value == 259  # STILL_ACTIVE

else:

    def _exists(pid: int) -> bool:
        """Return whether a process of this number may be running."""
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except OSError:
            pass  # somebody else's
        return pid > 0
