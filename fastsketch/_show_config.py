"""What this installation computes with."""

import os
import sys
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Literal, overload

from fastsketch._core.validation import as_choice
from fastsketch._kernels import level, pool


@overload
def show_config(mode: Literal["stdout"] = "stdout") -> None: ...
@overload
def show_config(mode: Literal["dicts"]) -> dict[str, Any]: ...
def show_config(mode: Literal["stdout", "dicts"] = "stdout") -> dict[str, Any] | None:
    """Show versions, the instructions and threads of the kernels, the BLAS libraries, and where numba keeps its cache.

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
        the container in cores, ``"OMP_NUM_THREADS"``. ``"blas"``: of numpy and of scipy, which the kernels call, each
        name, version, threads, architecture, file. ``"numba"``: version, whether it is loaded, and the folder below
        which it keeps its cache, None if it can write to none.

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
        "blas": _blas(),
        "numba": _numba(),
    }


def lines(config: dict[str, Any]) -> list[str]:
    """Return the configuration as text."""
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
    for owner, library in config["blas"].items():
        count = "?" if library["threads"] is None else library["threads"]
        text.append(
            f"BLAS of {owner}{', for the kernels' if owner == 'scipy' else ''}: {library['name']} {library['version']} "
            f"({library['architecture'] or 'architecture unknown'}), {count} threads"
        )
    if numba["version"] is None:
        text.append("numba: not installed")
    else:
        loaded = "loaded" if numba["loaded"] else "not loaded"
        text.append(
            f"numba {numba['version']}, {loaded}; cache: {numba['cache'] or 'in no folder that it can write to'}"
        )
    return text


def _blas() -> dict[str, dict[str, Any]]:
    """Return the BLAS of numpy and of scipy: two libraries in wheels, in a distribution mostly one."""
    import numpy
    import scipy

    import_module("numpy.linalg")
    import_module("scipy.linalg.cython_blas")
    libraries: list[dict[str, Any]] = [
        library for library in import_module("threadpoolctl").threadpool_info() if library["user_api"] == "blas"
    ]
    built: Any = {"numpy": numpy.show_config, "scipy": scipy.show_config}
    out: dict[str, dict[str, Any]] = {}
    for owner in built:
        folders = [(library, set(Path(library["filepath"]).parts)) for library in libraries]
        own = [library for library, parts in folders if {owner, f"{owner}.libs"} & parts]
        shared = [library for library, parts in folders if not {"numpy.libs", "scipy.libs"} & parts]
        # one of a kind that threadpoolctl does not know, as Accelerate, says what it was built with
        library = next(iter(own or shared), None) or built[owner](mode="dicts")["Build Dependencies"]["blas"]
        threads, file = library.get("num_threads"), library.get("filepath")
        if file is not None and file == pool.adopted:
            threads = pool.blas_threads()  # not the one that a kernel at work has for the moment
        out[owner] = {
            "name": library.get("internal_api", library.get("name")),
            "version": library.get("version"),
            "threads": threads,
            "architecture": library.get("architecture"),
            "file": file,
        }
    return out


def _numba() -> dict[str, Any]:
    try:
        version = metadata.version("numba")
    except metadata.PackageNotFoundError:
        version = None
    cache = next((str(folder) for folder in _cache_folders() if _writable(folder)), None) if version else None
    return {"version": version, "loaded": "numba" in sys.modules, "cache": cache}


def _cache_folders() -> list[Path]:
    """Return the folders below which numba keeps a cache if it can write to them, in its order (`_kernels/jit.py`)."""
    asked = os.environ.get("NUMBA_CACHE_DIR")
    if sys.platform == "win32":
        user = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local", "numba", "Cache")
    elif sys.platform == "darwin":
        user = Path.home() / "Library" / "Caches" / "numba"
    else:
        user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "numba")
    return [*([Path(asked)] if asked else []), user]


def _writable(folder: Path) -> bool:
    """Return whether it can be written to, or be made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK)
