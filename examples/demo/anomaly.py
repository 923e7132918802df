"""Find a retouched piece of a photograph, whose pixel values are ordinary but whose combination of values is not."""

# matplotlib's own annotations leave many arguments without a type:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from demo.page import Section
from demo.patches import Image, Patches
from demo.plot import figure, square
from fastsketch.sklearn import SketchedCovariance

SIDE = 8
PIECE = 40  # pixels of the side of the retouched piece
GRAIN = 0.04  # standard deviation of what was added to it, of a range of 1
FALSE_ALARMS = 0.01


def find_anomaly(image: Image, folder: Path) -> Section:
    """Learn the patches of a photograph, and detect the piece of it that has another grain.

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
    recall = float((distances[inside] > threshold).mean())
    plain_recall = float((plain[inside] > np.quantile(plain[held], 1 - FALSE_ALARMS)).mean())

    made, (above, below) = figure(2, 1, figsize=(6, 7.6))
    above.imshow(picture, interpolation="nearest")
    above.set_title("a piece of it has another grain", fontsize=10)
    scale = import_module("matplotlib.colors").LogNorm(np.quantile(distances, 0.02), distances.max())
    shown = below.imshow(distances, norm=scale, cmap="magma")
    below.set_title("squared Mahalanobis distance of patches", fontsize=10)
    made.colorbar(shown, ax=below, shrink=0.8).ax.axhline(threshold, color="white", lw=2)
    for axes, colour in ((above, "white"), (below, "cyan")):
        axes.set_axis_off()
        axes.add_patch(square(left - 3, top - 3, side + 6, ec=colour, lw=1.2, ls=":"))
    made.savefig(folder / "anomaly.png", dpi=120)
    facts: dict[str, Any] = {
        "anomaly_patches": int(inside.sum()),
        "anomaly_found": recall,
        "anomaly_false_alarms": FALSE_ALARMS,
        "anomaly_found_by_distance_from_mean": plain_recall,
        "anomaly_threshold": threshold,
    }
    return Section(
        "An anomaly: each value ordinary, their combination not",
        "anomaly.png",
        "A photograph of a temple, in which a dotted frame shows where the retouched piece is, and a map of distances: "
        "dark in the sky, lighter in roofs and trees, lightest in the retouched piece, which stands out as a square.",
        [
            ("patches within the piece", f"{inside.sum():,}"),
            ("found, Mahalanobis", f"{recall:.0%}"),
            ("found, distance from the mean", f"{plain_recall:.0%}"),
            ("false alarms", f"{FALSE_ALARMS:.0%}"),
        ],
        f"A piece of {PIECE} x {PIECE} pixels got another grain, noise of {GRAIN:.0%} of the range. The covariance of "
        "patches knows how alike neighbouring pixels are; the piece breaks that rule.",
        "The threshold is that which one in a hundred other patches exceeds: distances of patches do not follow a "
        "chi-squared law. Not every change is found: a smooth piece from elsewhere is nothing unusual.",
        [("anomalies", "jobs/anomalies.md"), ("covariance and outliers", "jobs/anomalies.md#covariance-and-outliers")],
        facts,
    )
