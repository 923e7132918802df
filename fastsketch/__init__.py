"""fastsketch: matrix sketches with a guarantee, and binary codes, for rows that do not fit in memory.

Names are imported when they are first used, so that ``import fastsketch`` costs next to nothing.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOME = {
    "FrequentDirections": "fastsketch.sketching",
    "RobustFrequentDirections": "fastsketch.sketching",
    "merge": "fastsketch.sketching",
    "sketch_file": "fastsketch.sketching",
    "Compressor": "fastsketch.sketching",
    "fwht": "fastsketch.sketching",
    "srht": "fastsketch.sketching",
    "SketchHash": "fastsketch.hashing",
    "SketchedNewton": "fastsketch.online",
    "AdaptiveSubgradient": "fastsketch.online",
    "AdaptiveGrid": "fastsketch.online",
    "LowRankModel": "fastsketch.lowrank",
    "hamming_distances": "fastsketch.hashing",
    "hamming_topk": "fastsketch.hashing",
    "map_merge": "fastsketch.merging",
    "tree_merge": "fastsketch.merging",
    "load": "fastsketch._persistence",
    "from_bytes": "fastsketch._persistence",
    "StateError": "fastsketch.io",
    "show_config": "fastsketch._show_config",
    "threads": "fastsketch._threads",
}
_ROOMS = ("hashing", "io", "lowrank", "merging", "online", "reference", "sketching")

__all__ = [*_HOME, *_ROOMS, "__version__"]


def __getattr__(name):
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _ROOMS:
        value = import_module(f"fastsketch.{name}")
    else:
        raise AttributeError(f"module 'fastsketch' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
