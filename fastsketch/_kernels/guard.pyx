"""One thread at a time may change a model, and none reads it meanwhile: the flag that says so, and who sets it.

A method that changes its model in place is decorated with ``changes``, one that reads what such methods change with
``reads``. Their calls enter the model's ``Guard`` or raise RuntimeError at once; nobody waits. Between entering and
leaving there is nothing but the call itself in C, where no signal handler and no other exception can come in between.
"""

cimport cython
from cpython.object cimport PyObject
from libc.stddef cimport size_t
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


# A call as CPython hands it over: neither a tuple nor a dict is made of the arguments, which would take longer than all
# the rest of what is here.
cdef extern from "Python.h":
    """
    #define FS_VECTORCALL (Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR)
    """
    ctypedef PyObject *(*vectorcallfunc)(PyObject *, PyObject *const *, size_t, PyObject *) except NULL
    ctypedef struct PyTypeObject:
        Py_ssize_t tp_vectorcall_offset
        unsigned long tp_flags
    unsigned long FS_VECTORCALL
    Py_ssize_t PyVectorcall_NARGS(size_t) noexcept
    PyObject *PyObject_Vectorcall(PyObject *, PyObject *const *, size_t, PyObject *) noexcept
    object PyObject_Call(object, object, object)
    object PyMethod_New(object, object)
    void PyType_Modified(PyTypeObject *) noexcept

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
    """Of one object, which holds it as ``_guard``. A copy or a pickle of it is a new one, that nobody has entered."""

    cdef fs_guard word

    def __reduce__(self):
        return Guard, ()

    def __deepcopy__(self, memo):
        return Guard()


def changes(method):
    """Decorate a method that changes its object in place: RuntimeError while any other call is at work in it."""
    return _guarded(method, False)


def reads(method):
    """Decorate a method that reads what others change: RuntimeError while one of them is at work."""
    return _guarded(method, True)


cdef object _guarded(object method, bint share):
    cdef Guarded guarded = Guarded()
    guarded.call, guarded.method, guarded.share = guarded_call, method, share
    functools.update_wrapper(guarded, method)
    guarded.guard = "reads" if share else "changes"
    return guarded


@cython.final
cdef class Guarded:
    """A method and how its calls enter; bound to an object as a function is."""

    cdef vectorcallfunc call
    cdef object method
    cdef bint share
    cdef dict __dict__

    def __get__(self, instance, owner):
        return self if instance is None else PyMethod_New(self, instance)

    def __call__(self, *args, **kwargs):
        return PyObject_Call(self, args, kwargs)  # which finds guarded_call

    def __repr__(self):
        return repr(self.method)


cdef PyObject *guarded_call(PyObject *self, PyObject *const *args, size_t n, PyObject *names) except NULL:
    cdef Guarded guarded = <Guarded> self
    cdef PyObject *method = <PyObject*> guarded.method
    cdef uint32_t here = process
    cdef PyObject *out
    cdef int found, share = guarded.share
    cdef Guard guard
    if PyVectorcall_NARGS(n) == 0:
        return PyObject_Vectorcall(method, args, n, names)  # raises what Python raises without self
    guard = (<object> args[0])._guard
    found = fs_guard_enter(&guard.word, share, here)
    if found != FS_GUARD_IN:
        raise refusal(<object> args[0], found)
    out = PyObject_Vectorcall(method, args, n, names)
    fs_guard_leave(&guard.word, share, here)
    return out  # NULL with the exception that the method has raised


cdef void register():
    """Tell CPython where a Guarded has its function, and that it binds as functions do."""
    cdef Guarded one = Guarded()
    cdef PyTypeObject *kind = <PyTypeObject*> Guarded
    kind.tp_vectorcall_offset = <char*> &one.call - <char*> <PyObject*> one
    kind.tp_flags |= FS_VECTORCALL
    PyType_Modified(kind)


register()


cdef object refusal(object owner, int found):
    """The error of a call that was refused."""
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
