"""fastsketch: matrix sketches with a guarantee, binary codes, online learners and low-rank models, in one pass.

Names are imported when they are first used, so that ``import fastsketch`` costs next to nothing; ``__init__.pyi``
tells type checkers and editors where each of them is.
"""

from importlib import import_module
from importlib.machinery import PathFinder as _PathFinder
from typing import Any

__version__ = "0.1.0"

if _PathFinder.find_spec("level", [f"{__path__[0]}/_kernels"]) is None:
    raise ImportError(
        f"fastsketch was imported from {__path__[0]}, where its kernels are not compiled for this Python: that is its "
        "source tree, which Python finds before the installed package. Leave the tree (cd ..) and start Python again; "
        "to work within it, compile the kernels there: pip install -e ."
    )

_HOME = {
    "FrequentDirections": "fastsketch.sketching",
    "RobustFrequentDirections": "fastsketch.sketching",
    "Compressor": "fastsketch.sketching",
    "sketch_groups": "fastsketch.sketching",
    "GroupSketches": "fastsketch.sketching",
    "SketchHash": "fastsketch.neighbours",
    "CodeIndex": "fastsketch.neighbours",
    "hamming_distances": "fastsketch.neighbours",
    "hamming_topk": "fastsketch.neighbours",
    "SketchQuantizer": "fastsketch.neighbours",
    "SketchedNewton": "fastsketch.online",
    "AdaptiveSubgradient": "fastsketch.online",
    "LowRankModel": "fastsketch.lowrank",
    "SketchedEASE": "fastsketch.recommending",
    "SketchedRidge": "fastsketch.ridge",
    "Window": "fastsketch.streams",
    "DriftMonitor": "fastsketch.streams",
    "compare": "fastsketch.streams",
    "open_rows": "fastsketch.data",
    "run": "fastsketch.jobs",
    "map_rows": "fastsketch.jobs",
    "merge": "fastsketch.jobs",
    "map_merge": "fastsketch.jobs",
    "load": "fastsketch._frame.loading",
    "from_bytes": "fastsketch._frame.loading",
    "StateError": "fastsketch.data",
    "thread_limit": "fastsketch._core.threads",
    "show_config": "fastsketch._show_config",
}
_ROOMS = (
    "data", "jobs", "lowrank", "neighbours", "online", "papers", "recommending", "reference", "ridge", "sketching",
    "streams",
)  # fmt: skip

__all__ = [*_HOME, *_ROOMS, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]  __init__.pyi has them


def __getattr__(name: str) -> Any:
    if name in _HOME or name in _ROOMS:
        import_module("fastsketch._kernels.level")  # refuses a FASTSKETCH_LEVEL that this CPU lacks
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _ROOMS:
        value = import_module(f"fastsketch.{name}")
    else:
        raise AttributeError(f"module 'fastsketch' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
