"""fastsketch: matrix sketches with a guarantee, binary codes, online learners and low-rank models, in one pass.

Names are imported when they are first used, so that ``import fastsketch`` costs next to nothing; ``__init__.pyi``
tells type checkers and editors where each of them is.
"""

from importlib import import_module
from typing import Any

from fastsketch import _registry

__version__ = "0.1.0"

_HOME = {
    "FrequentDirections": "fastsketch.sketching",
    "RobustFrequentDirections": "fastsketch.sketching",
    "Compressor": "fastsketch.sketching",
    "sketch_groups": "fastsketch.sketching",
    "GroupSketches": "fastsketch.sketching",
    "SketchHash": "fastsketch.hashing",
    "CodeIndex": "fastsketch.indexing",
    "hamming_distances": "fastsketch.codes",
    "hamming_topk": "fastsketch.codes",
    "SketchQuantizer": "fastsketch.quantizing",
    "SketchedNewton": "fastsketch.online",
    "AdaptiveSubgradient": "fastsketch.online",
    "LowRankModel": "fastsketch.lowrank",
    "SketchedEASE": "fastsketch.recommending",
    "open_rows": "fastsketch.sources",
    "run": "fastsketch.jobs",
    "map_rows": "fastsketch.jobs",
    "merge": "fastsketch.merging",
    "map_merge": "fastsketch.merging",
    "load": "fastsketch._loading",
    "from_bytes": "fastsketch._loading",
    "StateError": "fastsketch.io",
    "thread_limit": "fastsketch._threads",
    "show_config": "fastsketch._show_config",
}
_ROOMS = (
    "codes",
    "features",
    "hashing",
    "indexing",
    "io",
    "jobs",
    "lowrank",
    "merging",
    "online",
    "quantizing",
    "ranking",
    "recommending",
    "reference",
    "sketching",
    "sources",
)

__all__ = [*_HOME, *_ROOMS, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]  __init__.pyi has them

_registry.provide("engine dask", "fastsketch.dask", "engine")


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
