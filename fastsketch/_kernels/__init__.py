"""Compiled loops that take and return arrays, without state and without validation of their arguments."""

import scipy

# Kernels call BLAS and LAPACK with integers of 32 bits. Such a scipy is built from source alone; its kernels' own error
# would be about the signature of one routine.
if scipy.show_config(mode="dicts")["Build Dependencies"]["blas"].get("cython blas ilp64", False):
    raise ImportError(
        f"fastsketch needs a scipy whose BLAS counts in 32 bits, and scipy {scipy.__version__} was built with 64: "
        "install a wheel of scipy, or build it with -Dcython-blas-abi=lp64"
    )
