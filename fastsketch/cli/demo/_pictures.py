"""Pictures of the demo (extra: plot), readable at the width of a telephone."""

# matplotlib's own annotations leave many arguments without a type:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fastsketch.cli._plot import figure
from fastsketch.cli.demo._anomaly import Anomaly
from fastsketch.cli.demo._components import PatchComponents
from fastsketch.cli.demo._digits import STEPS, DigitLearners
from fastsketch.cli.demo._neighbours import SHOWN, PatchNeighbours
from fastsketch.cli.demo._patches import Patches
from fastsketch.cli.demo._restoring import DAMAGE, RANK, Restored

BLUE, ORANGE = "tab:blue", "tab:orange"
# Of a gap between two queries, in heights of a patch.
GAP = 0.35
# Of the picture of neighbours, in patches: the lines, and what is written beside them.
WIDTH = SHOWN + 1 + 2


def plot_components(found: PatchComponents, *, side: int, path: Path) -> None:
    """Draw the components as patches, and the intervals of their variances with the true values in them."""
    k = len(found.truth)
    columns = (k + 1) // 2
    made, whole = figure(figsize=(7.5, 6.6))
    whole.remove()
    above, under = made.subfigures(2, 1, height_ratios=[2, 3])
    for number, cell in enumerate(above.subplots(2, columns).flat):
        cell.set_axis_off()
        if number < k:
            patch = found.directions[number].reshape(side, side, 3)
            cell.imshow(0.5 + 0.5 * patch / np.abs(patch).max(), interpolation="nearest")
            cell.set_title(f"{number + 1}", fontsize=10)
    below = under.subplots()
    index = np.arange(1, k + 1)
    for ends, offset, colour, label in (
        (found.once, -0.15, ORANGE, "one pass"),
        (found.twice, 0.15, BLUE, "refined by a second pass"),
    ):
        low = np.maximum(ends[:, 0], found.truth.min() / 20)
        below.vlines(index + offset, low, ends[:, 1], color=colour, lw=5, label=f"interval, {label}")
        below.plot(index + offset, low, "_", index + offset, ends[:, 1], "_", color=colour, ms=11, mew=2)
    below.plot(index, found.truth, "k.", ms=7, label="true variance")
    below.set_yscale("log")
    below.set_xticks(index)
    below.set(xlabel="component", ylabel="variance")
    below.grid(True, which="both", alpha=0.25)
    below.legend(fontsize=9)
    made.savefig(path, dpi=120, format="png")


def plot_neighbours(patches: Patches, found: PatchNeighbours, *, path: Path) -> None:
    """Draw three lines for each query: its neighbours by bits, by codes and then rows, and in truth."""
    lines = [(name, spots) for ways in found.shown for name, spots in ways.items()]
    ways = len(found.shown[0])
    heights = np.arange(len(lines)) + GAP * (np.arange(len(lines)) // ways)
    made, axes = figure(figsize=(7.5, 7.2 / WIDTH * (heights[-1] + 1) + 0.4))
    truth = [set(spots) for name, spots in lines if name == lines[ways - 1][0]]
    for number, (name, spots) in enumerate(lines):
        top = heights[number]
        for column, spot in enumerate(spots):
            side = patches.side
            patch = patches.images[spot.image][spot.top : spot.top + side, spot.left : spot.left + side]
            extent = (column + 0.04, column + 0.96, top + 0.96, top + 0.04)
            axes.imshow(patch, extent=extent, interpolation="nearest", aspect="auto")
            if column == 0 or (number % ways < ways - 1 and spot in truth[number // ways]):
                colour = "tab:red" if column == 0 else "tab:green"
                axes.add_patch(_square(column + 0.04, top + 0.04, 0.92, lw=2, ec=colour))
        axes.text(SHOWN + 1.15, top + 0.5, name.replace(" ", "\n", 1), va="center", fontsize=10)
    axes.set_xlim(0, WIDTH)
    axes.set_ylim(heights[-1] + 1, 0)
    axes.set_axis_off()
    axes.set_title("red: queries, then their nearest; green: among the nearest in truth", fontsize=10)
    made.savefig(path, dpi=120, format="png")


def _square(left: float, top: float, width: float, **style: Any) -> Any:
    return import_module("matplotlib.patches").Rectangle((left, top), width, width, fill=False, **style)


def plot_anomaly(found: Anomaly, *, path: Path) -> None:
    """Draw the photograph, and the distance of the patch at each pixel."""
    made, (left, right) = figure(2, 1, figsize=(6, 7.6))
    left.imshow(found.picture, interpolation="nearest")
    left.set_title("a piece of it has another grain", fontsize=10)
    low = np.quantile(found.distances, 0.02)
    scale = import_module("matplotlib.colors").LogNorm(low, found.distances.max())
    shown = right.imshow(found.distances, norm=scale, cmap="magma")
    right.set_title("squared Mahalanobis distance of patches", fontsize=10)
    made.colorbar(shown, ax=right, shrink=0.8).ax.axhline(found.threshold, color="white", lw=2)
    top, start, side = found.piece
    for axes, colour in ((left, "white"), (right, "cyan")):
        axes.set_axis_off()
        axes.add_patch(_square(start - 3, top - 3, side + 6, ec=colour, lw=1.2, ls=":"))
    made.savefig(path, dpi=120, format="png")


def plot_learning(learned: DigitLearners, *, path: Path) -> None:
    """Plot the online error of each learner at its best step size, and the final one against step sizes."""
    made, (left, right) = figure(2, 1, figsize=(6.5, 7.6))
    for i, (label, curve) in enumerate(learned.curves.items()):
        examples = range(20, len(curve) + 1)
        left.semilogy(examples, curve[19:], color=f"C{i}", lw=2 if i == 0 else 1.2, label=label)
    for i, (label, values) in enumerate(learned.errors.items(), 1):
        right.loglog(STEPS, values, "o-", color=f"C{i}", ms=4, label=label)
    name, curve = next(iter(learned.curves.items()))
    right.axhline(curve[-1], color="C0", lw=2, label=f"{name}: no step size")
    left.set(xlabel="examples", ylabel="online error rate", title="each at its best step size")
    right.set(xlabel="step size", title="after one pass")
    for axes in (left, right):
        axes.grid(True, which="both", alpha=0.25)
    left.legend(fontsize=9)
    right.legend(fontsize=9, loc="upper right")
    made.suptitle(f"{len(curve):,} handwritten digits, each against the rest, one pass", fontsize=10)
    made.savefig(path, dpi=120, format="png")


def plot_restored(restored: Restored, *, path: Path) -> None:
    """Draw grey pictures side by side, each with its peak signal-to-noise ratio."""
    made, axes = figure(2, 2, figsize=(6.5, 5))
    for (name, picture), cell in zip(restored.pictures.items(), axes.flat, strict=True):
        cell.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        value = restored.facts.get(f"{name.split()[0]}_psnr")
        cell.set_title(name if value is None else f"{name}: {value:.1f} dB", fontsize=10)
        cell.set_axis_off()
    made.suptitle(f"{DAMAGE:.0%} of the pixels lost to black and white, models of rank {RANK}", fontsize=10)
    made.savefig(path, dpi=120, format="png")
