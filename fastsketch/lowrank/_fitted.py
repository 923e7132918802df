"""Result of a low-rank fit: factors, biases, ridges and history, with its scores and its saved state."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, NamedTuple, Self, TypedDict

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.threads import one_blas_thread
from fastsketch._core.validation import as_dtype, as_integer, as_real
from fastsketch.data.files import _checks as checks
from fastsketch.data.files._checks import as_figure
from fastsketch.lowrank._data import Array
from fastsketch.lowrank._setting import LEARNED, Ridges

# Number of pairs whose scores are computed at a time, and number of entries of a tile of `score_block`.
PAIRS_PER_BLOCK, TILE_ENTRIES = 2_000_000, 1 << 16
MAX_FLOAT = float(np.finfo(np.float64).max)
RIDGE_FIELDS = tuple(each.name for each in fields(Ridges))
# Fields of Fitted that state files store under their own names.
ARRAY_FIELDS = ("left", "right", "row", "column", "path", "learned")
SCALAR_FIELDS = ("level", "selected_rank", "loss_parameter", "n_observations", "standard_error")

Score = tuple[float, float]  # mean loss, and the standard error of that mean


class HistoryLine(TypedDict):
    """Dict with the objective, the time and the validation loss that a fit had at one rank.

    Attributes
    ----------
    rank : int
    objective : float
        Sum of the losses over the observed entries.
    seconds : float
        Time since the fit began.
    validation : float or None
        Mean loss of the held-out entries; None without any.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rng = np.random.default_rng(0)
    >>> model = fs.LowRankModel(2, biases=False).fit(rng.standard_normal((20, 2)) @ rng.standard_normal((2, 10)))
    >>> [line["rank"] for line in model.history]
    [0, 1, 2]
    >>> model.history[-1]["objective"] < model.history[0]["objective"]
    True
    """

    rank: int
    objective: float
    seconds: float
    validation: float | None


class SelectionLine(TypedDict):
    """Dict that describes one candidate model of a selection, and its loss on held-out entries."""

    rank: int
    ridge: float | Literal["learned"] | None  # None: the model of biases alone
    bias_ridge: float
    validation: float  # mean loss of the held-out entries
    standard_error: float  # of that mean
    gain: float  # mean held-out loss of biases alone, minus `validation`
    gain_error: float  # standard error of `gain`, from the paired differences


class Side(NamedTuple):
    """Factors and biases of all rows, or of all columns, of a low-rank model."""

    factors: Array  # (m, t)
    biases: Array  # (m,)


def select_side(
    factors: Array, biases: Array, indices: NDArray[np.int64], coefficients: Array | None, level: float
) -> Side:
    """Return the factors and biases of the given rows (or columns) of a model, as a new Side.

    Factors are multiplied by `coefficients` (t,) unless they are None, and `level` is added to biases. Index -1 gives
    zero factors and the bias `level`.
    """
    is_known, selected = indices >= 0, factors[indices]
    if coefficients is not None:
        selected = selected * coefficients.astype(factors.dtype)
    selected[~is_known] = 0.0
    return Side(np.ascontiguousarray(selected), level + np.where(is_known, biases[indices].astype(np.float64), 0.0))


@one_blas_thread
def score_block(row_side: Side, column_side: Side, dtype: Any) -> Array:
    """Return the scores (m, n) of all pairs of m rows and n columns: biases plus inner products of factors.

    Tiles of rows that fit into the cache are computed one after the other, with one thread of BLAS.
    """
    scores = np.empty((len(row_side.biases), len(column_side.biases)), dtype)
    rows_per_tile = max(TILE_ENTRIES // max(scores.shape[1], 1), 8)
    for first in range(0, len(scores), rows_per_tile):
        rows = slice(first, first + rows_per_tile)
        scores[rows] = row_side.biases[rows, None] + column_side.biases + row_side.factors[rows] @ column_side.factors.T
    return scores


@dataclass(frozen=True)
class Fitted:
    """Result of a low-rank fit: factors, biases, ridges and history. It is not changed after the fit.

    The score of entry (i, j) at a rank is level + row_i + column_j + sum_k path[rank - 1, k] left_ik right_jk.
    """

    left: Array  # (m, t) factors of the rows
    right: Array  # (n, t) factors of the columns
    path: NDArray[np.float64] | None  # (t, t): row k - 1 has those of rank k; None after sweeps: all are 1
    row: Array  # (m,) biases
    column: Array  # (n,) biases
    level: float  # the global bias
    history: list[HistoryLine]
    selected_rank: int
    ridges: Ridges  # of the last sweep; fold_in uses them
    learned: NDArray[np.float64] | None = field(default=None, kw_only=True)  # (2, 2, t): of rows, of columns
    loss_parameter: float | None  # that was used; None if the loss takes none
    n_observations: int  # number of fitted entries
    after: HistoryLine | None = None  # the model after sweeps; the history ends before them
    selection: tuple[SelectionLine, ...] = ()
    standard_error: float | None = None  # of the validation score of the selected model

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.row), len(self.column)

    @property
    def swept(self) -> bool:
        return self.path is None

    @property
    def n_ranks(self) -> int:
        """Return the number of ranks that were fitted."""
        return self.left.shape[1]

    def selected_line(self) -> HistoryLine:
        """Return the history entry, a dict, of the model that predictions use."""
        return self.after or next(line for line in self.history if line["rank"] == self.selected_rank)

    def validate_rank(self, requested: Any) -> int:
        """Return the requested rank, or the selected one for None. Raise ValueError if the model does not have it."""
        if requested is None:
            return self.selected_rank
        rank = as_integer(requested, "rank", 0)
        if self.swept and rank != self.selected_rank:
            raise ValueError(
                f"only rank {self.selected_rank} is left after sweeps (sweeps=0 keeps the others), got {rank}"
            )
        ranks = {line["rank"] for line in self.history}
        if rank not in ranks:
            raise ValueError(f"rank must be one of the fit, {sorted(ranks)}, got {rank}")
        return rank

    # -- scores ----------------------------------------------------------------------------------------------------
    def coefficients(self, rank: int) -> Array:
        """Return the coefficients (rank,) of the rank-one terms in the model of this rank. They are all 1 after
        sweeps.
        """
        if self.path is None:
            return np.ones(rank)
        return self.path[rank - 1, :rank] if rank else np.empty(0)

    def factors(self, rank: int) -> tuple[Array, Array]:
        """Return new factor matrices A (m, rank) and B (n, rank), whose product A B' is the low-rank part of the
        scores."""
        if self.path is None:
            return self.left.copy(), self.right.copy()
        dtype = self.left.dtype
        left, right = self.left[:, :rank], self.right[:, :rank]
        norms = np.linalg.norm(left, axis=0), np.linalg.norm(right, axis=0)
        row_multipliers, column_multipliers = balance(*norms, self.coefficients(rank), len(left) / max(len(right), 1))
        return (left * row_multipliers).astype(dtype), (right * column_multipliers).astype(dtype)

    def score_pairs(self, rows: NDArray[np.int64], columns: NDArray[np.int64], rank: int) -> Array:
        """Return the scores (k,) of the entries (rows[k], columns[k]); an index of -1 has no bias and no factors."""
        z = np.asarray(
            self.level + np.where(rows >= 0, self.row[rows], 0.0) + np.where(columns >= 0, self.column[columns], 0.0)
        )
        if rank:
            left, right = self.left[:, :rank], self.right[:, :rank]
            coefficients = self.coefficients(rank).astype(left.dtype)
            known = (rows >= 0) & (columns >= 0)
            for first in range(0, len(z), PAIRS_PER_BLOCK):
                part = slice(first, first + PAIRS_PER_BLOCK)
                inner = np.einsum("kq,kq->k", left[rows[part]] * coefficients, right[columns[part]], dtype=np.float64)
                z[part] += np.where(known[part], inner, 0.0)
        return z

    def score_block(self, rows: NDArray[np.int64], columns: NDArray[np.int64], rank: int) -> Array:
        """Return the scores of the submatrix of the given rows and columns."""
        return score_block(self.row_side(rows, rank), self.column_side(columns, rank), self.left.dtype)

    def row_side(self, rows: NDArray[np.int64], rank: int) -> Side:
        """Return the factors and biases of the given rows, multiplied by coefficients and with the global bias added.

        Scores are computed from them. An index of -1 has zero factors and the global bias only.
        """
        return select_side(self.left[:, :rank], self.row, rows, self.coefficients(rank), self.level)

    def column_side(self, columns: NDArray[np.int64], rank: int) -> Side:
        """Return the factors and biases of the given columns, which are zeros for an index of -1, an unknown column."""
        return select_side(self.right[:, :rank], self.column, columns, None, 0.0)

    # -- files -----------------------------------------------------------------------------------------------------
    def arrays(self) -> dict[str, Array]:
        """Return the arrays of the model by name, for its saved state."""
        return {name: array for name in ARRAY_FIELDS if (array := getattr(self, name)) is not None}

    def scalars(self) -> dict[str, Any]:
        """Return all values of the model that are not arrays as a JSON-compatible dict, for its saved state."""
        return {
            "level": self.level,
            "history": [dict(line) for line in self.history],
            "selected_rank": self.selected_rank,
            **asdict(self.ridges),
            "loss_parameter": self.loss_parameter,
            "n_observations": self.n_observations,
            "after": None if self.after is None else dict(self.after),
            "selection": [dict(line) for line in self.selection],
            "standard_error": self.standard_error,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Return the fitted model of a saved state, which must have passed ``validate_state``."""
        fields: dict[str, Any] = {name: arrays.get(name) for name in ARRAY_FIELDS} | {
            name: state[name] for name in SCALAR_FIELDS
        }
        after = state["after"]
        return cls(
            **fields,
            ridges=Ridges(**{name: validate_ridge(state, name) for name in RIDGE_FIELDS}),
            history=[validate_history_line(entry) for entry in state["history"]],
            after=None if after is None else validate_history_line(after),
            selection=tuple(validate_selection_line(entry) for entry in state["selection"]),
        )


def validate_state(state: Mapping[str, Any], arrays: Mapping[str, Array], *, dtype: np.dtype[Any] | None) -> None:
    """Raise TypeError or ValueError if a saved state is not that of a valid low-rank model.

    dtype: required dtype of the factors; None accepts float32 and float64.
    """
    left, row, column = arrays["left"], arrays["row"], arrays["column"]
    m, n, t = row.size, column.size, left.shape[-1] if left.ndim else 0
    own_dtype = as_dtype(left.dtype)
    if dtype is not None and own_dtype != dtype:
        raise ValueError(f"its factors have dtype {own_dtype}, its parameters {dtype}")
    for name, shape in (("left", (m, t)), ("right", (n, t)), ("row", (m,)), ("column", (n,))):
        checks.finite(arrays, name, shape, own_dtype)
    checks.number_within(min(m, n), "rows and columns", 1, np.inf)
    if "path" in arrays:
        path = checks.finite(arrays, "path", (t, t))
        if np.triu(path, 1).any():
            raise ValueError("array 'path' has coefficients of ranks that were not found yet")
    checks.only(arrays, *ARRAY_FIELDS)
    history = [validate_history_line(entry) for entry in state["history"]]
    ranks = [line["rank"] for line in history]
    rank = as_integer(state["selected_rank"], "selected_rank", 0)
    if rank not in ranks or (rank != t if "path" not in arrays else max(ranks) > t) or len(set(ranks)) < len(ranks):
        raise ValueError(f"the ranks {ranks} of a low-rank model do not belong to its {t} factors")
    for name in RIDGE_FIELDS:
        validate_ridge(state, name)
    if (state["ridge"] == LEARNED and rank > 0) != ("learned" in arrays and t > 0):
        raise ValueError(f"the ridge {state['ridge']!r} and array 'learned' do not belong together")
    if "learned" in arrays and (checks.finite(arrays, "learned", (2, 2, t)) < 0).any():
        raise ValueError("array 'learned' must not be negative")
    as_real(state["level"], "level", -MAX_FLOAT, MAX_FLOAT)
    for entry in state["selection"]:
        validate_selection_line(entry)
    if state["standard_error"] is not None:
        as_figure(state["standard_error"], "standard_error")
    as_integer(state["n_observations"], "n_observations", 1, m * n + 1)
    after = state["after"]
    if after is not None and validate_history_line(after)["rank"] != rank:
        raise ValueError("what the sweeps have left is of another rank than the one selected")


def validate_history_line(entry: Mapping[str, Any]) -> HistoryLine:
    """Validate a saved history entry and return it. Its objective may be infinite."""
    validation = entry["validation"]
    return HistoryLine(
        rank=as_integer(entry["rank"], "rank", 0),
        objective=as_figure(entry["objective"], "objective"),
        seconds=as_real(entry["seconds"], "seconds", 0.0, MAX_FLOAT),
        validation=None if validation is None else as_figure(validation, "validation"),
    )


def validate_ridge(state: Mapping[str, Any], name: str) -> Any:
    """Validate a saved ridge and return it. Only the entry "ridge" may be "learned"."""
    learned = name == "ridge" and state[name] == LEARNED
    return LEARNED if learned else as_real(state[name], name, 0.0, 1e300)


def validate_selection_line(entry: Mapping[str, Any]) -> SelectionLine:
    """Validate a saved candidate of the model selection and return it."""
    ridge = entry["ridge"]
    return SelectionLine(
        rank=as_integer(entry["rank"], "rank", 0),
        ridge=None if ridge is None else validate_ridge(entry, "ridge"),
        bias_ridge=as_real(entry["bias_ridge"], "bias_ridge", 0.0, 1e300),
        validation=as_figure(entry["validation"], "validation"),
        standard_error=as_figure(entry["standard_error"], "standard_error"),
        gain=as_figure(entry["gain"], "gain"),
        gain_error=as_figure(entry["gain_error"], "gain_error"),
    )


def balance(row_norms: Array, column_norms: Array, coefficients: Array, aspect_ratio: float) -> tuple[Array, Array]:
    """Return multipliers (t,) of row factors and of column factors, whose products are the given coefficients (t,).

    The entries of both factors then have similar size. `row_norms` and `column_norms` (t,) are the norms of the
    factors, and `aspect_ratio` is m / n.
    """
    size = np.sqrt(np.abs(coefficients) * row_norms * column_norms)
    row_norms, column_norms = np.where(row_norms > 0, row_norms, 1), np.where(column_norms > 0, column_norms, 1)
    # the entries of both sides, not their norms, get about the same size
    ratio = aspect_ratio**0.25
    return np.sign(coefficients) * size * ratio / row_norms, size / ratio / column_norms
