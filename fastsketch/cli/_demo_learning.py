"""The third part of the demo: handwritten digits learned online, each against the rest, one pass."""

import time

import numpy as np

import fastsketch as fs

STEPS = (1e-3, 1e-2, 0.1, 1.0, 10.0)
SIZE = 10
NEWTON = "Newton, RFD0"
# label: method of AdaptiveSubgradient
TUNED = {"ADA-FFD": "ada-ffd", "AdaGrad (diagonal)": "ada-diag", "Adam": "adam", "gradient descent": "ogd"}
PASSES = 3  # over the stream, for a time that is not all start


def digits():
    """(rows, targets (10, n)) in a fixed random order: 1,797 images of 8 x 8, a constant feature, length about 1."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    rows = np.hstack([found.data / 16 - 0.3, np.ones((len(order), 1))])[order]
    rows /= np.linalg.norm(rows, axis=1).mean()
    return rows, np.where(found.target[order] == np.arange(10)[:, None], 1.0, -1.0)


def learn_digits():
    """(facts, curves, errors by step size): the Newton learner, which has none, and learners that need one."""
    rows, targets = digits()
    newton = _online(lambda: fs.SketchedNewton(SIZE, loss="squared_hinge"), rows, targets)
    errors, curves = {}, {NEWTON: newton}
    for label, method in TUNED.items():
        found = [
            _online(
                lambda m=method, e=eta: fs.AdaptiveSubgradient(2 * SIZE, m, loss="squared_hinge", eta=e), rows, targets
            )
            for eta in STEPS
        ]
        errors[label] = [float(curve[-1]) for curve in found]
        best = int(np.argmin(errors[label]))
        curves[f"{label}, step {STEPS[best]:g}"] = found[best]
    start = time.perf_counter()
    for _ in range(PASSES):
        fs.SketchedNewton(SIZE, loss="squared_hinge").update(rows, targets[0])
    taken = time.perf_counter() - start
    facts = {
        "online_examples": len(rows),
        "newton_online_error": float(newton[-1]),
        "newton_examples_per_second": PASSES * len(rows) / taken,
        "best_first_order_online_error": min(min(errors[label]) for label in errors if label != "ADA-FFD"),
        "online_errors_by_step": {
            label: dict(zip(map(str, STEPS), values, strict=True)) for label, values in errors.items()
        },
    }
    return facts, curves, errors


def _online(make, rows, targets):
    """Share of mistakes up to every round, mean over the ten digits."""
    wrong = np.stack([make().update(rows, y).last_predictions * y <= 0 for y in targets])
    return np.cumsum(wrong.mean(axis=0)) / np.arange(1, len(rows) + 1)
