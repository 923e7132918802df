"""Algorithms of four papers: each function returns a model whose settings make it run the printed algorithm.

The models themselves have defaults that are more accurate on real data: intercepts, scaled columns, biases, sweeps,
rotated codes. These functions set only what the printed algorithm prescribes. Every other argument of the model may be
passed; an argument that contradicts the algorithm raises a TypeError that names it. The pages of docs/papers compare
the results with those of each paper.

The papers, by the names that the functions use for them:

- RFD: L. Luo, C. Chen, Z. Zhang, W.-J. Li, T. Zhang, "Robust Frequent Directions with Application in Online Learning",
  JMLR 20, 2019.
- ADA-FD: Y. Wan, L. Zhang, "Efficient Adaptive Online Learning via Frequent Directions", IEEE TPAMI 44, 2022.
- FROSH: X. Chen, H. Yang, S. Zhao, M. Lyu, I. King, "Making Online Sketching Hashing Even Faster", IEEE TKDE 33, 2021.
- GLRL: Q. Yao, J. Kwok, "Greedy Learning of Generalized Low-Rank Models", IJCAI 2016.
"""

from typing import Any

from fastsketch.lowrank import LowRankModel
from fastsketch.neighbours import SketchHash
from fastsketch.online import AdaptiveSubgradient, SketchedNewton
from fastsketch.sketching import Compressor, FrequentDirections

__all__ = [
    "ada_fd",
    "ada_ffd",
    "eglrl",
    "fast_frequent_directions",
    "fast_robust_frequent_directions",
    "faster_frequent_directions",
    "fd_son",
    "frequent_directions",
    "frosh",
    "glrl",
    "glrl_nonsmooth",
    "rank_one_matrix_pursuit",
    "rfd_son",
    "robust_frequent_directions",
]

# The learners of the papers neither scale rows nor calibrate scores, and have no intercept.
_UNPREPARED_ROWS = {"scale": None, "fit_intercept": False, "calibrate": False}
# No biases, no scales of rows and columns, whole steps, no sweeps.
_PURSUIT: dict[str, Any] = {"biases": False, "scaling": False, "learning_rate": 1.0, "sweeps": 0}
# What the algorithms of GLRL leave open: singular vectors and coefficients are computed to rounding. The experiments of
# the paper have 30 power iterations (section 5.1) and five steps for the coefficients (section 3.1).
_TO_ROUNDING: dict[str, Any] = {"max_power_iterations": 10_000, "power_tolerance": 1e-9, "max_refine_steps": None}


def _settings(algorithm: str, printed: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments `printed` of a paper's algorithm, with further ones `given` by the caller.
    TypeError if a given argument contradicts a printed one.
    """
    for name in given:
        if name in printed and given[name] != printed[name]:
            raise TypeError(f"{algorithm} has {name}={printed[name]!r}, got {given[name]!r}: another model is not it")
    return {**given, **printed}


def _sketch(algorithm: str, printed: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of a sketch that runs a printed algorithm, with further ones given by the caller.
    TypeError if a given argument contradicts the algorithm.
    """
    solver = given.get("solver", "svd")
    if solver not in ("svd", "gram"):
        raise TypeError(
            f"{algorithm} has solver='svd' (or 'gram', to rounding), got {solver!r}: another model is not it"
        )
    return _settings(algorithm, {**printed, "solver": solver}, given)


# -- Robust Frequent Directions: RFD -----------------------------------------------------------------------------------
def frequent_directions(sketch_size: int, **given: Any) -> FrequentDirections:
    """Return a FrequentDirections sketch that runs Algorithm 1 of RFD: once full, it shrinks after every row.

    Parameters
    ----------
    sketch_size : int
        Rows m of the sketch, which keeps m - 1 of them.
    **given
        Other arguments of ``fastsketch.FrequentDirections``; ``solver`` is "svd", or "gram".

    Returns
    -------
    FrequentDirections

    Raises
    ------
    TypeError
        For an argument that contradicts the algorithm.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import papers, reference
    >>> rows = np.random.default_rng(0).standard_normal((50, 8))
    >>> b = papers.frequent_directions(4).update(rows).sketch()
    >>> printed, _ = reference.frequent_directions(rows, 4)
    >>> bool(np.allclose(b.T @ b, printed.T @ printed))
    True
    """
    return FrequentDirections(sketch_size, **_sketch("Algorithm 1", {"method": "fd", "buffer_size": 0}, given))


def robust_frequent_directions(sketch_size: int, *, alpha0: float = 0.0, **given: Any) -> FrequentDirections:
    """Return a robust FrequentDirections sketch that runs Algorithm 2 of RFD: once full, it shrinks after every row.

    Parameters
    ----------
    sketch_size : int
        Rows m of the sketch, which keeps m - 1 of them.
    alpha0 : float, default 0
        The multiple of the identity to begin with.
    **given
        Other arguments of ``fastsketch.FrequentDirections``; ``solver`` is "svd", or "gram".

    Returns
    -------
    FrequentDirections

    Raises
    ------
    TypeError
        For an argument that contradicts the algorithm.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import papers
    >>> rows = np.random.default_rng(0).standard_normal((50, 8))
    >>> papers.robust_frequent_directions(4).update(rows).sketch().shape
    (3, 8)
    """
    printed = _sketch("Algorithm 2", {"method": "rfd", "buffer_size": 0}, given)
    return FrequentDirections(sketch_size, alpha0=alpha0, **printed)


def fast_frequent_directions(sketch_size: int, **given: Any) -> FrequentDirections:
    """Return a FrequentDirections sketch that runs Algorithm 4 of RFD, which has a doubled buffer.

    It shrinks after every m + 1 rows.

    Parameters
    ----------
    sketch_size : int
        Rows m of the sketch, which keeps m - 1 of them.
    **given
        Other arguments of ``fastsketch.FrequentDirections``; ``solver`` is "svd", or "gram".


    Returns
    -------
    FrequentDirections

    Raises
    ------
    TypeError
        For an argument that contradicts the algorithm.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import papers
    >>> rows = np.random.default_rng(0).standard_normal((50, 8))
    >>> papers.fast_frequent_directions(4).update(rows).sketch().shape
    (3, 8)
    """
    return FrequentDirections(
        sketch_size, **_sketch("Algorithm 4", {"method": "fd", "buffer_size": sketch_size}, given)
    )


def fast_robust_frequent_directions(sketch_size: int, *, alpha0: float = 0.0, **given: Any) -> FrequentDirections:
    """Return a robust FrequentDirections sketch that runs Algorithm 5 of RFD, which has a doubled buffer.

    It shrinks after every m + 1 rows.

    Parameters
    ----------
    sketch_size : int
        Rows m of the sketch, which keeps m - 1 of them.
    alpha0 : float, default 0
        The multiple of the identity to begin with.
    **given
        Other arguments of ``fastsketch.FrequentDirections``; ``solver`` is "svd", or "gram".


    Returns
    -------
    FrequentDirections

    Raises
    ------
    TypeError
        For an argument that contradicts the algorithm.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import papers
    >>> rows = np.random.default_rng(0).standard_normal((50, 8))
    >>> papers.fast_robust_frequent_directions(4).update(rows).sketch().shape
    (3, 8)
    """
    printed = _sketch("Algorithm 5", {"method": "rfd", "buffer_size": sketch_size}, given)
    return FrequentDirections(sketch_size, alpha0=alpha0, **printed)


def rfd_son(sketch_size: int, *, alpha0: float = 0.0, **given: Any) -> SketchedNewton:
    """Return a SketchedNewton model that runs Algorithm 6 of RFD: online Newton steps with the loss (z - y)^2.

    Scores are kept within [-1, 1].

    With alpha0 = 0 it is RFD0, which has no parameter to tune.

    Parameters
    ----------
    sketch_size : int
        Rows m of the sketch, which keeps m - 1 of them.
    alpha0 : float, default 0
        The multiple of the identity to begin with.
    **given
        Other arguments of ``fastsketch.SketchedNewton``.

    Returns
    -------
    SketchedNewton

    Raises
    ------
    TypeError
        For an argument that contradicts the algorithm.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import papers
    >>> rows = np.random.default_rng(0).standard_normal((200, 5))
    >>> model = papers.rfd_son(3).update(rows, np.sign(rows[:, 0]))
    >>> int(np.argmax(np.abs(model.coef)))
    0
    """
    printed = {
        **_UNPREPARED_ROWS,
        "method": "rfd",
        "loss": "square",
        "loss_scale": 2.0,
        "constraint": "current",
        "curvature": "gradient",
        "blend": False,
    }
    return SketchedNewton(sketch_size, alpha0=alpha0, **_settings("Algorithm 6", printed, given))


# -- adaptive subgradient methods: ADA-FD ------------------------------------------------------------------------------
def ada_fd(sketch_size: int, *, loss: str, learning_rate: float, delta: float, **given: Any) -> AdaptiveSubgradient:
    """Return an AdaptiveSubgradient model that runs Algorithm 1 of ADA-FD and shrinks its sketch after every row.

    With ``form="dual_averaging"`` it runs Algorithm 2.

    Parameters
    ----------
    sketch_size : int
        Rows tau of the sketch.
    loss : str
        Of ``fastsketch.AdaptiveSubgradient``: "absolute" in the paper's regressions.
    learning_rate, delta : float
        The step eta, and the delta that is added to the root.
    **given
        Other arguments of the model: ``form="dual_averaging"`` for Algorithm 2, ``penalty``, ``penalty_strength``.

    Returns
    -------
    AdaptiveSubgradient

    Raises
    ------
    TypeError
        For an argument that contradicts the algorithm.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import papers
    >>> rows = np.random.default_rng(0).standard_normal((50, 8))
    >>> model = papers.ada_fd(4, loss="absolute", learning_rate=0.1, delta=0.01)
    >>> model.update(rows, rows[:, 0]).coef.shape
    (8,)
    """
    return _adaptive("ADA-FD", "ada_fd", sketch_size, loss, learning_rate, delta, given)


def ada_ffd(sketch_size: int, *, loss: str, learning_rate: float, delta: float, **given: Any) -> AdaptiveSubgradient:
    """Return an AdaptiveSubgradient model that runs Algorithm 3 of ADA-FD, whose sketch has a doubled buffer.

    The buffer has 2 tau rows and is shrunk when it is full.

    With ``form="dual_averaging"`` it is Algorithm 4.

    Parameters
    ----------
    sketch_size : int
        Rows tau of the sketch.
    loss : str
        Of ``fastsketch.AdaptiveSubgradient``: "absolute" in the paper's regressions.
    learning_rate, delta : float
        The step eta, and the delta that is added to the root.
    **given
        Other arguments of the model: ``form="dual_averaging"``, ``penalty``, ``penalty_strength``.


    Returns
    -------
    AdaptiveSubgradient

    Raises
    ------
    TypeError
        For an argument that contradicts the algorithm.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import papers
    >>> rows = np.random.default_rng(0).standard_normal((50, 8))
    >>> model = papers.ada_ffd(4, loss="absolute", learning_rate=0.1, delta=0.01)
    >>> model.update(rows, rows[:, 0]).coef.shape
    (8,)
    """
    return _adaptive("ADA-FFD", "ada_ffd", sketch_size, loss, learning_rate, delta, given)


def fd_son(sketch_size: int, *, loss: str, learning_rate: float, delta: float, **given: Any) -> AdaptiveSubgradient:
    """Return an AdaptiveSubgradient model that runs FD-SON (equation 6 of ADA-FD), a sketched Newton method.

    Parameters
    ----------
    sketch_size : int
        Rows tau of the sketch.
    loss : str
        Of ``fastsketch.AdaptiveSubgradient``: "absolute" in the paper's regressions.
    learning_rate, delta : float
        The step eta, and the delta that is added to the root.
    **given
        Other arguments of the model: ``form="dual_averaging"``, ``penalty``, ``penalty_strength``.


    Returns
    -------
    AdaptiveSubgradient

    Raises
    ------
    TypeError
        For an argument that contradicts the algorithm.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import papers
    >>> rows = np.random.default_rng(0).standard_normal((50, 8))
    >>> model = papers.fd_son(4, loss="absolute", learning_rate=0.1, delta=0.01)
    >>> model.update(rows, rows[:, 0]).coef.shape
    (8,)
    """
    return _adaptive("FD-SON", "fd_son", sketch_size, loss, learning_rate, delta, given)


def _adaptive(
    algorithm: str, method: Any, size: int, loss: Any, learning_rate: float, delta: float, given: dict[str, Any]
) -> AdaptiveSubgradient:
    own = {"loss": loss, "learning_rate": learning_rate, "delta": delta}
    printed = _settings(algorithm, {**_UNPREPARED_ROWS, "method": method}, given)
    return AdaptiveSubgradient(size, **own, **printed)


# -- online sketching hashing: FROSH -----------------------------------------------------------------------------------
def faster_frequent_directions(sketch_size: int, *, block_rows: int | None = None, **given: Any) -> FrequentDirections:
    """Return a FrequentDirections sketch that runs Algorithm 2 of FROSH, which samples rows after a Hadamard transform.

    It shrinks when its buffer is full; the printed algorithm shrinks after every block of mapped rows (docs/papers).

    Parameters
    ----------
    sketch_size : int
        Rows of the sketch.
    block_rows : int, optional
        Rows m of a block, which are mapped to ``sketch_size`` rows; by default four times the columns.
    **given
        Other arguments of ``fastsketch.FrequentDirections``; ``solver`` is "svd", or "gram".

    Returns
    -------
    FrequentDirections

    Raises
    ------
    TypeError
        For an argument that contradicts the algorithm.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import papers
    >>> rows = np.random.default_rng(0).standard_normal((50, 8))
    >>> papers.faster_frequent_directions(4).update(rows).sketch().shape
    (3, 8)
    """
    printed = {"method": "fd", "compressor": "srht" if block_rows is None else Compressor(block_rows=block_rows)}
    return FrequentDirections(sketch_size, **_sketch("Algorithm 2 of FROSH", printed, given))


def frosh(n_bits: int, **given: Any) -> SketchHash:
    """Return a SketchHash model that runs Algorithm 1 of FROSH, hashing along leading directions without a rotation.

    Models of parts of the rows merge, which is DFROSH, Algorithm 3. A stream of blocks is a tree of sketches here,
    where the paper prints one sketch: docs/papers has what that changes.

    Parameters
    ----------
    n_bits : int
        Bits r of a code.
    **given
        Other arguments of ``fastsketch.SketchHash``.

    Returns
    -------
    SketchHash

    Raises
    ------
    TypeError
        For an argument that contradicts the algorithm.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import papers
    >>> rows = np.random.default_rng(0).standard_normal((500, 8))
    >>> papers.frosh(8).update(rows).encode(rows[:3]).shape  # a byte of each row
    (3, 1)
    """
    return SketchHash(n_bits, **_settings("FROSH", {"method": "srht", "rotation": None}, given))


# -- generalized low-rank models by greedy pursuit: GLRL ---------------------------------------------------------------
def rank_one_matrix_pursuit(rank: int, **given: Any) -> LowRankModel:
    """Return a LowRankModel that runs Algorithm 1 of GLRL (R1MP): greedy pursuit under the square loss.

    All coefficients are fitted again after every rank.

    Parameters
    ----------
    rank : int
        Ranks that are added.
    **given
        Other arguments of ``fastsketch.LowRankModel``.

    Returns
    -------
    LowRankModel

    Raises
    ------
    TypeError
        For an argument that contradicts the algorithm.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import papers
    >>> rows = np.random.default_rng(0).standard_normal((20, 15))
    >>> papers.rank_one_matrix_pursuit(3).fit(rows).selected_rank
    3
    """
    printed = {**_PURSUIT, "loss": "square", "refine": "full"}
    return LowRankModel(rank, **_settings("R1MP", printed, {**_TO_ROUNDING, **given}))


def glrl(rank: int, *, loss: str, **given: Any) -> LowRankModel:
    """Return a LowRankModel that runs Algorithm 2 of GLRL, greedy pursuit under a smooth loss.

    All coefficients are fitted again after every rank, which is step 5 of the algorithm.

    Parameters
    ----------
    rank : int
        Ranks that are added.
    loss : str
        A smooth loss of ``fastsketch.LowRankModel``: "logistic" in the paper's experiments.
    **given
        Other arguments of the model. ``refine="none"`` leaves out step 5, which the paper calls optional. The
        experiments of the paper have ``max_power_iterations=30`` and ``max_refine_steps=5``; without these two
        arguments singular vectors and coefficients are computed to rounding.

    Returns
    -------
    LowRankModel

    Raises
    ------
    TypeError
        For an argument that contradicts the algorithm.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import papers
    >>> signs = np.sign(np.random.default_rng(0).standard_normal((20, 15)))
    >>> model = papers.glrl(3, loss="logistic").fit(signs)
    >>> [line["rank"] for line in model.history]
    [0, 1, 2, 3]
    """
    printed = {**_PURSUIT, "refine": given.pop("refine", "full")}
    if printed["refine"] not in ("full", "none"):
        raise TypeError(f"Algorithm 2 has refine='full' or 'none', got {printed['refine']!r}")
    return LowRankModel(rank, loss=loss, **_settings("GLRL", printed, {**_TO_ROUNDING, **given}))  # type: ignore[arg-type]


def eglrl(rank: int, *, loss: str, **given: Any) -> LowRankModel:
    """Return a LowRankModel that runs EGLRL, the economic variant of Algorithm 2 of GLRL for a smooth loss.

    After every rank it fits two coefficients: one of all ranks so far, and one of the new rank.

    Parameters
    ----------
    rank : int
        Ranks that are added.
    loss : str
        A smooth loss of ``fastsketch.LowRankModel``: "logistic" in the paper's experiments.
    **given
        Other arguments of the model.


    Returns
    -------
    LowRankModel

    Raises
    ------
    TypeError
        For an argument that contradicts the algorithm.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import papers
    >>> signs = np.sign(np.random.default_rng(0).standard_normal((20, 15)))
    >>> papers.eglrl(3, loss="logistic").fit(signs).selected_rank
    3
    """
    printed = {**_PURSUIT, "refine": "economic"}
    return LowRankModel(rank, loss=loss, **_settings("EGLRL", printed, {**_TO_ROUNDING, **given}))  # type: ignore[arg-type]


def glrl_nonsmooth(rank: int, *, loss: str, step_size: float, inner_tolerance: float, **given: Any) -> LowRankModel:
    """Return a LowRankModel that runs Algorithm 3 of GLRL, subgradient steps under a nonsmooth loss.

    The steps have size c1 / sqrt(t) along a low-rank approximation of the subgradient.

    Parameters
    ----------
    rank : int
        Ranks that are added in all.
    loss : str
        "absolute" in the paper's experiments.
    step_size : float
        c1 of the steps.
    inner_tolerance : float
        nu: a step adds ranks to its approximation of the subgradient until the squared error is at most nu times that
        of the step before.
    **given
        Other arguments of ``fastsketch.LowRankModel``: ``step_rule="inverse"`` for the steps c1 / t of equation 10,
        and ``max_inner_rank``, the most ranks of one step, which the algorithm does not limit.

    Returns
    -------
    LowRankModel

    Raises
    ------
    TypeError
        For an argument that contradicts the algorithm.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import papers
    >>> rows = np.random.default_rng(0).standard_normal((20, 15))
    >>> model = papers.glrl_nonsmooth(6, loss="absolute", step_size=0.3, inner_tolerance=0.9)
    >>> model.fit(rows).shape
    (20, 15)
    """
    printed = {**_PURSUIT, "inner_criterion": "previous", "step_rule": given.pop("step_rule", "inverse_sqrt")}
    if printed["step_rule"] not in ("inverse_sqrt", "inverse"):
        raise TypeError(f"Algorithm 3 has step_rule='inverse_sqrt' or 'inverse', got {printed['step_rule']!r}")
    own = {"loss": loss, "step_size": step_size, "inner_tolerance": inner_tolerance}
    given = {**_TO_ROUNDING, "max_inner_rank": max(rank, 1), **given}
    return LowRankModel(rank, **own, **_settings("Algorithm 3", printed, given))  # type: ignore[arg-type]
