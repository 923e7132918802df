"""The patches of photographs as rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.float32]

# Added to the length in a normalisation, so that flat patches stay near zero.
FLAT = 1.0


def photographs() -> list[Image]:
    """Return the two sample photographs that scikit-learn installs, float32 in [0, 1]."""
    try:
        images: list[NDArray[Any]] = import_module("sklearn.datasets").load_sample_images().images
    except ImportError as error:
        raise ImportError("the demo needs scikit-learn and Pillow: pip install 'fastsketch[sklearn,plot]'") from error
    return [np.asarray(image, np.float32) / np.float32(255) for image in images]


@dataclass(frozen=True)
class Patches:
    """The side x side colour patches of some images, each as a row of side * side * 3 numbers.

    They begin in every column, and in every `step`-th line.
    """

    images: list[Image]
    side: int
    step: int = 1

    def tops(self, image: Image) -> range:
        """Return the lines of an image in which patches begin."""
        return range(0, image.shape[0] - self.side + 1, self.step)

    @property
    def n_rows(self) -> int:
        """Return the number of patches."""
        return sum(len(self.tops(image)) * (image.shape[1] - self.side + 1) for image in self.images)

    @property
    def n_features(self) -> int:
        """Return how many numbers a patch has."""
        return self.side * self.side * 3

    def stream(self) -> Iterator[Image]:
        """Yield all patches as rows, one line of pixels of one image at a time."""
        side = self.side
        for image in self.images:
            width = image.shape[1]
            for top in self.tops(image):
                strip = np.lib.stride_tricks.sliding_window_view(image[top : top + side], side, axis=1)
                # (side, width - side + 1, 3, side) -> one patch a row
                yield strip.transpose(1, 0, 3, 2).reshape(width - side + 1, side * side * 3)

    def first(self, n: int) -> Image:
        """Return the first n rows of the stream."""
        rows: list[Image] = []
        for batch in self.stream():
            rows.append(batch)
            if sum(map(len, rows)) >= n:
                break
        return np.concatenate(rows)[:n]

    @cached_property
    def places(self) -> NDArray[np.intp]:
        """Return (image, top, left) of every patch in the order of the stream, (n_rows, 3)."""
        out: list[NDArray[np.intp]] = []
        for number, image in enumerate(self.images):
            tops: NDArray[np.intp] = np.array(self.tops(image), np.intp)
            lefts: NDArray[np.intp] = np.arange(image.shape[1] - self.side + 1, dtype=np.intp)
            top, left = np.repeat(tops, len(lefts)), np.tile(lefts, len(tops))
            out.append(np.stack([np.full(len(top), number), top, left], axis=1))
        return np.concatenate(out)

    def at(self, indices: NDArray[np.intp]) -> Image:
        """Return patches by their number in the stream, as rows."""
        side, places = self.side, cast(list[tuple[int, int, int]], self.places[indices].tolist())
        return np.stack([self.images[i][top : top + side, left : left + side].ravel() for i, top, left in places])


def normalised(rows: Image) -> Image:
    """Subtract the brightness of patches and scale them to about unit length, so that distances compare content."""
    rows = rows - rows.mean(axis=1, keepdims=True)
    return rows / (np.linalg.norm(rows, axis=1, keepdims=True) + np.float32(FLAT))


def normalised_stream(patches: Patches) -> Iterator[Image]:
    """Return all patches, normalised."""
    return map(normalised, patches.stream())
