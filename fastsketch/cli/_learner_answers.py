"""Answers of a learned model, with the labels of the files that it has learned from."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files import StateError
from fastsketch.online import AdaptiveSubgradient, SketchedNewton

LinearLearner = SketchedNewton | AdaptiveSubgradient
Floats = NDArray[np.float64]


class Answers:
    """A model that has learned; ``classes`` are its labels in order, None if it predicts real values."""

    def __init__(self, model: LinearLearner) -> None:
        self.model = model
        self.classes: NDArray[Any] | None = model.classes

    def predict(self, rows: Any) -> NDArray[Any]:
        """Return labels, or values, (n,)."""
        return self.model.predict(rows)

    def probabilities(self, rows: Any) -> Floats:
        """Return (n, n_classes), in the order of ``classes``; ValueError for a model of real values."""
        return self.model.predict_proba(rows)

    def scores(self, rows: Any) -> Floats:
        """Return (n,), or (n, n_classes) for more than two."""
        return self.model.decision_function(rows)


def as_answers(model: Any, path: str) -> Answers:
    """Return the answers of the model of a file; StateError if it is another kind, or has seen nothing."""
    if not isinstance(model, SketchedNewton | AdaptiveSubgradient):
        raise StateError(f"{path} holds a {type(model).__name__}: models of 'learn' and 'complete' predict")
    if model.n_rows == 0:
        raise StateError(f"{path} holds a model that has seen no rows")
    return Answers(model)


def shown(label: Any) -> str:
    """Return a label as text: numbers as short as they are."""
    return f"{label:.9g}" if isinstance(label, float) else str(label)
