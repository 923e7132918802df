"""Pictures of models (extra: plot)."""

# matplotlib's own annotations leave many arguments without a type:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any


def figure(*shape: int, **size: Any) -> tuple[Any, Any]:
    """Return (figure, axes) of a grid of this shape, drawn without a display; ImportError names the extra."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'fastsketch[plot]'") from error
    made = Figure(layout="constrained", **size)
    FigureCanvasAgg(made)
    return made, made.subplots(*shape)


def square(left: float, top: float, width: float, **style: Any) -> Any:
    """Return the outline of a square, to add to axes."""
    from matplotlib.patches import Rectangle

    return Rectangle((left, top), width, width, fill=False, **style)


def plot_spectrum(facts: Mapping[str, Any], path: str | PathLike[str], *, truth: Sequence[float] | None = None) -> None:
    """Plot squared singular values, with the certificate as a band if there is one; `truth` adds the exact spectrum."""
    made, axes = figure(figsize=(7, 4.5))
    alpha, bound = facts.get("alpha") or 0.0, facts.get("error_bound") or 0.0
    middle = [value * value + alpha for value in facts["singular_values"]]
    index = range(1, len(middle) + 1)
    if truth is not None:
        axes.semilogy(range(1, len(truth) + 1), truth, color="0.35", lw=1.2, label="exact spectrum of A'A")
    if 0 < bound < float("inf") and middle:
        floor = min(middle) * 1e-2
        axes.fill_between(
            index,
            [max(value - bound, floor) for value in middle],
            [value + bound for value in middle],
            alpha=0.25,
            color="tab:blue",
            lw=0,
            label=f"certificate: +-{bound:.3g}",
        )
    label = "sketch" + (" B'B + alpha I" if alpha > 0 else " B'B")
    axes.semilogy(index, middle, "o-", ms=3, lw=1, color="tab:blue", label=label)
    axes.set_xlabel("index")
    axes.set_ylabel("squared singular value")
    axes.set_title(_title(facts))
    axes.set_xlim(0.5, max(2, len(middle)) * (1.5 if truth is not None else 1) + 0.5)
    axes.grid(True, which="both", alpha=0.25)
    axes.legend()
    made.savefig(path, dpi=130, format="png")


def _title(facts: Mapping[str, Any]) -> str:
    parts = [f"{facts['n_rows']:,} rows x {facts['n_features'] or 0:,} features"]
    if "method" in facts:
        parts.append(f"method {facts['method']}")
    if "sketch_size" in facts:
        parts.append(f"l = {facts['sketch_size']}")
    return ", ".join(parts)
