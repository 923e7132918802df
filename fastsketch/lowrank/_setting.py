"""What a model asks of the algorithms below it, in small parts: the loss, the pursuit, the fits of one side."""

from dataclasses import dataclass
from typing import Literal

from fastsketch._losses import LOSSES, Loss

# Parameters of losses that are taken from the data where they are not given, as multiples of the robust spread of what
# biases leave (for normal residuals, their standard deviation).
FROM_SPREAD = {"huber": 1.345, "epsilon_insensitive": 0.1}


@dataclass(frozen=True)
class LossSetting:
    """A loss by name, with its parameter (0 where it takes none)."""

    name: str
    parameter: float

    @property
    def about(self) -> Loss:
        """The entry of the table."""
        return LOSSES[self.name]

    @property
    def number(self) -> int:
        """How the kernels know it."""
        return LOSSES[self.name].number


@dataclass(frozen=True)
class Ridges:
    """The ridges as parameters count them, and what one of each is in units of the loss (`_units.py`).

    Files from before ridges had units hold penalties: there a unit is 1.
    """

    ridge: float  # in noise levels
    bias_ridge: float  # in observations
    ridge_unit: float = 1.0
    bias_ridge_unit: float = 1.0

    @property
    def penalty(self) -> float:
        """Of factors."""
        return self.ridge * self.ridge_unit

    @property
    def bias_penalty(self) -> float:
        """Of biases."""
        return self.bias_ridge * self.bias_ridge_unit


@dataclass(frozen=True)
class PursuitSetting:
    """How ranks are found; the fields have the names of the model's parameters."""

    loss: LossSetting
    refine: Literal["economic", "full", "none"]
    max_refine_steps: int | None  # None: to tolerance
    learning_rate: float
    step_rule: Literal["line_search", "inverse_sqrt"]
    step_size: float
    inner_criterion: Literal["current", "previous"]
    inner_tolerance: float
    max_inner_rank: int
    max_power_iterations: int
    seed: int


@dataclass(frozen=True)
class SideSetting:
    """How rows are fitted to given factors of the columns (and columns to those of the rows)."""

    loss: LossSetting
    level: float  # the global bias
    penalty: float  # of factors, in units of the loss, as is that of biases
    bias_penalty: float
    biases: bool  # whether biases are fitted too
