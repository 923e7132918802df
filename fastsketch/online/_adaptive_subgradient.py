"""AdaptiveSubgradient: full-matrix AdaGrad on a sketch of the gradients, and related subgradient methods."""

from typing import Any, Literal

import numpy as np

from fastsketch._core.losses import LOSSES
from fastsketch._frame import model as _model
from fastsketch._frame.parameters import choice, parameter, real
from fastsketch._kernels.losses import L1_PENALTY, L2_PENALTY, NO_PENALTY
from fastsketch._kernels.online.numbers import ADAM, DELTA, DIAGONAL, EVERY_ROUND, GRADIENT, NEVER, WHEN_FULL
from fastsketch.online._adaptive_state import AdaptiveSetting, start_diagonal, start_sketched
from fastsketch.online._class_states import ADAGRAD_DELTA, BLEND_RATE_OF_NUMBERS
from fastsketch.online._linear import OUT_OF_RANGE, OnlineLinear, as_positive
from fastsketch.online._state_arrays import LearnedState, Zeros

DIAGONALS = {"ada_diag": DIAGONAL, "ogd": GRADIENT, "adam": ADAM}
COMPENSATED = {"ftsl": EVERY_ROUND, "ftfsl": WHEN_FULL}
KINDS = {"ada_fd": EVERY_ROUND, "ada_ffd": WHEN_FULL, "fd_son": WHEN_FULL, "ada_full": NEVER} | DIAGONALS | COMPENSATED
FADING = ("ada_ffd", "ada_fd", "ada_full", "fd_son", "ada_diag")
METHODS = ("ada_ffd", "ada_fd", "ada_full", "ada_diag", "fd_son", "ftfsl", "ftsl", "ogd", "adam")
PENALTIES = {None: NO_PENALTY, "l1": L1_PENALTY, "l2": L2_PENALTY}

# Default learning rates of labels for rows as scale="moments" makes them.
RATES_FOR_SCALED_ROWS = {"ada_ffd": 2.0, "ada_fd": 2.0, "ada_full": 2.0, "ada_diag": 1.0, "ftfsl": 2.0, "ftsl": 2.0}
# The same of real targets, whose steps are in units of residuals.
RATES_IN_UNITS = dict.fromkeys(RATES_FOR_SCALED_ROWS, BLEND_RATE_OF_NUMBERS) | {"ogd": 0.6}

Method = Literal["ada_ffd", "ada_fd", "ada_full", "ada_diag", "fd_son", "ftfsl", "ftsl", "ogd", "adam"]
Form = Literal["mirror_descent", "dual_averaging"]
Penalty = Literal["l1", "l2"] | None


class AdaptiveSubgradient(OnlineLinear[LearnedState]):
    """Linear model learned by adaptive subgradient steps: AdaGrad with a sketched full matrix, or related methods.

    Round t: score z = w'x, suffer the loss with subgradient g, G_t = sum g g', H_t = delta I + G_t^(1/2), and
    mirror descent w <- w - eta H_t^-1 g, or dual averaging w = -eta H_t^-1 sum g, each with a penalty if one is given.

    Parameters
    ----------
    sketch_size : int, default 20
        tau >= 2, for the methods that sketch.
    loss : {"squared_hinge", "logistic", "square", "huber", "absolute"}, default "logistic"
        Targets of "logistic" and "squared_hinge" are labels, of any kind and number; "square" is (z - y)^2 / 2. The
        threshold of "huber" is 1.345 times a robust scale of the residuals so far (Proposal 2 of Huber 1964). If
        learning_rate is given, it is 1. cumulative_loss counts "huber" with threshold 1.
    loss_scale : float, default 1.0
        Factor on every loss.
    fit_intercept : bool, default True
        Whether to learn an intercept, as the weight of an additional column of ones. For real targets it starts at the
        first target.
    scale : {"moments", None}, default "moments"
        "moments": each row is added to running moments, then scaled by them. Dense features are centred and divided by
        their standard deviation, then all rows by their root mean square length. Sparse features are divided by the
        root mean square of their nonzeros, to a power that is smaller the rarer they are. A sparse row is then divided
        by its own length if its columns are rare, as in texts, and by the mean length if every row has them, as in
        tables. None: rows are not scaled. For real targets some features are scaled by a fixed mean and standard
        deviation: dense features, and those named or sparse features that every row had until they varied. When the
        deviation of all rows so far has doubled or halved, both are updated and the coefficients converted, so that a
        feature may grow with time. A row that lacks such a named or sparse feature is taken to have its mean. This
        needs an intercept, and mirror descent without learning_rate and penalty.
    calibrate : bool, default True
        Whether scores of labels are calibrated to log odds online (Platt scaling), from the scores that rows had before
        they were learned. predict_proba is the logistic function of the score, or the softmax of the scores of more
        than two classes. Scores of real targets are not calibrated. If labels come in runs, as in rows that were not
        shuffled, the intercepts are the log odds of the label frequencies.
    blend : bool, optional
        Whether to blend the score with that of a diagonal learner (AdaGrad with learning rate `blend_rate`) that learns
        the same rows. For labels its loss is "logistic". For loss="square" it has the same loss and takes steps in
        units of its residuals; its share is found by least squares on the scores that rows had before they were
        learned. "huber" and "absolute" are never blended. The default is that of `calibrate`, but False for "ada_diag",
        "ogd" and "adam", and for loss="square" with a learning_rate.
    blend_rate : float, optional
        Learning rate of that diagonal learner. If it is not given, 1 for labels, and 0.25 for real targets, in units of
        the root mean square of its residuals.
    dense_above : float in [0, 1], default 0.3
        Share of nonzeros in the first row, if it is sparse, above which the model learns all rows as dense rows.
    method : str, default "ada_ffd"
        "ada_ffd", "ada_fd": G by fast Frequent Directions, by Frequent Directions; "ada_full": G itself (d x d);
        "ada_diag": its diagonal; "fd_son": delta I + sum g g' / sqrt(t) by Frequent Directions, of at most 2 tau rows;
        "ftfsl", "ftsl": as "ada_ffd" and "ada_fd", but H = delta I + (G + rho I)^(1/2), where rho is the sum of the
        squares that the sketch has removed, for form="dual_averaging"; "ogd": step eta / sqrt(t); "adam": decay rates
        0.9 and 0.999.
    form : {"mirror_descent", "dual_averaging"}, default "mirror_descent"
        Composite mirror descent, or dual averaging (the primal-dual subgradient method).
    penalty : {None, "l1", "l2"}
        ``phi(w) = penalty_strength |w|_1`` or ``penalty_strength / 2 |w|^2`` in every round.
    penalty_strength : float, default 0.0
    learning_rate : float, optional
        eta, the factor on every step. The default is 0.1; for labels with scale="moments" 2 for "ada_ffd", "ada_fd",
        "ada_full", "ftfsl" and "ftsl", and 1 for "ada_diag". For real targets the default is in units of the root mean
        square of the residuals so far, and so are the slopes in H: 0.25 for these methods, 0.6 for "ogd". A model of c
        y is then c times that of y (for "square" and "absolute", without a penalty).
    classes : sequence, optional
        All labels, two or more; others are refused. If not given, new labels are added as they appear. The attribute of
        this name has the labels known so far, sorted.
    class_weight : {None, "balanced"} or dict, optional
        Factors on the losses of the rows of each label, 1 for other labels. "balanced": n / (k n_c) for n rows so far,
        n_c of them of this label, and k labels.
    open_columns : bool, default False
        Whether the number of columns may differ from batch to batch. The model is then sparse, ``n_features`` is None,
        and ``coef`` ends with the largest column seen.
    delta : float, optional
        0.1 for mirror descent, 10 for dual averaging, 1e-8 for "ada_diag", "ogd" and "adam".
    hash_bits : int, optional
        For rows with names: hash the names into 2**hash_bits columns, at most 30. Without it, new names get new
        columns, and the vocabulary is saved with the model.
    decay : float in (0, 1] or "auto", default 1.0
        Factor by which every new row multiplies the weight of all earlier rows: in H, so that steps stay long, in the
        calibration, and in the metrics of ``progress``, but not in the moments of scale="moments". It is for mirror
        descent with a sketch, the full G or its diagonal, the last without a penalty. See also ``fade``. "auto":
        learners with the rates `decay_rates` learn the same rows. The score is the weighted mean of theirs, with
        weights that follow their losses on rows not yet learned: the fixed share of Herbster and Warmuth (1998), for
        real targets with the loss log(1 + r^2 / mean r^2). The metrics then weight all rows equally, and
        ``progress["drift"]`` reports the half-life of the leading learner; cumulative_loss and mean_loss are those of
        the first learner. It takes three times the time and memory, and needs calibrate for labels.
    decay_rates : sequence of float, default (1.0, 0.999, 0.98)
        Decay rates of the learners of decay="auto", 2 to 7 in descending order. The default has infinite half-life, 693
        rows and 34 rows.
    decay_prior : float in (0, 1), default 0.8
        Initial weight of the first of these learners; the others have equal parts of the remainder.
    decay_share : float in (0, 1), default 0.001
        Share of the total weight that every row redistributes like the initial weights: the rate at which the best
        learner is expected to change.

    Attributes
    ----------
    n_rows, n_features : int
        n_features is None before the first row, and with ``open_columns``.
    coef : ndarray (n_features,)
        w; (n_classes, n_features) for more than two classes.
    classes : ndarray
        The labels known so far, sorted; None for real targets.
    last_scores : ndarray
        Scores of the rows of the last batch, (n,) or (n, n_classes), each computed before its row was learned.
    progress : dict
        n_rows, cumulative_loss, mean_loss, error_rate, regret, drift; log_loss, accuracy and auc of labels,
        mean_absolute_error and root_mean_squared_error of real targets.
    notes : dict
        Any dict that JSON can represent; it is saved with the model.

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

    A gradient adds a direction to the sketch if its component orthogonal to the sketch is longer than 1e-10 of its
    length, for sparse rows 3e-7.

    At a tie of the absolute loss w does not move, but x x' is added to the sketch, as for any other subgradient. So H
    does not depend on eta and delta.

    References
    ----------
    ADA-FD: Wan, Zhang, IEEE TPAMI 44 (2022), Algorithms 1 to 4. Duchi, Hazan, Singer 2011; Luo et al. 2016; Zinkevich
    2003; Kingma, Ba 2015. Penalty "l1": Becker, Fadili 2012. FTSL: Yang, Wan, Li, Wang, Zhang, Wei, Zhang, ICML 2025,
    by its abstract; the page on ADA-FD has a bound on its regret, with a proof.

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
        if self.form != "dual_averaging" and self.method in COMPENSATED:
            raise ValueError(f"method={self.method!r} needs form='dual_averaging', got {self.form!r}")

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

    def _blends_real_targets_by_default(self) -> bool:
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
            compensate=self.method in COMPENSATED,
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

    def _overflow_cause(self, learned: LearnedState) -> str:
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
