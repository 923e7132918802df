"""Settings of a fit: the loss, the parameters of the model, the ridges in units of the loss."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.losses import LOSSES, Loss

# Parameters of losses that are taken from the data where they are not given, as multiples of the robust spread of what
# biases leave (for normal residuals, their standard deviation).
FROM_SPREAD = {"huber": 1.345, "epsilon_insensitive": 0.1}
# The ridge that is learned for every factor (`_learned.py`), and the losses for which it can be.
LEARNED: Literal["learned"] = "learned"
LEARNS = ("square",)
# Sweeps: as many as gain, where strengths and noise are learned on the way, and of a ridge that stands.
MANY, FEW = 10, 4

Ridge = float | Literal["learned"]


@dataclass(frozen=True)
class LossSetting:
    """A loss by name, with its parameter (0 where it takes none)."""

    name: str
    parameter: float
    number: int = field(init=False)  # of the kernels
    smooth: bool = field(init=False)
    lipschitz: float | None = field(init=False)  # constant of the slope; None where there is none
    curved: bool = field(init=False)  # whether its second derivative tells how steep it is

    def __post_init__(self) -> None:
        about = LOSSES[self.name]
        known = {"number": about.number, "smooth": about.smooth, "lipschitz": about.lipschitz}
        known["curved"] = about.smooth and self.name != "huber"
        self.__dict__.update(known)  # frozen: not by assignment

    @property
    def about(self) -> Loss:
        """Return the entry of the table of losses."""
        return LOSSES[self.name]


@dataclass(frozen=True)
class Ridges:
    """The ridges as parameters count them, and what one of each is in units of the loss (`_units.py`)."""

    ridge: Ridge  # in noise levels
    bias_ridge: float  # in observations
    ridge_unit: float = 1.0
    bias_ridge_unit: float = 1.0

    @property
    def penalty(self) -> float | None:
        """Return the L2 penalty of the factors, in units of the loss; None: each has its own."""
        return None if self.ridge == LEARNED else self.ridge * self.ridge_unit

    @property
    def bias_penalty(self) -> float:
        """Return the L2 penalty of the biases, in units of the loss."""
        return self.bias_ridge * self.bias_ridge_unit


class FitSetting(SimpleNamespace):
    """Parameters of a LowRankModel by their names."""

    loss: LossSetting  # with the parameter of the table where none was given

    @property
    def sweep_ridge(self) -> Ridge:
        """Return the ridge that sweeps begin with."""
        usual = LEARNED if self.loss.name in LEARNS and self.sweeps else 1.0
        return usual if self.ridge is None else self.ridge

    def of(self, loss: LossSetting) -> Self:
        """Return the setting with this loss, and sweeps where none were given: what is learned takes more."""
        many = loss.name in LEARNS and self.ridge in (None, LEARNED)
        sweeps = (MANY if many else FEW) if self.sweeps is None else self.sweeps
        return type(self)(**{**vars(self), "loss": loss, "sweeps": sweeps})

    @property
    def chooses(self) -> bool:
        """Return whether something of the fit is to be chosen by entries that it holds out for itself."""
        free = self.ridge is None if self.rank else self.biases and self.bias_ridge is None
        return self.sweeps > 0 and free


@dataclass(frozen=True)
class SideSetting:
    """Settings of the fit of rows to factors of the columns, and of columns to those of the rows."""

    loss: LossSetting
    level: float  # the global bias
    penalty: float | NDArray[np.float64]  # of factors, in units of the loss; or `ridges` of each, (2, t)
    bias_penalty: float
    biases: bool  # whether biases are fitted too

    def ridges(self, t: int) -> NDArray[np.float64]:
        """Return the ridges (2, t) of t factors and, where fitted, the bias: of a row, and each unit of weight."""
        out = np.zeros((2, t + self.biases))
        out[0, t:] = self.bias_penalty
        if isinstance(self.penalty, np.ndarray):
            out[:, :t] = self.penalty
        else:
            out[0, :t] = self.penalty
        return out
