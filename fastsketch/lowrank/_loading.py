"""Preparation of the data of a fit: validation, and the split into training and held-out entries."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.bottom_k import CV_FOLDS, VALIDATION_FRACTION
from fastsketch._core.losses import LOSSES, as_targets
from fastsketch.lowrank._arguments import as_share
from fastsketch.lowrank._data import Array, Observed, observed_entries
from fastsketch.lowrank._entries import Entries, HoldOut
from fastsketch.lowrank._setting import FitSetting

# Number that is added to the number of entries of each row and column in the degree scaling, so that rare ones are not
# scaled up too much (smoothed weighted trace norm: Foygel and others 2011).
DAMPING = 30.0
# Largest sum of squares of the values, by bytes of the dtype: beyond it, products in a fit overflow.
MAX_SUM_OF_SQUARES = {4: 1e36, 8: 1e300}
# Smallest sum of squares other than 0, in float64: below it, squares of residuals underflow.
MIN_SUM_OF_SQUARES = 1e-300
# Least number of entries of which one share is held out. Of fewer entries, all are held out in turn.
MIN_HELD_OUT = 30


def load_matrix(X: Any, sample_weight: Any, validation: Any, setting: FitSetting) -> tuple[Entries, list[HoldOut]]:
    """Check the data of a fit, and return its entries and functions that return them with a random part held out.
    There is no function if nothing is to be held out, one for a share of the entries, and one for each fold of a
    cross-validation.

    Parameters
    ----------
    X : matrix
    sample_weight : matrix or None
    validation : float, matrix or None
        Share of the entries to hold out, or the held-out entries. With None, the setting decides whether a share is
        held out.
    setting : FitSetting

    Returns
    -------
    entries : Entries
        All entries of X; those of a matrix `validation` are held out.
    hold_outs : list of callable
        Each returns the entries of X with a random part of them held out.
    """
    share, loss = as_share(validation), setting.loss.name
    data, held_out = validate_targets(X, loss, sample_weight=sample_weight, dtype=setting.dtype), None
    if share is None and validation is not None:
        held_out = validate_targets(validation, loss, dtype=data.o.dtype, n_columns=data.n, name="validation")
        if held_out.m != data.m:
            raise ValueError(f"validation must have the {data.m} rows of X, got {held_out.m}")
        check_disjoint(data, held_out)
    total = len(data.o)
    if total == 0:
        weight_note = "" if sample_weight is None else " of a weight above 0"
        raise ValueError(f"X must hold at least one observation{weight_note}, got none")
    if held_out is not None and not len(held_out.o):
        raise ValueError("validation must have at least one entry")
    check_rank(setting.rank, data.m, data.n)
    all_entries = make_entries(data, held_out, scaling=setting.scaling)

    def hold_out(is_held_out: NDArray[np.bool_]) -> Entries:
        return make_entries(data.select(~is_held_out), data.select(is_held_out), scaling=setting.scaling)

    def split(share: float) -> Entries:
        training = hold_out(np.random.Generator(np.random.PCG64(setting.seed)).random(total) < share)
        if not (training.n_observations and training.n_held_out):
            raise ValueError(f"validation={share:g} leaves no entry on one side of {total}")
        n_training_rows, n_rows = training.n_nonempty[0], all_entries.n_nonempty[0]
        if 2 * n_training_rows < n_rows:
            raise ValueError(
                f"validation={share:g} leaves entries in {n_training_rows} of {n_rows} rows alone: hold out fewer"
            )
        return training

    if share is None and held_out is None:
        if setting.holds_out_entries and VALIDATION_FRACTION * total >= MIN_HELD_OUT:
            share = VALIDATION_FRACTION
        elif setting.chooses_ridge and total >= CV_FOLDS:
            folds = assign_folds(data, setting.seed)
            return all_entries, [partial(hold_out, folds == fold) for fold in range(CV_FOLDS)]
    return all_entries, [] if share is None else [partial(split, share)]


def assign_folds(data: Observed, seed: int) -> NDArray[np.int64]:
    """Assign each entry at random to a fold of a cross-validation, and return the folds (nnz,), of about equal size.

    An entry keeps its fold if the rows or the columns are in another order. Its random number is therefore that of its
    label: first the rank of its value, and then, by colour refinement (Weisfeiler and Leman 1968), that label together
    with the sums of the random numbers in its row and in its column, until there are no more distinct labels. Entries
    with the same label can hardly be told apart without their indices.
    """
    labels, n_labels, rng = data.o[:, None].astype(np.float64), 0, np.random.Generator(np.random.PCG64(seed))
    while True:
        distinct, positions = np.unique(labels, axis=0, return_inverse=True)
        # integers, whose sums are exact in float64 in any order
        numbers = rng.integers(2**32, size=len(distinct))[positions.ravel()].astype(np.float64)
        if len(distinct) == n_labels:
            break
        n_labels = len(distinct)
        row_sums, column_sums = np.bincount(data.rows, numbers), np.bincount(data.indices, numbers)
        labels = np.column_stack([positions.ravel(), row_sums[data.rows], column_sums[data.indices]])
    folds = np.empty(len(numbers), np.int64)
    folds[np.argsort(numbers, kind="stable")] = np.arange(len(numbers)) % CV_FOLDS
    return folds


def make_entries(data: Observed, held_out: Observed | None, *, scaling: bool) -> Entries:
    """Return training and held-out entries as one Entries object, with a degree scale for each row and column."""
    (rows, columns), dtype = data.counts, data.o.dtype
    return Entries(
        data, held_out, degree_scale(rows, dtype, scaling, int(rows.min())), degree_scale(columns, dtype, scaling)
    )


def check_rank(rank: int, m: int, n: int) -> None:
    """Raise ValueError if a rank exceeds the smaller dimension of an m x n matrix."""
    if rank > min(m, n):
        raise ValueError(f"rank must be at most min(m, n) = {min(m, n)} for {m:,} rows and {n:,} columns, got {rank}")


def degree_scale(
    counts: NDArray[np.int64], dtype: np.dtype[Any], scaling: bool, smallest_count: int | None = None
) -> Array:
    """Return factors (m,) by which the rows (or columns) of the gradient are multiplied: smaller for more entries.

    A factor is (count + DAMPING)^(-1/4), divided by the maximum, and 1 without `scaling`. `smallest_count` is the
    smallest of the counts if it is known.
    """
    if not scaling:
        return np.ones(len(counts), dtype)
    scale = (counts + DAMPING) ** -0.25
    return (scale / (scale.max() if smallest_count is None else (smallest_count + DAMPING) ** -0.25)).astype(dtype)


# -- checks ------------------------------------------------------------------------------------------------------------
def check_disjoint(data: Observed, held_out: Observed) -> None:
    """Raise ValueError if a held-out entry is also a training entry."""
    positions, held_out_positions = (each.rows * each.n + each.indices for each in (data, held_out))
    shared = np.intersect1d(positions, held_out_positions, assume_unique=True)
    if len(shared):
        first, entries = divmod(int(shared[0]), data.n), "entry" if len(shared) == 1 else "entries"
        raise ValueError(f"validation has {len(shared)} {entries} of X, the first is entry {first}: take them out of X")


def validate_targets(matrix: Any, loss: str, *, name: str = "X", **options: Any) -> Observed:
    """Validate a matrix and return its entries of positive weight, with values that the loss accepts."""
    if LOSSES[loss].targets == "label":
        data = observed_entries(matrix, loss="square", name=name, **options)
        return replace(data, o=as_targets(data.o, loss, name)).drop_zero_weights()
    data = observed_entries(matrix, loss=loss, name=name, **options)
    if LOSSES[loss].targets == "real":
        check_squares(data.o, loss, name)
    return data.drop_zero_weights()


def check_squares(values: Array, loss: str, name: str) -> None:
    """Raise ValueError if values are so large or so small that sums of their squares overflow or underflow.

    The square loss has such sums in the dtype of the values, the others only in their scale of residuals, in float64.
    """
    max_sum = MAX_SUM_OF_SQUARES[values.dtype.itemsize if loss == "square" else 8]
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0 or (MIN_SUM_OF_SQUARES**0.5 <= largest <= (max_sum / len(values)) ** 0.5):
        return  # the sum is certainly within the limits
    unit = values.astype(np.float64) / largest
    squares = float(unit @ unit)
    if not squares <= max_sum / largest / largest:
        raise ValueError(
            f"the squares of {name} must not sum up to more than {max_sum:g} for loss={loss!r}, but a value is "
            f"{largest:g}: scale {name} down"
        )
    if not squares * largest >= MIN_SUM_OF_SQUARES / largest:
        raise ValueError(
            f"the squares of {name} must sum up to {MIN_SUM_OF_SQUARES:g} or more for loss={loss!r}, but the largest "
            f"value is {largest:g}: scale {name} up"
        )
