"""Losses of a score z against an observation o, by name; the kernels know them by number."""

from dataclasses import dataclass

import numpy as np

from fastsketch._validation import as_choice, as_real


@dataclass(frozen=True)
class Loss:
    """Number in the kernels; Lipschitz constant of the slope (None: has none, or is not smooth)."""

    number: int
    smooth: bool
    lipschitz: float | None
    kind: str = "real"  # what is observed: "real", "labels" (-1 and +1, or 0 and 1), "counts"
    parameter: float = 0.0  # default of loss_parameter
    low: float = 0.0  # and its range
    high: float = 0.0


LOSSES = {
    "square": Loss(0, True, 1.0),
    "logistic": Loss(1, True, 0.25, "labels"),
    "huber": Loss(2, True, 1.0, parameter=1.0, low=0.0, high=1e300),
    "poisson": Loss(3, True, None, "counts"),
    "l1": Loss(4, False, None),
    "hinge": Loss(5, False, None, "labels"),
    "quantile": Loss(6, False, None, parameter=0.5, low=0.0, high=1.0),
    "epsilon_insensitive": Loss(7, False, None, parameter=0.1, low=0.0, high=1e300),
}


def checked_loss(loss, parameter):
    """(name, parameter), or TypeError / ValueError naming the argument."""
    about = LOSSES[as_choice(loss, "loss", tuple(LOSSES))]
    if about.high == 0:
        if parameter is not None:
            raise ValueError(f"loss={loss!r} takes no loss_parameter, got {parameter!r}")
        return loss, 0.0
    parameter = (
        about.parameter
        if parameter is None
        else as_real(parameter, "loss_parameter", about.low, about.high, low_open=True)
    )
    if loss == "quantile" and parameter == 1:
        raise ValueError("loss_parameter must lie in (0, 1) for loss='quantile', got 1")
    return loss, parameter


def as_observations(values, loss, name="X"):
    """Observations as the loss takes them: labels 0 and 1 become -1 and +1."""
    kind = LOSSES[loss].kind
    if kind == "labels":
        found = np.unique(values)
        if not (np.isin(found, (-1.0, 1.0)).all() or np.isin(found, (0.0, 1.0)).all()):
            strange = found[~np.isin(found, (-1.0, 0.0, 1.0))]
            listed = ", ".join(f"{value:g}" for value in (strange if strange.size else found)[:5])
            raise ValueError(f"{name} must hold labels -1 and +1 (or 0 and 1) for loss={loss!r}, got {listed}")
        return np.where(values > 0, values.dtype.type(1), values.dtype.type(-1))
    if kind == "counts" and (values < 0).any():
        raise ValueError(f"{name} must hold nonnegative counts for loss={loss!r}, got {values.min():g}")
    return values


def on_scale(loss, z):
    """Scores on the scale of the observations: probability of the positive label, rate of a count, sign of a hinge."""
    if loss == "logistic":
        return 0.5 * (1.0 + np.tanh(0.5 * z))
    if loss == "poisson":
        return np.exp(np.minimum(z, 700.0))
    return z
