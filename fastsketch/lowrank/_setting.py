"""Settings of a fit: the loss, the parameters of the model, and the L2 penalties that ridges stand for."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.losses import LOSSES, Loss

# Loss parameters that follow from the data if none is given, as multiples of the robust standard deviation of the
# residuals of the biases. Huber 1981 has 1.345 (95% efficiency), and scikit-learn's SVR has epsilon=0.1.
FROM_SPREAD = {"huber": 1.345, "epsilon_insensitive": 0.1}
# The ridge that is learned for each factor (`_learned.py`), and the losses for which that is possible.
LEARNED: Literal["learned"] = "learned"
LEARNS = ("square",)
# Default numbers of sweeps: with learned ridges, which need several sweeps to settle, and with a fixed ridge.
MANY, FEW = 10, 4

Ridge = float | Literal["learned"]


@dataclass(frozen=True)
class LossSetting:
    """A loss function and the value of its parameter, which is 0 for a loss without one."""

    name: str
    parameter: float
    number: int = field(init=False)  # its number in the kernels
    smooth: bool = field(init=False)
    lipschitz: float | None = field(init=False)  # Lipschitz constant of the derivative; None if there is none
    curved: bool = field(init=False)  # whether it has a useful second derivative: smooth, and not "huber"

    def __post_init__(self) -> None:
        about = LOSSES[self.name]
        known = {"number": about.number, "smooth": about.smooth, "lipschitz": about.lipschitz}
        known["curved"] = about.smooth and self.name != "huber"
        self.__dict__.update(known)  # a frozen dataclass refuses assignments

    @property
    def about(self) -> Loss:
        """Return the description of this loss in the table of losses."""
        return LOSSES[self.name]


@dataclass(frozen=True)
class Ridges:
    """Ridge parameters of factors and biases, with the units that convert them to L2 penalties."""

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
        """Return the ridge parameter of the sweeps: the given one, or "learned" if the loss allows it, or 1."""
        usual = LEARNED if self.loss.name in LEARNS and self.sweeps else 1.0
        return usual if self.ridge is None else self.ridge

    def of(self, loss: LossSetting) -> Self:
        """Return a copy with another loss, and with the default number of sweeps if none was given."""
        many = loss.name in LEARNS and self.ridge in (None, LEARNED)
        sweeps = (MANY if many else FEW) if self.sweeps is None else self.sweeps
        return type(self)(**{**vars(self), "loss": loss, "sweeps": sweeps})

    @property
    def chooses(self) -> bool:
        """Return True if a fit without validation data holds out entries, to choose a ridge or to score the model."""
        free = self.ridge is None if self.rank else self.biases and self.bias_ridge is None
        return self.sweeps > 0 and free


@dataclass(frozen=True)
class SideSetting:
    """Settings for fitting the rows while the columns are fixed, or the columns while the rows are fixed."""

    loss: LossSetting
    level: float  # the global bias
    penalty: float | NDArray[np.float64]  # of the factors in units of the loss, or (2, t) as in ``ridges``
    bias_penalty: float
    biases: bool  # whether biases are fitted with the factors

    def ridges(self, t: int) -> NDArray[np.float64]:
        """Return the ridge penalties of the factors, and of the bias if one is fitted, as an array of two rows.

        Its shape is (2, t), or (2, t + 1) with a bias, for t factors.

        The ridge of a row is the first line plus its total weight times the second line.
        """
        out = np.zeros((2, t + self.biases))
        out[0, t:] = self.bias_penalty
        if isinstance(self.penalty, np.ndarray):
            out[:, :t] = self.penalty
        else:
            out[0, :t] = self.penalty
        return out
