"""A retouched piece of a photograph found: each of its values is ordinary, their combination is not."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.cli.demo._patches import Image, Patches
from fastsketch.sklearn import SketchedCovariance

SIDE = 8
PIECE = 40  # pixels of the side of the retouched piece
GRAIN = 0.04  # standard deviation of what was added to it, of a range of 1
FALSE_ALARMS = 0.01

Array = NDArray[np.floating[Any]]


class Anomaly(NamedTuple):
    """Results of this part of the demo."""

    facts: dict[str, Any]
    picture: Image  # with the piece
    piece: tuple[int, int, int]  # top, left, side
    distances: Array  # Mahalanobis, squared, of the patch around each pixel
    threshold: float


def find_anomaly(image: Image) -> Anomaly:
    """Learn the patches of a photograph, and look for a piece of it that has another grain.

    Half of the lines are learned from. Patches of the other half that touch no retouched pixel set the threshold.
    """
    height, width = image.shape[0] - SIDE + 1, image.shape[1] - SIDE + 1
    side = min(PIECE, image.shape[0] - SIDE, image.shape[1] - SIDE)
    rng = np.random.default_rng(0)
    top, left = (int(rng.random() * (length - side)) for length in image.shape[:2])
    picture = image.copy()
    piece = picture[top : top + side, left : left + side]
    piece[:] = np.clip(piece + rng.normal(0, GRAIN, piece.shape), 0, 1)
    model = SketchedCovariance()
    for rows in list(Patches([image], SIDE).stream())[::2]:
        model.partial_fit(rows)
    distances, plain = np.empty((height, width)), np.empty((height, width))
    for line, rows in enumerate(Patches([picture], SIDE).stream()):
        distances[line] = model.mahalanobis(rows)
        plain[line] = ((rows - model.location_) ** 2).sum(axis=1)
    inside, touched = np.zeros((2, height, width), dtype=bool)
    inside[top : top + side - SIDE + 1, left : left + side - SIDE + 1] = True
    touched[max(0, top - SIDE + 1) : top + side, max(0, left - SIDE + 1) : left + side] = True
    held = ~touched
    held[::2] = False
    threshold = float(np.quantile(distances[held], 1 - FALSE_ALARMS))
    facts: dict[str, Any] = {
        "anomaly_patches": int(inside.sum()),
        "anomaly_found": float((distances[inside] > threshold).mean()),
        "anomaly_false_alarms": FALSE_ALARMS,
        "anomaly_found_by_distance_from_mean": float(
            (plain[inside] > np.quantile(plain[held], 1 - FALSE_ALARMS)).mean()
        ),
        "anomaly_threshold": threshold,
    }
    return Anomaly(facts, picture, (top, left, side), distances, threshold)
