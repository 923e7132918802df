from fastsketch._core.threads import thread_limit as thread_limit
from fastsketch._frame.loading import from_bytes as from_bytes
from fastsketch._frame.loading import load as load
from fastsketch._show_config import show_config as show_config
from fastsketch.data import StateError as StateError
from fastsketch.data import open_rows as open_rows
from fastsketch.jobs import map_merge as map_merge
from fastsketch.jobs import map_rows as map_rows
from fastsketch.jobs import merge as merge
from fastsketch.jobs import run as run
from fastsketch.lowrank import LowRankModel as LowRankModel
from fastsketch.neighbours import CodeIndex as CodeIndex
from fastsketch.neighbours import SketchHash as SketchHash
from fastsketch.neighbours import SketchQuantizer as SketchQuantizer
from fastsketch.neighbours import hamming_distances as hamming_distances
from fastsketch.neighbours import hamming_topk as hamming_topk
from fastsketch.online import AdaptiveSubgradient as AdaptiveSubgradient
from fastsketch.online import SketchedNewton as SketchedNewton
from fastsketch.recommending import SketchedEASE as SketchedEASE
from fastsketch.ridge import SketchedRidge as SketchedRidge
from fastsketch.sketching import Compressor as Compressor
from fastsketch.sketching import FrequentDirections as FrequentDirections
from fastsketch.sketching import GroupSketches as GroupSketches
from fastsketch.sketching import RobustFrequentDirections as RobustFrequentDirections
from fastsketch.sketching import sketch_groups as sketch_groups
from fastsketch.streams import DriftMonitor as DriftMonitor
from fastsketch.streams import Window as Window
from fastsketch.streams import compare as compare

from . import data as data
from . import jobs as jobs
from . import lowrank as lowrank
from . import neighbours as neighbours
from . import online as online
from . import papers as papers
from . import recommending as recommending
from . import reference as reference
from . import ridge as ridge
from . import sketching as sketching
from . import streams as streams

__version__: str
__all__ = [
    "AdaptiveSubgradient",
    "CodeIndex",
    "Compressor",
    "DriftMonitor",
    "FrequentDirections",
    "GroupSketches",
    "LowRankModel",
    "RobustFrequentDirections",
    "SketchHash",
    "SketchQuantizer",
    "SketchedEASE",
    "SketchedNewton",
    "SketchedRidge",
    "StateError",
    "Window",
    "__version__",
    "compare",
    "data",
    "from_bytes",
    "hamming_distances",
    "hamming_topk",
    "jobs",
    "load",
    "lowrank",
    "map_merge",
    "map_rows",
    "merge",
    "neighbours",
    "online",
    "open_rows",
    "papers",
    "recommending",
    "reference",
    "ridge",
    "run",
    "show_config",
    "sketch_groups",
    "sketching",
    "streams",
    "thread_limit",
]
