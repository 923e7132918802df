"""Extension modules, and what is said where they cannot be compiled; all metadata is in pyproject.toml."""

import os
import shutil
import sys
import sysconfig
from copy import copy
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import PlatformError

ROOT = Path(__file__).parent
KERNELS = "fastsketch/_kernels"

# FASTSKETCH_DEBUG=1 turns on bounds checks; FASTSKETCH_TRACE=1 line tracing for profilers; FASTSKETCH_SANITIZE=1 the
# address and undefined-behaviour sanitizers of gcc or clang (`make asan`); CFLAGS are honoured, and so is CC: on
# Windows the kernels have vector instructions with CC=clang-cl, with Microsoft's cl they are plain C.
DEBUG = os.environ.get("FASTSKETCH_DEBUG") == "1"
TRACE = os.environ.get("FASTSKETCH_TRACE") == "1"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
SANITIZE = os.environ.get("FASTSKETCH_SANITIZE") == "1"


# Compilers that run at a time: each takes some 400 MB.
MOST_AT_ONCE = 8
NO_COMPILER = """fastsketch is being built from source, and {what}.
Wheels need no compiler: update pip, or take a Python version and a system that fastsketch has wheels for.
To compile: {do}."""
TO_COMPILE = {
    "win32": "install Microsoft's C++ Build Tools (Visual Studio 2022 or newer)",
    "darwin": "run xcode-select --install",
}.get(sys.platform, "install gcc or clang and Python's headers (Debian: gcc python3-dev; Fedora: gcc python3-devel)")


class BuildKernels(build_ext):
    """Compiles on all cores, or tells in words what there is to compile with is lacking."""

    def finalize_options(self):
        super().finalize_options()
        if self.parallel is None:  # not set by --parallel or setup.cfg
            self.parallel = min(os.cpu_count() or 1, MOST_AT_ONCE)

    def build_extension(self, ext):
        # C files of csrc/ are in several modules: each module has its objects in a folder of its own
        one = copy(self)
        one.build_temp = str(Path(self.build_temp, ext.name))
        super(BuildKernels, one).build_extension(ext)

    def build_extensions(self):
        lacks = self.use_clang_cl() if self.compiler.compiler_type == "msvc" else self.lacking()
        if lacks:
            raise PlatformError(NO_COMPILER.format(what=lacks, do=TO_COMPILE))
        super().build_extensions()

    def lacking(self):
        for word in self.compiler.compiler_so:
            if Path(word).name not in ("ccache", "sccache", "env"):
                if not shutil.which(word):
                    return f"there is no C compiler: {word} is not found"
                break
        folders = [sysconfig.get_path("include"), *self.compiler.include_dirs]
        if not any(Path(folder, "Python.h").exists() for folder in folders):
            return f"Python's headers are not installed: no Python.h in {folders[0]}"
        return None

    def use_clang_cl(self):
        try:
            self.compiler.initialize()
        except PlatformError as error:
            return f"there is no C compiler: {str(error).splitlines()[0]}"
        cc = os.environ.get("CC", "")
        if Path(cc).stem == "clang-cl":
            if not shutil.which(cc):
                return f"there is no C compiler: {cc} (CC) is not found"
            self.compiler.cc = shutil.which(cc)
        return None


def write_blas_int():
    """scipy 1.18 names the integer type of its BLAS; before, it is int."""
    import scipy

    new = tuple(int(part) for part in scipy.__version__.split(".")[:2]) >= (1, 18)
    line = "from scipy.linalg.cython_blas cimport blas_int" if new else "ctypedef int blas_int"
    path = ROOT / KERNELS / "linalg/_blas_int.pxi"
    if not path.exists() or path.read_text() != line + "\n":
        path.write_text(line + "\n")


def extensions():
    from Cython.Build import cythonize

    write_blas_int()
    if sys.platform == "win32":
        flags = ["/O2", "/std:c11"]
        if Path(os.environ.get("CC", "")).stem == "clang-cl":
            flags += ["/clang:-O3", "/clang:-ffp-contract=off"]
    else:
        # -std=c11 and no contraction: levels of a kernel that round alike return the same bits (csrc/fs_level.h)
        # (and roots that need not set errno are taken several at a time)
        flags = ["-O3", "-std=c11", "-ffp-contract=off", "-fno-math-errno", "-g0", "-fvisibility=hidden"]
    if SANITIZE:
        flags += ["-O1", "-g1", "-fno-omit-frame-pointer", *SANITIZERS]
    headers = [str(path) for path in Path("csrc").glob("*.h")] + [str(path) for path in Path(KERNELS).rglob("*.pxd")]
    sources = {
        "level": ["csrc/fs_level.c"],
        "pool": ["csrc/fs_threads.c", "csrc/fs_pool.c"],
        "losses": [],
        "guard": [],
        "codes/quantize": ["csrc/fs_project.c", "csrc/fs_quantize.c", "csrc/fs_rows.c", "csrc/fs_sparse.c"],
        "codes/scan": ["csrc/fs_scan.c", "csrc/fs_least.c"],
        "features/ids": [],
        "features/names": [],
        "hashing/encode": ["csrc/fs_rows.c", "csrc/fs_sparse.c"],
        "hashing/hamming": ["csrc/fs_hamming.c"],
        "io/arrow": ["csrc/fs_columns.c"],
        "io/svmlight": ["csrc/fs_svmlight.c"],
        "io/table": ["csrc/fs_table.c"],
        "linalg/tridiagonal": ["csrc/fs_secular.c"],
        "linalg/row_parts": ["csrc/fs_rows.c"],
        "linalg/csr": ["csrc/fs_csr.c"],
        "linalg/hadamard": ["csrc/fs_hadamard.c"],
        "linalg/products": ["csrc/fs_pool.c"],
        "linalg/dots": ["csrc/fs_dots.c"],
        "linalg/block": ["csrc/fs_block.c"],
        "linalg/best": ["csrc/fs_pool.c"],
        "lowrank/coefficients": ["csrc/fs_pool.c"],
        "lowrank/dense": ["csrc/fs_pool.c"],
        "lowrank/entries": ["csrc/fs_pool.c"],
        "lowrank/fits": ["csrc/fs_sparse.c"],
        "lowrank/gradients": ["csrc/fs_pool.c"],
        "lowrank/sides": ["csrc/fs_sparse.c"],
        "recommending/items": ["csrc/fs_sparse.c"],
        "online/adaptive": ["csrc/fs_dots.c", "csrc/fs_secular.c"],
        "online/columns": [],
        "online/diagonal": ["csrc/fs_adagrad.c"],
        "online/inputs": [],
        "online/metrics": [],
        "online/newton": ["csrc/fs_dots.c"],
        "online/numbers": [],
        "online/readout": [],
        "online/turning": ["csrc/fs_secular.c"],
        "sketching/products": ["csrc/fs_rows.c", "csrc/fs_panel.c"],
        "sketching/shrink": ["csrc/fs_rows.c", "csrc/fs_tridiag.c"],
        "sketching/state": [],
        "sketching/ledger": [],
        "sketching/dense": ["csrc/fs_rows.c"],
        "sketching/groups": ["csrc/fs_rows.c"],
        "sketching/csr_products": ["csrc/fs_sparse.c"],
        "sketching/sparse": ["csrc/fs_sparse.c", "csrc/fs_rows.c"],
        "sketching/random_map": ["csrc/fs_hadamard.c", "csrc/fs_rows.c"],
    }
    # What a Python executable need not have linked itself: older C libraries keep threads and mathematics apart.
    libraries = [] if sys.platform == "win32" else ["m", "pthread"]
    macros = [("CYTHON_TRACE", "1")] if TRACE else []
    modules = [
        Extension(
            f"fastsketch._kernels.{name.replace('/', '.')}",
            [f"{KERNELS}/{name}.pyx", *dict.fromkeys([*files, "csrc/fs_level.c", "csrc/fs_pool.c"] if files else [])],
            include_dirs=["csrc"],
            depends=headers,
            extra_compile_args=flags,
            extra_link_args=SANITIZERS if SANITIZE else [],
            libraries=libraries,
            define_macros=macros,
        )
        for name, files in sources.items()
    ]
    return cythonize(
        modules,
        compiler_directives={
            "language_level": 3,
            "boundscheck": DEBUG,
            "wraparound": False,
            "initializedcheck": DEBUG,
            "cdivision": True,
            "embedsignature": True,
            "freethreading_compatible": True,
            "linetrace": TRACE,
        },
    )


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildKernels})
