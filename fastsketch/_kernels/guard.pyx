"""A lock for models: one thread at a time may change a model, and no thread may read it meanwhile.

A method that changes its model in place is decorated with ``changes``, one that reads what such methods change with
``reads``. Their calls enter the model's ``Guard`` or raise RuntimeError at once; nobody waits. Between entering and
leaving there is nothing but the call itself in C, where no signal handler and no other exception can come in between.
``update_with`` installs what belongs to a model together with the rows that the model learns.
"""

cimport cython
from cpython.object cimport PyObject_Call
from libc.stdint cimport uint32_t

import functools
import os


cdef extern from "fs_guard.h" nogil:
    ctypedef uint32_t fs_guard
    enum:
        FS_GUARD_IN
        FS_GUARD_CHANGING
        FS_GUARD_READING
        FS_GUARD_TORN
    int fs_guard_enter(fs_guard *word, int share, uint32_t process)
    void fs_guard_leave(fs_guard *word, int share, uint32_t process)


cdef enum:
    # forks of forks that a guard can tell apart
    PROCESSES = 1 << 11

cdef uint32_t process = 0


def _forked():
    global process
    process = (process + 1) % PROCESSES


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@cython.final
cdef class Guard:
    """The lock of one object, in its attribute ``_guard``. A copy or a pickle of a lock is a new, open lock."""

    cdef fs_guard word

    def __reduce__(self):
        return Guard, ()

    def __deepcopy__(self, memo):
        return Guard()


def changes(method):
    """Decorate a method that changes its object in place. It raises RuntimeError if another guarded call is running."""
    return _guarded(method, False)


def reads(method):
    """Decorate a method that reads an object. It raises RuntimeError while a ``changes`` method is running."""
    return _guarded(method, True)


def _guarded(method, bint share):
    @functools.wraps(method)
    def call(*args, **kwargs):
        if not args:
            return method(**kwargs)  # raises what Python raises without self
        cdef uint32_t here = process
        cdef Guard guard = args[0]._guard
        cdef int found = fs_guard_enter(&guard.word, share, here)
        if found != FS_GUARD_IN:
            raise refusal(args[0], found)
        try:
            return PyObject_Call(method, args, kwargs)
        finally:
            fs_guard_leave(&guard.word, share, here)

    return call


def update_with(model, tuple arguments, dict owner, dict values):
    """Call model.update(*arguments) and then owner.update(values), atomically: both happen, or neither.

    If an interrupt ends the call after the model has learned the rows, so that its ``n_rows`` has changed, `values` are
    put into `owner` before the exception is raised again.
    """
    n_rows = model.n_rows
    try:
        model.update(*arguments)
    except BaseException:
        if model.n_rows != n_rows:
            owner.update(values)
        raise
    owner.update(values)


cdef object refusal(object owner, int found):
    """Create the RuntimeError for a call that was refused."""
    kind = type(owner).__name__
    if found == FS_GUARD_TORN:
        return RuntimeError(
            f"this {kind} was being changed by another thread when the process was forked, so that its state is "
            "incomplete here: load it from a file, or copy it before the fork"
        )
    doing = "changed" if found == FS_GUARD_CHANGING else "read"
    advice = "give each thread a model of its own" + (" and merge them" if hasattr(owner, "merge") else "")
    return RuntimeError(
        f"this {kind} is being {doing} by another thread, or by the call that has led to this one: "
        f"one thread at a time may update a model, and none may read it meanwhile; {advice}"
    )
