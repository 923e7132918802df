"""Pictures of the demo (extra: plot)."""

# matplotlib's own annotations leave many arguments without a type:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from pathlib import Path

from fastsketch._plot import figure
from fastsketch.demo._hashing import BITS, Hashed
from fastsketch.demo._learning import STEPS, Learned
from fastsketch.demo._patches import Patches
from fastsketch.demo._restoring import DAMAGE, RANK, Restored


def plot_neighbours(patches: Patches, hashed: Hashed, *, path: Path) -> None:
    """One line a query: the query, then its neighbours, each patch above its Hamming distance."""
    shown, side = hashed.shown, patches.side
    columns = max(map(len, shown))
    made, axes = figure(len(shown), columns, figsize=(1.1 * columns, 1.35 * len(shown) + 0.4))
    for line, cells in zip(shown, axes, strict=True):
        for place, cell in zip(line, cells, strict=False):
            image = patches.images[place.image]
            patch = image[place.top : place.top + side, place.left : place.left + side]
            cell.imshow(patch, interpolation="nearest")
            cell.set_xlabel("query" if place is line[0] else str(place.distance), fontsize=8, labelpad=2)
        for cell in cells:
            cell.set_xticks([])
            cell.set_yticks([])
            cell.spines[:].set_visible(False)
        cells[0].spines[:].set(visible=True, color="tab:red", linewidth=2)
    made.suptitle(
        f"{BITS}-bit codes of {patches.n_rows:,} patches: a query and its nearest that do not overlap, "
        "Hamming distance",
        fontsize=10,
    )
    made.savefig(path, dpi=130, format="png")


def plot_learning(learned: Learned, *, path: Path) -> None:
    """Online error against examples, for each learner at its best step size; and the final one against that size."""
    made, (left, right) = figure(1, 2, figsize=(10, 4.2))
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
    left.legend(fontsize=8)
    right.legend(fontsize=7.5, loc="upper right")
    made.suptitle(f"{len(curve):,} handwritten digits, each against the rest, one pass", fontsize=10)
    made.savefig(path, dpi=130, format="png")


def plot_restored(restored: Restored, *, path: Path) -> None:
    """Grey pictures side by side, each with its peak signal-to-noise ratio."""
    made, axes = figure(2, 2, figsize=(9, 6.6))
    for (name, picture), cell in zip(restored.pictures.items(), axes.flat, strict=True):
        cell.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        value = restored.facts.get(f"{name.split()[0]}_psnr")
        cell.set_title(name if value is None else f"{name}: {value:.1f} dB", fontsize=10)
        cell.set_axis_off()
    made.suptitle(f"{DAMAGE:.0%} of the pixels lost to black and white, models of rank {RANK}", fontsize=10)
    made.savefig(path, dpi=130, format="png")
