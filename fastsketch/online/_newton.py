"""The online Newton step on sketches: one pass, second order at the cost of a few inner products a round."""

from dataclasses import dataclass

import numpy as np

from fastsketch._validation import as_choice, as_integer, as_real
from fastsketch.online._linear import OnlineLinear, grown
from fastsketch.online._losses import LOSSES
from fastsketch.sketching import random_normal, rows_spared

SKETCHES = ("rfd", "fd", "pfd", "rp", "oja", "full")
MIXED = ("rp", "oja")  # all rows of B change every round
PROJECTIONS = {"none": 0, "same": 1, "next": 2, "both": 3}
ALPHA, SHRINKAGE, LOSS = range(3)
RANK, ROWS, ROUND, MISTAKES, FULL, APPENDED = range(6)
# Key of the random numbers, and rounds whose numbers are drawn together.
CODE, DRAWN = 68, 64


@dataclass(frozen=True)
class NewtonConfig:
    """Parameters in the order of SketchedNewton."""

    sketch_size: int
    sketch: str
    loss: str
    alpha0: float
    projection: str
    beta: float | None
    seed: int = 0

    @classmethod
    def checked(cls, sketch_size, sketch, loss, alpha0, projection, beta, seed):
        """Return a config, or raise TypeError / ValueError naming the argument."""
        sketch_size = as_integer(sketch_size, "sketch_size", 2)
        sketch = as_choice(sketch, "sketch", SKETCHES)
        loss = as_choice(loss, "loss", tuple(LOSSES))
        alpha0 = as_real(alpha0, "alpha0", 0.0, 1e300)
        if alpha0 == 0 and sketch != "rfd":
            raise ValueError(f"alpha0 must be positive for sketch={sketch!r}: only 'rfd' finds its own")
        projection = as_choice(projection, "projection", tuple(PROJECTIONS))
        if beta is not None and sketch != "pfd":
            raise ValueError(f"beta belongs to sketch='pfd', got beta={beta!r} with sketch={sketch!r}")
        if sketch == "pfd":
            beta = 0.2 if beta is None else as_real(beta, "beta", 0.0, 1.0)
        seed = as_integer(seed, "seed", 0)
        if seed >= 2**64:
            raise ValueError(f"seed must be below 2**64, got {seed}")
        return cls(sketch_size, sketch, loss, alpha0, projection, beta, seed)


class SketchedNewton(OnlineLinear):
    """Linear model learned by sketched online Newton steps, one example after the other, without a learning rate.

    Round t: predict z = w'x, suffer the loss, sketch sqrt(1/8 + 1/t) g, w <- w - H^-1 g with H = B'B + alpha I, then
    the shortest way (in the norm of H) into |w'x| <= 1.

    Parameters
    ----------
    sketch_size : int, default 10
        m >= 2: the sketch has up to 2 m rows and shrinks to m - 1.
    sketch : {"rfd", "fd", "pfd", "rp", "oja", "full"}, default "rfd"
        Robust Frequent Directions, whose alpha grows by itself; with alpha = alpha0 Frequent Directions, its
        parameterized form, a random projection, Oja's rule; the whole H (d x d).
    loss : {"square", "logistic", "squared_hinge", "huber", "absolute"}, default "square"
        Targets of "logistic" and "squared_hinge" are labels -1 and +1 (or 0 and 1).
    alpha0 : float, default 0.0
        Initial regulariser; 0, for "rfd" alone, leaves nothing to tune.
    projection : {"same", "next", "both", "none"}, default "same"
        Onto |w'x| <= 1 for the example just seen (Algorithm 6), for the next one before it is predicted (Algorithm 3),
        or both. Targets are then to lie within [-1, 1].
    beta : float in [0, 1], optional
        Share of rows that "pfd" shrinks, 0.2 if not given.
    seed : int, default 0
        Of the random numbers of "rp" and "oja".

    Attributes
    ----------
    n_rounds, n_features : int
    notes : dict
        Anything that json can write; saved with the state.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range.

    Notes
    -----
    With alpha0 = 0 the first steps are divided by their slopes, which labels bound and real targets do not: for those
    take alpha0 = 1.

    A round costs O(m (nnz + m)) for sparse rows and O(m d + m^2) for dense ones; every m-th round or so a shrink costs
    O(m^2 d), less where F stays well-conditioned and rows are sparse. All inner products of the dense rows between two
    shrinks are taken together. Memory O(m d). The first update in an installation compiles for about ten seconds; the
    result is kept on the disk.

    References
    ----------
    RFD: Luo, Chen, Zhang, Li, Zhang, JMLR 20 (2019), Algorithms 3 and 6. Sketched online Newton: Luo, Agarwal,
    Cesa-Bianchi, Langford 2016.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((2000, 30)) / 6
    >>> y = np.sign(X @ rng.standard_normal(30))
    >>> model = fs.SketchedNewton(5).update(X, y)
    >>> bool(np.mean(np.sign(model.predict(X)) == y) > 0.9), model.n_rounds
    (True, 2000)
    """

    _STATE = (
        "base",
        "z",
        "kept",
        "kept_data",
        "kept_indices",
        "kept_indptr",
        "frame",
        "coef",
        "small",
        "inverse",
        "b",
        "e",
        "lam",
        "scalar",
        "count",
    )
    _GROWING = ("kept_data", "kept_indices")

    def __init__(
        self, sketch_size=10, sketch="rfd", loss="square", alpha0=0.0, projection="same", *, beta=None, seed=0
    ):
        self._config = NewtonConfig.checked(sketch_size, sketch, loss, alpha0, projection, beta, seed)
        self._prepare()

    # -- what OnlineLinear asks for --------------------------------------------------------------------------------
    def _takes_sparse(self):
        return self.sketch != "full"

    def _start(self, d, sparse):
        return _fresh(self._config, d, sparse)

    def _changes_all_or_nothing(self, a):
        # all rows of the mixed forms and of "full" change in several steps; so does everything in a shrink
        return not (self.sketch in (*MIXED, "full") or a["count"][RANK] + a["count"][ROWS] + 1 >= 2 * self.sketch_size)

    def _learn(self, a, batch, targets, weights, predictions):
        learn = _learn_full if self.sketch == "full" else _learn_sparse if a["sparse"] else _learn_dense
        try:
            learn(self._config, a, batch, targets, weights, predictions)
        finally:
            a["count"][FULL] = 0

    def _cause(self, a):
        return f"alpha = {a['scalar'][ALPHA]:.3g} is too small for the lengths of the rows; sketch='rfd' is stable"

    def _totals(self, a):
        return int(a["count"][ROUND]), float(a["scalar"][LOSS]), int(a["count"][MISTAKES])

    def _weights_of(self, a):
        return _weights(a)

    @property
    def alpha(self):
        """The regulariser of H."""
        return self._config.alpha0 if self._a is None else float(self._a["scalar"][ALPHA])

    def __repr__(self):
        seen = "no rows yet" if self._a is None else f"{self.n_rounds} rounds, {self.n_features} features"
        return f"<SketchedNewton sketch_size={self.sketch_size} sketch={self.sketch!r} loss={self.loss!r}, {seen}>"


SketchedNewton._register(("sketch_size", "sketch", "loss", "alpha0", "projection", "beta", "seed"))


def _fresh(config, d, sparse):
    m, k = config.sketch_size, 2 * config.sketch_size
    a = {
        "sparse": bool(sparse),
        "base": np.zeros(d),
        "scalar": np.zeros(3),
        "regret": np.zeros(2),
        "count": np.zeros(6, np.int64),
    }
    a["scalar"][ALPHA] = config.alpha0
    if config.sketch == "full":
        a["inverse"] = np.eye(d) / config.alpha0
        return a
    if config.sketch in MIXED:
        a.update(
            frame=np.eye(m, 3 * m),
            small=np.zeros((m, m)),
            lam=np.zeros(m),
            b=np.zeros(m),
            e=np.zeros(k),
            zx=np.zeros(m),
            gx=np.zeros(k),
        )
        a["count"][RANK] = m
    else:
        a.update(
            frame=np.zeros((k, k)),
            coef=np.zeros(k),
            small=np.zeros((k, k)),
            inverse=np.zeros((k, k)),
            b=np.zeros(k),
            e=np.zeros(k),
            turn=np.zeros((m, k)),
            zx=np.zeros(k),
            gx=np.zeros(k + 1),
        )
    if sparse:
        a.update(
            z=np.zeros((d, m)),
            kept_data=np.zeros(0),
            kept_indices=np.zeros(0, np.int32),
            kept_indptr=np.zeros(k + 1, np.int64),
            work=np.zeros(d),
        )
    else:
        a.update(z=np.zeros((m, d)), kept=np.zeros((k, d)))
    if config.sketch == "oja":
        start = np.linalg.qr(random_normal(config.seed, 3, d * m).reshape(d, m))[0]
        a["z"][...] = start if sparse else start.T
    return a


def _draws(config, first, n):
    """Random numbers of rounds first .. first + n - 1, (n, m); none are needed but for a random projection."""
    m = config.sketch_size
    if config.sketch != "rp":
        return np.zeros((n, m))
    blocks = range(first // DRAWN, (first + n - 1) // DRAWN + 1)
    numbers = np.concatenate([random_normal(config.seed, (CODE << 32) + block, DRAWN * m) for block in blocks])
    start = first - blocks[0] * DRAWN
    return numbers.reshape(-1, m)[start : start + n] / np.sqrt(m)


def _common(config):
    m = config.sketch_size
    spared = 0 if config.sketch != "pfd" else rows_spared("pfd", m, config.beta)
    return LOSSES[config.loss][0], PROJECTIONS[config.projection], m, spared, config.sketch == "rfd"


_MIXED = ("frame", "small", "lam", "b", "e", "zx", "gx", "scalar", "count")
_SMALL = ("frame", "coef", "small", "inverse", "b", "e", "turn", "zx", "gx", "scalar", "count")


def _learn_sparse(config, a, batch, targets, weights, predictions):
    from fastsketch._kernels import newton as kernel

    data, indices, indptr = batch
    # X never holds more than 2 m rows
    used = int(a["kept_indptr"][a["count"][ROWS]])
    room = used + 2 * config.sketch_size * int(np.diff(indptr).max(initial=0))
    grown(a, ("kept_data", "kept_indices"), used, room)
    if config.sketch in MIXED:
        loss, projection, *_ = _common(config)
        kernel.mixed_sparse_rounds(
            data,
            indices,
            indptr,
            targets,
            weights,
            loss,
            projection,
            config.sketch == "oja",
            _draws(config, int(a["count"][ROUND]), len(targets)),
            a["base"],
            a["z"],
            a["kept_data"],
            a["kept_indices"],
            a["kept_indptr"],
            a["work"],
            *(a[name] for name in _MIXED),
            predictions,
        )
        return
    kernel.sparse_rounds(
        data,
        indices,
        indptr,
        targets,
        weights,
        *_common(config),
        a["base"],
        a["z"],
        a["kept_data"],
        a["kept_indices"],
        a["kept_indptr"],
        a["work"],
        *(a[name] for name in _SMALL),
        predictions,
    )


def _learn_dense(config, a, rows, targets, weights, predictions):
    """Blocks of rows that end with a shrink: all inner products of a block at once, in an order of their own each."""
    from fastsketch._kernels import newton as kernel
    from fastsketch._kernels.dots import row_products

    m, n, done = config.sketch_size, len(rows), 0
    # a projection ahead moves base, of which the next row needs the product
    most = 1 if config.projection in ("next", "both") else 2 * m
    places, products = np.zeros(2 * m, np.int64), np.zeros((min(most, n), 1 + 5 * m))
    while done < n:
        held = int(a["count"][ROWS])
        block = slice(done, done + min(most, 2 * m - held - (0 if config.sketch in MIXED else a["count"][RANK])))
        x = rows[block]
        row_products(x, a["base"][None], products, 0)
        row_products(x, a["z"], products, 1)
        row_products(x, a["kept"][:held], products, 1 + m)
        row_products(x, x, products, 1 + m + held, lower=True)
        if config.sketch in MIXED:
            loss, projection, *_ = _common(config)
            learned = kernel.mixed_dense_block(
                products,
                x,
                targets[block],
                weights[block],
                loss,
                projection,
                config.sketch == "oja",
                _draws(config, int(a["count"][ROUND]), len(x)),
                a["base"],
                a["z"],
                a["kept"],
                places,
                *(a[name] for name in _MIXED),
                predictions[block],
            )
        else:
            learned = kernel.dense_block(
                products,
                x,
                targets[block],
                weights[block],
                *_common(config),
                a["base"],
                a["z"],
                a["kept"],
                places,
                *(a[name] for name in _SMALL),
                predictions[block],
            )
        if a["count"][FULL] < 0:
            return
        done += learned


def _learn_full(config, a, rows, targets, weights, predictions):
    from fastsketch._kernels import newton as kernel

    loss, projection, *_ = _common(config)
    kernel.full_rounds(
        rows, targets, weights, loss, projection, a["base"], a["inverse"], a["scalar"], a["count"], predictions
    )


def _weights(a):
    w = a["base"].copy()
    if "frame" not in a:
        return w
    r, n = int(a["count"][RANK]), int(a["count"][ROWS])
    if a["sparse"]:
        from fastsketch._kernels import newton as kernel

        w += a["z"][:, :r] @ a["b"][:r]
        kernel.add_rows(a["kept_data"], a["kept_indices"], a["kept_indptr"], n, a["e"][:n].copy(), w)
        return w
    return w + a["b"][:r] @ a["z"][:r] + a["e"][:n] @ a["kept"][:n]
