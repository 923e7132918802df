"""What a learned model says of rows, with the labels of the files that it has learned from."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch.io import StateError
from fastsketch.online import AdaptiveGrid, AdaptiveSubgradient, SketchedNewton

LinearLearner = SketchedNewton | AdaptiveSubgradient
Floats = NDArray[np.float64]


class Answers:
    """A model that has learned; ``classes`` are its labels in order, None if it predicts real values."""

    def __init__(self, model: LinearLearner) -> None:
        self.model = model
        self.classes: NDArray[Any] | None = model.classes
        # files of 0.1 hold signs, and in their notes which label was which
        older = model.notes.get("labels")
        self._signs = None
        if self.classes is not None and is_pair(older) and self.classes.tolist() == [-1.0, 1.0]:
            self._signs, self.classes = self.classes, np.array(older)

    def predict(self, rows: Any) -> NDArray[Any]:
        """Labels, or values, (n,)."""
        found = self.model.predict(rows)
        return found if self._signs is None or self.classes is None else self.classes[(found > 0).astype(np.intp)]

    def probabilities(self, rows: Any) -> Floats:
        """(n, n_classes), in the order of ``classes``; ValueError for a model of real values."""
        return self.model.predict_proba(rows)

    def scores(self, rows: Any) -> Floats:
        """(n,), or (n, n_classes) for more than two."""
        return self.model.decision_function(rows)


def is_pair(value: Any) -> bool:
    """Whether a note has two labels, [negative, positive], as `learn` of 0.1 wrote them."""
    if not isinstance(value, list):
        return False
    items = cast(list[Any], value)
    return len(items) == 2 and all(isinstance(item, float) for item in items)


def as_answers(model: Any, path: str) -> Answers:
    """What the model of a file says; StateError if it is another kind, or has seen nothing."""
    if isinstance(model, AdaptiveGrid):
        model = model.best()
    if not isinstance(model, SketchedNewton | AdaptiveSubgradient):
        raise StateError(f"{path} holds a {type(model).__name__}: models of 'learn' and 'complete' predict")
    if model.n_rows == 0:
        raise StateError(f"{path} holds a model that has seen no rows")
    return Answers(model)


def shown(label: Any) -> str:
    """A label as text: numbers as short as they are."""
    return f"{label:.9g}" if isinstance(label, float) else str(label)
