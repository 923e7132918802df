"""A model on its way from one worker to another, or to the driver: not to be trusted before it is opened."""

# pyright: reportPrivateUsage=false

from typing import Generic, TypeVar, cast

from fastsketch._model import MergeableModel, received
from fastsketch.io import StateError

M = TypeVar("M", bound=MergeableModel)


class Part(Generic[M]):
    """What was learned from partitions `first` to `last`; it pickles as plain parts, and no check runs meanwhile."""

    def __init__(self, model: M, first: int, last: int) -> None:
        self.first, self.last = first, last
        self._model = model.__reduce__()[1]

    def opened(self) -> M:
        """The model, or StateError naming the partitions if its state is not consistent."""
        try:
            return cast("M", received(*self._model))
        except StateError as error:
            which = f"partition {self.first}" if self.first == self.last else f"partitions {self.first} to {self.last}"
            raise StateError(f"what came back from {which} cannot be merged: {error}") from error
