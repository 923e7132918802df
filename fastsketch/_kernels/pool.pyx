"""The thread pool of all kernels (csrc/fs_pool.h). The number of threads of scipy's BLAS follows that of the pool.

``threadpool_info`` and ``threadpool_limits`` of threadpoolctl see the pool as user API "fastsketch".
"""

import os

from fastsketch._kernels import cpus
from fastsketch._kernels.thread_pools import blas_of_scipy


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


def get():
    """Return the number of threads of a kernel, including the calling thread."""
    return fs_threads_get()


def use(int n):
    """Set the number of threads of a kernel, n >= 1. It may exceed the number of cores."""
    fs_threads_set(n)


def started():
    """Return the number of worker threads in this process. They are started when they are first needed."""
    return fs_threads_started()


def blas_threads():
    """Return the number of threads of scipy's BLAS outside of kernels, or 0 if it is unknown."""
    return fs_threads_blas_get()


def use_blas(int n):
    """Set the number of threads of scipy's BLAS outside of kernels. A running kernel keeps its own number."""
    fs_threads_blas_set(n)


adopted = None  # file of the BLAS library


cdef int adopt() except -1:
    # scipy's BLAS, once it is loaded
    global adopted
    cdef size_t get_at, set_at
    if adopted is None:
        found = blas_of_scipy()
        if found is not None:
            get_at, set_at = found[1], found[2]
            fs_threads_adopt_blas(<get_threads> get_at, <set_threads> set_at)
            adopted = found[0]
    return 0


cdef const fs_pool_service* service_at() except NULL:
    adopt()
    return fs_threads_service()


def _forked():
    fs_threads_settle()


# what bounds the cores, read once
limits = cpus.limits()
usable = cpus.usable(limits)
fs_threads_set_cores(usable)
fs_threads_set(usable)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
