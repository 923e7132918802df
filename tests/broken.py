"""Containers of scipy.sparse whose arrays do not belong together, by name; scipy's own code crashes on most of them."""

import numpy as np
from scipy import sparse

N_ROWS, N_COLUMNS = 40, 12


def whole(kind="csr", n=N_ROWS, d=N_COLUMNS, index=np.int32):
    """A good container (n, d), a fifth of it stored, with values that are labels too."""
    rng = np.random.default_rng(7)
    dense = np.where(rng.random((n, d)) < 0.2, rng.choice([-1.0, 1.0], (n, d)), 0.0)
    dense[0, 0] = dense[-1, -1] = 1.0
    out = getattr(sparse, f"{kind}_array")(dense)
    if kind in ("csr", "csc"):
        out.indices, out.indptr = out.indices.astype(index), out.indptr.astype(index)
    return out


def _with(kind, attribute, change, index=np.int32):
    """How to make a container of which one attribute is changed behind scipy's back."""

    def make(n=N_ROWS, d=N_COLUMNS):
        out = whole(kind, n, d, index)
        array = getattr(out, attribute)
        setattr(out, attribute, change(array.copy() if hasattr(array, "copy") else array))
        return out

    return make


def _at(place, value):
    def change(array):
        array[place] = value
        return array

    return change


def _middle(value):
    return lambda array: _at(len(array) // 2, value)(array)


def _compressed(kind):
    for bits, index in ((32, np.int32), (64, np.int64)):
        far = np.iinfo(index).max
        cases = {
            "indptr backwards": ("indptr", lambda a: _at(len(a) // 2, a[-1] + 3)(a)),
            "indptr far backwards": ("indptr", _middle(-far)),
            "indptr starts at 1": ("indptr", _at(0, 1)),
            "indptr starts below 0": ("indptr", _at(0, -5)),
            "indptr ends beyond the data": ("indptr", lambda a: _at(-1, a[-1] + 1000)(a)),
            "indptr ends far beyond": ("indptr", _at(-1, far)),
            "indptr ends below 0": ("indptr", _at(-1, -1)),
            "indptr too long": ("indptr", lambda a: np.append(a, a[-1])),
            "indptr too short": ("indptr", lambda a: a[:-1].copy()),
            "indptr empty": ("indptr", lambda a: a[:0].copy()),
            "an index below 0": ("indices", _middle(-1)),
            "an index far below 0": ("indices", _middle(-far)),
            "an index too large": ("indices", _middle(max(N_ROWS, N_COLUMNS))),
            "the last index far too large": ("indices", _at(-1, far)),
            "the first index too large": ("indices", _at(0, 1000)),
            "too few indices": ("indices", lambda a: a[:-3].copy()),
            "no indices": ("indices", lambda a: a[:0].copy()),
        }
        for name, (attribute, change) in cases.items():
            yield f"{kind}{bits} {name}", _with(kind, attribute, change, index)
    cases = {
        "too few values": ("data", lambda a: a[:-3].copy()),
        "no values": ("data", lambda a: a[:0]),
        "indices in floats": ("indices", lambda a: a + 0.5),
        "indptr in floats": ("indptr", lambda a: a.astype(float)),
        "indices in two dimensions": ("indices", lambda a: a[:, np.newaxis]),
        "indptr in two dimensions": ("indptr", lambda a: a[np.newaxis]),
        "values in two dimensions": ("data", lambda a: a[np.newaxis]),
        "indices unsigned and far": ("indices", lambda a: _at(0, 2**64 - 1)(a.astype(np.uint64))),
        "indices big-endian and far": ("indices", lambda a: _at(0, 2**24)(a.astype(">i4"))),
        "indices are None": ("indices", lambda a: None),
        "indptr is None": ("indptr", lambda a: None),
        "values are None": ("data", lambda a: None),
        "values in a list": ("data", lambda a: a.tolist()),
    }
    for name, (attribute, change) in cases.items():
        yield f"{kind} {name}", _with(kind, attribute, change)


def _others():
    far = np.iinfo(np.int32).max
    for axis, name in enumerate(("row", "column")):

        def coordinate(change, axis=axis):
            def both(coords):
                out = [c.copy() for c in coords]
                out[axis] = change(out[axis])
                return tuple(out)

            return both

        for what, change in {
            "below 0": _middle(-1),
            "far below 0": _middle(-far),
            "too large": _middle(1000),
            "far too large": _at(-1, far),
            "too few": lambda a: a[:-3],
            "in floats": lambda a: a + 0.5,
        }.items():
            yield f"coo {name} {what}", _with("coo", "coords", coordinate(change))
    yield "coo too few values", _with("coo", "data", lambda a: a[:-3])

    def blocks(attribute, change):
        def make(n=N_ROWS, d=N_COLUMNS):
            out = whole("csr", n, d).tobsr((2, 2))
            setattr(out, attribute, change(getattr(out, attribute).copy()))
            return out

        return make

    for name, attribute, change in (
        ("indptr backwards", "indptr", _middle(far)),
        ("indptr starts at 1", "indptr", _at(0, 1)),
        ("indptr ends beyond the data", "indptr", lambda a: _at(-1, a[-1] + 100)(a)),
        ("an index too large", "indices", _middle(N_COLUMNS)),
        ("an index below 0", "indices", _middle(-1)),
        ("too few blocks", "data", lambda a: a[:-1]),
        ("blocks that do not fill it", "data", lambda a: np.repeat(a, 4, axis=1)[:, :7]),
        ("blocks of no size", "data", lambda a: a[:, :0]),
    ):
        yield f"bsr {name}", blocks(attribute, change)

    def listed(attribute, change):
        def make(n=N_ROWS, d=N_COLUMNS):
            out = whole("lil", n, d)
            setattr(out, attribute, change(getattr(out, attribute).copy()))
            return out

        return make

    for name, attribute, change in (
        ("index too large", "rows", _at(0, [10**6])),
        ("index below 0", "rows", _at(0, [-1])),
        ("too many indices", "rows", _at(0, list(range(5)))),
        ("too few rows", "rows", lambda a: a[:-1]),
        ("no list", "data", _at(0, None)),
        ("words", "data", lambda a: _at(0, ["x"] * len(a[0]))(a)),
    ):
        yield f"lil {name}", listed(attribute, change)
    yield "dia too few offsets", _with("dia", "offsets", lambda a: a[:-1])
    yield "dia one dimension", _with("dia", "data", lambda a: a[0])
    yield "dia offsets in floats", _with("dia", "offsets", lambda a: a + 0.5)

    def keyed(key):
        def make(n=N_ROWS, d=N_COLUMNS):
            out = whole("dok", n, d)
            out._dict[key] = 1.0
            return out

        return make

    for key in ((N_ROWS, 0), (0, N_COLUMNS), (-1, 0), (10**9, 10**9), ("x", 0)):
        yield f"dok key {key}", keyed(key)


# {name: function (rows, columns) that makes the container}; every one is to be refused
BROKEN = {**dict(_compressed("csr")), **dict(_compressed("csc")), **dict(_others())}


def _lying(flags, indices):
    def make(n=N_ROWS, d=N_COLUMNS):
        indptr = np.minimum(np.arange(n + 1) * len(indices), len(indices) * n).astype(np.int32)
        out = sparse.csr_array((np.ones(len(indices) * n), np.tile(indices, n).astype(np.int32), indptr), shape=(n, d))
        for flag, value in flags.items():
            setattr(out, flag, value)
        return out

    return make


# Consistent ones, whose flags are not true or whose entries are double or out of order: their sum is what counts.
LYING = {
    "duplicates said to be none": _lying({"has_canonical_format": True}, [2, 2, 5]),
    "many duplicates said to be none": _lying({"has_canonical_format": True}, [3] * 50),
    "disorder said to be order": _lying({"has_canonical_format": True}, [7, 2, 5]),
    "disorder with duplicates said to be sorted": _lying({"has_sorted_indices": True}, [7, 2, 7, 2]),
    "order said to be none": _lying({"has_sorted_indices": False}, [1, 2, 5]),
    "duplicates without flags": _lying({}, [2, 2, 5]),
}
