"""What all online linear models share: batches taken in whole or not at all, scores, progress, regret, state.

A batch passes through stages, each of which gives the same bits for any split of a stream: labels become class numbers
(_labels), one state or one for each class learns (_against_rest), and what is made of the scores follows.
"""

from typing import Any, Generic, Literal, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._batches import FeatureNames, is_table, names_of
from fastsketch._kernels.guard import changes, reads
from fastsketch._kernels.losses import NO_PENALTY
from fastsketch._kernels.online.columns import INTERCEPT
from fastsketch._kernels.online.numbers import DIAGONAL
from fastsketch._losses import LOSSES, ONLINE_LOSSES, OnlineLossName, as_loss_parameter, expected
from fastsketch._model import Arrays, Model
from fastsketch._parameters import choice, flag, integer, parameter, real
from fastsketch._validation import (
    Rows,
    as_flag,
    as_integer,
    as_numbers,
    as_real,
    as_rows,
    as_vector,
    as_weights,
    check_finite,
    in_place,
    is_sparse,
)
from fastsketch.features import Vocabulary
from fastsketch.features._columns import MOST_BITS
from fastsketch.io import _checks as checks
from fastsketch.online import _diagonal, _drift, _metrics, _readout
from fastsketch.online._against_rest import Unlearned, n_states
from fastsketch.online._columns import Columns, products
from fastsketch.online._inputs import Inputs, OutOfRange
from fastsketch.online._inputs import start as start_inputs
from fastsketch.online._kept import Kept
from fastsketch.online._labels import (
    NOTHING_NEW,
    ClassWeight,
    Label,
    Labels,
    as_class_weight,
    as_classes,
    in_order,
)
from fastsketch.online._metrics import Figures, Metrics
from fastsketch.online._names import NAMED, WORDS, NamedRows, Names, holds_words
from fastsketch.online._state import BEFORE, THEIRS, Batch, Counts, Csr, Floats, Learned, Zeros, outline
from fastsketch.online._top import Weighed, largest
from fastsketch.sources._formats import refuse_lazy

# Share of nonzeros in the first row above which all are learned from as dense ones.
DENSE_ABOVE = 0.3
FLOAT64 = np.dtype(np.float64)
NO_SPARSE_FORM = "needs a form for sparse rows that begins with no columns: this model has none"
# Of the diagonal learner that scores are blended with; it takes the logistic loss.
RATE_BESIDE, DELTA_BESIDE = 1.0, 1e-8
# Learning rate of real targets, where steps are in units of residuals: by progressive losses of four sets.
RATE_OF_NUMBERS = 0.25

S = TypeVar("S", bound=Learned)


class Progress(Figures):
    """How a model has done so far, each row predicted before it was learned from."""

    n_rows: int
    cumulative_loss: float
    mean_loss: float
    error_rate: float
    regret: float | None


def _as_choice_of_blend(value: Any, name: str) -> bool | None:
    return None if value is None else as_flag(value, name)


class OnlineLinear(Model, Generic[S], abstract=True):
    """A model w that scores a row x by w'x and learns from one example after the other.

    A subclass declares its parameters and defines the methods that raise NotImplementedError here.
    """

    sketch_size: int = integer(default=20, at_least=2, kw_only=False)
    loss: OnlineLossName = choice(ONLINE_LOSSES, default="logistic")
    loss_scale: float = real(default=1.0, low_open=True)
    classes: Any = parameter(as_classes, default=None, reads="_known_classes")
    class_weight: ClassWeight = parameter(as_class_weight, default=None)
    decay: float = real(default=1.0, high=1.0, low_open=True)
    drift: Literal["restart"] | None = choice(("restart", None), default=None)
    open_columns: bool = flag(default=False)
    hash_bits: int | None = integer(default=None, at_least=1, below=MOST_BITS + 1)
    fit_intercept: bool = flag(default=True)
    scale: Literal["moments"] | None = choice(("moments", None), default="moments")
    calibrate: bool = flag(default=True)
    blend: bool | None = parameter(_as_choice_of_blend, default=None)

    def _check(self) -> None:
        for name in ("open_columns", "hash_bits"):
            if self._values[name] and not (self._takes_sparse() and self._by_slot()):
                raise ValueError(f"{name} {NO_SPARSE_FORM}")
        if self.blend and not self.calibrate:
            raise ValueError("blend needs calibrate: the scores of both learners are weighed as they are calibrated")
        if self.blend and not self._may_blend():
            raise ValueError(f"blend: what it adds is the model itself with {self._method()}")
        if LOSSES[self.loss].targets == "label":
            return
        for name in ("classes", "class_weight"):
            if self._values[name] is not None:
                raise ValueError(f"{name} belongs to labels, and loss={self.loss!r} takes real targets")

    # -- what a subclass defines -----------------------------------------------------------------------------------
    def _takes_sparse(self) -> bool:
        """Whether there is a form for sparse rows."""
        raise NotImplementedError

    def _start(self, d: int, sparse: bool, zeros: Zeros = np.zeros, slots: int | None = None) -> S:
        """The state before the first row; with zeros=outline, one of the same shapes that takes no memory.

        d: columns that there may be; slots: of sparse rows, how many the arrays have room for, d if not given.
        """
        raise NotImplementedError

    def _check_fading(self, rule: str) -> None:
        """ValueError that begins with `rule` unless H can fade."""
        raise NotImplementedError

    def _by_slot(self) -> bool:
        """Whether columns of sparse rows get their slots as they appear, and not all at once."""
        return True

    def _cause(self, learned: S) -> str:
        """Why the coefficients left the range of numbers."""
        raise NotImplementedError

    def _may_blend(self) -> bool:
        """Whether a diagonal learner beside this one is another one."""
        return True

    def _blends_numbers(self) -> bool:
        """Whether to blend for real targets if nothing is said: with steps that know the scale of the targets."""
        raise NotImplementedError

    def _method(self) -> str:
        return f"method={self._values['method']!r}"

    # -- learning --------------------------------------------------------------------------------------------------
    def _blends(self) -> bool:
        if LOSSES[self.loss].targets == "label":
            return self.calibrate and self._may_blend() and self.blend is not False
        if self.loss != "square" or not self.calibrate or not self._may_blend():
            return False
        return self._blends_numbers() if self.blend is None else self.blend

    def _start_beside(
        self, d: int, sparse: bool, zeros: Zeros = np.zeros, slots: int | None = None
    ) -> _diagonal.DiagonalState:
        """The diagonal learner before the first row, with whose scores to blend; arguments as of ``_start``."""
        of_labels = LOSSES[self.loss].targets == "label"
        loss = LOSSES["logistic" if of_labels else self.loss].number
        setting = _diagonal.DiagonalSetting(DIAGONAL, loss, NO_PENALTY, False, 0.0, self.decay, in_units=not of_labels)
        rate = np.array([RATE_BESIDE if of_labels else RATE_OF_NUMBERS])
        delta = np.array([DELTA_BESIDE])
        return _diagonal.start(setting, rate, delta, d=d if slots is None else slots, sparse=sparse, zeros=zeros)

    def _calibrates(self) -> bool:
        return self.calibrate and LOSSES[self.loss].targets == "label"

    def _begin(self) -> None:
        self._kept: Kept[S] | None = None
        self._comparator: Floats | None = None
        self._coef: Floats | None = None
        self._names = Names(self.hash_bits)
        self.last_scores: NDArray[np.float64] = np.empty(0)

    @property
    def _learned(self) -> S | None:
        """The first state."""
        return None if self._kept is None else self._kept.states.held[0]

    def _labels(self) -> Labels | None:
        """What is known of labels; None where targets are real."""
        if self._kept is not None:
            return self._kept.labels
        if LOSSES[self.loss].targets != "label":
            return None
        given: tuple[Label, ...] | None = self._values["classes"]
        return Labels(in_order(given or ()), given=given is not None)

    def _metrics(self, zeros: Zeros = np.zeros) -> Metrics:
        return _metrics.start(self.loss, self.decay, zeros, calibrated=self._calibrates())

    def _watch(self) -> _drift.Watch | None:
        return None if self.drift is None else _drift.start()

    def _known_classes(self) -> NDArray[Any] | None:
        labels = self._labels()
        return None if labels is None else labels.classes()

    @changes
    def update(self, rows: Any, targets: Any, *, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from one example or many, each scored before it is learned from.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d), or rows with names
            Real and finite. The first row decides between the dense form and the sparse one, which is for CSR rows with
            at most 30% of their columns; later rows may come as either. Rows with names are a dict {name: value}, or a
            list of dicts, or of lists of names and pairs (name, value), as ``fastsketch.features.Vocabulary`` reads
            them; a model takes either these or numbered columns.
        targets : array_like (n,), or one for one row
            For loss="squared_hinge" and "logistic" labels: integers, bools or strings, two classes or more. New ones
            are added as they come, unless ``classes`` are given. For other losses real numbers.
        sample_weight : array_like (n,) or float, optional
            Nonnegative; each multiplies the loss of its example.

        Returns
        -------
        self
            ``last_scores`` holds the scores of each row, from before it was learned from: (n,), or (n, n_classes) for
            more than two classes, in the order of ``classes``, NaN for a class that had not appeared.

        Raises
        ------
        TypeError, ValueError
            For rows, targets or weights that cannot serve; the model is then as it was.
        FloatingPointError
            If the coefficients leave the range of numbers; the message names the cause, and the model is as it was.

        Notes
        -----
        The same bits for any split of a stream into batches.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> y = np.where(X @ [3.0, 0.0, -2.0, 0.0, 1.0] > 0, "yes", "no")
        >>> model = fs.SketchedNewton()
        >>> for start in range(0, 1000, 100):
        ...     _ = model.update(X[start : start + 100], y[start : start + 100])
        >>> model.n_rows, model.progress["error_rate"] < 0.1
        (1000, True)
        """
        if type(rows) is np.ndarray or self.open_columns or not is_table(rows):
            return self._learn(rows, targets, sample_weight)
        with self._named(names_of(rows), "rows"):
            return self._learn(rows, targets, sample_weight)

    def _learn(self, rows: Any, targets: Any, sample_weight: ArrayLike | None) -> Self:
        x = self._rows_to_learn(rows)
        n, d = x.shape
        if self._comparator is not None and len(self._comparator) != d:
            raise ValueError(f"rows must have {len(self._comparator)} columns as the comparator, got {d}")
        kept, labels = self._kept, self._labels()
        y, new = (as_numbers(targets, n), NOTHING_NEW) if labels is None else labels.read(targets, n)
        if new.rows and self._comparator is not None:
            cast(Labels, labels).require_comparable(new)
        counted = as_weights(sample_weight, n)
        weights = filled(n, self.loss_scale) if counted is None else counted * self.loss_scale
        if labels is not None and self.class_weight is not None:
            weights = weights * labels.weights(cast(Counts, y), new, self.class_weight)
        if kept is None or not (len(self.last_scores) or self.n_rows):  # or has seen no row that could decide
            few = is_sparse(x) and self._takes_sparse() and x[:1].nnz <= DENSE_ABOVE * d
            sparse = few or self.open_columns or isinstance(x, NamedRows)
            columns = self._first_columns(None if self.open_columns or self._names.is_open else d, sparse)
            kept = Kept[S].beginning(
                self._first_state(columns, sparse),
                None if labels is None else labels.copied(),
                columns,
                self._first_inputs(columns.first_room() if sparse else d, sparse),
                self._metrics(),
                self._watch(),
                beside=self._first_beside(columns, sparse),
                calibrate=self._calibrates(),
            )
        batch = kept.inputs.with_intercept(_as_csr(x)) if kept.sparse() else _as_dense(x)
        if isinstance(batch, Csr):
            batch = kept.columns.enter(batch, kept.n_slots())
        by_itself = n == 1 and kept is self._kept and not new.rows and self._comparator is None
        by_itself = by_itself and kept.is_atomic() and kept.has_room()
        if not by_itself:
            if kept is self._kept:
                kept = kept.copied()  # a refused or interrupted batch comes back to the original
            kept.make_room()
        self._coef = None
        try:
            if by_itself:
                scores = kept.learn_one(batch, y, weights, counted=counted)
            else:
                begin = lambda: self._late_state(kept)  # noqa: E731
                scores = kept.learn(batch, y, weights, counted=counted, new=new, begin=begin)
        except OutOfRange as refused:
            row = self.n_rows + refused.row + 1
            raise FloatingPointError(f"the squares of the features left the range of numbers in row {row}") from None
        except Unlearned as refused:
            raise FloatingPointError(
                f"the coefficients left the range of numbers in row {refused.row + 1}: "
                f"{self._cause(cast(S, refused.state))}"
            ) from None
        if self._comparator is not None:
            self._compare(kept, x, y, weights)
        self.last_scores, self._kept = scores, kept
        return self

    def _rows_to_learn(self, rows: Any) -> Any:
        """Rows as float64, finite; names get their columns."""
        given: Any = rows
        plain = given.dtype.kind != "O" if isinstance(rows, np.ndarray) else hasattr(given, "indptr")
        if plain and self._kept is not None and self._names.is_numbered():
            return self._as_rows(given)  # as most of a stream of single rows
        n_rows = self.n_rows
        if not self._names.reads(rows, n_rows):
            self._names.number(n_rows)
            return self._as_rows(given)
        if not (self._takes_sparse() and self._by_slot()):
            raise ValueError(f"rows with names: that {NO_SPARSE_FORM}")
        if self._comparator is not None:
            raise ValueError("comparator: it is a vector for numbered columns, and these rows have names")
        return self._names.enter(rows, n_rows)

    def _rows_to_score(self, rows: Any) -> Any:
        if self._names.reads(rows, self.n_rows):
            return self._names.find(rows, self.n_rows)
        if self._names.is_named(self.n_rows):
            raise ValueError(NAMED)
        self._require_columns(rows)
        return self._as_rows(rows)

    @changes
    def fade(self, factor: float) -> Self:
        """Let what came before count a factor in (0, 1] of what it did in H and in the read-out: ``decay`` by hand.

        Once a batch, or once a day, where rows come unevenly. Not in the metrics of ``progress``.

        Parameters
        ----------
        factor : float

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the model's H cannot fade, as ``decay`` says.
        """
        factor = as_real(factor, "factor", 0.0, 1.0, low_open=True)
        self._check_fading("there is no fade")
        if self._kept is not None:
            kept = self._kept.copied()
            for states in filter(None, (kept.states, kept.later)):
                states.fade(factor)
            self._kept = kept
        return self

    def _as_rows(self, rows: Rows) -> Any:
        try:
            x: Any = as_rows(rows)
        except (TypeError, ValueError) as error:
            refuse_lazy(rows)
            if not holds_words(rows):
                raise
            raise type(error)(f"{error}; {WORDS}") from None
        width = self.n_features
        if width is not None and x.shape[1] != width:
            wide = self._takes_sparse() and self._by_slot() and x.shape[1] > width
            more = ": open_columns=True takes rows of any width" if wide else ""
            raise ValueError(f"rows must have {width} columns as the rows before, got {x.shape[1]}{more}")
        if x.dtype is not FLOAT64 and x.dtype != FLOAT64:  # a pickled array has an object of its own
            x = x.astype(FLOAT64)
        check_finite(x)
        return x

    def _first_columns(self, width: int | None, sparse: bool) -> Columns:
        at_once = sparse and not self._by_slot()
        return Columns.beginning(width, all_at_once=at_once, intercept=self.fit_intercept)

    def _first_inputs(self, n_slots: int, sparse: bool, zeros: Zeros = np.zeros) -> Inputs:
        return start_inputs(
            n_slots, sparse=sparse, intercept=self.fit_intercept, scaled=self.scale is not None, zeros=zeros
        )

    def _first_state(self, columns: Columns, sparse: bool) -> S:
        most = columns.most + self.fit_intercept
        state = self._start(most, sparse, slots=columns.first_room() if sparse else None)
        if sparse and not self._by_slot():
            state.seen[0] = len(columns)
        return state

    def _first_beside(self, columns: Columns, sparse: bool) -> Learned | None:
        """The learner to blend with, if there is to be one."""
        if not self._blends():
            return None
        most = columns.most + self.fit_intercept
        return self._start_beside(most, sparse, slots=columns.first_room() if sparse else None)

    def _late_state(self, kept: Kept[S]) -> tuple[S, Learned | None]:
        """The state of a class that appears now, and the learner beside it."""
        state, beside = self._first_state(kept.columns, kept.sparse()), self._first_beside(kept.columns, kept.sparse())
        if kept.sparse():
            for one in (state, beside):
                if one is not None:
                    one.make_slots(len(kept.columns))
        return state, beside

    def _compare(self, kept: Kept[S], x: Any, y: NDArray[Any], weights: Floats) -> None:
        """Add the loss of the comparator."""
        if kept.labels is not None:
            y = kept.states.targets(y)[0] * kept.sign()
        regret = kept.states.held[0].regret
        theirs = weights * self._loss(np.asarray(x @ cast(Floats, self._comparator), np.float64), y)
        # one after the other, so that a split into batches changes no bit
        regret[THEIRS] = np.cumsum(np.concatenate([regret[:1], theirs]))[-1]

    def _loss(self, z: Floats, y: Floats) -> Floats:
        return LOSSES[self.loss].value(z, y, as_loss_parameter(self.loss, None))

    @changes
    def compare_with(self, comparator: ArrayLike) -> Self:
        """Measure regret against these fixed coefficients from here on.

        Parameters
        ----------
        comparator : array_like (d,)
            Of two classes, those whose positive scores mean the last in order.

        Returns
        -------
        self
            ``progress["regret"]`` is the model's loss minus theirs, on the rows that follow.

        Raises
        ------
        ValueError
            If it is no finite vector of the width of the rows, or there are more than two classes.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> y = np.where(X @ [3.0, 0.0, -2.0, 0.0, 1.0] > 0, "yes", "no")
        >>> model = fs.SketchedNewton(classes=["no", "yes"]).compare_with([3.0, 0.0, -2.0, 0.0, 1.0]).update(X, y)
        >>> progress = model.progress
        >>> progress["regret"] < progress["cumulative_loss"]
        True
        """
        if self._names.is_open and self._kept is not None:
            raise ValueError("comparator: it is a vector for numbered columns, and this model learns from names")
        fixed = as_vector(comparator, self.n_features or len(np.atleast_1d(np.asarray(comparator))), "comparator")
        if fixed.ndim != 1:
            raise ValueError(f"comparator must be a vector, got shape {fixed.shape}")
        labels = self._labels()
        if labels is not None and n_states(len(labels.known)) > 1:
            raise ValueError(f"comparator: one vector is for two classes, and there are {len(labels.known)}")
        if self._kept is not None:
            kept = self._kept.copied()
            regret = kept.states.held[0].regret
            regret[THEIRS], regret[BEFORE] = 0.0, kept.states.totals()[1]
            self._kept = kept
        self._comparator = fixed.astype(np.float64)
        return self

    # -- what it knows: never changes the state --------------------------------------------------------------------
    def _prepared_coef(self) -> Floats:
        """w as people see classes, but of prepared rows, and by slot where rows are sparse."""
        if self._kept is None:
            raise ValueError("the model has seen no rows: call update first")
        if self._coef is None:
            self._coef = self._kept.shown(self._kept.coefs())
        return self._coef

    @property
    @reads
    def coef(self) -> NDArray[np.float64]:
        """w, (d,) float64; of more than two classes (n_classes, d), in the order of ``classes``.

        On the scale of the features as they came, without the intercept. With scale="moments" sparse rows have their
        scores w'x divided by the length that they have once scaled.
        """
        w, kept = self._prepared_coef(), cast(Kept[S], self._kept)
        w, _ = kept.inputs.for_features(w)
        return kept.columns.by_column(w) if kept.sparse() else w.copy()

    @property
    @reads
    def intercept(self) -> float | NDArray[np.float64]:
        """What is added to the score; of more than two classes (n_classes,)."""
        w, kept = self._prepared_coef(), cast(Kept[S], self._kept)
        _, added = kept.inputs.for_features(w)
        if kept.sparse():
            added = added + kept.columns.intercept(w)
        if self._calibrates():
            added = added + (kept.intercepts() if w.ndim > 1 else kept.intercepts()[0])
        return float(added) if w.ndim == 1 else added

    def _scores(self, x: Any) -> Floats:
        """Scores of rows (n,), or (n, n_classes); of sparse rows without making w for all columns."""
        w, kept = self._prepared_coef(), cast(Kept[S], self._kept)
        batch = kept.inputs.with_intercept(_as_csr(x) if kept.sparse() else _as_dense(x))
        if isinstance(batch, Csr):
            batch = kept.columns.found(batch, w.shape[-1])
        try:
            batch = kept.inputs.scaled(batch, w.shape[-1])
        except OutOfRange as refused:
            raise FloatingPointError(f"rows: the squares of row {refused.row} leave the range of numbers") from None
        scores = products(batch, w) if isinstance(batch, Csr) else np.asarray(batch @ w.T, np.float64)
        return scores + kept.intercepts() if self._calibrates() else scores

    @reads
    def decision_function(self, rows: Any) -> NDArray[np.float64]:
        """The score w'x of every row; of two classes the last in order is the positive one.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d), or rows with names
            As those that were learned from; names that have not been seen count nothing.

        Returns
        -------
        ndarray (n,) float64, or (n, n_classes) for more than two classes

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> y = np.where(X @ [3.0, 0.0, -2.0, 0.0, 1.0] > 0, "yes", "no")
        >>> model = fs.SketchedNewton().update(X, y)
        >>> model.decision_function([[1.0, 0, 0, 0, 0], [0, 0, 1.0, 0, 0]]) > 0
        array([ True, False])
        """
        return self._scores(self._rows_to_score(rows))

    @reads
    def predict(self, rows: Any) -> NDArray[Any]:
        """Predictions on the scale of the targets.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d), or rows with names
            As those that were learned from; names that have not been seen count nothing.

        Returns
        -------
        ndarray (n,)
            For loss="logistic" and "squared_hinge" labels as they were given: of two classes the last in order where
            the score is above 0, of more the one of the largest score. For other losses the score itself.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> y = np.where(X @ [3.0, 0.0, -2.0, 0.0, 1.0] > 0, "yes", "no")
        >>> model = fs.SketchedNewton().update(X, y)
        >>> model.predict([[1.0, 0, 0, 0, 0], [0, 0, 1.0, 0, 0]])
        array(['yes', 'no'], dtype='<U3')
        """
        scores = self.decision_function(rows)
        classes = self._known_classes()
        if classes is None:
            return scores
        if len(classes) == 0:
            raise ValueError("the model has seen no labels: call update first")
        if len(classes) == 1:
            return np.repeat(classes, len(scores))
        return classes[(scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)]

    @reads
    def predict_proba(self, rows: Any) -> NDArray[np.float64]:
        """The probability of every class, for losses of labels.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d), or rows with names
            As those that were learned from; names that have not been seen count nothing.

        Returns
        -------
        ndarray (n, n_classes) float64
            In the order of ``classes``. Of more than two, those of each class against the rest, divided by their sum.

        Raises
        ------
        ValueError
            If the loss takes real targets.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> y = np.where(X @ [3.0, 0.0, -2.0, 0.0, 1.0] > 0, "yes", "no")
        >>> model = fs.SketchedNewton().update(X, y)
        >>> model.predict_proba([[1.0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]).round(1)
        array([[0. , 1. ],
               [0.5, 0.5]])
        """
        if LOSSES[self.loss].targets != "label":
            raise ValueError(f"predict_proba needs a loss of labels, this model has loss={self.loss!r}")
        scores = self.decision_function(rows)
        n_classes = len(cast(Labels, self._labels()).known)
        p = _readout.probabilities(scores) if self._calibrates() else _probability(self.loss, scores)
        if n_classes <= 1:
            return np.ones((len(p), n_classes))
        if p.ndim == 1:
            return np.stack([1.0 - p, p], axis=1)
        total = p.sum(axis=1, keepdims=True)
        return np.where(total > 0, p / np.where(total > 0, total, 1.0), 1.0 / n_classes)

    @property
    @reads
    def feature_names(self) -> FeatureNames | None:
        """Names of the columns: those of the first table, or the vocabulary of rows with names; None without any."""
        known = self._names.known(self.n_rows)
        return tuple(known) if known else self._feature_names

    @property
    @reads
    def vocabulary(self) -> Vocabulary | None:
        """The names of the columns, for rows with names and without ``hash_bits``: a copy; None for other rows."""
        known = self._names.known(self.n_rows)
        return None if known is None else Vocabulary(known, unknown="ignore")

    @reads
    def top_features(self, n: int = 10, label: Any = None) -> "list[Weighed] | dict[Any, list[Weighed]]":
        """The features whose weights are largest in absolute value.

        Parameters
        ----------
        n : int, default 10
            At most so many; features of weight 0 are left out.
        label : optional
            One of ``classes``: a positive weight speaks for it. None: of two classes the last, of more each of them.

        Returns
        -------
        list of (name or column, weight)
            Largest first; with scale="moments" by weight times what the feature was divided by, its root mean square
            (of dense rows its standard deviation), which is how much it moves scores. Weights are those of ``coef``.
            Names where rows have them, unless ``hash_bits`` is given: a hash tells no names. For more than two classes
            and label=None a dict of such lists by label.

        Raises
        ------
        ValueError
            If the model has seen no rows, or the label is none of its classes.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> rows = [{"colour": colour, "size": rng.random()} for colour in rng.choice(["red", "blue"], 500)]
        >>> bought = [row["colour"] == "red" for row in rows]
        >>> model = fs.SketchedNewton().update(rows, bought)
        >>> [(name, weight > 0) for name, weight in model.top_features(2, label=True)]
        [('colour=red', True), ('colour=blue', False)]
        """
        n = as_integer(n, "n", 1)
        w, kept, classes = self._prepared_coef(), cast(Kept[S], self._kept), self._known_classes()
        # as the rows came, and as they are learned from: without scaling the same
        shown, learned = np.atleast_2d(kept.inputs.for_features(w)[0]), np.atleast_2d(w)
        m = shown.shape[1]
        columns = kept.columns.array(m) if kept.sparse() else cast("Counts", np.arange(m))
        own = cast(NDArray[np.bool_], columns != INTERCEPT)
        names = self.feature_names

        def of(number: int) -> list[Weighed]:
            k, sign = (number, 1.0) if len(shown) > 1 else (0, 1.0 if number else -1.0)
            return largest(sign * shown[k, own], np.abs(learned[k, :m][own]), columns[own], n, names=names)

        if classes is None:
            if label is not None:
                raise ValueError(f"label: loss={self.loss!r} takes real targets, and this model has no classes")
            return of(1)
        found: list[Any] = classes.tolist()
        if label is not None:
            if label not in found:
                raise ValueError(f"label must be one of {found}, got {label!r}")
            # the only class that has come is the positive one
            return of(found.index(label) if len(found) > 1 else 1)
        return of(1) if len(found) <= 2 else {one: of(number) for number, one in enumerate(found)}

    @property
    @reads
    def progress(self) -> Progress:
        """n_rows, cumulative_loss, mean_loss, error_rate and regret (None without a comparator).

        error_rate is that of the signs of scores and targets; of more than two classes, of the largest score. With
        more than two classes the loss of a row is the sum of those of each class against the rest.

        The others count each row with its sample_weight, and decay^age: of labels log_loss (of probabilities clipped
        to [2^-52, 1 - 2^-52]), accuracy (of the prediction, 1 - error_rate without weights and decay) and, for two
        classes, auc (of scores cut to seven significant bits, which leaves it right to 2e-4); of real targets
        mean_absolute_error and root_mean_squared_error. None is what does not belong to the loss.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> y = np.where(X @ [3.0, 0.0, -2.0, 0.0, 1.0] > 0, "yes", "no")
        >>> progress = fs.SketchedNewton().update(X, y).progress
        >>> progress["n_rows"], progress["accuracy"] > 0.9, progress["auc"] > 0.95
        (1000, True, True)
        """
        n_rows, loss, mistakes = (0, 0.0, 0) if self._kept is None else self._kept.states.totals()
        regret = None
        if self._learned is not None and self._comparator is not None:
            regret = float(loss - self._learned.regret[BEFORE] - self._learned.regret[THEIRS])
        return {
            "n_rows": n_rows,
            "cumulative_loss": loss,
            "mean_loss": loss / max(n_rows, 1),
            "error_rate": mistakes / max(n_rows, 1),
            "regret": regret,
            **(self._metrics() if self._kept is None else self._kept.metrics).figures(),
        }

    @property
    def n_rows(self) -> int:
        """Rows learned from."""
        return 0 if self._kept is None else self._kept.states.totals()[0]

    @property
    @reads
    def restarts(self) -> NDArray[np.int64]:
        """Numbers of rows after which a model with drift="restart" began anew, the last thousand; (k,)."""
        watch = None if self._kept is None else self._kept.watch
        return np.zeros(0, np.int64) if watch is None else watch.drift_rows.copy()

    @property
    def n_features(self) -> int | None:
        """Columns of the rows; None before the first, and with ``open_columns``."""
        return None if self._kept is None else self._kept.columns.width

    def _seen(self) -> str:
        if self._kept is None or self.n_features is not None:
            return super()._seen()
        return f"{self.n_rows} rows with {self._kept.n_slots() - self.fit_intercept} features so far"

    def _facts(self) -> dict[str, Any]:
        facts = {name: value for name, value in self.progress.items() if name != "n_rows" and value is not None}
        return facts if self.drift is None else {**facts, "restarts": self.restarts.tolist()}

    # -- keeping it ------------------------------------------------------------------------------------------------
    def _state(self) -> tuple[dict[str, Any], Arrays]:
        arrays: Arrays = {} if self._comparator is None else {"comparator": self._comparator}
        if self._kept is None:
            return {"sparse": None}, arrays
        state, more = self._kept.saved()
        named, names = self._names.saved(self.n_rows)
        return {**state, **named}, {**arrays, **more, **names}

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        sparse, comparator = state["sparse"], arrays.get("comparator")
        if comparator is not None:
            checks.finite(arrays, "comparator", (comparator.size,))
        if sparse is None:
            checks.only(arrays, "comparator")
            return
        if as_flag(sparse, "sparse") and not self._takes_sparse():
            raise ValueError("a model of these parameters has no form for sparse rows")
        names = Names.read_back(state, arrays, self.hash_bits, 0)
        if names.is_open and not (sparse and comparator is None):
            raise ValueError("a model of rows with names learns from sparse rows, and has no comparator")
        is_open = self.open_columns or names.is_open
        columns = Columns.checked(state, arrays, is_open=is_open, intercept=self.fit_intercept)
        if names.is_open:
            names.require_columns(arrays["columns"])
        if columns.width is not None and comparator is not None and len(comparator) != columns.width:
            raise ValueError(f"its rows have {columns.width} columns, its comparator {len(comparator)}")
        if ("labels" in state) != (LOSSES[self.loss].targets == "label"):
            has, takes = ("labels", "real targets") if "labels" in state else ("no labels", "labels")
            raise ValueError(f"it has {has}, and loss={self.loss!r} takes {takes}")
        most = columns.most + self.fit_intercept
        Kept[S].validate(
            state,
            arrays,
            lambda slots: self._start(most, sparse, outline, slots if sparse else None),
            (lambda slots: self._start_beside(most, sparse, outline, slots if sparse else None))
            if self._blends()
            else None,
            self._metrics(outline),
            self._watch(),
            self._values["classes"],
            self._first_inputs(1, sparse, outline),
            calibrate=self._calibrates(),
        )

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._comparator = arrays.get("comparator")
        if state["sparse"] is None:
            return
        columns, sparse = Columns.read_back(state, arrays), state["sparse"]
        most = columns.most + self.fit_intercept
        self._kept = Kept[S].read_back(
            state,
            arrays,
            lambda slots: self._start(most, sparse, slots=slots if sparse else None),
            (lambda slots: self._start_beside(most, sparse, slots=slots if sparse else None))
            if self._blends()
            else None,
            columns,
            self._first_inputs(1, sparse),
            self._metrics(),
            self._watch(),
            calibrate=self._calibrates(),
            given=self._values["classes"] is not None,
        )
        self._names = Names.read_back(state, arrays, self.hash_bits, self.n_rows)

    def _keep_in_memory(self, other: Any) -> None:
        other.last_scores = self.last_scores.copy()


def _probability(loss: str, z: Floats) -> Floats:
    """The probability of the positive class, or of each class against the rest, at these scores."""
    if loss == "squared_hinge":
        return 0.5 + 0.5 * np.clip(z, -1.0, 1.0)  # the score of least expected loss is 2 p - 1
    return expected(loss, z)


def filled(n: int, value: float) -> Floats:
    """np.full, in a fifth of its time for one entry."""
    return np.array([value]) if n == 1 else np.full(n, value)


def _as_csr(rows: Any) -> Csr:
    if isinstance(rows, NamedRows):
        return rows.csr
    if not is_sparse(rows):
        from scipy.sparse import csr_array

        rows = csr_array(rows)
    return Csr(
        in_place(rows.data, np.float64),
        in_place(rows.indices, np.int32),
        in_place(rows.indptr, np.int64),
    )


def _as_dense(rows: Any) -> Batch:
    return in_place(rows if isinstance(rows, np.ndarray) else rows.toarray(), np.float64)
