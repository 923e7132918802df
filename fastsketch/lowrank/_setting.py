"""Settings of a fit: the loss, the parameters of the model, and the ridges in units of the loss."""

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
    """A loss with its parameter, 0 if it takes none."""

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
        """Return the entry of the table of losses."""
        return LOSSES[self.name]


@dataclass(frozen=True)
class Ridges:
    """The ridges in the units of the parameters, and these units in terms of the loss (`_units.py`)."""

    ridge: Ridge  # of factors, in noise levels
    bias_ridge: float  # of biases, in observations
    ridge_unit: float = 1.0
    bias_ridge_unit: float = 1.0

    @property
    def penalty(self) -> float | None:
        """Return the L2 penalty of the factors in units of the loss; None if each factor has a learned one."""
        return None if self.ridge == LEARNED else self.ridge * self.ridge_unit

    @property
    def bias_penalty(self) -> float:
        """Return the L2 penalty of the biases in units of the loss."""
        return self.bias_ridge * self.bias_ridge_unit


class FitSetting(SimpleNamespace):
    """The parameters of a LowRankModel as attributes; `loss` is a LossSetting."""

    loss: LossSetting  # with the parameter of the table of losses if none was given

    @property
    def sweep_ridge(self) -> Ridge:
        """Return the ridge of the sweeps: the given one, else "learned" if possible, else 1."""
        usual = LEARNED if self.loss.name in LEARNS and self.sweeps else 1.0
        return usual if self.ridge is None else self.ridge

    def of(self, loss: LossSetting) -> Self:
        """Return a copy with this loss, and with the default number of sweeps if none was given."""
        many = loss.name in LEARNS and self.ridge in (None, LEARNED)
        sweeps = (MANY if many else FEW) if self.sweeps is None else self.sweeps
        return type(self)(**{**vars(self), "loss": loss, "sweeps": sweeps})

    @property
    def chooses(self) -> bool:
        """Return whether entries are held out if no validation is given, to choose a ridge or to score the model."""
        free = self.ridge is None if self.rank else self.biases and self.bias_ridge is None
        return self.sweeps > 0 and free


@dataclass(frozen=True)
class SideSetting:
    """Settings of a fit of one side, rows or columns, to fixed factors of the other side."""

    loss: LossSetting
    level: float  # the global bias
    penalty: float | NDArray[np.float64]  # of the factors in units of the loss, or (2, t) as in ``ridges``
    bias_penalty: float
    biases: bool  # whether biases are fitted with the factors

    def ridges(self, t: int) -> NDArray[np.float64]:
        """Return the ridges of t factors, and of the bias if one is fitted, (2, t) or (2, t + 1).

        The ridge of a row is the first line plus its total weight times the second line.
        """
        out = np.zeros((2, t + self.biases))
        out[0, t:] = self.bias_penalty
        if isinstance(self.penalty, np.ndarray):
            out[:, :t] = self.penalty
        else:
            out[0, :t] = self.penalty
        return out
