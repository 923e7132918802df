"""What this installation computes with."""


def show_config():
    """Print versions, the BLAS libraries with their threads, and the CPU features that the kernels may use.

    Examples
    --------
    >>> import fastsketch as fs
    >>> fs.show_config()  # doctest: +ELLIPSIS
    fastsketch ...
    """
    import platform

    import numpy
    import scipy
    import scipy.linalg.cython_blas  # noqa: F401  the pool that the kernels use
    import threadpoolctl

    import fastsketch

    print(f"fastsketch {fastsketch.__version__}")
    print(
        f"python {platform.python_version()}, numpy {numpy.__version__}, scipy {scipy.__version__}, "
        f"{platform.system()} {platform.machine()}"
    )
    for pool in threadpoolctl.threadpool_info():
        if pool["user_api"] == "blas":
            owner = "kernels" if "scipy.libs" in pool["filepath"] or "scipy/" in pool["filepath"] else "numpy"
            print(
                f"{owner}: {pool['internal_api']} {pool['version']} ({pool.get('architecture', '?')}), "
                f"{pool['num_threads']} threads"
            )
    try:
        features = numpy._core._multiarray_umath.__cpu_features__
        best = next((name for name in ("AVX512F", "AVX2") if features.get(name)), "baseline")
        print(f"C kernels: {best if platform.machine() == 'x86_64' else 'baseline'}")
    except AttributeError:
        pass
