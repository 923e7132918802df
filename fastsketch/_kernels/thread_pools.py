"""Access to thread pools by threadpoolctl: scipy's BLAS, and fastsketch's own pool."""

# pyright: basic
# threadpoolctl has no types; what the pool calls is typed in thread_pools.pyi.

import ctypes
import sys
from pathlib import Path

import threadpoolctl

# By library: what its names may begin with, the name, what they may end with.
_FUNCTIONS = {
    "openblas": (("", "scipy_"), "openblas_{}_num_threads", ("", "64_", "_64")),
    "blis": (("",), "bli_thread_{}_num_threads", ("",)),
}


def blas_of_scipy():
    """Return scipy's BLAS library as (file, address of the function that returns its number of threads, address of the
    one that sets it).

    None if it is unknown.

    None too before scipy.linalg.cython_blas is loaded, which calls it.
    """
    if "scipy.linalg.cython_blas" not in sys.modules:
        return None
    libraries = [lib for lib in threadpoolctl.ThreadpoolController().lib_controllers if lib.user_api == "blas"]
    # where numpy has its own, scipy's is the one in the same folder or, in a distribution that shares one, the only one
    own = [lib for lib in libraries if {"scipy", "scipy.libs"} & set(Path(lib.filepath).parts)] or libraries[:1]
    for lib in own:
        starts, name, ends = _FUNCTIONS.get(lib.internal_api, ((), "", ()))
        for start in starts:
            for end in ends:
                names = [start + name.format(verb) + end for verb in ("get", "set")]
                if all(hasattr(lib.dynlib, one) for one in names):
                    found = (ctypes.cast(getattr(lib.dynlib, one), ctypes.c_void_p).value for one in names)
                    return lib.filepath, *found
    return None


class FastsketchController(threadpoolctl.LibController):
    """Controller with which threadpoolctl reads and sets the size of fastsketch's own thread pool."""

    user_api = "fastsketch"
    internal_api = "fastsketch"
    filename_prefixes = ("pool.",)
    check_symbols = ("fastsketch_get_num_threads", "fastsketch_set_num_threads")

    def get_num_threads(self):
        return self.dynlib.fastsketch_get_num_threads()

    def set_num_threads(self, num_threads):
        return self.dynlib.fastsketch_set_num_threads(num_threads)

    def get_version(self):
        return None

    def set_additional_attributes(self):
        pass


threadpoolctl.register(FastsketchController)
