"""What this installation computes with."""

from importlib import import_module
from typing import Any


def show_config() -> None:
    """Print versions, the BLAS libraries with their threads, and the instructions that the C kernels use.

    The environment variable FASTSKETCH_LEVEL names a lower level of instructions, to be tried or compared.

    Examples
    --------
    >>> import fastsketch as fs
    >>> fs.show_config()  # doctest: +ELLIPSIS
    fastsketch ...
    """
    import platform

    import numpy
    import scipy

    import fastsketch

    import_module("scipy.linalg.cython_blas")  # brings the pool that the kernels use
    pools: list[dict[str, Any]] = import_module("threadpoolctl").threadpool_info()
    print(f"fastsketch {fastsketch.__version__}")
    print(
        f"python {platform.python_version()}, numpy {numpy.__version__}, scipy {scipy.__version__}, "
        f"{platform.system()} {platform.machine()}"
    )
    for pool in pools:
        if pool["user_api"] == "blas":
            owner = "kernels" if "scipy.libs" in pool["filepath"] or "scipy/" in pool["filepath"] else "numpy"
            print(
                f"{owner}: {pool['internal_api']} {pool['version']} ({pool.get('architecture', '?')}), "
                f"{pool['num_threads']} threads"
            )
    level: Any = import_module("fastsketch._kernels.level")
    print(f"C kernels: {level.current()} (this CPU has {', '.join(level.supported())})")
