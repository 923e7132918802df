"""The table of losses for all learners: formulas of value and derivatives, and the kind of targets.

A loss compares a score z with a target y; p is its parameter, if it has one. Compiled loops refer to losses by the
numbers in _kernels/losses.pxd and compute the same formulas; tests compare both with this table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fastsketch._core.validation import as_real
from fastsketch._kernels import losses as numbers

Array = NDArray[np.float64]
Formula = Callable[[Array, Array, float], Array]
LossName = Literal[
    "square",
    "logistic",
    "squared_hinge",
    "huber",
    "absolute",
    "hinge",
    "quantile",
    "epsilon_insensitive",
    "poisson",
]
OnlineLossName = Literal["square", "logistic", "squared_hinge", "huber", "absolute"]


@dataclass(frozen=True)
class Loss:
    """One loss function: its value and derivatives as functions of score and target, and its properties.

    The formulas take scores and targets (z, y), arrays of one shape, and the parameter of the loss.
    """

    number: int
    value: Formula
    slope: Formula  # d value / dz; at kinks the mean of both sides, or 0
    curvature: Formula  # second derivative, 0 where there is none
    targets: Literal["real", "label", "count"] = "real"  # labels are -1 and +1 (0 and 1 are taken as these)
    lipschitz: float | None = None  # of the slope; None where there is none
    smooth: bool = True
    parameter: float | None = None  # default of loss_parameter; None where the loss takes none
    low: float = 0.0  # loss_parameter lies in (low, high)
    high: float = np.inf
    mean: Callable[[Array], Array] | None = None  # from the score to the expected target; None: the score itself
    online: bool = False  # whether the online learners offer it


def _huber(z: Array, y: Array, p: float) -> Array:
    """Compute the Huber loss with threshold p."""
    r = np.abs(z - y)
    return np.where(r <= p, 0.5 * r * r, p * (r - 0.5 * p))


def _zero(z: Array, y: Array, p: float) -> Array:
    """Return zeros, the second derivative of a piecewise linear loss."""
    return np.zeros_like(z)


LOSSES: dict[str, Loss] = {
    "square": Loss(
        numbers.SQUARE,
        lambda z, y, p: 0.5 * (z - y) * (z - y),
        lambda z, y, p: z - y,
        lambda z, y, p: np.ones_like(z),
        lipschitz=1.0,
        online=True,
    ),
    "logistic": Loss(
        numbers.LOGISTIC,
        lambda z, y, p: np.logaddexp(0.0, -y * z),
        lambda z, y, p: -y * expit(-y * z),
        lambda z, y, p: expit(z) * expit(-z),
        targets="label",
        lipschitz=0.25,
        mean=expit,
        online=True,
    ),
    "squared_hinge": Loss(
        numbers.SQUARED_HINGE,
        lambda z, y, p: np.maximum(0.0, 1.0 - y * z) ** 2,
        lambda z, y, p: -2.0 * y * np.maximum(0.0, 1.0 - y * z),
        lambda z, y, p: np.where(y * z < 1.0, 2.0, 0.0),
        targets="label",
        lipschitz=2.0,
        online=True,
    ),
    "huber": Loss(
        numbers.HUBER,
        _huber,
        lambda z, y, p: np.clip(z - y, -p, p),
        lambda z, y, p: np.where(np.abs(z - y) <= p, 1.0, 0.0),
        lipschitz=1.0,
        parameter=1.0,
        online=True,
    ),
    "absolute": Loss(
        numbers.ABSOLUTE,
        lambda z, y, p: np.abs(z - y),
        lambda z, y, p: np.sign(z - y),
        _zero,
        smooth=False,
        online=True,
    ),
    "hinge": Loss(
        numbers.HINGE,
        lambda z, y, p: np.maximum(0.0, 1.0 - y * z),
        lambda z, y, p: np.where(y * z < 1.0, -y, 0.0),
        _zero,
        targets="label",
        smooth=False,
    ),
    "quantile": Loss(
        numbers.QUANTILE,
        lambda z, y, p: np.where(y > z, p * (y - z), (p - 1.0) * (y - z)),
        lambda z, y, p: np.where(y > z, -p, np.where(y < z, 1.0 - p, 0.0)),
        _zero,
        smooth=False,
        parameter=0.5,
        high=1.0,
    ),
    "epsilon_insensitive": Loss(
        numbers.EPSILON_INSENSITIVE,
        lambda z, y, p: np.maximum(0.0, np.abs(z - y) - p),
        lambda z, y, p: np.where(np.abs(z - y) > p, np.sign(z - y), 0.0),
        _zero,
        smooth=False,
        parameter=0.1,
    ),
    "poisson": Loss(
        numbers.POISSON,
        lambda z, y, p: np.exp(np.minimum(z, 700.0)) - y * z,  # without the constant log y!
        lambda z, y, p: np.exp(np.minimum(z, 700.0)) - y,
        lambda z, y, p: np.exp(np.minimum(z, 700.0)),
        targets="count",
        mean=lambda z: np.exp(np.minimum(z, 700.0)),
    ),
}
ONLINE_LOSSES = tuple(name for name, loss in LOSSES.items() if loss.online)


def as_loss_parameter(loss: str, value_given: float | None) -> float:
    """Validate the parameter of a loss, and return it. None gives the default of the loss.

    Return 0 for a loss without a parameter. TypeError or ValueError for an invalid value.
    """
    loss_entry = LOSSES[loss]
    if loss_entry.parameter is None:
        if value_given is not None:
            raise ValueError(f"loss={loss!r} takes no loss_parameter, got {value_given!r}")
        return 0.0
    if value_given is None:
        return loss_entry.parameter
    value = as_real(value_given, "loss_parameter", loss_entry.low, min(loss_entry.high, 1e300), low_open=True)
    if value >= loss_entry.high:
        raise ValueError(
            f"loss_parameter must lie in ({loss_entry.low:g}, {loss_entry.high:g}) for loss={loss!r}, got {value:g}"
        )
    return value


def as_targets(values: NDArray[Any], loss: str, name: str = "targets") -> NDArray[Any]:
    """Validate the values of finite targets for a loss, and return them. Labels 0 and 1 become -1 and +1.

    ValueError for targets that the loss does not allow.
    """
    kind = LOSSES[loss].targets
    if kind == "label":
        ones = values == 1
        if (ones | (values == -1)).all():
            return values
        if not (ones | (values == 0)).all():
            values_found = np.unique(values)
            invalid = values_found[~np.isin(values_found, (-1.0, 0.0, 1.0))]
            listed = ", ".join(f"{value:g}" for value in (invalid if invalid.size else values_found)[:5])
            raise ValueError(f"{name} must hold labels -1 and +1 (or 0 and 1) for loss={loss!r}, got {listed}")
        signs: NDArray[Any] = np.where(ones, 1, -1).astype(values.dtype)
        return signs
    if kind == "count" and (values < 0).any():
        raise ValueError(f"{name} must hold nonnegative counts for loss={loss!r}, got {values.min():g}")
    return values


def expected(loss: str, z: NDArray[Any]) -> NDArray[Any]:
    """Convert scores to what a model predicts: a probability for "logistic", a rate for "poisson", else the score
    itself.
    """
    mean = LOSSES[loss].mean
    return z if mean is None else mean(z)
