"""How many threads fastsketch and the numerical libraries may use, shared by everything in the process.

The kernels have one pool of threads (``_kernels/pool.pyx``), numpy and scipy each bring their own OpenBLAS with its
own, and a limit set by one Python thread holds for all of them. So every limit in force is kept in one list under one
lock: the smallest wins, and the values found before the first come back when the last one ends, in whatever order
overlapping limits end.
"""

import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, ParamSpec, Self, TypeVar

from fastsketch._core.validation import as_integer
from fastsketch._kernels import pool

_lock = threading.RLock()
# Limits in force. Weak references: a limit whose owner was interrupted between two lines ends with its owner.
_limits: "weakref.WeakSet[_Limit]" = weakref.WeakSet()
_before: list[tuple[Any, int]] = []
_controller: tuple[int, list[Any]] | None = None


def _blas_libraries() -> list[Any]:
    """Return controllers of the BLAS pools loaded so far; looked up again only when a library was loaded since."""
    global _controller
    from threadpoolctl import ThreadpoolController

    loaded = ("numpy.linalg" in sys.modules) + 2 * ("scipy.linalg.cython_blas" in sys.modules)
    if _controller is None or _controller[0] != loaded:
        pools: Any = ThreadpoolController()  # threadpoolctl has no types
        found: list[Any] = pools.select(user_api="blas").lib_controllers
        # faiss brings an OpenMP pool, which counts per thread and is faiss's own business: no kernel calls it
        _controller = (loaded, [library for library in found if "faiss" not in library.filepath])
    return _controller[1]


class _Pool:
    """The kernels' own threads, as threadpoolctl would show them."""

    filepath = "the pool of the kernels"

    @property
    def num_threads(self) -> int:
        return pool.get()


_pool = _Pool()


def _set(library: Any, n: int) -> None:
    if library is _pool:
        pool.use(n)
        return
    if library.filepath == pool.adopted:
        pool.use_blas(n)
        return
    library.set_num_threads(n)
    # Newer versions of threadpoolctl let only one thread set a pool until it lets go of it; ours take turns by _lock.
    release = getattr(library, "clear_controlling_thread", None)
    if release is not None:
        release()


def _apply() -> None:
    """Bring every pool to what the limits in force ask for; may be called at any time, any number of times."""
    limits = list(_limits)
    if limits:
        smallest = min(entry.limit for entry in limits)
        wanted = [entry.limit for entry in limits if entry.own]
        for library, original in _before:
            if library is not _pool:
                _set(library, min(smallest, original))
            else:
                _set(library, min(wanted, default=original))
        numba = sys.modules.get("numba")
        if numba is not None and wanted:
            numba.set_num_threads(min(min(wanted), numba.config.NUMBA_NUM_THREADS))
    elif _before:
        for library, original in _before:
            _set(library, original)
        _before.clear()


class _Limit:
    """One limit in force from __enter__ to __exit__, or until it is collected and ``settle`` is called."""

    def __init__(self, limit: int, own: bool) -> None:
        self.limit = limit
        self.own = own  # numba follows too
        self.thread = threading.get_ident()
        self.entered = 0
        self.numba_before: int | None = None

    def __enter__(self) -> Self:
        numba = sys.modules.get("numba") if self.own else None
        with _lock:
            self.entered += 1
            if self in _limits:
                return self
            self.thread = threading.get_ident()
            if numba is not None:
                self.numba_before = numba.get_num_threads()
            if not _limits:
                _apply()  # what an interrupted exit may have left
            # also what was loaded since the limits in force began
            known = {library.filepath for library, _ in _before}
            for library in [_pool, *_blas_libraries()]:
                if library.filepath not in known:  # while a kernel has scipy's BLAS for itself, the library says 1
                    adopted = library.filepath == pool.adopted
                    _before.append((library, pool.blas_threads() if adopted else library.num_threads))
            _limits.add(self)
            _apply()
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            self.entered -= 1
            if self.entered > 0:
                return
            _limits.discard(self)
            _apply()
            if self.numba_before is not None:
                sys.modules["numba"].set_num_threads(self.numba_before)
                self.numba_before = None


def _forked() -> None:
    """Forget the limits of other threads in a child of fork, where those threads are gone."""
    global _lock
    _lock = threading.RLock()
    for entry in [e for e in _limits if e.thread != threading.get_ident()]:
        _limits.discard(entry)
    _apply()


if hasattr(os, "register_at_fork"):
    # nobody is in the middle of setting a pool: a lock of OpenBLAS would stay closed in the child
    os.register_at_fork(before=lambda: _lock.acquire(), after_in_parent=lambda: _lock.release(), after_in_child=_forked)


def settle() -> None:
    """End the limit that an interrupt in an __enter__ or __exit__ left, after an exception in a kernel's work."""
    if _before:
        with _lock:
            # By looking for them: the traceback keeps them alive. Limits of kernels do not nest within a thread.
            for entry in [e for e in _limits if not e.own and e.thread == threading.get_ident()]:
                _limits.discard(entry)
            _apply()


def thread_limit(n: int) -> _Limit:
    """Limit the threads of fastsketch, numba, and numpy's and scipy's BLAS inside a ``with`` block.

    Parameters
    ----------
    n : int
        Number of threads, at least 1 and below 2**16. More than there are cores are allowed, and bring nothing. A pool
        of BLAS is never raised above the size it had outside.

    Returns
    -------
    context manager
        On leaving, every pool is as it was, also when blocks of several Python threads overlap.

    Raises
    ------
    TypeError, ValueError
        If n is no integer, or out of its range.

    Notes
    -----
    Without it, work that is large enough goes to as many threads as there are cores that the process may really use: by
    its affinity, by the quota of its container, and by the environment variable OMP_NUM_THREADS where that is lower.
    Results have the same bits for every number of threads. Limits are process-wide; while several overlap the smallest
    holds. ``threadpoolctl.threadpool_limits`` sets the same pool (user API "fastsketch") once a model was made.

    Examples
    --------
    A limit leaves cores to others, and changes no bit:

    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((500, 40))
    >>> with fs.thread_limit(1):
    ...     alone = fs.FrequentDirections(8).update(rows)
    >>> np.array_equal(alone.sketch(), fs.FrequentDirections(8).update(rows).sketch())
    True
    """
    return _Limit(as_integer(n, "n", 1, below=1 << 16), own=True)


def blas_limit() -> _Limit:
    """Return a ``with`` block in which BLAS has one thread, so that its bits are those of a worker.

    The pool keeps its own.
    """
    return _Limit(1, own=False)


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def one_blas_thread(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a function of NumPy's and SciPy's linear algebra, whose bits depend on the number of threads.

    For what is short: other threads' BLAS has one thread too while it lasts.
    """

    @functools.wraps(function)
    def alone(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with _Limit(1, own=False):
            return function(*args, **kwargs)

    return alone
