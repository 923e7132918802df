"""Tables by Arrow's C interface as a library that nobody knows may hand them over: any counts and addresses."""

import ctypes as c

import numpy as np


class Type(c.Structure):
    """ArrowSchema."""


class Array(c.Structure):
    """ArrowArray."""


class Stream(c.Structure):
    """ArrowArrayStream."""


RELEASE = c.CFUNCTYPE(None, c.c_void_p)
COUNTS = ("length", "null_count", "offset", "n_buffers", "n_children")
Type._fields_ = [
    *((name, c.c_char_p) for name in ("format", "name", "metadata")),
    *((name, c.c_int64) for name in ("flags", "n_children")),
    ("children", c.POINTER(c.POINTER(Type))),
    ("dictionary", c.POINTER(Type)),
    ("release", c.c_void_p),
    ("private", c.c_void_p),
]
Array._fields_ = [
    *((name, c.c_int64) for name in COUNTS),
    ("buffers", c.POINTER(c.c_void_p)),
    ("children", c.POINTER(c.POINTER(Array))),
    ("dictionary", c.POINTER(Array)),
    ("release", c.c_void_p),
    ("private", c.c_void_p),
]
GET = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p)
Stream._fields_ = [
    *((name, GET) for name in ("get_schema", "get_next")),
    *((name, c.c_void_p) for name in ("last_error", "release", "private")),
]
NEW = c.pythonapi.PyCapsule_New
NEW.restype, NEW.argtypes = c.py_object, [c.c_void_p, c.c_char_p, c.c_void_p]


@RELEASE
def released(_):
    """Nothing is given back: the memory is Python's."""


class Column:
    """A column, or a table of columns: everything about it may be replaced before it is handed over."""

    def __init__(self, kind, length, *buffers, name=b"x", children=(), dictionary=None, **counts):
        self.buffers = [None if buffer is None else np.ascontiguousarray(buffer) for buffer in buffers]
        self.children, self.dictionary = list(children), dictionary
        addresses = [None if buffer is None else buffer.ctypes.data for buffer in self.buffers]
        self.type, self.array = Type(format=kind, name=name), Array(length=length)
        for one in (self.type, self.array):
            one.n_children, one.release = len(self.children), c.cast(released, c.c_void_p)
        self.array.n_buffers, self.array.buffers = len(addresses), (c.c_void_p * len(addresses))(*addresses)
        self.take_children()
        for name_of, value in counts.items():
            setattr(self.array, name_of, value)

    def take_children(self):
        """Point to the children and the dictionary that there are now."""
        for of, kind in (("type", Type), ("array", Array)):
            one = getattr(self, of)
            one.children = (c.POINTER(kind) * len(self.children))(*(c.pointer(getattr(x, of)) for x in self.children))
            if self.dictionary is not None:
                one.dictionary = c.pointer(getattr(self.dictionary, of))


class Table(Column):
    """What offers ``__arrow_c_stream__``, once: one batch."""

    def __init__(self, length, *columns, **counts):
        super().__init__(b"+s", length, None, children=columns, **counts)

    def __arrow_c_stream__(self, requested_schema=None):
        left = [self.array]

        @GET
        def get_schema(_, out):
            c.memmove(out, c.byref(self.type), c.sizeof(Type))
            return 0

        @GET
        def get_next(_, out):
            c.memset(out, 0, c.sizeof(Array))
            if left:
                c.memmove(out, c.byref(left.pop()), c.sizeof(Array))
            return 0

        self.stream = Stream(get_schema, get_next, None, c.cast(released, c.c_void_p))
        return NEW(c.addressof(self.stream), b"arrow_array_stream", None)
