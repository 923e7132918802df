"""Adaptive subgradients: steps measured by a matrix learned from the gradients, sketched so that a round is cheap."""

from dataclasses import dataclass, fields

import numpy as np

from fastsketch._validation import as_choice, as_integer, as_real
from fastsketch.online import _projected
from fastsketch.online._linear import OnlineLinear, copied, grown
from fastsketch.online._losses import LOSSES

SKETCHED = ("ada-ffd", "ada-fd", "ada-full", "fd-son")
PROJECTED = ("ada-lr", "radagrad")  # no form for penalties, nor for dual averaging
DIAGONAL = ("ada-diag", "ogd", "adam")
METHODS = (*SKETCHED[:3], "ada-diag", *PROJECTED, "fd-son", "ogd", "adam")
# Numbers of the kernels.
RULES = {"ada-fd": 0, "ada-ffd": 1, "fd-son": 1, "ada-full": 2}
PENALTIES = {None: 0, "l1": 1, "l2": 2}
RANK, ROWS, ROUND, OLD, TURNS = range(5)


@dataclass(frozen=True)
class AdaptiveConfig:
    """Parameters in the order of AdaptiveSubgradient; eta and delta are tuples of floats."""

    sketch_size: int
    method: str
    form: str
    loss: str
    eta: tuple
    delta: tuple
    penalty: str | None
    strength: float
    seed: int

    @classmethod
    def checked(cls, sketch_size, method, form, loss, eta, delta, penalty, strength, seed):
        """Return a config, or raise TypeError / ValueError naming the argument."""
        sketch_size = as_integer(sketch_size, "sketch_size", 2)
        method = as_choice(method, "method", METHODS)
        form = as_choice(form, "form", ("cmd", "pds"))
        loss = as_choice(loss, "loss", tuple(LOSSES))
        eta = tuple(as_real(value, "eta", 0.0, 1e300, low_open=True) for value in eta)
        if delta is None:
            delta = (1e-8,) if method in DIAGONAL else (10.0,) if form == "pds" else (1.0,)
        delta = tuple(as_real(value, "delta", 0.0, 1e300, low_open=True) for value in delta)
        if penalty is not None:
            as_choice(penalty, "penalty", ("l1", "l2"))
        strength = as_real(strength, "strength", 0.0, 1e300)
        if (penalty is None) != (strength == 0):
            raise ValueError(f"penalty and strength go together: got penalty={penalty!r}, strength={strength}")
        if form == "pds" and method in (*PROJECTED, "ogd", "adam"):
            raise ValueError(f"method={method!r} has the mirror-descent form alone, form='cmd'")
        if penalty is not None and method in PROJECTED:
            raise ValueError(f"method={method!r} takes no penalty")
        seed = as_integer(seed, "seed", 0)
        if seed >= 2**64:
            raise ValueError(f"seed must be below 2**64, got {seed}")
        return cls(sketch_size, method, form, loss, eta, delta, penalty, strength, seed)

    @property
    def points(self):
        """(eta, delta) of every point of the grid, eta slowest."""
        grid = np.array([(eta, delta) for eta in self.eta for delta in self.delta])
        return np.ascontiguousarray(grid.T)


class _Adaptive(OnlineLinear):
    """Both faces of the kernels: one (eta, delta), or a grid of them."""

    _STATE = (
        "base",
        "turn",
        "lam",
        "gram",
        "scale",
        "coef",
        "inner",
        "rows",
        "total",
        "z",
        "b",
        "frame",
        "kept_data",
        "kept_indices",
        "kept_indptr",
        "squares",
        "first",
        "last",
        "clock",
        "outer",
        "low",
        "losses",
        "mistakes",
        "count",
    )
    _GROWING = ("kept_data", "kept_indices")

    # -- what OnlineLinear asks for --------------------------------------------------------------------------------
    def _takes_sparse(self):
        # the l1 step needs every coordinate; H of "ada-full" and of the projections is dense
        config = self._config
        return config.method in DIAGONAL or (
            config.method in SKETCHED and config.method != "ada-full" and config.penalty != "l1"
        )

    def _start(self, d, sparse):
        config = self._config
        eta, delta = config.points
        k = len(eta)
        a = {
            "sparse": bool(sparse),
            "base": np.zeros((k, d)),
            "losses": np.zeros(k),
            "mistakes": np.zeros(k, np.int64),
            "count": np.zeros(5, np.int64),
            "regret": np.zeros(2),
            "eta": eta,
            "delta": delta,
        }
        if config.method in DIAGONAL:
            a.update(squares=np.zeros(d), last=np.zeros((k, d)), clock=np.zeros(k), slopes=np.zeros(k), z_k=np.zeros(k))
            if config.method == "adam":
                a["first"] = np.zeros((k, d))
            return a
        if config.method in PROJECTED:
            a.update(_projected.start(config, d))
            return a
        from fastsketch._kernels import adaptive as kernel

        tau = config.sketch_size
        most = min(d, {"ada-fd": tau, "ada-full": d}.get(config.method, 2 * tau))
        cap = min(d, 2 * tau) if config.method != "ada-full" else d
        if config.method == "ada-fd":
            cap = 2 * tau
        width = min(tau, d) if sparse else 0
        a.update(
            turn=np.zeros((most, cap)),
            lam=np.zeros(most),
            gram=np.zeros((cap, cap)),
            scale=np.ones(k),
            coef=np.zeros((k, cap)),
            inner=np.zeros((k, cap)),
        )
        if sparse:
            a.update(
                z=np.zeros((d, width)),
                b=np.zeros((k, width)),
                frame=np.zeros((width, width)),
                kept_data=np.zeros(0),
                kept_indices=np.zeros(0, np.int32),
                kept_indptr=np.zeros(cap + 1, np.int64),
                work=np.zeros(d),
            )
        else:
            a["rows"] = np.zeros((cap, d))
            a["extra"] = np.zeros(kernel.extra_size(d, most, cap, PENALTIES[config.penalty]))
            if config.form == "pds" and config.penalty == "l1":
                a["total"] = np.zeros((k, d))
        doubles, integers = kernel.space_sizes(most, cap, width, k)
        a.update(space=np.zeros(doubles), ints=np.zeros(integers, np.int32))
        return a

    def _changes_all_or_nothing(self, a):
        # a round that has no finite prediction is refused before anything is changed, but for rebases and debts
        return (
            self._config.method == "ada-diag"
            and self._config.penalty is None
            or (self._config.method in SKETCHED and not a["sparse"] and a["count"][ROWS] + 1 < a["turn"].shape[1])
        )

    def _learn(self, a, batch, targets, weights, predictions):
        config = self._config
        loss, phi, dual = LOSSES[config.loss][0], PENALTIES[config.penalty], config.form == "pds"
        if config.method in PROJECTED:
            _projected.learn(config, a, batch, targets, weights, predictions)
        elif config.method in DIAGONAL:
            from fastsketch._kernels import diagonal as kernel

            setting = DIAGONAL.index(config.method), loss, phi, dual, config.strength
            data, indices, indptr = batch if a["sparse"] else (batch.reshape(-1), None, None)
            kernel.rounds(a, setting, a["eta"], a["delta"], data, indices, indptr, targets, weights, predictions)
        else:
            from fastsketch._kernels import adaptive as kernel

            setting = (
                loss,
                RULES[config.method],
                phi,
                dual,
                config.method != "fd-son",
                config.method == "fd-son",
                config.sketch_size,
                config.strength,
            )
            if not a["sparse"]:
                kernel.dense_rounds(a, setting, a["eta"], a["delta"], batch, targets, weights, a["extra"], predictions)
                return
            done, short, more = 0, True, 0
            longest = int(np.diff(batch[2]).max(initial=0))
            while short:
                # room for the rows until the next rebase, and if that was not enough, for a direction formed explicitly
                used = int(a["kept_indptr"][a["count"][ROWS] - a["count"][OLD]])
                rows = int(a["turn"].shape[1] - (a["count"][ROWS] - a["count"][OLD]))
                room = used + longest * min(rows, len(targets) - done) + more
                grown(a, ("kept_data", "kept_indices"), used, room)
                done, short = kernel.sparse_rounds(
                    a, setting, a["eta"], a["delta"], *batch, done, targets, weights, predictions
                )
                more = a["base"].shape[1]

    def _all_weights(self, a):
        """w of every point, (points, d)."""
        config = self._config
        if config.method in DIAGONAL:
            from fastsketch._kernels import diagonal as kernel

            setting = (
                DIAGONAL.index(config.method),
                0,
                PENALTIES[config.penalty],
                config.form == "pds",
                config.strength,
            )
            return kernel.weights_now(copied(a), setting, a["eta"], a["delta"])
        if config.method in PROJECTED:
            return a["base"].copy()
        rows, old = int(a["count"][ROWS]), int(a["count"][OLD])
        if not a["sparse"]:
            return a["scale"][:, None] * a["base"] + a["coef"][:, :rows] @ a["rows"][:rows]
        from scipy.sparse import csr_array

        z, frame, fresh = a["z"][:, :old], a["frame"][:old, :old], rows - old
        end = int(a["kept_indptr"][fresh])
        kept = csr_array(
            (a["kept_data"][:end], a["kept_indices"][:end], a["kept_indptr"][: fresh + 1]),
            shape=(fresh, a["base"].shape[1]),
        )
        old_part = a["scale"][:, None] * a["b"][:, :old] + a["coef"][:, :old] @ frame
        return a["scale"][:, None] * a["base"] + old_part @ z.T + a["coef"][:, old:rows] @ kept

    def _cause(self, a):
        return (
            f"eta = {max(self._config.eta):g} is too large for the lengths of the rows, or delta = "
            f"{min(self._config.delta):g} too small"
        )


class AdaptiveSubgradient(_Adaptive):
    """Linear model learned by adaptive subgradient steps, with H from a sketch of the gradients.

    Round t: predict z = w'x, suffer the loss with subgradient g, G_t = sum g g', H_t = delta I + G_t^(1/2), and
    mirror descent w <- w - eta H_t^-1 g, or dual averaging w = -eta H_t^-1 sum g, each with a penalty if one is given.

    Parameters
    ----------
    sketch_size : int, default 20
        tau >= 2, for the methods that sketch or project.
    method : str, default "ada-ffd"
        "ada-ffd", "ada-fd": G by fast Frequent Directions, by Frequent Directions; "ada-full": G itself (d x d);
        "ada-diag": its diagonal; "ada-lr", "radagrad": by random projections; "fd-son": delta I + sum g g' / sqrt(t) by
        Frequent Directions; "ogd": step eta / sqrt(t); "adam": decay rates 0.9 and 0.999.
    form : {"cmd", "pds"}, default "cmd"
        Composite mirror descent, or the primal-dual form (dual averaging).
    loss : {"square", "logistic", "squared_hinge", "huber", "absolute"}, default "absolute"
        Targets of "logistic" and "squared_hinge" are labels -1 and +1 (or 0 and 1).
    eta : float, default 0.1
        Step size.
    delta : float, optional
        1 for "cmd", 10 for "pds", 1e-8 for "ada-diag" and "adam".
    penalty : {None, "l1", "l2"}
        phi(w) = strength |w|_1 or strength / 2 |w|^2 in every round.
    strength : float, default 0.0
    seed : int, default 0
        Of the random projections.

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
    A round of "ada-ffd" and "ada-fd" costs O(tau d + tau^3) for dense rows and O(tau nnz + tau^3) for sparse ones; once
    in about tau rounds a shrink costs O(tau^2 d). The diagonal methods cost O(nnz), but "adam" O(d); "ada-full" O(d^3),
    as does every round of "ada-lr" O(tau d^2). With penalty="l1" a sketched round solves a convex problem of at
    most 2 tau variables by Newton steps to a relative 1e-12, at O(tau^2 d) each, and rows are learned from as dense
    ones. The penalty is not part of the loss that ``progress`` tells.

    A gradient adds a direction to the sketch if more than 1e-10 of it is new, 3e-7 where rows are sparse.

    At a tie of the absolute loss w does not move, but the sketch takes x x', a subgradient's as well: so H never
    depends on eta and delta, and AdaptiveGrid is exact.

    References
    ----------
    ADA-FD: Wan, Zhang, IEEE TPAMI 44 (2022), Algorithms 1 to 4. Duchi, Hazan, Singer 2011; Krummenacher et al. 2016;
    Luo et al. 2016; Zinkevich 2003; Kingma, Ba 2015. Penalty "l1": Becker, Fadili 2012.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((2000, 8)) @ rng.standard_normal((8, 50))
    >>> y = X @ rng.standard_normal(50)
    >>> model = fs.AdaptiveSubgradient(eta=1.0).update(X, y)
    >>> bool(np.abs(model.predict(X) - y).mean() < 0.1 * np.abs(y).mean())
    True
    """

    def __init__(
        self,
        sketch_size=20,
        method="ada-ffd",
        form="cmd",
        loss="absolute",
        eta=0.1,
        delta=None,
        *,
        penalty=None,
        strength=0.0,
        seed=0,
    ):
        self._config = AdaptiveConfig.checked(
            sketch_size, method, form, loss, (eta,), None if delta is None else (delta,), penalty, strength, seed
        )
        self._prepare()

    def __setstate__(self, state):
        params, arrays = state
        config = {**params["config"]}
        config.update(eta=config["eta"][0], delta=config["delta"][0])
        super().__setstate__(({**params, "config": config}, arrays))

    @property
    def eta(self):
        """The step size."""
        return self._config.eta[0]

    @property
    def delta(self):
        """The multiple of the identity in H."""
        return self._config.delta[0]

    def _totals(self, a):
        return int(a["count"][ROUND]), float(a["losses"][0]), int(a["mistakes"][0])

    def _weights_of(self, a):
        return self._all_weights(a)[0]

    def __repr__(self):
        seen = "no rows yet" if self._a is None else f"{self.n_rounds} rounds, {self.n_features} features"
        return f"<AdaptiveSubgradient method={self.method!r} form={self.form!r} loss={self.loss!r}, {seen}>"


class AdaptiveGrid(_Adaptive):
    """All of a grid of (eta, delta) in one pass, under the absolute loss: the sketch, which they share, is made once.

    Parameters
    ----------
    eta, delta : sequences of float
        Step sizes, and multiples of the identity in H.
    sketch_size, method, form, penalty, strength, seed
        Those of AdaptiveSubgradient.

    Notes
    -----
    A subgradient of |w'x - y| is x or -x, so that the sketch depends neither on eta nor on delta, and every point has
    the weights that AdaptiveSubgradient(eta=eta, delta=delta) has, to rounding.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 30))
    >>> grid = fs.AdaptiveGrid([0.01, 0.1, 1.0], [0.1, 1.0]).update(X, X @ rng.standard_normal(30))
    >>> grid.cumulative_loss.shape, grid.best().eta
    ((3, 2), 1.0)
    """

    def __init__(self, eta, delta, sketch_size=20, method="ada-ffd", form="cmd", *, penalty=None, strength=0.0, seed=0):
        eta, delta = (np.atleast_1d(np.asarray(values)).tolist() for values in (eta, delta))
        if not eta or not delta:
            raise ValueError("eta and delta must not be empty")
        self._config = AdaptiveConfig.checked(
            sketch_size, method, form, "absolute", eta, delta, penalty, strength, seed
        )
        self._prepare()

    def __setstate__(self, state):
        params, arrays = state
        config = {name: value for name, value in params["config"].items() if name != "loss"}
        super().__setstate__(({**params, "config": config}, arrays))

    def compare_with(self, weights):
        """Not for a grid: take the regret of its best()."""
        raise TypeError("a grid has many regrets: call compare_with of an AdaptiveSubgradient")

    @property
    def cumulative_loss(self):
        """Sum of losses so far, (len(eta), len(delta))."""
        shape = len(self._config.eta), len(self._config.delta)
        return np.zeros(shape) if self._a is None else self._a["losses"].reshape(shape).copy()

    def best(self):
        """The AdaptiveSubgradient of the smallest cumulative loss, in the state that it has now."""
        i = int(np.argmin(self.cumulative_loss))
        config = {item.name: getattr(self._config, item.name) for item in fields(self._config)}
        eta, delta = self._config.points
        config.update(eta=float(eta[i]), delta=float(delta[i]))
        model = AdaptiveSubgradient(**config)
        if self._a is not None:
            a = model._start(self.n_features, self._a["sparse"])
            per_point = {"base", "scale", "coef", "inner", "total", "b", "first", "last", "clock", "losses", "mistakes"}
            for name in self._STATE:
                if name in a:
                    value = self._a[name]
                    a[name] = (value[i : i + 1] if name in per_point else value).copy()
            model._a = a
        return model

    def _totals(self, a):
        i = int(np.argmin(a["losses"]))
        return int(a["count"][ROUND]), float(a["losses"][i]), int(a["mistakes"][i])

    def _weights_of(self, a):
        return self._all_weights(a)[int(np.argmin(a["losses"]))]

    def __repr__(self):
        seen = "no rows yet" if self._a is None else f"{self.n_rounds} rounds, {self.n_features} features"
        return f"<AdaptiveGrid {len(self._config.eta)} x {len(self._config.delta)}, method={self.method!r}, {seen}>"


_COMMON = ("sketch_size", "method", "form", "penalty", "strength", "seed")
AdaptiveSubgradient._register((*_COMMON, "loss"))
AdaptiveGrid._register((*_COMMON, "loss", "eta", "delta"))
