"""show_config: the versions, CPU instructions, threads and BLAS libraries of this installation."""

import sys
from importlib import import_module, metadata
from typing import Any, Literal, overload

from fastsketch._core.validation import as_choice
from fastsketch._kernels import level, pool


@overload
def show_config(mode: Literal["stdout"] = "stdout") -> None: ...
@overload
def show_config(mode: Literal["dicts"]) -> dict[str, Any]: ...
def show_config(mode: Literal["stdout", "dicts"] = "stdout") -> dict[str, Any] | None:
    """Show the versions, CPU instruction level, threads and BLAS libraries that fastsketch uses.

    Parameters
    ----------
    mode : {"stdout", "dicts"}, default "stdout"
        Print lines of text, or return the same as a dict of dicts, as numpy and scipy do. What is None is unknown, or
        not there.

    Returns
    -------
    None or dict
        ``"versions"``: fastsketch, python, numpy, scipy, system, machine. ``"kernels"``: the level of instructions in
        force, the ``"levels"`` that this CPU has (the lowest first), and whether FASTSKETCH_LEVEL has ``"chosen"`` it.
        ``"threads"``: those ``"in_force"``, the cores that are ``"usable"`` and by what: ``"affinity"``, ``"quota"`` of
        the container in cores, ``"OMP_NUM_THREADS"``. ``"blas"``: what ``threadpoolctl.threadpool_info`` has of
        the loaded BLAS libraries; the kernels call scipy's, of which ``"threads"`` has those in force. ``"numba"``: its
        version, None if it is not installed, and whether it is loaded.

    Raises
    ------
    TypeError, ValueError
        If mode is none of the two.

    Notes
    -----
    The levels are those of fastsketch's own loops; BLAS chooses its kernels, here its architecture, by itself. Numba is
    not loaded for this.

    Examples
    --------
    >>> import fastsketch as fs
    >>> fs.show_config()  # doctest: +ELLIPSIS
    fastsketch ...
    >>> fs.show_config("dicts")["threads"]["in_force"] >= 1
    True
    """
    config = _config()
    if as_choice(mode, "mode", ("stdout", "dicts")) == "dicts":
        return config
    print("\n".join(lines(config)))
    return None


def _config() -> dict[str, Any]:
    import platform

    import numpy
    import scipy

    import fastsketch

    import_module("scipy.linalg.cython_blas")  # loads scipy's BLAS
    threadpoolctl = import_module("threadpoolctl")
    try:
        numba = metadata.version("numba")
    except metadata.PackageNotFoundError:
        numba = None
    return {
        "versions": {
            "fastsketch": fastsketch.__version__,
            "python": platform.python_version(),
            "numpy": numpy.__version__,
            "scipy": scipy.__version__,
            "system": platform.system(),
            "machine": platform.machine(),
        },
        "kernels": {"level": level.current(), "levels": list(level.supported()), "chosen": level.chosen},
        "threads": {"in_force": pool.get(), "usable": pool.usable, **pool.limits},
        "blas": [library for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"],
        "numba": {"version": numba, "loaded": "numba" in sys.modules},
    }


def lines(config: dict[str, Any]) -> list[str]:
    """Format the configuration as lines of text, and return them as a list."""
    versions, kernels, threads, numba = (config[name] for name in ("versions", "kernels", "threads", "numba"))
    chosen = f", chosen by FASTSKETCH_LEVEL={kernels['chosen']}" if kernels["chosen"] else ""
    limits = [f"{name} {threads[name]:g}" for name in pool.limits if threads[name] is not None]
    text = [
        f"fastsketch {versions['fastsketch']}",
        f"python {versions['python']}, numpy {versions['numpy']}, scipy {versions['scipy']}, "
        f"{versions['system']} {versions['machine']}",
        f"kernels: {kernels['level']}{chosen} (this CPU has {', '.join(kernels['levels'])})",
        f"threads: {threads['in_force']} of {threads['usable']} cores that may be used ({', '.join(limits)})",
    ]
    for library in config["blas"]:
        architecture = library.get("architecture") or "architecture unknown"
        text.append(
            f"BLAS: {library['internal_api']} {library['version']} ({architecture}), {library['num_threads']} threads, "
            f"{library['filepath']}"
        )
    loaded = "loaded" if numba["loaded"] else "not loaded"
    return [*text, f"numba {numba['version']}, {loaded}" if numba["version"] else "numba: not installed"]
