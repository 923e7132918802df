"""Settings of a fit: the loss, the parameters of the model, and the L2 penalties that ridges stand for."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.losses import LOSSES, Loss

# Loss parameters that follow from the data if none is given, as multiples of the robust standard deviation of the
# residuals of the biases. Huber 1981 has 1.345 (95% efficiency), and scikit-learn's SVR has epsilon=0.1.
DEVIATION_MULTIPLES = {"huber": 1.345, "epsilon_insensitive": 0.1}
# Value of `ridge` with which a ridge is learned for each factor (`_learned.py`), and the losses that allow it.
LEARNED: Literal["learned"] = "learned"
LEARNED_RIDGE_LOSSES = ("square",)
# Default numbers of sweeps: with learned ridges, which need several sweeps to converge, and with a fixed ridge.
SWEEPS_WITH_LEARNED_RIDGE, SWEEPS_WITH_FIXED_RIDGE = 10, 4

Ridge = float | Literal["learned"]


@dataclass(frozen=True)
class LossSetting:
    """A loss function with the value of its parameter, and the properties on which a fit depends. The parameter is 0 if
    the loss has none.
    """

    name: str
    parameter: float
    number: int = field(init=False)  # its number in the kernels
    smooth: bool = field(init=False)
    lipschitz: float | None = field(init=False)  # Lipschitz constant of the derivative; None if there is none
    curved: bool = field(init=False)  # whether it has a useful second derivative: smooth, and not "huber"

    def __post_init__(self) -> None:
        definition = LOSSES[self.name]
        values = {"number": definition.number, "smooth": definition.smooth, "lipschitz": definition.lipschitz}
        values["curved"] = definition.smooth and self.name != "huber"
        self.__dict__.update(values)  # a frozen dataclass refuses assignments

    @property
    def definition(self) -> Loss:
        """Return the description of this loss in the table of losses."""
        return LOSSES[self.name]


@dataclass(frozen=True)
class Ridges:
    """Parameters `ridge` and `bias_ridge` of a fit, and the units that convert them to L2 penalties."""

    ridge: Ridge  # of factors, in noise levels
    bias_ridge: float  # of biases, in observations
    ridge_unit: float = 1.0
    bias_ridge_unit: float = 1.0

    @property
    def penalty(self) -> float | None:
        """Return the L2 penalty of the factors, or None if the ridges are learned."""
        return None if self.ridge == LEARNED else self.ridge * self.ridge_unit

    @property
    def bias_penalty(self) -> float:
        """Return the L2 penalty of the biases."""
        return self.bias_ridge * self.bias_ridge_unit


class FitSetting(SimpleNamespace):
    """Parameters of a LowRankModel as attributes, with the loss as a LossSetting."""

    loss: LossSetting  # with the parameter of the table of losses if none was given

    @property
    def sweep_ridge(self) -> Ridge:
        """Return the ridge of the sweeps: the given one, else "learned" if the loss allows it, else 1."""
        default = LEARNED if self.loss.name in LEARNED_RIDGE_LOSSES and self.sweeps else 1.0
        return default if self.ridge is None else self.ridge

    def with_loss(self, loss: LossSetting) -> Self:
        """Return a copy of the settings with another loss. If the number of sweeps was not given, it gets the default
        for that loss.
        """
        learns = loss.name in LEARNED_RIDGE_LOSSES and self.ridge in (None, LEARNED)
        sweeps = (
            (SWEEPS_WITH_LEARNED_RIDGE if learns else SWEEPS_WITH_FIXED_RIDGE) if self.sweeps is None else self.sweeps
        )
        return type(self)(**{**vars(self), "loss": loss, "sweeps": sweeps})

    @property
    def holds_out_entries(self) -> bool:
        """Return True if a fit without validation data holds out some entries itself, to choose a ridge or to score the
        model.
        """
        is_free = self.ridge is None if self.rank else self.biases and self.bias_ridge is None
        return self.sweeps > 0 and is_free

    @property
    def chooses_ridge(self) -> bool:
        """Return True if the ridge of the sweeps is neither given nor learned, so that held-out entries choose it."""
        return self.rank > 0 and self.sweeps > 0 and self.ridge is None and self.sweep_ridge != LEARNED


@dataclass(frozen=True)
class SideSetting:
    """Settings for a fit of the rows while the columns are fixed, or of the columns while the rows are fixed."""

    loss: LossSetting
    level: float  # the global bias
    penalty: float | NDArray[np.float64]  # of the factors in units of the loss, or (2, t) as in ``ridges``
    bias_penalty: float
    biases: bool  # whether biases are fitted with the factors

    def ridges(self, t: int) -> NDArray[np.float64]:
        """Return the L2 penalties (2, t) of t factors, with one more column for the bias if it is fitted too.

        The penalty of a row of the matrix is the first line plus the total weight of that row times the second line.
        """
        penalties = np.zeros((2, t + self.biases))
        penalties[0, t:] = self.bias_penalty
        if isinstance(self.penalty, np.ndarray):
            penalties[:, :t] = self.penalty
        else:
            penalties[0, :t] = self.penalty
        return penalties
