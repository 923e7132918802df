"""How many threads the numerical libraries may use, shared by everything in the process.

numpy and scipy each bring their own OpenBLAS with its own pool, and a limit set by one Python thread holds for
all of them. So every limit in force is kept in one list under one lock: the smallest wins, and the values found
before the first come back when the last one ends, in whatever order overlapping limits end.
"""

import contextlib
import sys
import threading

from fastsketch._validation import as_integer

_lock = threading.RLock()
_limits = []
_before = []
_controller = None


def _blas_libraries():
    """Controllers of the BLAS pools loaded so far; looked up again only when a library was loaded since."""
    global _controller
    from threadpoolctl import ThreadpoolController

    loaded = ("numpy.linalg" in sys.modules) + 2 * ("scipy.linalg.cython_blas" in sys.modules)
    if _controller is None or _controller[0] != loaded:
        _controller = (loaded, ThreadpoolController().select(user_api="blas").lib_controllers)
    return _controller[1]


def _set(library, n):
    library.set_num_threads(n)
    # Newer versions of threadpoolctl let only one thread set a pool until it lets go of it; ours take turns by _lock.
    release = getattr(library, "clear_controlling_thread", None)
    if release is not None:
        release()


def _apply():
    smallest = min(limit for limit, _ in _limits)
    for library, original in _before:
        _set(library, min(smallest, original))
    numba = sys.modules.get("numba")
    wanted = [limit for limit, own in _limits if own]
    if numba is not None and wanted:
        numba.set_num_threads(min(min(wanted), numba.config.NUMBA_NUM_THREADS))


@contextlib.contextmanager
def _limited(limit, own):
    entry = (limit, own)
    numba = sys.modules.get("numba") if own else None
    numba_before = numba.get_num_threads() if numba is not None else None
    with _lock:
        if not _limits:
            _before[:] = [(library, library.num_threads) for library in _blas_libraries()]
        _limits.append(entry)
        _apply()
    try:
        yield
    finally:
        with _lock:
            _limits.remove(entry)
            if _limits:
                _apply()
            else:
                for library, original in _before:
                    _set(library, original)
                _before.clear()
            if numba_before is not None:
                numba.set_num_threads(numba_before)


def threads(n):
    """Limit BLAS (and numba, if it is loaded) to at most n threads inside a ``with`` block.

    Parameters
    ----------
    n : int
        Largest number of threads, at least 1. Raising a pool above the size it had outside has no effect.

    Returns
    -------
    context manager
        On leaving, every pool is as it was, also when blocks of several Python threads overlap.

    Raises
    ------
    TypeError, ValueError
        If n is no integer or below 1.

    Notes
    -----
    Limits are process-wide; while several overlap the smallest holds. Inside, sketches still use one BLAS thread
    for their small shrinks, where more would be slower. No environment variable is read or written.

    Examples
    --------
    >>> import fastsketch as fs
    >>> with fs.threads(1):
    ...     s = fs.FrequentDirections(8).update([[1.0, 2.0], [3.0, 4.0]])
    """
    return _limited(as_integer(n, "n", 1), own=True)


# Shrinks of fewer buffer rows than this ran up to 4 times slower on two shared cores than on one.
SMALL_SHRINK = 1024


def blas_for(buffer_rows):
    """The limit a kernel runs under: one thread for a small shrink, else whatever holds already."""
    return _limited(1, own=False) if buffer_rows < SMALL_SHRINK else contextlib.nullcontext()
