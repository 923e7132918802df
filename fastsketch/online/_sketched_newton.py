"""SketchedNewton: a linear model learned by online Newton steps with a sketched curvature matrix (Luo et al. 2019)."""

from math import floor
from typing import Any, Literal

import numpy as np

from fastsketch._core.losses import LOSSES
from fastsketch._core.validation import as_real
from fastsketch._frame.parameters import choice, parameter, real
from fastsketch._kernels.online.numbers import ALPHA
from fastsketch.online._linear import OUT_OF_RANGE, OnlineLinear, as_positive
from fastsketch.online._newton_state import (
    CONSTRAINTS,
    SHARE_BY_LOSS,
    SHARE_FOR_LABELS,
    SHARE_FOR_REAL_TARGETS,
    SHARE_FOR_SCALED_ROWS,
    NewtonSetting,
    NewtonState,
    start_newton,
)
from fastsketch.online._state_arrays import Zeros

# Rows of the square matrices of 2 sketch_size rows: LAPACK counts their entries in 32-bit integers.
MOST_SIDE = 46_340

Method = Literal["rfd", "fd", "pfd"]
Constraint = Literal["current", "next", "both"] | None
Curvature = Literal["gradient", "loss"] | None


def _as_share(value: Any, name: str) -> float:
    return as_real(value, name, 0.0, 1.0)


class SketchedNewton(OnlineLinear[NewtonState]):
    """Linear model learned by sketched online Newton steps, one example after the other, without a learning rate.

    Round t: compute the score z = w'x, suffer the loss with gradient g, add sqrt(1/8 + 1/t) g to the sketch B, and step
    w <- w - H^-1 g with H = B'B + alpha I. With `constraint`, w is then projected to ``|w'x| <= 1`` in the norm of H.

    Parameters
    ----------
    sketch_size : int, default 20
        m >= 2: the sketch has up to 2 m rows and shrinks to m - 1.
    loss : {"squared_hinge", "logistic", "square", "huber", "absolute"}, default "logistic"
        Targets of "logistic" and "squared_hinge" are labels, of any kind and number; "square" is (z - y)^2 / 2. The
        threshold of "huber" is 1.345 times a robust scale of the residuals so far (Proposal 2 of Huber 1964). With
        curvature="gradient", as in the papers, it is 1. cumulative_loss counts "huber" with threshold 1.
    loss_scale : float, default 1.0
        Factor on every loss. The square loss of the papers, (z - y)^2, is loss="square", loss_scale=2.0.
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
        needs an intercept, and neither alpha0 nor constraint.
    calibrate : bool, default True
        Whether scores of labels are calibrated to log odds online (Platt scaling), from the scores that rows had before
        they were learned. predict_proba is the logistic function of the score, or the softmax of the scores of more
        than two classes. Scores of real targets are not calibrated. If labels come in runs, as in rows that were not
        shuffled, the intercepts are the log odds of the label frequencies.
    blend : bool, optional
        Whether to blend the score with that of a diagonal learner (AdaGrad with learning rate `blend_rate`) that learns
        the same rows. For labels its loss is "logistic". For loss="square" it has the same loss and takes steps in
        units of its residuals; its share is found by least squares on the scores that rows had before they were
        learned. "huber" and "absolute" are never blended. The default is that of `calibrate`, but False for
        loss="square" with alpha0 or curvature.
    blend_rate : float, optional
        Learning rate of that diagonal learner. If it is not given, 1 for labels, and 0.25 for real targets, in units of
        the root mean square of its residuals.
    dense_above : float in [0, 1], default 0.3
        Share of nonzeros in the first row, if it is sparse, above which the model learns all rows as dense rows.
    method : {"rfd", "fd", "pfd"}, default "rfd"
        Robust Frequent Directions, whose alpha grows by itself; with alpha = alpha0 Frequent Directions, and its
        parameterized form. What the papers compare with is in ``reference``: the whole H (d x d), a random projection,
        Oja's rule.
    alpha0 : float, optional
        Initial regulariser, in units of squared rows; needed by all methods but "rfd". If it is not given, the squared
        length of the first row that is not zero, times `alpha0_share`. 0, for "rfd" alone, is the papers' RFD0.
    alpha0_share : float, optional
        That factor. If it is not given, 0.2 for curvature="loss", else 0.05 for losses of labels (0.01 if scale is
        None) and 3 for losses of real targets.
    constraint : {"current", "next", "both", None}, default None
        Which scores are kept within [-1, 1]: that of the example just learned from (Algorithm 6), that of the next
        one before it is scored (Algorithm 3), both, or none. Targets are to lie within [-1, 1] but for None. Then
        ``|w'x|`` is at most 1 + 1e-9, plus the rounding of w'x where products of a weight and an element of x are
        above 1e6, as with alpha0=0 and rows of very different lengths.
    curvature : {"gradient", "loss"}, optional
        What H is made of: (1/8 + 1/t) g g' of the gradients g, the papers' way, for targets within [-1, 1]; or x x'
        times the curvature of the loss, by which no step goes past its target and a model of c y is c times that of y
        for any scale of targets (for loss="square" and "absolute"). If it is not given, "loss" for losses of real
        targets without alpha0, else "gradient".
    beta : float in [0, 1], optional
        Share of rows that "pfd" shrinks, 0.2 if not given.
    classes : sequence, optional
        All labels, two or more; others are refused. If not given, new labels are added as they appear. The attribute of
        this name has the labels known so far, sorted.
    class_weight : {None, "balanced"} or dict, optional
        Factors on the losses of the rows of each label, 1 for other labels. "balanced": n / (k n_c) for n rows so far,
        n_c of them of this label, and k labels. A row of weight 2 is learned nearly like two rows.
    open_columns : bool, default False
        Whether the number of columns may differ from batch to batch. The model is then sparse, ``n_features`` is None,
        and ``coef`` ends with the largest column seen.
    hash_bits : int, optional
        For rows with names: hash the names into 2**hash_bits columns, at most 30. Without it, new names get new
        columns, and the vocabulary is saved with the model.
    decay : float in (0, 1] or "auto", default 1.0
        Factor by which every new row multiplies the weight of all earlier rows: in H, so that steps stay long, in the
        calibration, and in the metrics of ``progress``, but not in the moments of scale="moments". alpha decays too,
        and is reset to its initial value when it falls below half of it; directions that no longer occur then have
        steps as long as in the beginning. See also ``fade``. "auto": learners with the rates `decay_rates` learn the
        same rows. The score is the weighted mean of theirs, with weights that follow their losses on rows not yet
        learned: the fixed share of Herbster and Warmuth (1998), for real targets with the loss log(1 + r^2 / mean r^2).
        The metrics then weight all rows equally, and ``progress["drift"]`` reports the half-life of the leading
        learner; cumulative_loss, mean_loss and alpha are those of the first learner. It takes three times the time and
        memory, and needs calibrate for labels.
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
    alpha : float
        The regulariser of H.
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
    The weight of a row multiplies its gradient and what it adds to H, which is what 2 rows in the place of one of
    weight 2 would do; loss_scale, a factor on all losses, multiplies gradients, and with curvature="gradient" H by its
    square, as in the papers.

    With alpha0 = 0 and curvature="gradient" the first steps are divided by their slopes, which labels bound and real
    targets do not. With curvature="loss" a row counts by its parabola, which touches the loss at the score and lies
    above it: with loss="square" and a sketch that loses nothing the model is the ridge regression of the rows so far.
    Rows with many rare columns, such as one column for each user, have no few leading directions. alpha, which grows by
    what the sketch loses, then makes steps short, and the score comes mostly from the diagonal learner with which it is
    blended.

    A round costs O(m (nnz + m)) for sparse rows and O(m d + m^2) for dense ones; every m-th round or so a shrink costs
    O(m^2 d), less where F stays well-conditioned and rows are sparse. All inner products of the dense rows between two
    shrinks are taken together. Memory O(m d). Of sparse rows d is the number of columns that have occurred, however
    wide they are.

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
    >>> bool(np.mean(model.predict(X) == y) > 0.9), model.n_rows
    (True, 2000)
    """

    method: Method = choice(("rfd", "fd", "pfd"), default="rfd")
    alpha0: float | None = real(default=None)
    alpha0_share: float | None = parameter(as_positive, default=None)
    constraint: Constraint = choice(tuple(CONSTRAINTS), default=None)
    curvature: Curvature = choice(("gradient", "loss", None), default=None)
    beta: float | None = parameter(_as_share, default=None)

    def _check(self) -> None:
        super()._check()
        if 2 * self.sketch_size > MOST_SIDE:
            raise ValueError(
                f"sketch_size must be at most {MOST_SIDE // 2:,}, as LAPACK's 32-bit integers count the entries of "
                f"square matrices of twice that side, got {self.sketch_size}"
            )
        if not self.alpha0 and self.method != "rfd":
            raise ValueError(
                f"alpha0 must be positive for method={self.method!r}, got {self.alpha0}: only 'rfd' finds its own"
            )
        if self.alpha0 is not None and self.alpha0_share is not None:
            raise ValueError(f"alpha0_share belongs to an alpha0 that is not given, got alpha0={self.alpha0}")
        if self.beta is not None and self.method != "pfd":
            raise ValueError(f"beta belongs to method='pfd', got beta={self.beta!r} with method={self.method!r}")
        if self.decay != 1.0:
            self._check_fading("decay must be 1")

    def _check_fading(self, rule: str) -> None:
        if self.alpha0 == 0.0:
            raise ValueError(f"{rule} with alpha0=0: nothing would be left of H; give a positive alpha0, or none")

    def _resolved(self) -> dict[str, Any]:
        curvature = self.curvature
        if curvature is None:
            curvature = "loss" if LOSSES[self.loss].targets == "real" and self.alpha0 is None else "gradient"
        beta = {"beta": 0.2 if self.beta is None else self.beta} if self.method == "pfd" else {}
        return {"curvature": curvature, **beta}

    def _can_rescale(self) -> bool:
        return self.alpha0 is None and self.resolved["curvature"] == "loss" and self.constraint is None

    def _blends_real_targets_by_default(self) -> bool:
        return self.curvature is None and self.alpha0 is None

    def _start(
        self, d: int, sparse: bool, zeros: Zeros = np.zeros, slots: int | None = None, *, decay: float = 1.0
    ) -> NewtonState:
        m = self.sketch_size
        setting = NewtonSetting(
            method=self.method,
            sketch_size=m,
            spared=m - floor(self.resolved["beta"] * m) if self.method == "pfd" else 0,
            loss=LOSSES[self.loss].number,
            constraint=CONSTRAINTS[self.constraint],
            alpha0=self.alpha0,
            first_row_share=self._first_row_share(),
            by_loss=self.resolved["curvature"] == "loss",
            decay=decay,
            loss_scale=self.loss_scale,
        )
        return start_newton(setting, d if slots is None else slots, sparse, zeros)

    def _first_row_share(self) -> float:
        if self.alpha0_share is not None:
            return self.alpha0_share
        if self.resolved["curvature"] == "loss":
            return SHARE_BY_LOSS
        if LOSSES[self.loss].targets != "label":
            return SHARE_FOR_REAL_TARGETS
        return SHARE_FOR_LABELS if self.scale is None else SHARE_FOR_SCALED_ROWS

    def _overflow_cause(self, learned: NewtonState) -> str:
        alpha = learned.scalar[ALPHA]
        remedy = "take a larger alpha0, or none" if self.alpha0 is not None else OUT_OF_RANGE
        return f"alpha = {alpha:.3g} is too small for the lengths of the rows: {remedy}"

    @property
    def alpha(self) -> float:
        """Return alpha, the multiple of the identity that is added to the sketched curvature matrix.

        It is 0 before the first nonzero row, unless ``alpha0`` is given.
        """
        return self.alpha0 or 0.0 if self._learned is None else float(self._learned.scalar[ALPHA])

    def _facts(self) -> dict[str, Any]:
        return {"alpha": self.alpha, **super()._facts()}
