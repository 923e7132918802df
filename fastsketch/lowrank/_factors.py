"""Rows fitted to given factors of the columns (fold-in), and both sides in turn (sweeps)."""

import numpy as np

from fastsketch.lowrank._biases import smoothing
from fastsketch.lowrank._losses import LOSSES

# Newton steps of a row, and the share of its objective that a step must gain for another.
TURNS, ENOUGH = 60, 1e-10


def balanced(left, right, coefficients):
    """(A, B) with A B' = left diag(coefficients) right', each rank of the same size on both sides."""
    one, two = np.linalg.norm(left, axis=0), np.linalg.norm(right, axis=0)
    size = np.sqrt(np.abs(coefficients) * one * two)
    one, two = np.where(one > 0, one, 1), np.where(two > 0, two, 1)
    # scaled by the numbers of rows, so that entries and not lengths are alike
    ratio = (len(left) / max(len(right), 1)) ** 0.25
    return left * (np.sign(coefficients) * size * ratio / one), right * (size / ratio / two)


def fit_side(data, loss, parameter, level, own, other, factors, ridge, bias_ridge, biased, start=None, turns=TURNS):
    """(A (m, t), own biases (m,)) that fit the rows of `data` for column factors (n, t) and column biases `other`.

    own: where the row biases begin. With `biased` they are fitted too, as the coefficient of a factor of ones.
    """
    from fastsketch._kernels import lowrank as kernel

    t, dtype = factors.shape[1], data.o.dtype
    wide = np.ones((data.n, t + biased), dtype)
    wide[:, :t] = factors
    out = np.zeros((data.m, t + biased), dtype)
    if start is not None:
        out[:, :t] = start
    if biased:
        out[:, t] = own
    base = np.full(data.m, level, dtype) if biased else np.asarray(own + level, dtype)
    penalty = np.full(t + biased, float(ridge))
    penalty[t:] = bias_ridge
    kernel.fit_rows(
        LOSSES[loss].number,
        parameter,
        smoothing(data.o),
        penalty,
        *data.where,
        data.o,
        data.c,
        base,
        np.asarray(other, dtype),
        wide,
        out,
        turns,
        ENOUGH,
    )
    return out[:, :t], out[:, t].copy() if biased else np.asarray(own, dtype)


def sweep(data, flipped, model, turns):
    """Columns, then rows: after it every row is what fold-in gives. model: dict of A, B, level, row, column."""
    loss = model["loss"], model["parameter"], model["level"]
    rest = model["ridge"], model["bias_ridge"], model["biased"]
    model["B"], model["column"] = fit_side(
        flipped, *loss, model["column"], model["row"], model["A"], *rest, start=model["B"], turns=turns
    )
    model["A"], model["row"] = fit_side(
        data, *loss, model["row"], model["column"], model["B"], *rest, start=model["A"], turns=turns
    )
