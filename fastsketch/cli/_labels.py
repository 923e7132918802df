"""Which label is which sign: -1 and 1, 0 and 1, or 1 and 2."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.io import StateError
from fastsketch.io._sources import SvmlightSource

Values = NDArray[np.float64]


class Labels(NamedTuple):
    """The two labels of a classification, as a model keeps them in its notes: "labels": [negative, positive].

    None stands for a label that never came. Of labels that are 1 alone nobody can tell which they are: they count as
    positive.
    """

    negative: float | None
    positive: float

    def signs(self, labels: Values) -> Values:
        """-1 and 1 for the labels of some rows; ValueError names the first that is neither of the two."""
        positive = labels == self.positive
        good = positive if self.negative is None else positive | (labels == self.negative)
        if not good.all():
            first = int(np.argmin(good))
            known = f"{self.positive:g} alone" if self.negative is None else f"{self.negative:g} and {self.positive:g}"
            raise ValueError(
                f"row {first} has label {labels[first]:g}, which the model has never seen: labels must be two, here "
                f"{known}; real targets need --regression"
            )
        return np.where(positive, 1.0, -1.0)


PAIRS = (Labels(-1.0, 1.0), Labels(0.0, 1.0), Labels(1.0, 2.0))


def find_labels(sources: Iterable[SvmlightSource]) -> Labels:
    """The pair of labels, by the first label that is not 1: 1 is positive beside -1 and 0, and negative beside 2.

    Reads no further than to that label: mostly the beginning of the first file, once more than it is learned from.
    """
    for source in sources:
        for _, labels, _ in source.labelled_chunks():
            other = labels[labels != 1.0]
            if other.size:
                found = [pair for pair in PAIRS if other[0] in pair]
                # what belongs to no pair is refused with its row, when that comes
                return found[0] if found else PAIRS[0]
    return Labels(None, 1.0)


def labels_of(notes: dict[str, Any]) -> Labels:
    """The labels in the notes of a model or a partial result."""
    found = notes.get("labels")
    for pair in (*PAIRS, Labels(None, 1.0)):
        if found == list(pair):
            return pair
    raise StateError(f"the notes do not say which labels the model has learned: {found!r}")
