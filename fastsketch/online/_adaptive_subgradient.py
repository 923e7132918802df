"""Adaptive subgradients: steps measured by a matrix learned from the gradients, sketched so that a round is cheap."""

from typing import Any, Literal

import numpy as np

from fastsketch._core.losses import LOSSES
from fastsketch._frame import model as _model
from fastsketch._frame.parameters import choice, parameter, real
from fastsketch._kernels.losses import L1_PENALTY, L2_PENALTY, NO_PENALTY
from fastsketch._kernels.online.numbers import ADAM, DELTA, DIAGONAL, EVERY_ROUND, GRADIENT, NEVER, WHEN_FULL
from fastsketch.online._adaptive_state import AdaptiveSetting, start_diagonal, start_sketched
from fastsketch.online._class_states import ADAGRAD_DELTA, BLEND_RATE_OF_NUMBERS
from fastsketch.online._linear import OUT_OF_RANGE, as_positive
from fastsketch.online._predictions import OnlineLinear
from fastsketch.online._state_arrays import LearnedState, Zeros

DIAGONALS = {"ada_diag": DIAGONAL, "ogd": GRADIENT, "adam": ADAM}
KINDS = {"ada_fd": EVERY_ROUND, "ada_ffd": WHEN_FULL, "fd_son": WHEN_FULL, "ada_full": NEVER, **DIAGONALS}
FADING = ("ada_ffd", "ada_fd", "ada_full", "fd_son", "ada_diag")
METHODS = ("ada_ffd", "ada_fd", "ada_full", "ada_diag", "fd_son", "ogd", "adam")
PENALTIES = {None: NO_PENALTY, "l1": L1_PENALTY, "l2": L2_PENALTY}

# Default learning rates of labels for rows as scale="moments" makes them.
RATES_FOR_SCALED_ROWS = {"ada_ffd": 2.0, "ada_fd": 2.0, "ada_full": 2.0, "ada_diag": 1.0}
# The same of real targets, whose steps are in units of residuals.
RATES_IN_UNITS = dict.fromkeys(("ada_ffd", "ada_fd", "ada_full", "ada_diag"), BLEND_RATE_OF_NUMBERS) | {"ogd": 0.6}

Method = Literal["ada_ffd", "ada_fd", "ada_full", "ada_diag", "fd_son", "ogd", "adam"]
Form = Literal["mirror_descent", "dual_averaging"]
Penalty = Literal["l1", "l2"] | None


class AdaptiveSubgradient(OnlineLinear[LearnedState]):
    """Linear model learned by adaptive subgradient steps, with H from a sketch of the gradients.

    Round t: score z = w'x, suffer the loss with subgradient g, G_t = sum g g', H_t = delta I + G_t^(1/2), and
    mirror descent w <- w - eta H_t^-1 g, or dual averaging w = -eta H_t^-1 sum g, each with a penalty if one is given.

    Parameters
    ----------
    sketch_size : int, default 20
        tau >= 2, for the methods that sketch.
    loss : {"squared_hinge", "logistic", "square", "huber", "absolute"}, default "logistic"
        Targets of "logistic" and "squared_hinge" are labels, of any kind and number; "square" is (z - y)^2 / 2. The
        threshold of "huber" is 1.345 times a robust scale of the residuals so far (Proposal 2 of Huber 1964), and 1
        with a learning_rate. cumulative_loss counts "huber" with threshold 1.
    loss_scale : float, default 1.0
        Factor on every loss.
    fit_intercept : bool, default True
        Whether a column that is always 1 learns with the others, after scaling; ``intercept`` reads it. Its weight
        begins at the first of real targets: what all of them share costs nothing.
    scale : {"moments", None}, default "moments"
        "moments": dense features are centred and divided by their running standard deviations, and all rows by their
        running length; sparse ones are divided by the running root mean square of their nonzeros, the less the rarer
        they are, and each row by its own length where its columns are rare, as in texts, by a running one where every
        row has them, as in tables. Each row joins the moments before it is scaled. None: as they come.
        Of real targets (mirror descent without learning_rate or penalty, with an intercept) dense
        features, and named or sparse ones that every row had until they varied, keep a mean and a deviation until the
        deviation has doubled or halved; then these are set to those of all rows so far and what was learned is
        expressed in them, so that a feature may grow with time. A row that lacks such a named or sparse feature counts
        as one of its mean.
    calibrate : bool, default True
        Whether scores of labels become log odds as the model learns: by a few weights, learned from scores that each
        row got before it was learned from. predict_proba is the logistic function of the score, or the softmax of the
        scores of more than two classes. Scores of real targets are not calibrated. Where labels have come in runs, as
        in rows that nobody has shuffled, the constant terms of answers are the log odds of the labels' shares.
    blend : bool, optional
        Whether a diagonal learner (method "ada_diag", loss "logistic", learning rate 1) learns beside this one and the
        score is made of both. If it is not given, as calibrate, but False for "ada_diag", "ogd" and "adam". For
        loss="square" the diagonal learner has that loss and steps in units of its residuals, the share that it gets is
        that of least squares of scores from before each row was learned from, and without `blend` there is none with a
        learning_rate; "huber" and "absolute" are never blended.
    blend_rate : float, optional
        Learning rate of that diagonal learner. If it is not given, 1 for labels, and 0.25 for real targets, in units of
        the root mean square of its residuals.
    dense_above : float in [0, 1], default 0.3
        Share of nonzeros in the first row, if it is sparse, above which all rows are learned from in the dense form.
    method : str, default "ada_ffd"
        "ada_ffd", "ada_fd": G by fast Frequent Directions, by Frequent Directions; "ada_full": G itself (d x d);
        "ada_diag": its diagonal; "fd_son": delta I + sum g g' / sqrt(t) by Frequent Directions, of at most 2 tau rows;
        "ogd": step eta / sqrt(t); "adam": decay rates 0.9 and 0.999.
    form : {"mirror_descent", "dual_averaging"}, default "mirror_descent"
        Composite mirror descent, or dual averaging (the primal-dual subgradient method).
    penalty : {None, "l1", "l2"}
        ``phi(w) = penalty_strength |w|_1`` or ``penalty_strength / 2 |w|^2`` in every round.
    penalty_strength : float, default 0.0
    learning_rate : float, optional
        eta, the factor on every step. If it is not given 0.1, but for labels of rows with scale="moments" 2 for
        "ada_ffd", "ada_fd" and "ada_full", and 1 for "ada_diag". For losses of real targets it is then in units of the
        root mean square of the residuals so far, as are the slopes that H is made of: 0.25 for these methods, 0.6 for
        "ogd". A model of c y is then c times that of y (for "square" and "absolute", without a penalty).
    classes : sequence, optional
        The labels that there are, two or more: others are refused. If they are not given, labels are added as they
        come. The attribute of this name holds those known, sorted.
    class_weight : {None, "balanced"} or dict, optional
        Factors on the losses of each label's rows, 1 for labels that are not named; "balanced": n / (k n_c) with n rows
        so far, n_c of them of this label, and k labels.
    open_columns : bool, default False
        Whether rows may have any width, from batch to batch: the sparse form, whatever the rows are. ``n_features`` is
        then None, and ``coef`` as long as the largest column seen asks for.
    delta : float, optional
        0.1 for mirror descent, 10 for dual averaging, 1e-8 for "ada_diag", "ogd" and "adam".
    hash_bits : int, optional
        For rows with names: hashed into 2**hash_bits columns, at most 30. Without it names get columns as they come,
        and the vocabulary is saved with the model.
    decay : float in (0, 1] or "auto", default 1.0
        With every row, what came before counts this share of what it did in H, so that steps stay long, in the weights
        of the read-out, and in the metrics of ``progress``; not in the moments of scale="moments". For mirror descent
        with a sketch, the whole G or its diagonal (without a penalty). See also ``fade``.
        "auto": learners of the rates `decay_rates` side by side. The score is the mean of theirs by weights that
        follow their losses on rows not yet learned from: the fixed share of Herbster and Warmuth (1998), of real
        targets with the loss log(1 + r^2 / mean r^2). The metrics then count all rows alike, and
        ``progress["drift"]`` says which half-life leads; cumulative_loss and mean_loss are those of the first
        learner. It takes three times the time and memory, and needs calibrate for labels.
    decay_rates : sequence of float, default (1.0, 0.999, 0.98)
        The decay of each of the learners of decay="auto", 2 to 7 of them, the largest first: half-lives of no end, 693
        rows and 34 rows.
    decay_prior : float in (0, 1), default 0.8
        Weight of the first of these learners before the first row; the others share the rest equally.
    decay_share : float in (0, 1), default 0.001
        Share of the weight of all learners that every row distributes as it was before the first row: the rate at which
        the best learner is expected to change.

    Attributes
    ----------
    n_rows, n_features : int
        n_features is None before the first row, and with ``open_columns``.
    coef : ndarray (n_features,)
        w; (n_classes, n_features) for more than two classes.
    classes : ndarray
        The labels known, sorted; None where targets are real.
    last_scores : ndarray
        Scores of the rows of the last batch, (n,) or (n, n_classes), each from before its row was learned from.
    progress : dict
        n_rows, cumulative_loss, mean_loss, error_rate, regret, drift; log_loss, accuracy and auc of labels,
        mean_absolute_error and root_mean_squared_error of real targets.
    notes : dict
        Anything that json can write; saved with the state.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range.

    Notes
    -----
    A round of "ada_ffd" and "ada_fd" costs O(tau d + tau^3) for dense rows and O(tau nnz + tau^3) for sparse ones; once
    in about tau rounds a shrink costs O(tau^2 d). The diagonal methods cost O(nnz), but "adam" O(d); "ada_full" O(d^3).
    Of sparse rows d is the number of columns that have occurred. With penalty="l1" a sketched round solves a convex
    problem of at most 2 tau variables by Newton steps to a relative 1e-12, at O(tau^2 d) each, and rows are learned
    from as dense ones. The penalty is not part of the loss in ``progress``.

    A gradient adds a direction to the sketch if more than 1e-10 of it is new, 3e-7 where rows are sparse.

    At a tie of the absolute loss w does not move, but the sketch takes x x', a subgradient's as well: so H never
    depends on eta and delta.

    References
    ----------
    ADA-FD: Wan, Zhang, IEEE TPAMI 44 (2022), Algorithms 1 to 4. Duchi, Hazan, Singer 2011; Luo et al. 2016; Zinkevich
    2003; Kingma, Ba 2015. Penalty "l1": Becker, Fadili 2012.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((2000, 8)) @ rng.standard_normal((8, 50))
    >>> y = X @ rng.standard_normal(50)
    >>> model = fs.AdaptiveSubgradient(loss="absolute", learning_rate=1.0).update(X, y)
    >>> bool(np.abs(model.predict(X) - y).mean() < 0.1 * np.abs(y).mean())
    True
    """

    method: Method = choice(METHODS, default="ada_ffd")
    form: Form = choice(("mirror_descent", "dual_averaging"), default="mirror_descent")
    penalty: Penalty = choice(("l1", "l2", None), default=None)
    penalty_strength: float = real(default=0.0)
    learning_rate: float | None = parameter(as_positive, default=None)
    delta: float | None = parameter(as_positive, default=None)

    def _check(self) -> None:
        super()._check()
        if self.decay != 1.0:
            self._check_fading("decay must be 1")
        if (self.penalty is None) != (self.penalty_strength == 0):
            raise ValueError(
                "penalty and penalty_strength go together: "
                f"got penalty={self.penalty!r}, penalty_strength={self.penalty_strength}"
            )
        if self.form == "dual_averaging" and self.method in ("ogd", "adam"):
            raise ValueError(f"method={self.method!r} has form='mirror_descent' alone")

    def _check_fading(self, rule: str) -> None:
        if self.method not in FADING:
            raise ValueError(f"{rule} with method={self.method!r}: H fades in {', '.join(FADING)}")
        if self.form == "dual_averaging":
            raise ValueError(f"{rule} with form='dual_averaging', whose sum of gradients never fades")
        if self.penalty is not None and self.method == "ada_diag":
            raise ValueError(f"{rule} with a penalty and method='ada_diag', whose pulls are made up for later")

    def _can_rescale(self) -> bool:
        plain = self.form == "mirror_descent" and self.penalty is None
        return plain and self._in_units() and self.method in RATES_IN_UNITS

    def _blends_numbers(self) -> bool:
        return self._in_units()

    def _may_blend(self) -> bool:
        return self.method not in DIAGONALS

    def _takes_sparse(self) -> bool:
        # the l1 step needs every coordinate; H of "ada_full" is dense
        return self.method in DIAGONALS or (self.method != "ada_full" and self.penalty != "l1")

    def _start(
        self, d: int, sparse: bool, zeros: Zeros = np.zeros, slots: int | None = None, *, decay: float = 1.0
    ) -> LearnedState:
        slots = d if slots is None else slots
        delta, son = self.resolved["delta"], self.method == "fd_son"
        setting = AdaptiveSetting(
            method=KINDS[self.method],
            loss=LOSSES[self.loss].number,
            phi=PENALTIES[self.penalty],
            dual=self.form == "dual_averaging",
            strength=self.penalty_strength,
            learning_rate=self.resolved["learning_rate"],
            decay=decay,
            in_units=self._in_units(),
            sketch_size=self.sketch_size,
            root=not son,
            fade=son,
        )
        if self.method in DIAGONALS:
            return start_diagonal(setting, delta, d=slots, sparse=sparse, zeros=zeros)
        return start_sketched(setting, delta, d=d, slots=slots, sparse=sparse, zeros=zeros)

    def _validate(self, state: dict[str, Any], arrays: _model.Arrays) -> None:
        super()._validate(state, arrays)
        if self.delta is not None and "0.scalar" in arrays and arrays["0.scalar"][DELTA] != self.delta:
            raise ValueError(
                f"it has learned with delta = {arrays['0.scalar'][DELTA]}, its parameters say {self.delta}"
            )

    def _cause(self, learned: LearnedState) -> str:
        given = [name for name in ("learning_rate", "delta") if getattr(self, name) is not None]
        remedies = {"learning_rate": "a smaller learning_rate", "delta": "a larger delta"}
        remedy = "take " + " or ".join(remedies[name] for name in given) if given else OUT_OF_RANGE
        return (
            f"learning_rate = {learned.setting.learning_rate:g} is too large for the lengths of the rows, or "
            f"delta = {learned.scalar[DELTA]:g} too small: {remedy}"
        )

    def _resolved(self) -> dict[str, Any]:
        rate, delta = self.learning_rate, self.delta
        if rate is None:
            rates = RATES_IN_UNITS if self._in_units() else {} if self.scale is None else RATES_FOR_SCALED_ROWS
            rate = rates.get(self.method, 0.1)
        if delta is None and self._learned is not None:
            delta = float(self._learned.scalar[DELTA])
        if delta is None:
            diagonal = ADAGRAD_DELTA if self.method in DIAGONALS else None
            delta = diagonal or (10.0 if self.form == "dual_averaging" else 0.1)
        return {"learning_rate": rate, "delta": delta}

    def _in_units(self) -> bool:
        return self.learning_rate is None and LOSSES[self.loss].targets == "real"
