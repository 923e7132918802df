"""Principal components of all patches after one pass and after a second, with an interval for each variance."""

# matplotlib's own annotations leave many arguments without a type:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastsketch as fs
from demo.page import Section
from demo.patches import Patches
from demo.plot import figure
from fastsketch.sklearn import SketchedPCA

COMPONENTS = 12

Array = NDArray[np.floating[Any]]


def find_components(patches: Patches, sketch: fs.FrequentDirections, folder: Path, *, spectrum: Array) -> Section:
    """Compare the leading components of the sketch, and of the refined sketch, with the exact eigenvalues of A'A."""
    k = min(COMPONENTS, sketch.resolved["sketch_size"] - 1)
    once = SketchedPCA.from_model(sketch, n_components=k)
    twice = SketchedPCA.from_model(sketch.copy().refine(fs.open_rows(patches.stream())), n_components=k)
    truth = spectrum[:k] / (patches.n_rows - 1)
    ends, refined = once.explained_variance_interval_, twice.explained_variance_interval_
    widths = [float((end[:, 1] - end[:, 0]).max() / truth[-1]) for end in (ends, refined)]
    within = sum(int(((end[:, 0] <= truth) & (truth <= end[:, 1])).sum()) for end in (ends, refined))
    share = float(twice.explained_variance_ratio_.sum())

    made, whole = figure(figsize=(7.5, 6.6))
    whole.remove()
    above, under = made.subfigures(2, 1, height_ratios=[2, 3])
    for number, cell in enumerate(above.subplots(2, (k + 1) // 2).flat):
        cell.set_axis_off()
        if number < k:
            patch = twice.components_[number].reshape(patches.side, patches.side, 3)
            cell.imshow(0.5 + 0.5 * patch / np.abs(patch).max(), interpolation="nearest")
            cell.set_title(f"{number + 1}", fontsize=10)
    below = under.subplots()
    index = np.arange(1, k + 1)
    for end, offset, colour, label in (
        (ends, -0.15, "tab:orange", "one pass"),
        (refined, 0.15, "tab:blue", "refined by a second pass"),
    ):
        low = np.maximum(end[:, 0], truth.min() / 20)
        below.vlines(index + offset, low, end[:, 1], color=colour, lw=5, label=f"interval, {label}")
        below.plot(index + offset, low, "_", index + offset, end[:, 1], "_", color=colour, ms=11, mew=2)
    below.plot(index, truth, "k.", ms=7, label="true variance")
    below.set_yscale("log")
    below.set_xticks(index)
    below.set(xlabel="component", ylabel="variance")
    below.grid(True, which="both", alpha=0.25)
    below.legend(fontsize=9)
    made.savefig(folder / "components.png", dpi=120)
    facts: dict[str, Any] = {
        "components": k,
        "variance_share": share,
        "variance_intervals": ends.tolist(),
        "refined_variance_intervals": refined.tolist(),
        "true_variances": truth.tolist(),
        "true_variances_within": within,
        "widest_interval": widths[0],
        "widest_refined_interval": widths[1],
    }
    return Section(
        "Components, each with the interval of its variance",
        "components.png",
        f"The {k} leading components as colour patches: brightness, a colour, then gradients and waves. Below, the "
        "interval of each variance after one pass and after two, with the true value in both.",
        [
            ("components", f"{k}, {share:.1%} of the variance"),
            ("first variance, one pass", f"{ends[0][0]:.4g} to {ends[0][1]:.4g}"),
            ("after a second pass", f"{refined[0][0]:.6g} to {refined[0][1]:.6g}"),
            (f"variance {k}, one pass", f"{ends[-1][0]:.3g} to {ends[-1][1]:.3g}"),
            ("after a second pass", f"{refined[-1][0]:.4g} to {refined[-1][1]:.4g}"),
            (f"widest interval, of variance {k}", f"{widths[0]:.2%}, then {widths[1]:.4%}"),
            ("true values within", f"{within} of {2 * k}"),
        ],
        "A component is a pattern that patches share; its variance says how much of them it explains. After one pass "
        "all intervals are equally long: as long as shrinks have taken from the rows in all.",
        "The true variance of the rows seen lies in its interval, always. That of rows still to come may not. Where "
        "rows can be read again, a second pass makes intervals narrow.",
        [("principal components", "jobs/components.md"), ("why intervals hold", "read-outs.md")],
        facts,
    )
