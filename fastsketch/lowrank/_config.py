"""The parameters of a low-rank model."""

from dataclasses import dataclass

import numpy as np

from fastsketch._validation import as_choice, as_dtype, as_integer, as_real
from fastsketch.lowrank._losses import checked_loss


@dataclass(frozen=True)
class LowRankConfig:
    """Parameters in the order of LowRankModel."""

    rank: int
    loss: str
    refine: str
    biases: bool
    scaling: bool
    loss_parameter: float
    shrink: float
    sweeps: int
    ridge: float
    bias_ridge: float
    step: str
    step_size: float
    inner: str
    nu: float
    inner_rank: int
    power_iterations: int
    clip: tuple | None
    dtype: str | None
    seed: int

    @classmethod
    def checked(
        cls,
        rank,
        loss,
        refine,
        biases,
        scaling,
        loss_parameter,
        shrink,
        sweeps,
        ridge,
        bias_ridge,
        step,
        step_size,
        inner,
        nu,
        inner_rank,
        power_iterations,
        clip,
        dtype,
        seed,
    ):
        """Return a config, or raise TypeError / ValueError naming the argument."""
        rank = as_integer(rank, "rank", 0)
        loss, loss_parameter = checked_loss(loss, loss_parameter)
        refine = as_choice(refine, "refine", ("economic", "full", "none"))
        for name, value in (("biases", biases), ("scaling", scaling)):
            if not isinstance(value, (bool, np.bool_)):
                raise TypeError(f"{name} must be True or False, got {value!r}")
        shrink = as_real(shrink, "shrink", 0.0, 1.0, low_open=True)
        sweeps = as_integer(sweeps, "sweeps", 0)
        ridge = as_real(ridge, "ridge", 0.0, 1e300)
        bias_ridge = as_real(bias_ridge, "bias_ridge", 0.0, 1e300)
        step = as_choice(step, "step", ("search", "paper"))
        step_size = as_real(step_size, "step_size", 0.0, 1e300, low_open=True)
        inner = as_choice(inner, "inner", ("energy", "paper"))
        nu = as_real(nu, "nu", 0.0, 1.0, low_open=True)
        inner_rank = as_integer(inner_rank, "inner_rank", 1)
        power_iterations = as_integer(power_iterations, "power_iterations", 1)
        if clip is not None:
            if not isinstance(clip, (tuple, list)) or len(clip) != 2:
                raise TypeError(f"clip must be None or a pair of numbers, got {clip!r}")
            clip = tuple(as_real(value, "clip", -1e300, 1e300) for value in clip)
            if clip[0] >= clip[1]:
                raise ValueError(f"clip must be a pair low < high, got {clip}")
        if dtype is not None:
            dtype = as_dtype(dtype).name
        seed = as_integer(seed, "seed", 0)
        if seed >= 2**64:
            raise ValueError(f"seed must be below 2**64, got {seed}")
        return cls(
            rank,
            loss,
            refine,
            bool(biases),
            bool(scaling),
            loss_parameter,
            shrink,
            sweeps,
            ridge,
            bias_ridge,
            step,
            step_size,
            inner,
            nu,
            inner_rank,
            power_iterations,
            clip,
            dtype,
            seed,
        )
