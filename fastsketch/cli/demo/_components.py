"""Components of all patches, with the interval of each variance: after one pass, and after a second."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fastsketch as fs
from fastsketch.cli.demo._patches import Patches
from fastsketch.sklearn import SketchedPCA

COMPONENTS = 12

Array = NDArray[np.floating[Any]]


class PatchComponents(NamedTuple):
    """Results of this part of the demo."""

    facts: dict[str, Any]
    directions: Array  # (k, d), of the second pass
    once: Array  # (k, 2): intervals of the variances after one pass
    twice: Array  # (k, 2), after a second
    truth: Array  # (k,): exact variances


def find_components(patches: Patches, sketch: fs.FrequentDirections, *, spectrum: Array) -> PatchComponents:
    """Return the leading components by the sketch, and by the sketch refined; `spectrum`: exact eigenvalues of A'A."""
    k = min(COMPONENTS, sketch.resolved["sketch_size"] - 1)
    once = SketchedPCA.from_sketch(sketch, n_components=k)
    twice = SketchedPCA.from_sketch(sketch.copy().refine(fs.open_rows(patches.stream())), n_components=k)
    truth = spectrum[:k] / (patches.n_rows - 1)
    ends = once.explained_variance_interval_, twice.explained_variance_interval_
    widths = [float((end[:, 1] - end[:, 0]).max() / truth[-1]) for end in ends]
    facts: dict[str, Any] = {
        "components": k,
        "variance_share": float(twice.explained_variance_ratio_.sum()),
        "variance_intervals": ends[0].tolist(),
        "refined_variance_intervals": ends[1].tolist(),
        "true_variances": truth.tolist(),
        "true_variances_within": int(sum(within(end, truth) for end in ends)),
        "widest_interval": widths[0],
        "widest_refined_interval": widths[1],
    }
    return PatchComponents(facts, twice.components_, *ends, truth)


def within(ends: Array, truth: Array) -> int:
    """Return how many values lie in their intervals."""
    return int(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).sum())
