"""How good the answers of a learner are on labelled rows: errors, probabilities, ranks, and counts of confusions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch.online import AdaptiveSubgradient, SketchedNewton
from fastsketch.ridge import SketchedRidge

LinearLearner = SketchedNewton | AdaptiveSubgradient
Floats = NDArray[np.float64]
# A probability of 0 for what has happened would make the log loss infinite: cut as scikit-learn cuts them.
LEAST = float(np.finfo(np.float64).eps)


class Labels:
    """Labels held against the answers of a classifier; rows come in pieces."""

    def __init__(self, model: LinearLearner) -> None:
        if model.classes is None:
            raise ValueError("the model predicts real values, and knows no labels")
        self._model, self._classes = model, model.classes
        k = len(self._classes)
        self._confusion = np.zeros((k, k), np.int64)  # true, predicted
        self._loss = 0.0
        self._scores: list[Floats] = []
        self._truth: list[NDArray[np.intp]] = []

    def add(self, rows: Any, labels: NDArray[Any]) -> None:
        """Hold the answers for some rows against their labels; ValueError names the first label it does not know."""
        model, classes = self._model, self._classes
        truth = places(labels, classes)
        predicted = places(model.predict(rows), classes)
        np.add.at(self._confusion, (truth, predicted), 1)
        chances = model.predict_proba(rows)[np.arange(len(truth)), truth]
        self._loss -= float(np.log(np.clip(chances, LEAST, 1.0)).sum())
        self._scores.append(model.decision_function(rows))
        self._truth.append(truth)

    def counts(self) -> Any:
        """Return the counts so far, without the model, for ``join`` to add to those of other rows."""
        return self._confusion, self._loss, self._scores, self._truth

    def join(self, counts: Any) -> None:
        """Add the counts of other rows."""
        confusion, loss, scores, truth = counts
        self._confusion += confusion
        self._loss += loss
        self._scores += scores
        self._truth += truth

    def facts(self) -> dict[str, Any]:
        """Return examples, accuracy, log_loss, auc (the mean over the classes if they are more than two), confusion."""
        n = int(self._confusion.sum())
        names = [shown(label) for label in self._classes]
        return {
            "examples": n,
            "accuracy": int(np.trace(self._confusion)) / max(n, 1),
            "log_loss": self._loss / max(n, 1),
            "auc": self._auc() if n else None,
            "confusion": {
                name: dict(zip(names, counts, strict=True))
                for name, counts in zip(names, self._confusion.tolist(), strict=True)
            },
        }

    def _auc(self) -> float | None:
        scores, truth = np.concatenate(self._scores), np.concatenate(self._truth)
        if scores.ndim == 1:
            return auc(scores, truth == 1)
        parts = [auc(column, truth == k) for k, column in enumerate(scores.T)]
        known = [part for part in parts if part is not None]
        return float(np.mean(known)) if known else None


class Targets:
    """Real targets held against the answers of a regression."""

    def __init__(self, model: LinearLearner | SketchedRidge) -> None:
        self._model = model
        self._count = 0
        # of the targets, of each of several: mean, and sum of squares around it
        self._absolute = self._squares = self._mean = self._spread = np.float64(0.0)

    def add(self, rows: Any, targets: Floats) -> None:
        """Hold the predictions for some rows against their targets."""
        n = len(targets)
        if n == 0:
            return
        targets = np.asarray(targets, np.float64)  # a table of text gives words
        errors, mean = self._model.predict(rows) - targets, targets.mean(axis=0)
        squares = (errors**2).sum(axis=0), ((targets - mean) ** 2).sum(axis=0)
        self.join((n, np.abs(errors).sum(axis=0), squares[0], mean, squares[1]))

    def counts(self) -> Any:
        """See Labels."""
        return self._count, self._absolute, self._squares, self._mean, self._spread

    def join(self, counts: Any) -> None:
        """See Labels."""
        n, absolute, squares, mean, spread = counts
        if n == 0:
            return
        self._absolute += absolute
        self._squares += squares
        both, step = self._count + n, mean - self._mean
        self._spread += spread + step * step * self._count * n / both
        self._mean += step * n / both
        self._count = both

    def facts(self) -> dict[str, Any]:
        """Return examples, mean_absolute_error, root_mean_squared_error, r2 (None where the targets do not vary).

        Of several targets their means.
        """
        n, varied = max(self._count, 1), np.atleast_1d(self._spread) > 0
        r2 = 1.0 - np.atleast_1d(self._squares)[varied] / np.atleast_1d(self._spread)[varied]
        return {
            "examples": self._count,
            "mean_absolute_error": float(np.mean(self._absolute / n)),
            "root_mean_squared_error": float(np.mean((self._squares / n) ** 0.5)),
            "r2": float(r2.mean()) if varied.any() else None,
        }


def scorer_of(model: LinearLearner | SketchedRidge) -> Labels | Targets:
    """Return what measures the answers of this model."""
    return Targets(model) if isinstance(model, SketchedRidge) or model.classes is None else Labels(model)


def shown(label: Any) -> str:
    """Return a label as text: numbers as short as they are."""
    return f"{label:.9g}" if isinstance(label, float) else str(label)


def places(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Return the index of each label among the sorted classes; ValueError names the first that is none of them."""
    nearest = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    strange = classes[nearest] != labels
    if strange.any():
        first = int(np.argmax(strange))
        known = ", ".join(map(shown, classes[:10])) + (", ..." if len(classes) > 10 else "")
        raise ValueError(
            f"row {first} has label {shown(labels[first])}, which the model has never seen: it knows {known}"
        )
    return nearest


def auc(scores: Floats, positive: NDArray[np.bool_]) -> float | None:
    """Return the chance that a positive row scores above another one, ties counting half; None without both kinds."""
    n_positive = int(positive.sum())
    n_negative = len(positive) - n_positive
    if n_positive == 0 or n_negative == 0:
        return None
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # from 1; of ties their mean
    above = float(ranks[place[positive]].sum()) - n_positive * (n_positive + 1) / 2
    return above / (n_positive * n_negative)
