"""Steps of a low-rank fit: biases, ranks, sweeps, and the choice of a ridge or a rank on held-out entries."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fastsketch._core.validation import as_integer
from fastsketch.lowrank._biases import (
    Biases,
    constant_score,
    fit_biases,
    parameter_from_data,
    subtract_outlying_offsets,
    zero_biases,
)
from fastsketch.lowrank._choose import Candidate, best_candidate, fit_candidates, pool_folds
from fastsketch.lowrank._entries import Entries, HoldOut
from fastsketch.lowrank._fitted import Fitted, HistoryLine, SelectionLine, Side
from fastsketch.lowrank._pursuit import Pursuit
from fastsketch.lowrank._setting import DEVIATION_MULTIPLES, LEARNED, FitSetting, LossSetting, Ridges, SideSetting
from fastsketch.lowrank._sweeps import FactorModel, Sweeps, held_out_losses, mean_held_out_loss, total_loss
from fastsketch.lowrank._units import BIAS_OBSERVATIONS, NoiseLevel, mean_curvature

Callback = Callable[[HistoryLine], object]


def fit(
    observations: Entries, setting: FitSetting, fit_history: "FitHistory", hold_outs: Sequence[HoldOut] = ()
) -> tuple[Fitted, Pursuit]:
    """Fit a low-rank model, and return it with the greedy pursuit, to which ranks can be added later.
    With held-out entries, rank and ridges are chosen on them first.

    Parameters
    ----------
    observations : Entries
        All entries.
    setting : FitSetting
    fit_history : FitHistory
        Receives a line for each rank.
    hold_outs : sequence of callable
        Each returns the entries with some of them held out. If there is one, a first fit of the others chooses rank and
        ridges on the held-out entries, and a second fit of all entries uses them. Without sweeps only the first fit is
        made. If there are several, they are the folds of a cross-validation, which chooses the ridge.
    """
    if not hold_outs:
        return fit_entries(observations, setting, fit_history)
    if len(hold_outs) > 1:
        return fit_with_cross_validated_ridge(observations, setting, fit_history, hold_outs)
    (hold_out,) = hold_outs
    fit_history.has_held_out = True
    if not setting.sweeps:
        return fit_entries(hold_out(), setting, fit_history)
    first_fit = fit_entries(hold_out(), setting, fit_history)[0]
    rank, ridges = first_fit.selected_rank, first_fit.ridges
    final_setting = FitSetting(
        **{**vars(setting), "rank": rank, "ridge": ridges.ridge, "bias_ridge": ridges.bias_ridge}
    )
    final_history = FitHistory(has_held_out=False, patience=None, callback=fit_history.callback)
    final_history.start_time = fit_history.start_time
    fitted, pursuit = fit_entries(observations, final_setting, final_history)
    scores = {line["rank"]: line["validation"] for line in first_fit.history}
    for line in fitted.history:
        line["validation"] = scores.get(line["rank"])
    if fitted.after is not None:
        fitted.after["validation"] = first_fit.selected_line()["validation"]
    return replace(fitted, selection=first_fit.selection, standard_error=first_fit.standard_error), pursuit


def fit_with_cross_validated_ridge(
    observations: Entries, setting: FitSetting, fit_history: "FitHistory", hold_outs: Sequence[HoldOut]
) -> tuple[Fitted, Pursuit]:
    """Fit a model to all entries, with the ridge of the smallest mean loss in a cross-validation, and return it with
    its pursuit. The ridge is the default if no fold has a rank: the gradient at the biases is then zero.
    """
    folds: list[list[Candidate]] = []
    for hold_out in hold_outs:
        fold_history = FitHistory(has_held_out=False, patience=None, callback=fit_history.callback)
        pursuit, ridges, sweeps = start_fit(hold_out(), setting, fold_history)
        if sweeps is not None:
            folds.append(fit_candidates(pursuit, sweeps, ridges, ridge=None))
    if not folds:
        return fit_entries(observations, setting, fit_history)
    candidates = pool_folds(folds)
    best = best_candidate(candidates)
    fitted, pursuit = fit_entries(
        observations, FitSetting(**{**vars(setting), "ridge": best.model.ridges.ridge}), fit_history
    )
    if fitted.after is not None:
        fitted.after["validation"] = best.score[0]
    selection = [candidate.selection_line for candidate in candidates]
    for candidate, line in zip(candidates, selection, strict=True):  # folds may have found fewer ranks than this fit
        line["rank"] = fitted.selected_rank if candidate.model.rank else 0
    return replace(fitted, selection=tuple(selection), standard_error=best.score[1]), pursuit


def start_fit(
    observations: Entries, setting: FitSetting, fit_history: "FitHistory"
) -> tuple[Pursuit, Ridges, Sweeps | None]:
    """Fit biases, add ranks by the greedy pursuit, and return the pursuit, the ridges, and a Sweeps object.
    The caller refits the factors with this object. It is None if the setting has no sweeps, or if no rank was found.
    """
    if setting.biases and setting.loss.definition.targets == "real":
        observations = subtract_outlying_offsets(observations, resolve_bias_ridge(setting))
    initial = fit_initial_biases(observations, setting)
    loss, biases = initial.loss, initial.biases
    pursuit = Pursuit.start(observations, biases, loss, setting)
    updates = setting.rank > 0 and setting.sweeps > 0 and setting.sweep_ridge != LEARNED
    options: dict[str, Any] = {"bias_ridge": initial.bias_ridge, "updates": updates}
    noise = NoiseLevel(observations, loss, pursuit.state, objective=pursuit.objective, **options)
    ridges = Ridges(setting.sweep_ridge, initial.bias_ridge, noise.unit, initial.curvature)
    add_ranks_until(pursuit, setting.rank, fit_history)
    if not setting.sweeps or not pursuit.rank:
        return pursuit, ridges, None
    pursuit.state = None  # frees scores and gradient before the entries are transposed
    side = SideSetting(loss, biases.level, ridges.penalty or 0.0, ridges.bias_penalty, setting.biases)
    return pursuit, ridges, Sweeps(observations, side, sweeps=setting.sweeps, noise=noise)


def fit_entries(observations: Entries, setting: FitSetting, fit_history: "FitHistory") -> tuple[Fitted, Pursuit]:
    """Fit biases, ranks and sweeps to one set of entries, and return (model, greedy pursuit of its ranks).

    If there are held-out entries, and the ridge is neither given nor learned, they choose it.
    """
    pursuit, ridges, sweeps = start_fit(observations, setting, fit_history)
    observations, loss = pursuit.observations, pursuit.loss
    if sweeps is None:
        return greedy_model(pursuit, fit_history, ridges), pursuit
    selection: list[SelectionLine] = []
    mean, error = None, None
    if observations.n_held_out:
        candidates = fit_candidates(pursuit, sweeps, ridges, ridge=setting.ridge)
        best = best_candidate(candidates)
        model, (mean, error) = best.model, best.score
        selection = [candidate.selection_line for candidate in candidates]
    else:
        rank = fit_history.selected_rank()
        model = sweeps.run(*pursuit.factors_and_biases(rank), pursuit.path[rank], ridges)
    del sweeps  # frees the transposed entries before scores are computed
    objective = total_loss(observations, loss, model)
    seconds = time.perf_counter() - fit_history.start_time
    rank = model.rank
    swept_line = HistoryLine(rank=rank, objective=objective, seconds=seconds, validation=mean)
    fitted = assemble_model(pursuit, fit_history, model.rows, model.columns, model.ridges, rank)
    fitted = replace(fitted, learned=model.learned)
    return replace(fitted, after=swept_line, selection=tuple(selection), standard_error=error), pursuit


# -- before the first rank ---------------------------------------------------------------------------------------------
class InitialBiases(NamedTuple):
    """Result of the step before the first rank: the loss with its parameter, the biases, and their ridge."""

    loss: LossSetting
    biases: Biases
    bias_ridge: float  # in observations
    curvature: float  # of one observation: the unit of bias_ridge


def resolve_bias_ridge(setting: FitSetting) -> float:
    """Return the ridge of the biases as a number of observations: the given value or the default."""
    bias_ridge = setting.bias_ridge
    return BIAS_OBSERVATIONS[setting.loss.definition.targets] if bias_ridge is None else bias_ridge


def fit_initial_biases(observations: Entries, setting: FitSetting) -> InitialBiases:
    """Fit the biases before the first rank, and return them with the loss, as InitialBiases.
    If the loss has a parameter that was not given, it is estimated from the data.
    """
    loss, ridge = setting.loss, resolve_bias_ridge(setting)
    from_data = loss.name in DEVIATION_MULTIPLES and setting.loss_parameter is None
    if not setting.biases and not from_data:
        return InitialBiases(loss, zero_biases(observations), ridge, 1.0)
    level = constant_score(observations, loss)
    if from_data:
        loss = replace(
            loss, parameter=parameter_from_data(observations, loss, level, ridge if setting.biases else None)
        )
    if not setting.biases:
        return InitialBiases(loss, zero_biases(observations), ridge, 1.0)
    curvature = mean_curvature(observations, loss, level)
    return InitialBiases(loss, fit_biases(observations, loss, ridge=ridge * curvature, level=level), ridge, curvature)


# -- rank after rank ---------------------------------------------------------------------------------------------------
class FitHistory:
    """Record of a fit, with one entry for each rank, which decides when the fit stops.
    It stops by patience on the validation loss, or by the user's callback.
    """

    def __init__(
        self,
        *,
        has_held_out: bool,
        patience: Any,
        callback: Callback | None,
        history: list[HistoryLine] | None = None,
    ) -> None:
        """Start an empty record, or continue a given one. `has_held_out` states whether there are held-out entries for
        the validation loss.
        """
        if patience is not None:
            patience = as_integer(patience, "patience", 1)
            if not has_held_out:
                raise ValueError("patience needs a validation set")
        self.has_held_out, self.patience, self.callback = has_held_out, patience, callback
        self.history = list(history or [])
        self.start_time = time.perf_counter() - (self.history[-1]["seconds"] if self.history else 0.0)

    def record(self, pursuit: Pursuit) -> bool:
        """Append an entry for the present rank to the history, and call the user's callback. Return True if the fit
        must stop.
        """
        line = HistoryLine(
            rank=pursuit.rank,
            objective=float(pursuit.objective),
            seconds=time.perf_counter() - self.start_time,
            validation=pursuit.mean_held_out_loss() if self.has_held_out else None,
        )
        self.history.append(line)
        stop_requested = bool(self.callback(line.copy())) if self.callback is not None else False
        return stop_requested or (
            self.patience is not None and len(self.history) - 1 - self._best_index() >= self.patience
        )

    def _best_index(self) -> int:
        scores = [line["validation"] if self.has_held_out else line["objective"] for line in self.history]
        return int(np.argmin(scores))  # type: ignore[arg-type]

    def selected_rank(self) -> int:
        """Return the rank with the smallest validation loss in the history, which predictions use.

        Without held-out entries return the last rank, or the one with the smallest objective if that is lower.
        """
        best, last = self.history[self._best_index()], self.history[-1]
        if not self.has_held_out and not best["objective"] < last["objective"]:
            return last["rank"]  # objectives can be equal, and only the printed steps let one grow
        return best["rank"]


def add_ranks_until(pursuit: Pursuit, rank: int, fit_history: FitHistory) -> None:
    """Add ranks to a greedy pursuit, in place, until it has `rank` of them, the gradient is zero, or the history stops
    the fit.
    """
    if not fit_history.history:
        fit_history.record(pursuit)
    while pursuit.rank < rank:
        if pursuit.loss.smooth:
            added = pursuit.add_smooth()
        else:
            added = pursuit.add_nonsmooth(len(fit_history.history), rank - pursuit.rank)
        if not added or fit_history.record(pursuit):
            return


# -- the model that a fit ends with ------------------------------------------------------------------------------------
def greedy_model(pursuit: Pursuit, fit_history: FitHistory, ridges: Ridges) -> Fitted:
    """Return the fitted model of a greedy pursuit without sweeps, with the coefficients of every rank.
    Predictions can therefore use a lower rank.
    """
    observations, t, rank = pursuit.observations, pursuit.rank, fit_history.selected_rank()
    path, error = np.zeros((t, t)), None
    for k in range(t):
        path[k, : k + 1] = pursuit.path[k + 1]
    if observations.n_held_out:
        rows, columns = pursuit.factors_and_biases(rank, pursuit.path[rank])
        model = FactorModel(rows, columns, pursuit.biases.level, ridges)
        error = mean_held_out_loss(held_out_losses(observations, pursuit.loss, model))[1]
    fitted = assemble_model(pursuit, fit_history, *pursuit.factors_and_biases(t), ridges, rank)
    return replace(fitted, path=path, standard_error=error)


def assemble_model(
    pursuit: Pursuit, fit_history: FitHistory, rows: Side, columns: Side, ridges: Ridges, selected_rank: int
) -> Fitted:
    """Return the fitted model with the given factors and biases, as Fitted.
    Offsets that were subtracted from the data are added to the biases.
    """
    loss, offsets = pursuit.loss, pursuit.observations.offsets
    row, column = rows.biases, columns.biases
    if offsets is not None:
        row, column = ((b + o).astype(b.dtype) for b, o in zip((row, column), offsets, strict=True))
    return Fitted(
        left=rows.factors,
        right=columns.factors,
        path=None,
        row=row,
        column=column,
        level=pursuit.biases.level,
        history=fit_history.history,
        selected_rank=selected_rank,
        ridges=ridges,
        loss_parameter=None if loss.definition.parameter is None else loss.parameter,
        n_observations=pursuit.observations.n_observations,
    )
