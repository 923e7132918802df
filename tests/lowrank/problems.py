"""Problems, losses and models that the tests of low-rank models share."""

import numpy as np
from scipy import sparse
from scipy.special import expit

import fastsketch as fs
from fastsketch._core.losses import LOSSES

SMOOTH = [name for name, about in LOSSES.items() if about.smooth]
ROUGH = [name for name, about in LOSSES.items() if not about.smooth]
PARAMETER = {"huber": 1.0, "quantile": 0.3, "epsilon_insensitive": 0.2}


def problem(loss="square", m=30, n=25, rank=3, share=0.5, noise=0.1, seed=0):
    """(observed values (m, n), mask) of a low-rank truth, as the loss takes them."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n)) + noise * rng.standard_normal((m, n))
    seen = rng.random((m, n)) < share
    if LOSSES[loss].targets == "label":
        truth = np.where(truth > 0, 1.0, -1.0)
    elif LOSSES[loss].targets == "count":
        truth = rng.poisson(np.exp(np.clip(truth, -3, 2))).astype(float)
    return truth, seen


def stored(o, seen):
    """CSR that stores zeros too."""
    rows, columns = np.nonzero(seen)
    return sparse.csr_array(sparse.coo_array((o[rows, columns], (rows, columns)), shape=o.shape))


def numpy_loss(loss):
    p = PARAMETER.get(loss, 0.0)

    def call(z, o):
        if loss == "square":
            return 0.5 * (z - o) ** 2, z - o
        if loss == "logistic":
            return np.logaddexp(0, -o * z), -o * expit(-o * z)
        if loss == "squared_hinge":
            return np.maximum(0, 1 - o * z) ** 2, -2 * o * np.maximum(0, 1 - o * z)
        if loss == "huber":
            r = np.abs(z - o)
            return np.where(r <= p, 0.5 * r * r, p * (r - 0.5 * p)), np.clip(z - o, -p, p)
        if loss == "poisson":
            return np.exp(z) - o * z, np.exp(z) - o
        if loss == "absolute":
            return np.abs(z - o), np.sign(z - o)
        if loss == "hinge":
            return np.maximum(0, 1 - o * z), np.where(o * z < 1, -o, 0.0)
        if loss == "quantile":
            r = o - z
            return np.where(r > 0, p * r, (p - 1) * r), np.where(r > 0, -p, np.where(r < 0, 1 - p, 0.0))
        r = np.abs(z - o) - p
        return np.maximum(r, 0), np.where(r > 0, np.sign(z - o), 0.0)

    return call


def greedy(rank, loss="square", **options):
    """A model of whole steps without sweeps: the algorithms alone."""
    plain = {"learning_rate": 1.0, "sweeps": 0, "ridge": 10.0, "bias_ridge": 3.0}
    return fs.LowRankModel(rank, **{"loss": loss, **plain, **options})


def made(rank, loss="square", refine="economic", **options):
    plain = {"biases": False, "scaling": False, "max_power_iterations": 3000, "power_tolerance": 1e-9}
    return greedy(rank, loss, refine=refine, **{**plain, "loss_parameter": PARAMETER.get(loss), **options})


def penalties(model):
    """(of factors, of biases) in units of the loss."""
    facts = model.facts()
    return facts["penalty"], facts["bias_penalty"]
