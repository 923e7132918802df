"""Learn handwritten digits online in one pass, one digit against all others."""

import time
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import fastsketch as fs
from demo.page import Section
from demo.plot import figure

Array = NDArray[np.float64]

STEPS = (1e-3, 1e-2, 0.1, 1.0, 10.0)
SIZE = 10
# label: method of AdaptiveSubgradient
TUNED: dict[str, Literal["ada_ffd", "ada_diag", "adam", "ogd"]] = {
    "ADA-FFD": "ada_ffd",
    "AdaGrad (diagonal)": "ada_diag",
    "Adam": "adam",
    "gradient descent": "ogd",
}
PASSES = 3  # over the stream, for a time that is not all start


def digits() -> tuple[Array, Array]:
    """Return (rows, targets (10, n)) in a fixed random order.

    1,797 images of 8 x 8, a constant feature, length about 1.
    """
    data = import_module("sklearn.datasets").load_digits()
    target: NDArray[np.int64] = data.target
    order = np.random.default_rng(0).permutation(len(target))
    rows = np.hstack([data.data / 16 - 0.3, np.ones((len(order), 1))])[order]
    rows /= np.linalg.norm(rows, axis=1).mean()
    return rows, np.where(target[order] == np.arange(10)[:, None], 1.0, -1.0)


def learn_digits(folder: Path) -> Section:
    """Measure the error of the Newton learner, which has no step size, and of learners with several step sizes."""
    rows, targets = digits()
    newton = fs.SketchedNewton(SIZE, loss="squared_hinge")
    curves, errors = {"Newton, RFD": _online(newton, rows, targets=targets)}, dict[str, list[float]]()
    for label, method in TUNED.items():
        tried = [
            fs.AdaptiveSubgradient(2 * SIZE, method=method, loss="squared_hinge", learning_rate=step) for step in STEPS
        ]
        online = [_online(model, rows, targets=targets) for model in tried]
        errors[label] = [float(curve[-1]) for curve in online]
        best = int(np.argmin(errors[label]))
        curves[f"{label}, step {STEPS[best]:g}"] = online[best]
    start = time.perf_counter()
    for _ in range(PASSES):
        newton.copy().update(rows, targets[0])
    rate = PASSES * len(rows) / (time.perf_counter() - start)
    newton_error = float(curves["Newton, RFD"][-1])

    made, (above, below) = figure(2, 1, figsize=(6.5, 7.6))
    for i, (label, curve) in enumerate(curves.items()):
        examples = range(20, len(curve) + 1)
        above.semilogy(examples, curve[19:], color=f"C{i}", lw=2 if i == 0 else 1.2, label=label)
    for i, (label, values) in enumerate(errors.items(), 1):
        below.loglog(STEPS, values, "o-", color=f"C{i}", ms=4, label=label)
    below.axhline(newton_error, color="C0", lw=2, label="Newton, RFD: no step size")
    above.set(xlabel="examples", ylabel="online error rate", title="each at its best step size")
    below.set(xlabel="step size", title="after one pass")
    for axes, where in ((above, "best"), (below, "upper right")):
        axes.grid(True, which="both", alpha=0.25)
        axes.legend(fontsize=9, loc=where)
    made.suptitle(f"{len(rows):,} handwritten digits, each against the rest, one pass", fontsize=10)
    made.savefig(folder / "online.png", dpi=120)
    first_order = min(min(errors[label]) for label in errors if label != "ADA-FFD")
    facts: dict[str, Any] = {
        "online_examples": len(rows),
        "newton_online_error": newton_error,
        "newton_examples_per_second": rate,
        "best_first_order_online_error": first_order,
        "best_ada_ffd_online_error": min(errors["ADA-FFD"]),
        "online_errors_by_step": {
            label: dict(zip(map(str, STEPS), values, strict=True)) for label, values in errors.items()
        },
    }
    return Section(
        "Learning while predicting",
        "online.png",
        "Above, the share of mistakes of five learners over the examples; below, how it depends on the step size: the "
        "Newton learner's is a level line, the others' are valleys.",
        [
            ("digits", f"{len(rows):,}"),
            ("mistakes, Newton", f"{newton_error:.2%}"),
            (f"best first-order learner of {len(STEPS)} step sizes", f"{first_order:.2%}"),
            ("ADA-FFD", f"{min(errors['ADA-FFD']):.2%}"),
            ("examples a second", f"{rate:,.0f}"),
        ],
        "Each digit is predicted before it is learned from, so mistakes are counted on rows not seen. The Newton "
        "learner has no step size; the others have that which turned out best of five.",
        "One order of one small set: a picture, not a comparison. Elsewhere a well-tuned first-order learner is as "
        "accurate, and faster, often by a large factor.",
        [("learning", "jobs/learning.md"), ("the Newton step", "how/newton.md")],
        facts,
    )


def _online(model: fs.SketchedNewton | fs.AdaptiveSubgradient, rows: Array, *, targets: Array) -> Array:
    """Return the progressive error rate after every example, averaged over the ten digits."""
    wrong = np.stack([model.copy().update(rows, y).last_scores * y <= 0 for y in targets])
    return np.cumsum(wrong.mean(axis=0)) / np.arange(1, len(rows) + 1)
