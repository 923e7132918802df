"""The third part of the demo: handwritten digits learned online, each against the rest, one pass."""

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fastsketch as fs

Array = NDArray[np.float64]

STEPS = (1e-3, 1e-2, 0.1, 1.0, 10.0)
SIZE = 10
NEWTON = "Newton, RFD"
# label: method of AdaptiveSubgradient
TUNED: dict[str, Literal["ada_ffd", "ada_diag", "adam", "ogd"]] = {
    "ADA-FFD": "ada_ffd",
    "AdaGrad (diagonal)": "ada_diag",
    "Adam": "adam",
    "gradient descent": "ogd",
}
PASSES = 3  # over the stream, for a time that is not all start


class DigitLearners(NamedTuple):
    """Results of this part of the demo."""

    facts: dict[str, Any]
    curves: dict[str, Array]  # online error after each example, of every learner at its best step size
    errors: dict[str, list[float]]  # the last of these for every step size


def digits() -> tuple[Array, Array]:
    """Return (rows, targets (10, n)) in a fixed random order.

    1,797 images of 8 x 8, a constant feature, length about 1.
    """
    found = import_module("sklearn.datasets").load_digits()
    images: Array = found.data
    target: NDArray[np.int64] = found.target
    order = np.random.default_rng(0).permutation(len(target))
    rows = np.hstack([images / 16 - 0.3, np.ones((len(order), 1))])[order]
    rows /= np.linalg.norm(rows, axis=1).mean()
    return rows, np.where(target[order] == np.arange(10)[:, None], 1.0, -1.0)


def learn_digits() -> DigitLearners:
    """Return the Newton learner, which has no step size, and learners that need one."""
    rows, targets = digits()

    def newton() -> fs.SketchedNewton:
        return fs.SketchedNewton(SIZE, loss="squared_hinge")

    newton_curve = _online(newton, rows, targets=targets)
    errors: dict[str, list[float]] = {}
    curves = {NEWTON: newton_curve}
    for label, method in TUNED.items():
        found = [_online(_tuned(method, step), rows, targets=targets) for step in STEPS]
        errors[label] = [float(curve[-1]) for curve in found]
        best = int(np.argmin(errors[label]))
        curves[f"{label}, step {STEPS[best]:g}"] = found[best]
    start = time.perf_counter()
    for _ in range(PASSES):
        newton().update(rows, targets[0])
    seconds = time.perf_counter() - start
    facts: dict[str, Any] = {
        "online_examples": len(rows),
        "newton_online_error": float(newton_curve[-1]),
        "newton_examples_per_second": PASSES * len(rows) / seconds,
        "best_first_order_online_error": min(min(errors[label]) for label in errors if label != "ADA-FFD"),
        "best_ada_ffd_online_error": min(errors["ADA-FFD"]),
        "online_errors_by_step": {
            label: dict(zip(map(str, STEPS), values, strict=True)) for label, values in errors.items()
        },
    }
    return DigitLearners(facts, curves, errors)


def _tuned(method: Literal["ada_ffd", "ada_diag", "adam", "ogd"], step: float) -> Callable[[], fs.AdaptiveSubgradient]:
    return lambda: fs.AdaptiveSubgradient(2 * SIZE, method=method, loss="squared_hinge", learning_rate=step)


def _online(make: Callable[[], fs.SketchedNewton | fs.AdaptiveSubgradient], rows: Array, *, targets: Array) -> Array:
    """Return share of mistakes up to every example, mean over the ten digits."""
    wrong = np.stack([make().update(rows, y).last_scores * y <= 0 for y in targets])
    return np.cumsum(wrong.mean(axis=0)) / np.arange(1, len(rows) + 1)
