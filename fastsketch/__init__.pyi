from fastsketch._loading import from_bytes as from_bytes
from fastsketch._loading import load as load
from fastsketch._show_config import show_config as show_config
from fastsketch._threads import thread_limit as thread_limit
from fastsketch.codes import hamming_distances as hamming_distances
from fastsketch.codes import hamming_topk as hamming_topk
from fastsketch.hashing import SketchHash as SketchHash
from fastsketch.indexing import CodeIndex as CodeIndex
from fastsketch.io import StateError as StateError
from fastsketch.jobs import map_rows as map_rows
from fastsketch.jobs import run as run
from fastsketch.lowrank import LowRankModel as LowRankModel
from fastsketch.merging import map_merge as map_merge
from fastsketch.merging import merge as merge
from fastsketch.online import AdaptiveSubgradient as AdaptiveSubgradient
from fastsketch.online import SketchedNewton as SketchedNewton
from fastsketch.quantizing import SketchQuantizer as SketchQuantizer
from fastsketch.recommending import SketchedEASE as SketchedEASE
from fastsketch.sketching import Compressor as Compressor
from fastsketch.sketching import FrequentDirections as FrequentDirections
from fastsketch.sketching import GroupSketches as GroupSketches
from fastsketch.sketching import RobustFrequentDirections as RobustFrequentDirections
from fastsketch.sketching import sketch_groups as sketch_groups
from fastsketch.sources import open_rows as open_rows

from . import codes as codes
from . import features as features
from . import hashing as hashing
from . import indexing as indexing
from . import io as io
from . import jobs as jobs
from . import lowrank as lowrank
from . import merging as merging
from . import online as online
from . import quantizing as quantizing
from . import ranking as ranking
from . import recommending as recommending
from . import reference as reference
from . import sketching as sketching
from . import sources as sources

__version__: str
__all__ = [
    "AdaptiveSubgradient",
    "CodeIndex",
    "Compressor",
    "FrequentDirections",
    "GroupSketches",
    "LowRankModel",
    "RobustFrequentDirections",
    "SketchHash",
    "SketchQuantizer",
    "SketchedEASE",
    "SketchedNewton",
    "StateError",
    "__version__",
    "codes",
    "features",
    "from_bytes",
    "hamming_distances",
    "hamming_topk",
    "hashing",
    "indexing",
    "io",
    "jobs",
    "load",
    "lowrank",
    "map_merge",
    "map_rows",
    "merge",
    "merging",
    "online",
    "open_rows",
    "quantizing",
    "ranking",
    "recommending",
    "reference",
    "run",
    "show_config",
    "sketch_groups",
    "sketching",
    "sources",
    "thread_limit",
]
