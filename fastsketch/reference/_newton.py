"""Online Newton methods in plain NumPy: Algorithms 3 and 6 of the RFD paper, and the methods it compares with.

The rounds, with corrections to the printed text, are in `_newton_rounds.py`. Every function returns (w, losses,
scores).
"""

from typing import Unpack

from fastsketch.reference._curvatures import Array, Full, Normals, Oja, RandomProjection, Shrinking
from fastsketch.reference._newton_rounds import Learned, RoundOptions, newton_rounds


def online_newton(
    xs: Array,
    ys: Array,
    *,
    sketch_size: int,
    alpha0: float = 0.0,
    method: str = "rfd",
    beta: float = 0.2,
    **options: Unpack[RoundOptions],
) -> Learned:
    """Learn a linear model by sketched online Newton steps, with a shrink in every round.
    Return the last weights, and the loss and the score of each example.

    The next example's score is kept within [-1, 1].

    Parameters
    ----------
    xs : (n, d) array of float64
        Examples, in their order.
    ys : (n,) array of float64
        Targets; labels are -1 and 1.
    sketch_size : int
        m, at least 2.
    alpha0 : float, default 0.0
        Initial regulariser of H; with 0 steps are taken by its pseudoinverse.
    method : {"rfd", "fd", "pfd"}, default "rfd"
        What a shrink does.
    beta : float, default 0.2
        Share of rows that "pfd" shrinks.
    loss : str, default "squared_hinge"
        A name of the table of losses, such as "square" and "logistic".
    loss_scale : float, default 1.0
        What the loss is multiplied with; the papers' (z - y)^2 is "square" times 2.
    constraint : {"current", "next", "both"} or None, default "next"
        Which scores are kept within [-1, 1]: of the example just learned from, of the next one, of both.
    decay : float, default 1.0
        In (0, 1]: what H is multiplied with after every round.

    Returns
    -------
    w : (d,) array of float64
        The last weights; a score is w'x.
    losses : (n,) array of float64
        Of each example, before it is learned from.
    scores : (n,) array of float64
        Of each example, before it is learned from.

    References
    ----------
    Luo, Chen, Zhang, Li, Zhang, JMLR 20 (2019), Algorithm 3.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import reference
    >>> x = np.random.default_rng(0).standard_normal((300, 8)) * [1, 1, 1, 1, 0.3, 0.3, 0.3, 0.3]
    >>> y = np.sign(x.sum(axis=1))
    >>> _, _, scores = reference.online_newton(x, y, sketch_size=4, alpha0=1.0)
    >>> wrong = np.sign(scores) != y
    >>> bool(wrong[-100:].sum() < wrong[:100].sum() / 2), bool(abs(scores).max() <= 1)
    (True, True)
    """
    sketch = Shrinking(xs.shape[1], sketch_size, limit=sketch_size, method=method, alpha0=alpha0, beta=beta)
    options.setdefault("constraint", "next")
    return newton_rounds(xs, ys, curvature=sketch, **options)


def fast_online_newton(
    xs: Array,
    ys: Array,
    *,
    sketch_size: int,
    alpha0: float = 0.0,
    method: str = "rfd",
    beta: float = 0.2,
    **options: Unpack[RoundOptions],
) -> Learned:
    """Learn a linear model by sketched online Newton steps, with a shrink whenever the doubled buffer is full.
    Return the last weights, and the loss and the score of each example.

    Parameters
    ----------
    xs : (n, d) array of float64
        Examples, in their order.
    ys : (n,) array of float64
        Targets; labels are -1 and 1.
    sketch_size : int
        m, at least 2.
    alpha0 : float, default 0.0
        Initial regulariser of H; with 0 steps are taken by its pseudoinverse.
    method : {"rfd", "fd", "pfd"}, default "rfd"
        What a shrink does.
    beta : float, default 0.2
        Share of rows that "pfd" shrinks.
    loss : str, default "squared_hinge"
        A name of the table of losses, such as "square" and "logistic".
    loss_scale : float, default 1.0
        What the loss is multiplied with; the papers' (z - y)^2 is "square" times 2.
    constraint : {"current", "next", "both"} or None, default "current"
        Which scores are kept within [-1, 1]: of the example just learned from, of the next one, of both.
    by_loss : bool, default False
        Whether H is made of rows sqrt(curvature of the loss) x in place of the gradients.
    decay : float, default 1.0
        In (0, 1]: what H is multiplied with after every round.
    sample_weight : (n,) array of float64, optional
        A row of weight 2 adds to gradient and H what two such rows would.

    Returns
    -------
    w : (d,) array of float64
        The last weights; a score is w'x.
    losses : (n,) array of float64
        Of each example, before it is learned from.
    scores : (n,) array of float64
        Of each example, before it is learned from.

    References
    ----------
    Luo, Chen, Zhang, Li, Zhang, JMLR 20 (2019), Algorithm 6.

    Examples
    --------
    The library's learner with the paper's settings takes the same steps, without ever forming H:

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> x = np.random.default_rng(0).standard_normal((300, 8)) * [1, 1, 1, 1, 0.3, 0.3, 0.3, 0.3]
    >>> y = np.sign(x.sum(axis=1))
    >>> w, losses, _ = reference.fast_online_newton(x, y, sketch_size=4, alpha0=1.0)
    >>> import fastsketch as fs
    >>> fast = fs.SketchedNewton(
    ...     4, alpha0=1.0, loss="squared_hinge", constraint="current", fit_intercept=False, scale=None, calibrate=False
    ... )
    >>> np.allclose(fast.update(x, y).coef, w)
    True
    """
    sketch = Shrinking(xs.shape[1], sketch_size, limit=2 * sketch_size, method=method, alpha0=alpha0, beta=beta)
    return newton_rounds(xs, ys, curvature=sketch, **options)


def full_online_newton(xs: Array, ys: Array, *, alpha0: float, **options: Unpack[RoundOptions]) -> Learned:
    """Learn a linear model by online Newton steps with the exact d x d matrix (FULL-ON).
    Return the last weights, and the loss and the score of each example.

    Sketched methods approximate this one.

    Parameters
    ----------
    xs : (n, d) array of float64
        Examples, in their order.
    ys : (n,) array of float64
        Targets; labels are -1 and 1.
    alpha0 : float
        Initial regulariser of H, above 0.
    loss : str, default "squared_hinge"
        A name of the table of losses, such as "square" and "logistic".
    loss_scale : float, default 1.0
        What the loss is multiplied with; the papers' (z - y)^2 is "square" times 2.
    constraint : {"current", "next", "both"} or None, default "current"
        Which scores are kept within [-1, 1]: of the example just learned from, of the next one, of both.
    by_loss : bool, default False
        Whether H is made of rows sqrt(curvature of the loss) x in place of the gradients.
    sample_weight : (n,) array of float64, optional
        A row of weight 2 adds to gradient and H what two such rows would.

    Returns
    -------
    w : (d,) array of float64
        The last weights; a score is w'x.
    losses : (n,) array of float64
        Of each example, before it is learned from.
    scores : (n,) array of float64
        Of each example, before it is learned from.

    References
    ----------
    Hazan, Agarwal, Kale, Machine Learning 69 (2007); as a baseline in Luo et al., JMLR 20 (2019).

    Examples
    --------
    A sketch with m > d never shrinks, and has all of H:

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> x = np.random.default_rng(0).standard_normal((300, 8)) * [1, 1, 1, 1, 0.3, 0.3, 0.3, 0.3]
    >>> y = np.sign(x.sum(axis=1))
    >>> w, _, scores = reference.full_online_newton(x, y, alpha0=1.0)
    >>> np.allclose(reference.fast_online_newton(x, y, sketch_size=9, alpha0=1.0)[0], w)
    True
    """
    return newton_rounds(xs, ys, curvature=Full(xs.shape[1], alpha0), **options)


def random_projection_newton(
    xs: Array, ys: Array, *, sketch_size: int, alpha0: float, rng: Normals, **options: Unpack[RoundOptions]
) -> Learned:
    """Learn a linear model by online Newton steps with a random projection of the gradients (RP-SON).
    Return the last weights, and the loss and the score of each example.

    The sketch is B = R'A, where the rows of A are all gradients and R is Gaussian.

    Parameters
    ----------
    xs : (n, d) array of float64
        Examples, in their order.
    ys : (n,) array of float64
        Targets; labels are -1 and 1.
    sketch_size : int
        m, at least 1.
    alpha0 : float
        Initial regulariser of H, above 0.
    rng : numpy.random.Generator
        Anything with its ``standard_normal``.
    loss : str, default "squared_hinge"
        A name of the table of losses, such as "square" and "logistic".
    loss_scale : float, default 1.0
        What the loss is multiplied with; the papers' (z - y)^2 is "square" times 2.
    constraint : {"current", "next", "both"} or None, default "current"
        Which scores are kept within [-1, 1]: of the example just learned from, of the next one, of both.

    Returns
    -------
    w : (d,) array of float64
        The last weights; a score is w'x.
    losses : (n,) array of float64
        Of each example, before it is learned from.
    scores : (n,) array of float64
        Of each example, before it is learned from.

    References
    ----------
    Luo, Agarwal, Cesa-Bianchi, Langford, NeurIPS (2016).

    Examples
    --------
    A random map has no certificate: of the same m it makes more mistakes than Frequent Directions.

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> x = np.random.default_rng(0).standard_normal((300, 8)) * [1, 1, 1, 1, 0.3, 0.3, 0.3, 0.3]
    >>> y = np.sign(x.sum(axis=1))
    >>> common = {"sketch_size": 4, "alpha0": 10.0, "loss": "square", "loss_scale": 2.0}
    >>> _, _, scores = reference.random_projection_newton(x, y, rng=np.random.default_rng(1), **common)
    >>> _, _, sketched = reference.fast_online_newton(x, y, **common)
    >>> bool((np.sign(scores) != y).sum() > (np.sign(sketched) != y).sum())
    True
    """
    sketch = RandomProjection(xs.shape[1], sketch_size, alpha0=alpha0, rng=rng)
    return newton_rounds(xs, ys, curvature=sketch, **options)


def oja_newton(
    xs: Array, ys: Array, *, sketch_size: int, alpha0: float, rng: Normals, **options: Unpack[RoundOptions]
) -> Learned:
    """Learn a linear model by online Newton steps with eigenvectors that Oja's rule estimates (Oja-SON).
    Return the last weights, and the loss and the score of each example.

    The sketch has m orthonormal directions and their eigenvalues. The step size in round t is 1 / t.

    Parameters
    ----------
    xs : (n, d) array of float64
        Examples, in their order.
    ys : (n,) array of float64
        Targets; labels are -1 and 1.
    sketch_size : int
        m, 1 <= m <= d.
    alpha0 : float
        Initial regulariser of H, above 0.
    rng : numpy.random.Generator
        Anything with its ``standard_normal``.
    loss : str, default "squared_hinge"
        A name of the table of losses, such as "square" and "logistic".
    loss_scale : float, default 1.0
        What the loss is multiplied with; the papers' (z - y)^2 is "square" times 2.
    constraint : {"current", "next", "both"} or None, default "current"
        Which scores are kept within [-1, 1]: of the example just learned from, of the next one, of both.

    Returns
    -------
    w : (d,) array of float64
        The last weights; a score is w'x.
    losses : (n,) array of float64
        Of each example, before it is learned from.
    scores : (n,) array of float64
        Of each example, before it is learned from.

    References
    ----------
    Luo, Agarwal, Cesa-Bianchi, Langford, NeurIPS (2016), Algorithm 3.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import reference
    >>> x = np.random.default_rng(0).standard_normal((300, 8)) * [1, 1, 1, 1, 0.3, 0.3, 0.3, 0.3]
    >>> y = np.sign(x.sum(axis=1))
    >>> _, _, scores = reference.oja_newton(x, y, sketch_size=4, alpha0=1.0, rng=np.random.default_rng(0))
    >>> wrong = np.sign(scores) != y
    >>> bool(wrong[-100:].sum() < wrong[:100].sum())
    True
    """
    sketch = Oja(xs.shape[1], sketch_size, alpha0=alpha0, rng=rng)
    return newton_rounds(xs, ys, curvature=sketch, **options)
