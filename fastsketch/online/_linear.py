"""What all online linear models share: batches taken in whole or not at all, scores, progress, regret, state."""

from typing import Any, ClassVar, Generic, Self, TypedDict, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._kernels.guard import changes, reads
from fastsketch._losses import LOSSES, ONLINE_LOSSES, OnlineLossName, as_loss_parameter, as_targets, expected
from fastsketch._model import Arrays, Model
from fastsketch._parameters import choice, integer, real
from fastsketch._validation import (
    Rows,
    all_finite,
    as_flag,
    as_numbers,
    as_real,
    as_rows,
    as_vector,
    as_weights,
    check_finite,
    in_place,
    is_sparse,
)
from fastsketch.io import _checks as checks
from fastsketch.online._state import BEFORE, THEIRS, Batch, Csr, Floats, Learned, Zeros, outline

# Share of nonzeros above which rows are learned from as dense ones.
DENSE_ABOVE = 0.3
FLOAT64 = np.dtype(np.float64)

S = TypeVar("S", bound=Learned)


class Progress(TypedDict):
    """How a model has done so far, each row predicted before it was learned from."""

    n_rows: int
    cumulative_loss: float
    mean_loss: float
    error_rate: float
    regret: float | None


class OnlineLinear(Model, Generic[S], abstract=True):
    """A model w that scores a row x by w'x and learns from one example after the other.

    A subclass declares its parameters and defines the methods that raise NotImplementedError here.
    """

    _RENAMED = {"n_rounds": "n_rows", "weights": "coef", "last_predictions": "last_scores"}
    # {name of an array in files of schema 1: name}
    _ARRAYS_OF_SCHEMA_1: ClassVar[dict[str, str]] = {}

    sketch_size: int = integer(default=20, at_least=2, kw_only=False)
    loss: OnlineLossName = choice(ONLINE_LOSSES, default="squared_hinge")
    loss_scale: float = real(default=1.0, low_open=True)

    # -- what a subclass defines -----------------------------------------------------------------------------------
    def _takes_sparse(self) -> bool:
        """Whether there is a form for sparse rows."""
        raise NotImplementedError

    def _start(self, d: int, sparse: bool, zeros: Zeros = np.zeros) -> S:
        """The state before the first row; with zeros=outline, one of the same shapes that takes no memory."""
        raise NotImplementedError

    def _check_fading(self, rule: str) -> None:
        """ValueError that begins with `rule` unless H can fade."""
        raise NotImplementedError

    def _cause(self, learned: S) -> str:
        """Why the coefficients left the range of numbers."""
        raise NotImplementedError

    # -- learning --------------------------------------------------------------------------------------------------
    def _begin(self) -> None:
        self._learned: S | None = None
        self._comparator: Floats | None = None
        self._coef: Floats | None = None
        self.last_scores: NDArray[np.float64] = np.empty(0)

    @changes
    def update(self, rows: Rows, targets: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from one example or many, each scored before it is learned from.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d)
            Real and finite. The first batch decides between the sparse and the dense form.
        targets : array_like (n,) or float
        sample_weight : array_like (n,) or float, optional
            Nonnegative; each multiplies the loss of its example.

        Returns
        -------
        self
            ``last_scores`` (n,) holds the score of each row, from before it was learned from.

        Raises
        ------
        TypeError, ValueError
            For rows, targets or weights that cannot serve; the model is then as it was.
        FloatingPointError
            If the coefficients leave the range of numbers; the message names the cause, and the model is as it was.

        Notes
        -----
        The same bits for any split of a stream into batches.
        """
        x: Any = as_rows(rows, self.n_features)
        n, d = x.shape
        if self._comparator is not None and len(self._comparator) != d:
            raise ValueError(f"rows must have {len(self._comparator)} columns as the comparator, got {d}")
        y = as_targets(as_numbers(targets, n), self.loss)
        weights = as_weights(sample_weight, n)
        weights = filled(n, self.loss_scale) if weights is None else weights * self.loss_scale
        if x.dtype is not FLOAT64:
            x = x.astype(FLOAT64)
        check_finite(x)
        learned = self._learned
        if learned is None:
            sparse = is_sparse(x) and self._takes_sparse() and x.nnz <= DENSE_ABOVE * n * d
            learned = self._start(d, sparse)
        elif n != 1 or self._comparator is not None or not learned.is_atomic():
            learned = learned.copied()  # a refused or interrupted batch comes back to the original
        scores = filled(n, np.nan)
        self._coef = None
        batch = _as_csr(x) if learned.sparse else _as_dense(x)
        learned.prepare(batch)
        try:
            learned.learn(batch, y, weights, scores)
        except np.linalg.LinAlgError:
            scores[-1] = np.nan  # numbers of such sizes that no factorisation is left
        if not all_finite(scores):
            raise FloatingPointError(
                f"the coefficients left the range of numbers in row {learned.totals()[0] + 1}: {self._cause(learned)}"
            )
        if self._comparator is not None:
            theirs = weights * self._loss(np.asarray(x @ self._comparator, np.float64), y)
            # one after the other, so that a split into batches changes no bit
            learned.regret[THEIRS] = np.cumsum(np.concatenate([learned.regret[:1], theirs]))[-1]
        self.last_scores, self._learned = scores, learned
        return self

    @changes
    def fade(self, factor: float) -> Self:
        """Let what came before count a factor in (0, 1] of what it did in H: ``decay`` per batch, or per day.

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
        if self._learned is not None:
            learned = self._learned.copied()
            learned.fade(factor)
            self._learned = learned
        return self

    def _loss(self, z: Floats, y: Floats) -> Floats:
        return LOSSES[self.loss].value(z, y, as_loss_parameter(self.loss, None))

    @changes
    def compare_with(self, comparator: ArrayLike) -> Self:
        """Measure regret against these fixed coefficients from here on.

        Parameters
        ----------
        comparator : array_like (d,)

        Returns
        -------
        self
            ``progress["regret"]`` is the model's loss minus theirs, on the rows that follow.
        """
        fixed = as_vector(comparator, self.n_features or len(np.atleast_1d(np.asarray(comparator))), "comparator")
        if fixed.ndim != 1:
            raise ValueError(f"comparator must be a vector, got shape {fixed.shape}")
        if self._learned is not None:
            learned = self._learned.copied()
            learned.regret[THEIRS], learned.regret[BEFORE] = 0.0, learned.totals()[1]
            self._learned = learned
        self._comparator = fixed.astype(np.float64)
        return self

    # -- what it knows: never changes the state --------------------------------------------------------------------
    @property
    @reads
    def coef(self) -> NDArray[np.float64]:
        """w, (d,) float64."""
        if self._learned is None:
            raise ValueError("the model has seen no rows: call update first")
        if self._coef is None:
            self._coef = self._learned.coef()
        return self._coef.copy()

    def decision_function(self, rows: Rows) -> NDArray[np.float64]:
        """The score w'x of every row.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d)

        Returns
        -------
        ndarray (n,) float64
        """
        coef = self.coef
        x: Any = as_rows(rows, self.n_features)
        check_finite(x)
        return np.asarray(x @ coef, np.float64)

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """Predictions on the scale of the targets.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d)

        Returns
        -------
        ndarray (n,) float64
            For loss="logistic" and "squared_hinge" labels: +1 where the score is above 0, else -1. For other losses
            the score itself.
        """
        scores = self.decision_function(rows)
        return np.where(scores > 0, 1.0, -1.0) if LOSSES[self.loss].targets == "label" else scores

    def predict_proba(self, rows: Rows) -> NDArray[np.float64]:
        """The probability of the label +1, for loss="logistic" alone.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d)

        Returns
        -------
        ndarray (n,) float64

        Raises
        ------
        ValueError
            If the model has another loss.
        """
        if self.loss != "logistic":
            raise ValueError(f"predict_proba needs loss='logistic', this model has loss={self.loss!r}")
        return expected(self.loss, self.decision_function(rows))

    @property
    @reads
    def progress(self) -> Progress:
        """n_rows, cumulative_loss, mean_loss, error_rate (of signs) and regret (None without a comparator)."""
        n_rows, loss, mistakes = (0, 0.0, 0) if self._learned is None else self._learned.totals()
        regret = None
        if self._learned is not None and self._comparator is not None:
            regret = float(loss - self._learned.regret[BEFORE] - self._learned.regret[THEIRS])
        return {
            "n_rows": n_rows,
            "cumulative_loss": loss,
            "mean_loss": loss / max(n_rows, 1),
            "error_rate": mistakes / max(n_rows, 1),
            "regret": regret,
        }

    @property
    def n_rows(self) -> int:
        """Rows learned from."""
        return 0 if self._learned is None else self._learned.totals()[0]

    @property
    def n_features(self) -> int | None:
        """Columns of the rows; None before the first."""
        return None if self._learned is None else self._learned.base.shape[-1]

    def _facts(self) -> dict[str, Any]:
        return {name: value for name, value in self.progress.items() if name != "n_rows" and value is not None}

    # -- keeping it ------------------------------------------------------------------------------------------------
    def _state(self) -> tuple[dict[str, Any], Arrays]:
        arrays: Arrays = {} if self._comparator is None else {"comparator": self._comparator}
        if self._learned is None:
            return {"sparse": None}, arrays
        return {"sparse": self._learned.sparse}, {**arrays, **self._learned.saved()}

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        sparse, comparator = state["sparse"], arrays.get("comparator")
        if comparator is not None:
            checks.finite(arrays, "comparator", (comparator.size,))
        if sparse is None:
            checks.only(arrays, "comparator")
            return
        if as_flag(sparse, "sparse") and not self._takes_sparse():
            raise ValueError("a model of these parameters has no form for sparse rows")
        shape = arrays["base"].shape
        if not shape or shape[-1] < 1 or (comparator is not None and comparator.shape != shape[-1:]):
            raise ValueError(f"array 'base' has shape {shape}, which fits neither a model nor its comparator")
        self._start(shape[-1], sparse, outline).validate_all(arrays)

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._comparator = arrays.get("comparator")
        if state["sparse"] is None:
            return
        learned = self._start(arrays["base"].shape[-1], state["sparse"])
        learned.take(arrays)
        self._learned = learned

    def _keep_in_memory(self, other: Any) -> None:
        other.last_scores = self.last_scores.copy()

    @classmethod
    def _from_schema_1(cls, params: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], dict[str, Any], Arrays]:
        parameters, state, arrays = super()._from_schema_1(params, arrays)
        if parameters.get("loss") == "square":
            parameters["loss_scale"] = 2.0  # it was (z - y)^2
        return parameters, state, {cls._ARRAYS_OF_SCHEMA_1.get(name, name): array for name, array in arrays.items()}


def filled(n: int, value: float) -> Floats:
    """np.full, in a fifth of its time for one entry."""
    return np.array([value]) if n == 1 else np.full(n, value)


def _as_csr(rows: Any) -> Batch:
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
