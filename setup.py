"""Extension modules only; all metadata is in pyproject.toml."""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).parent
KERNELS = "fastsketch/_kernels"

# FASTSKETCH_DEBUG=1 turns on bounds checks; FASTSKETCH_TRACE=1 line tracing for profilers; FASTSKETCH_SANITIZE=1 the
# address and undefined-behaviour sanitizers of gcc or clang (`make asan`); CFLAGS are honoured.
DEBUG = os.environ.get("FASTSKETCH_DEBUG") == "1"
TRACE = os.environ.get("FASTSKETCH_TRACE") == "1"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
SANITIZE = os.environ.get("FASTSKETCH_SANITIZE") == "1"


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
    else:
        # -std=c11 and no contraction: levels of a kernel that round alike return the same bits (csrc/fs_level.h)
        flags = ["-O3", "-std=c11", "-ffp-contract=off", "-g0", "-fvisibility=hidden"]
    if SANITIZE:
        flags += ["-O1", "-g1", "-fno-omit-frame-pointer", *SANITIZERS]
    headers = [str(path) for path in Path("csrc").glob("*.h")] + [str(path) for path in Path(KERNELS).rglob("*.pxd")]
    sources = {
        "level": ["csrc/fs_level.c"],
        "pool": ["csrc/fs_threads.c", "csrc/fs_pool.c"],
        "losses": [],
        "guard": [],
        "hashing/hamming": ["csrc/fs_hamming.c"],
        "io/svmlight": ["csrc/fs_svmlight.c"],
        "linalg/tridiagonal": ["csrc/fs_secular.c"],
        "linalg/csr": ["csrc/fs_csr.c"],
        "linalg/hadamard": ["csrc/fs_hadamard.c"],
        "linalg/dots": ["csrc/fs_dots.c"],
        "linalg/block": ["csrc/fs_block.c"],
        "lowrank/entries": ["csrc/fs_sparse.c"],
        "online/adaptive": ["csrc/fs_dots.c", "csrc/fs_secular.c"],
        "online/diagonal": [],
        "online/newton": ["csrc/fs_dots.c"],
        "online/numbers": [],
        "online/turning": ["csrc/fs_secular.c"],
        "sketching/shrink": ["csrc/fs_rows.c", "csrc/fs_panel.c", "csrc/fs_tridiag.c"],
        "sketching/state": [],
        "sketching/ledger": [],
        "sketching/dense": ["csrc/fs_rows.c"],
        "sketching/sparse": ["csrc/fs_sparse.c", "csrc/fs_rows.c"],
        "sketching/random_map": ["csrc/fs_hadamard.c", "csrc/fs_rows.c"],
    }
    macros = [("CYTHON_TRACE", "1")] if TRACE else []
    modules = [
        Extension(
            f"fastsketch._kernels.{name.replace('/', '.')}",
            [f"{KERNELS}/{name}.pyx", *dict.fromkeys([*files, "csrc/fs_level.c", "csrc/fs_pool.c"] if files else [])],
            include_dirs=["csrc"],
            depends=headers,
            extra_compile_args=flags,
            extra_link_args=SANITIZERS if SANITIZE else [],
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


setup(ext_modules=extensions())
