"""The threads that kernels share (csrc/fs_pool.h), and the threads of scipy's BLAS, which they keep in step.

``threadpool_info`` and ``threadpool_limits`` of threadpoolctl see the pool as user API "fastsketch".
"""

import ctypes
import os
import sys
from pathlib import Path

from fastsketch._kernels.cpus import usable


ctypedef int (*get_threads)() noexcept nogil
ctypedef void (*set_threads)(int) noexcept nogil

cdef extern from "fs_threads.h" nogil:
    const fs_pool_service *fs_threads_service()
    int fs_threads_get()
    void fs_threads_set(int n)
    void fs_threads_set_cores(int n)
    int fs_threads_started()
    void fs_threads_adopt_blas(get_threads get, set_threads set)
    int fs_threads_blas_get()
    void fs_threads_blas_set(int n)
    void fs_threads_settle()
    ctypedef struct fs_rehearsal:
        double jobs, on_cores
    fs_rehearsal fs_threads_rehearse(int cores)


def get():
    """Threads of a job, the calling one included."""
    return fs_threads_get()


def use(int n):
    """Let jobs have n >= 1 threads from now on, more than there are cores too."""
    fs_threads_set(n)


def started():
    """Worker threads alive in this process: they are started when first needed."""
    return fs_threads_started()


def blas_threads():
    """Threads of scipy's BLAS outside of kernels; 0 where nothing can tell."""
    return fs_threads_blas_get()


def use_blas(int n):
    """Set them; a kernel at work has its own until it ends."""
    fs_threads_blas_set(n)


def rehearse(int cores):
    """Begin to time jobs that one thread does alone, as on so many cores; 0 ends it.

    (CPU seconds in jobs since it began, seconds that they would take on the cores at least.)
    """
    cdef fs_rehearsal before = fs_threads_rehearse(cores)
    return before.jobs, before.on_cores


adopted = None  # file of the BLAS library


cdef int adopt() except -1:
    # scipy's BLAS, once it is loaded: the library by whose functions cython_blas calls
    global adopted
    if adopted is not None or "scipy.linalg.cython_blas" not in sys.modules:
        return 0
    from threadpoolctl import ThreadpoolController

    libraries = [lib for lib in ThreadpoolController().lib_controllers if lib.user_api == "blas"]
    # where numpy has its own, scipy's is the one beside it or, in a distribution that shares one, the only one
    own = [lib for lib in libraries if {"scipy", "scipy.libs"} & set(Path(lib.filepath).parts)] or libraries[:1]
    for lib in own:
        names = _functions(lib)
        if names is not None:
            fs_threads_adopt_blas(<get_threads> <size_t> names[0], <set_threads> <size_t> names[1])
            adopted = lib.filepath
            return 0
    return 0


def _functions(library):
    """Addresses of the functions that tell and take a BLAS library's number of threads, or None."""
    prefixes = {"openblas": (("", "scipy_"), "openblas_{}_num_threads", ("", "64_", "_64")),
                "blis": (("",), "bli_thread_{}_num_threads", ("",))}
    if library.internal_api not in prefixes:
        return None
    starts, name, ends = prefixes[library.internal_api]
    for start in starts:
        for end in ends:
            found = [getattr(library.dynlib, start + name.format(verb) + end, None) for verb in ("get", "set")]
            if all(found):
                return [ctypes.cast(function, ctypes.c_void_p).value for function in found]
    return None


cdef const fs_pool_service* service_at() except NULL:
    adopt()
    return fs_threads_service()


def _forked():
    fs_threads_settle()


def _register():
    import threadpoolctl

    class FastsketchController(threadpoolctl.LibController):
        """How threadpoolctl sees the pool."""

        user_api = "fastsketch"
        internal_api = "fastsketch"
        filename_prefixes = ("pool.",)
        check_symbols = ("fastsketch_get_num_threads", "fastsketch_set_num_threads")

        def get_num_threads(self):
            return self.dynlib.fastsketch_get_num_threads()

        def set_num_threads(self, num_threads):
            return self.dynlib.fastsketch_set_num_threads(num_threads)

        def get_version(self):
            from fastsketch import __version__

            return __version__

        def set_additional_attributes(self):
            pass

    threadpoolctl.register(FastsketchController)


fs_threads_set_cores(usable())
fs_threads_set(usable())
_register()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
