"""Compilation by Numba with a cache on disk, which may be missing, read-only or damaged without an error.

Numba writes to NUMBA_CACHE_DIR, a folder next to the source or one of the user's, and refuses to compile with
cache=True where none can be written to. Here nothing is written next to the source, where it would outlive an
uninstall; a function is compiled without a cache where there is no place for one; a folder that can only be read is
read (that of a container, filled when its image was made); and a cache that cannot be read or written to is passed
over.
"""

# pyright: basic
# Numba has no types; what others call is typed in jit.pyi.

from pathlib import Path

try:
    from llvmlite import ir as ir  # for those who compile through here
    from numba import types as types
    from numba.core.caching import FunctionCache
    from numba.core.ccallback import CFunc
    from numba.core.sigutils import normalize_signature
    from numba.extending import intrinsic as intrinsic
    from numba.extending import register_jitable as register_jitable
except ImportError as error:
    raise ImportError(
        f"updates of SketchedNewton need numba, which cannot be imported ({error}): "
        "pip install numba, if it has wheels for this system (none for musl, as in Alpine); all else works without it",
        name="numba",
    ) from error

# What this process has done: functions compiled, read from a cache, not written to any; and the folders written to.
counts = {"compiled": 0, "read": 0, "kept": 0}
folders = set()


class _Places(FunctionCache._impl_class):
    """Folders in which numba looks for a cache, except for the folder next to the source."""

    _locator_classes = [one for one in FunctionCache._impl_class._locator_classes if "InTree" not in one.__name__]


class _Cache(FunctionCache):
    _impl_class = _Places


def _for_reading(function):
    """Find the caches on disk from which the compiled code of a function may be read, and return them as a list.

    Read-only folders are included, which numba itself ignores.
    """
    found = []
    for locator in _Places._locator_classes:
        # numba asks ensure_cache_path whether a folder will do, and it makes a file to find out
        there = type(locator.__name__, (locator,), {"ensure_cache_path": _must_exist})
        impl = type("ReadPlaces", (_Places,), {"_locator_classes": [there]})
        try:
            found.append(type("ReadCache", (_Cache,), {"_impl_class": impl})(function))
        except (RuntimeError, OSError):
            continue
    return found


def _must_exist(self):
    if not Path(self.get_cache_path()).is_dir():
        raise OSError("no such folder")


class _Caches:
    """Replacement for a numba function's cache, whose errors never reach the caller."""

    def __init__(self, function):
        try:
            self._writable = _Cache(function)
        except (RuntimeError, OSError):
            self._writable = None
        self._function = function
        self.cache_path = None if self._writable is None else self._writable.cache_path

    def load_overload(self, signature, target_context):
        caches = [] if self._writable is None else [self._writable]
        for cache in [*caches, *_for_reading(self._function)]:
            try:
                found = cache.load_overload(signature, target_context)
            except Exception:  # damaged, or of another version: whatever numba's pickles raise
                continue
            if found is not None:
                counts["read"] += 1
                return found
        counts["compiled"] += 1
        return None

    def save_overload(self, signature, compiled):
        if self._writable is None:
            return
        try:
            self._writable.save_overload(signature, compiled)
        except Exception:  # a full disk, an index that is damaged
            return
        counts["kept"] += 1
        folders.add(self._writable.cache_path)

    def flush(self):
        if self._writable is not None:
            self._writable.flush()


def c_function(function, signature, **options):
    """Compile a Python function to a C function with the given signature, and return it.

    Its ``address`` is valid as long as the object exists.
    """
    made = CFunc(function, normalize_signature(signature), locals={}, options=options)
    vars(made)["_cache"] = _Caches(function)
    made.compile()
    return made
