"""Process-wide limits on the number of threads of fastsketch, Numba and BLAS.

The kernels have one pool of threads (``_kernels/pool.pyx``), NumPy and SciPy each bring an OpenBLAS with its own pool,
and a limit set by one Python thread affects all of them. All active limits are therefore in one set under one lock: the
smallest wins, and the original values are restored when the last limit ends, in whatever order overlapping limits end.
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
# Active limits. Weak references: a limit whose owner was interrupted between two lines ends with its owner.
_limits: "weakref.WeakSet[_Limit]" = weakref.WeakSet()
_original_sizes: list[tuple[Any, int]] = []
_controller: tuple[int, list[Any]] | None = None


def _blas_libraries() -> list[Any]:
    """Return the threadpoolctl controllers of all BLAS libraries that are loaded. They are cached until another library
    is loaded.
    """
    global _controller
    from threadpoolctl import ThreadpoolController

    loaded = ("numpy.linalg" in sys.modules) + 2 * ("scipy.linalg.cython_blas" in sys.modules)
    if _controller is None or _controller[0] != loaded:
        pools: Any = ThreadpoolController()  # threadpoolctl has no types
        libraries: list[Any] = pools.select(user_api="blas").lib_controllers
        # not the OpenMP pool of faiss, which no kernel calls
        _controller = (loaded, [library for library in libraries if "faiss" not in library.filepath])
    return _controller[1]


def _numba() -> Any:
    """Return the module numba, or None before it is imported, and while another thread is importing it."""
    numba = sys.modules.get("numba")
    return numba if hasattr(numba, "set_num_threads") and hasattr(numba, "get_num_threads") else None


class _Pool:
    """Adapter by which thread limits treat the thread pool of fastsketch's compiled code like that of a BLAS
    library.
    """

    filepath = "the pool of the kernels"

    @property
    def num_threads(self) -> int:
        return pool.get()


_pool = _Pool()


def _set_pool_size(library: Any, n: int) -> None:
    """Set the number of threads of one library's thread pool."""
    if library is _pool:
        pool.use(n)
        return
    if library.filepath == pool.adopted:
        pool.use_blas(n)
        return
    library.set_num_threads(n)
    # Newer versions of threadpoolctl let only one thread set a pool until it releases it; _lock makes ours take turns.
    release = getattr(library, "clear_controlling_thread", None)
    if release is not None:
        release()


def _apply_limits() -> None:
    """Set every thread pool to the smallest of all active limits. If no limit is active, restore the original sizes.

    It may be called any number of times.
    """
    limits = list(_limits)
    if limits:
        smallest = min(entry.limit for entry in limits)
        kernel_limits = [entry.limit for entry in limits if entry.limits_kernels]
        for library, original in _original_sizes:
            if library is not _pool:
                _set_pool_size(library, min(smallest, original))
            else:
                _set_pool_size(library, min(kernel_limits, default=original))
        numba = _numba()
        if numba is not None and kernel_limits:
            numba.set_num_threads(min(min(kernel_limits), numba.config.NUMBA_NUM_THREADS))
    elif _original_sizes:
        for library, original in _original_sizes:
            _set_pool_size(library, original)
        _original_sizes.clear()


class _Limit:
    """Context manager that limits the number of threads inside a ``with`` block.

    After an interrupt the limit ends when it is collected and ``end_interrupted_limits`` is called.
    """

    def __init__(self, limit: int, limits_kernels: bool) -> None:
        self.limit = limit
        self.limits_kernels = limits_kernels  # whether it limits Numba and the pool of the kernels, too
        self.thread = threading.get_ident()
        self.entered = 0
        self.numba_before: int | None = None

    def __enter__(self) -> Self:
        numba = _numba() if self.limits_kernels else None
        with _lock:
            self.entered += 1
            if self in _limits:
                return self
            self.thread = threading.get_ident()
            if numba is not None:
                self.numba_before = numba.get_num_threads()
            if not _limits:
                _apply_limits()  # end a limit that an interrupted exit has left
            # also libraries loaded since the active limits began
            known_paths = {library.filepath for library, _ in _original_sizes}
            for library in [_pool, *_blas_libraries()]:
                if library.filepath not in known_paths:  # during a kernel SciPy's BLAS has one thread
                    adopted = library.filepath == pool.adopted
                    _original_sizes.append((library, pool.blas_threads() if adopted else library.num_threads))
            _limits.add(self)
            _apply_limits()
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            self.entered -= 1
            if self.entered > 0:
                return
            _limits.discard(self)
            _apply_limits()
            if self.numba_before is not None:
                sys.modules["numba"].set_num_threads(self.numba_before)
                self.numba_before = None


def _drop_limits_after_fork() -> None:
    """Remove, in a forked child process, the thread limits of other threads, which do not exist there."""
    global _lock
    _lock = threading.RLock()
    for entry in [e for e in _limits if e.thread != threading.get_ident()]:
        _limits.discard(entry)
    _apply_limits()


if hasattr(os, "register_at_fork"):
    # no thread may be setting a pool during a fork: a lock of OpenBLAS would stay locked in the child
    os.register_at_fork(
        before=lambda: _lock.acquire(), after_in_parent=lambda: _lock.release(), after_in_child=_drop_limits_after_fork
    )


def end_interrupted_limits() -> None:
    """End thread limits of this thread whose ``with`` block was interrupted before it could end them.

    Called after an exception in a kernel.
    """
    if _original_sizes:
        with _lock:
            # They are searched for, as the traceback keeps them alive. Limits of kernels do not nest within a thread.
            for entry in [e for e in _limits if not e.limits_kernels and e.thread == threading.get_ident()]:
                _limits.discard(entry)
            _apply_limits()


def thread_limit(n: int) -> _Limit:
    """Limit the threads of fastsketch, numba, and numpy's and scipy's BLAS inside a ``with`` block.

    Parameters
    ----------
    n : int
        Number of threads, at least 1 and below 2**16. More threads than cores are allowed, but not faster. The pool of
        BLAS is never made larger than it was before.

    Returns
    -------
    context manager
        At its end every pool has its earlier size, also if blocks of several Python threads overlap.

    Raises
    ------
    TypeError, ValueError
        If n is no integer, or out of its range.

    Notes
    -----
    Without a limit, large computations use as many threads as the process has cores: by its affinity, by the quota of
    its container, and by the environment variable OMP_NUM_THREADS if that is lower. Results have the same bits for
    every number of threads. Limits hold for the whole process; of overlapping limits the smallest wins.
    ``threadpoolctl.threadpool_limits`` sets the same pool (user API "fastsketch") once a model was made.

    Examples
    --------
    A limit leaves cores to other programs, and does not change the result:

    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((500, 40))
    >>> with fs.thread_limit(1):
    ...     alone = fs.FrequentDirections(8).update(rows)
    >>> np.array_equal(alone.sketch(), fs.FrequentDirections(8).update(rows).sketch())
    True
    """
    return _Limit(as_integer(n, "n", 1, below=1 << 16), limits_kernels=True)


def blas_limit() -> _Limit:
    """Return a context manager that limits BLAS to one thread, but not the pool of the kernels.

    Results in it are bitwise identical to those of a worker process.
    """
    return _Limit(1, limits_kernels=False)


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def one_blas_thread(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a function so that BLAS has one thread in it, which makes its results reproducible.

    It is for short functions, because BLAS has one thread in the whole process meanwhile.
    """

    @functools.wraps(function)
    def with_one_thread(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with _Limit(1, limits_kernels=False):
            return function(*args, **kwargs)

    return with_one_thread
