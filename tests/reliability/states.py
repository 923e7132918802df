"""State files of every kind, damaged by chance or crafted by hand, and what becomes of a model that is read from one.

Run as a program it tries a range of seeds and prints its counts, one JSON line after each seed, so that whoever started
it knows the seed of a crash; for instance on a library built with sanitizers:

    LD_PRELOAD=libasan.so python -m tests.reliability.states crafted 0 5000 nolimit

(`nolimit`: without the limit on address space, of which a sanitizer's shadow memory needs far more.)
"""

import copy
import io
import json
import math
import sys
import warnings

import numpy as np
from scipy import sparse

import fastsketch as fs
from fastsketch.data.files import _state as files
from tests.reliability.zoo import SPECIMENS

# Rows seen: a few, so that buffers are not full; past a shrink; as many as fill buffers and blocks to the last row.
LENGTHS = (3, 40, 47)

# -- a file that one seed makes ----------------------------------------------------------------------------------------
_contents = {}


def original(seed):
    """(specimen, content): one of all kinds, after one of several lengths."""
    specimen = SPECIMENS[seed % len(SPECIMENS)]
    n = LENGTHS[seed // len(SPECIMENS) % len(LENGTHS)]
    if specimen.name == "hash-sgh":
        n = max(n, 40)  # it learns from one batch that holds its bases
    if specimen.name.startswith("completion"):
        n = 16  # linear programs
    if (specimen.name, n) not in _contents:
        content = specimen.learned(n).to_bytes()
        about, arrays = read(content)
        fs.from_bytes(files.pack(about, arrays))  # untouched it is loaded: what is refused later is the change
        _contents[specimen.name, n] = content
    return specimen, _contents[specimen.name, n]


def mutated(content, rng):
    """The bytes after one accident: flipped bits, a cut, bytes that change places, come or go, a stretch of noise."""
    new, at = bytearray(content), int(rng.integers(len(content)))
    length = int(min(rng.integers(1, 64), len(content) - at))
    accident = rng.integers(7)
    if accident == 0:
        for place in rng.integers(len(new), size=int(rng.integers(1, 4))):
            new[place] ^= 1 << int(rng.integers(8))
    elif accident == 1:
        del new[at:]
    elif accident == 2:
        other = int(rng.integers(len(new) - length + 1))
        one, two = bytes(new[at : at + length]), bytes(new[other : other + length])
        new[at : at + length], new[other : other + length] = two, one
    elif accident == 3:
        new[at:at] = rng.bytes(length)
    elif accident == 4:
        del new[at : at + length]
    elif accident == 5:
        new[at : at + length] = rng.bytes(length)
    else:
        new[at : at + length] = bytes(length)
    return bytes(new)


# -- crafted files -----------------------------------------------------------------------------------------------------
NUMBERS = (0, 1, -1, 2, 3, 17, -7, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**62, 2**63 - 1, 10**30, 10**400)
REALS = (math.nan, math.inf, -math.inf, -1.0, -0.0, 0.5, 1e-320, 1e-300, 1e30, 1e154, 1e300, 1.7e308, -1e300)
DTYPES = ("<f4", "<f8", "<i4", "<i8", "<u8", "|b1", "<c16", "|u1", ">f8")
OTHERS = (None, True, False, "", "x", [], {}, [[1]], {"a": 1}, "1", 1.5, float(2**40))


def read(content):
    """(header, arrays) that may be changed."""
    about, arrays = files.read(io.BytesIO(content))
    kept = {key: about[key] for key in ("kind", "home", "parameters", "notes", "state")}
    return copy.deepcopy(kept), {name: array.copy() for name, array in arrays.items()}


def places(tree, path=()):
    """Paths of all that json holds in a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def parent_of(tree, path):
    """What holds the last key of a path."""
    for key in path[:-1]:
        tree = tree[key]
    return tree


def another(value, rng):
    """In place of a number, one near it or at a limit; else anything that json can write."""
    kind = rng.integers(8)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and kind < 3:
        return value + (1, -1, 2, 0.5, -value, value)[rng.integers(6)]
    if kind < 5:
        return NUMBERS[rng.integers(len(NUMBERS))]
    if kind < 7:
        return REALS[rng.integers(len(REALS))]
    return copy.deepcopy(OTHERS[rng.integers(len(OTHERS))])


def change_header(about, arrays, rng):
    """One value of the parameters or of the state."""
    paths = [path for path in places({key: about[key] for key in ("parameters", "state")}) if len(path) > 1]
    path = paths[rng.integers(len(paths))]
    holder = parent_of(about, path)
    if rng.random() < 0.05 and isinstance(holder, dict):
        del holder[path[-1]]
    else:
        holder[path[-1]] = another(holder[path[-1]], rng)


def near_entry(array, value, rng):
    """A number for an entry of an array, off by one or at a limit of its dtype."""
    if array.dtype.kind == "f":
        small = float(value) * (2.0, -1.0, 0.0, 1e10, 1 + 1e-9)[rng.integers(5)]
        return small if rng.random() < 0.3 else REALS[rng.integers(len(REALS))]
    limits = np.iinfo(array.dtype)
    near = int(value) + int(rng.integers(-3, 4)) if rng.random() < 0.6 else NUMBERS[rng.integers(len(NUMBERS))]
    return min(max(near, int(limits.min)), int(limits.max))


def change_entry(about, arrays, rng):
    """One entry of an array: counts and books more often than rows."""
    filled = [name for name, array in arrays.items() if array.size]
    if not filled:
        return change_header(about, arrays, rng)
    small = [name for name in filled if arrays[name].dtype.kind != "f" or arrays[name].size < 8]
    pool = small if small and rng.random() < 0.6 else filled
    array = arrays[pool[rng.integers(len(pool))]]
    flat = array.reshape(-1)
    at = int(rng.integers(flat.size))
    with np.errstate(over="ignore"):
        flat[at] = near_entry(array, flat[at], rng)
    return None


def change_whole(about, arrays, rng):
    """All of an array: its shape, its dtype, a constant, its order; or it is gone, or there is one more."""
    names = list(arrays)
    if not names:
        return change_header(about, arrays, rng)
    name = names[rng.integers(len(names))]
    array, kind = arrays[name], rng.integers(11)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == 0:
            del arrays[name]
        elif kind == 1:
            arrays[name] = array[:-1] if array.ndim else array
        elif kind == 2:
            arrays[name] = np.concatenate([array, array[-1:]]) if array.ndim else array
        elif kind == 3:
            arrays[name] = array.astype(DTYPES[rng.integers(len(DTYPES))])
        elif kind == 4:
            arrays[name] = np.full_like(array, near_entry(array, 1, rng))
        elif kind == 5:
            arrays[name] = array[::-1].copy() if array.ndim else array
        elif kind == 6:
            arrays[name] = array.reshape(-1)
        elif kind == 7:
            arrays[name] = array[np.newaxis]
        elif kind == 8:
            arrays[name] = np.zeros((0, *array.shape[1:]), array.dtype)
        elif kind == 9:
            arrays[name] = np.zeros((0, 10**12)[: max(array.ndim, 1)], array.dtype)
        else:
            arrays[f"{name}{rng.integers(3)}"] = array.copy()
    return None


def change_pair(about, arrays, rng):
    """Two that must agree, together: a size and every array of that size, or two entries by the same step."""
    sizes = sorted({size for array in arrays.values() for size in array.shape if size > 1})
    if sizes and rng.random() < 0.6:
        old = sizes[rng.integers(len(sizes))]
        new = max(0, int((old + 1, old - 1, old + 2, 2 * old, 1, 0)[rng.integers(6)]))
        for name, array in arrays.items():
            if rng.random() < 0.9:
                for axis, size in enumerate(array.shape):
                    if size == old:
                        arrays[name] = np.resize(arrays[name], _with(arrays[name].shape, axis, new))
        for part in ("parameters", "state"):
            for path in list(places(about[part])):
                holder = parent_of(about[part], path)
                if holder[path[-1]] == old and not isinstance(holder[path[-1]], bool) and rng.random() < 0.9:
                    holder[path[-1]] = new
        counts = [array for array in arrays.values() if array.dtype == np.int64]
        for array in counts:
            array[array == old] = new
        return None
    counts = [array for array in arrays.values() if array.dtype.kind == "i" and array.size > 1]
    if counts and rng.random() < 0.7:
        array = counts[rng.integers(len(counts))].reshape(-1)
        one, two = rng.integers(array.size, size=2)
        step = int(rng.integers(-4, 5))
        array[one] += step
        array[two] += step if rng.random() < 0.5 else -step
        return None
    change_header(about, arrays, rng)
    return change_entry(about, arrays, rng)


def _with(shape, axis, size):
    return (*shape[:axis], size, *shape[axis + 1 :])


CHANGES = (change_header, change_entry, change_entry, change_whole, change_pair, change_pair)


def crafted(content, rng):
    """A file with right checksums in which one value, or two, are not those of the model."""
    about, arrays = read(content)
    CHANGES[rng.integers(len(CHANGES))](about, arrays, rng)
    return files.pack(about, arrays)


# -- what becomes of it ------------------------------------------------------------------------------------------------
def same(one, two):
    """Whether two readings are equal, NaN to NaN."""
    if isinstance(one, dict):
        return isinstance(two, dict) and one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    if one is None or isinstance(one, str):
        return one == two
    return np.array_equal(np.asarray(one), np.asarray(two), equal_nan=np.asarray(one).dtype.kind == "f")


def load(content):
    """(model, None), or (None, what is wrong with the refusal: None if it is a StateError)."""
    try:
        return fs.from_bytes(content), None
    except fs.StateError:
        return None, None
    except Exception as error:
        return None, f"refused with {type(error).__name__}: {error}"


def try_mutated(seed):
    """What happened to one mutated file: refused, loaded, or what must not be."""
    specimen, content = original(seed)
    model, wrong = load(mutated(content, np.random.default_rng(seed)))
    if model is None:
        return wrong or "refused"
    return "loaded" if same(specimen.read(fs.from_bytes(content)), specimen.read(model)) else "silently wrong"


def use(specimen, model, content):
    """Everything that a model is for, with good arguments; errors are to be exceptions of the library."""
    errors = []
    clean = (ArithmeticError, ValueError, LookupError, TypeError, MemoryError, RuntimeError, AttributeError)

    def attempt(step):
        try:
            return step()
        except clean as error:
            errors.append(error)
            return None

    width = model.n_features
    rows = specimen.rows(5, 60)
    if width is not None and width != rows.shape[1] and width <= 10**4:
        scarce = sparse.issparse(rows)
        rows = np.resize(rows.toarray() if scarce else rows, (60, width))
        rows = sparse.csr_array(rows) if scarce else rows
    for read in (model.facts, *(lambda read=read: read(model) for read in specimen.reads.values())):
        attempt(read)
    if hasattr(model, "update"):  # a fit forgets what was in the file
        for n in (1, 60, 7, 60):
            attempt(lambda n=n: specimen.learn(model, rows[:n]))
    if hasattr(model, "fold_in"):
        attempt(lambda: model.fold_in(rows[:5]))
    if hasattr(model, "merge"):
        attempt(lambda: fs.from_bytes(content).merge(model))
        attempt(lambda: model.merge(specimen.make()))
        attempt(lambda: model.copy().merge(fs.from_bytes(content)))
    if hasattr(model, "fade"):
        attempt(lambda: model.fade(0.5))
    if hasattr(model, "seal"):
        attempt(model.seal)
    attempt(model.copy)
    for read in specimen.reads.values():
        attempt(lambda read=read: read(model))
    again = attempt(model.to_bytes)
    if again is not None:
        attempt(lambda: fs.from_bytes(again).facts())
    return errors


def try_crafted(seed):
    """What happened to one crafted file: refused, used (perhaps with a clean error), or what must not be."""
    specimen, content = original(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, wrong = load(crafted(content, np.random.default_rng(seed)))
        if model is None:
            return wrong or "refused"
        return "used with a clean error" if use(specimen, model, content) else "used"


TRIES = {"mutated": try_mutated, "crafted": try_crafted}


def main(kind, first, last):
    """One line for each seed, before it is tried and after."""
    import faulthandler
    import resource

    faulthandler.enable()
    if "nolimit" not in sys.argv:  # see above
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    for seed in range(int(first), int(last)):
        print(json.dumps({"seed": seed, "name": original(seed)[0].name}), flush=True)
        print(json.dumps({"seed": seed, "found": TRIES[kind](seed)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:4])
