"""Settings of a fit: the loss, the parameters of the model, the ridges in units of the loss."""

from dataclasses import dataclass, field
from numbers import Real
from types import SimpleNamespace
from typing import Any, cast

from fastsketch._core.losses import LOSSES, Loss
from fastsketch._core.validation import as_integer, as_real

# Parameters of losses that are taken from the data where they are not given, as multiples of the robust spread of what
# biases leave (for normal residuals, their standard deviation).
FROM_SPREAD = {"huber": 1.345, "epsilon_insensitive": 0.1}


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

    ridge: float  # in noise levels
    bias_ridge: float  # in observations
    ridge_unit: float = 1.0
    bias_ridge_unit: float = 1.0

    @property
    def penalty(self) -> float:
        """Return the L2 penalty of the factors, in units of the loss."""
        return self.ridge * self.ridge_unit

    @property
    def bias_penalty(self) -> float:
        """Return the L2 penalty of the biases, in units of the loss."""
        return self.bias_ridge * self.bias_ridge_unit


class FitSetting(SimpleNamespace):
    """Parameters of a LowRankModel by their names."""

    loss: LossSetting  # with the parameter of the table where none was given

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
    penalty: float  # of factors, in units of the loss
    bias_penalty: float
    biases: bool  # whether biases are fitted too


# -- checks ------------------------------------------------------------------------------------------------------------
def as_range(value: Any, name: str) -> tuple[float, float]:
    """Return a pair low < high, or raise TypeError or ValueError."""
    pair = cast("list[Any]", value) if isinstance(value, tuple | list) else []
    if len(pair) != 2:
        raise TypeError(f"{name} must be None or a pair of numbers, got {value!r}")
    low, high = (as_real(entry, name, -1e300, 1e300) for entry in pair)
    if low >= high:
        raise ValueError(f"{name} must be a pair low < high, got {(low, high)}")
    return low, high


def as_steps(value: Any, name: str) -> int | None:
    """Return None or a number of at least 1, or raise TypeError or ValueError."""
    return None if value is None else as_integer(value, name, 1)


def as_share(validation: Any) -> float | None:
    """Return the share of the entries to hold out; None if validation is entries, or none."""
    if isinstance(validation, bool):
        raise TypeError(f"validation must be a share of the entries, entries held out or None, got {validation}")
    if not isinstance(validation, Real):
        return None
    return as_real(validation, "validation", 0.0, 1.0, low_open=True, high_open=True)
