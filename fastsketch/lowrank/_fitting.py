"""Steps of a low-rank fit: biases, ranks, sweeps, and the choice of a ridge or a rank on held-out entries."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fastsketch._core.validation import as_integer
from fastsketch.lowrank._biases import (
    Biases,
    constant_score,
    fit_biases,
    no_biases,
    parameter_from_data,
    without_outlying_offsets,
)
from fastsketch.lowrank._choose import choose
from fastsketch.lowrank._entries import Entries, HoldOut
from fastsketch.lowrank._fitted import Fitted, HistoryLine, SelectionLine, Side
from fastsketch.lowrank._pursuit import Pursuit
from fastsketch.lowrank._setting import FROM_SPREAD, LEARNED, FitSetting, LossSetting, Ridges, SideSetting
from fastsketch.lowrank._sweeps import Factors, Sweeps, held_losses, held_score, total_loss
from fastsketch.lowrank._units import BIAS_OBSERVATIONS, NoiseLevel, mean_curvature

Callback = Callable[[HistoryLine], object]


def fit(
    observations: Entries, setting: FitSetting, watch: "FitHistory", apart: HoldOut = None
) -> tuple[Fitted, Pursuit]:
    """Fit a low-rank model. Return it and the greedy pursuit, which can add further ranks if there were no sweeps.

    Parameters
    ----------
    observations : Entries
        All entries.
    setting : FitSetting
    watch : FitHistory
        Receives a line for each rank.
    apart : callable, optional
        Returns the entries with some of them held out. A first fit of the others then chooses rank and ridges on the
        held-out entries, and a second fit of all entries uses them. Without sweeps only the first fit is made.
    """
    if apart is None:
        return fit_once(observations, setting, watch)
    watch.held = True
    if not setting.sweeps:
        return fit_once(apart(), setting, watch)
    tried = fit_once(apart(), setting, watch)[0]
    rank, ridges = tried.selected_rank, tried.ridges
    chosen = FitSetting(**{**vars(setting), "rank": rank, "ridge": ridges.ridge, "bias_ridge": ridges.bias_ridge})
    again = FitHistory(held=False, patience=None, callback=watch.callback)
    again.began = watch.began
    fitted, pursuit = fit_once(observations, chosen, again)
    scores = {line["rank"]: line["validation"] for line in tried.history}
    for line in fitted.history:
        line["validation"] = scores.get(line["rank"])
    if fitted.after is not None:
        fitted.after["validation"] = tried.line()["validation"]
    return replace(fitted, selection=tried.selection, standard_error=tried.standard_error), pursuit


def fit_once(observations: Entries, setting: FitSetting, watch: "FitHistory") -> tuple[Fitted, Pursuit]:
    """Fit biases, ranks and sweeps to one set of entries. Held-out entries choose the ridge if it is neither given nor
    learned."""
    if setting.biases and setting.loss.about.targets == "real":
        observations = without_outlying_offsets(observations, bias_ridge_of(setting))
    start = begin(observations, setting)
    loss, biases = start.loss, start.biases
    pursuit = Pursuit.begun(observations, biases, loss, setting)
    follow = setting.rank > 0 and setting.sweeps > 0 and setting.sweep_ridge != LEARNED
    about: dict[str, Any] = {"bias_ridge": start.bias_ridge, "follow": follow}
    noise = NoiseLevel(observations, loss, pursuit.state, objective=pursuit.objective, **about)
    ridges = Ridges(setting.sweep_ridge, start.bias_ridge, noise.unit, start.curvature)
    climb(pursuit, setting.rank, watch)
    if not setting.sweeps or not pursuit.rank:
        return greedy(pursuit, watch, ridges), pursuit
    pursuit.state = None  # frees scores and gradient before the entries are transposed
    side = SideSetting(loss, biases.level, ridges.penalty or 0.0, ridges.bias_penalty, setting.biases)
    sweeps, rank = Sweeps(observations, side, sweeps=setting.sweeps, noise=noise), watch.selected_rank()
    selection: list[SelectionLine] = []
    score = None
    if observations.n_held:
        model, score, selection = choose(pursuit, sweeps, ridges, ridge=setting.ridge)
    else:
        model = sweeps.run(*pursuit.sides(rank), pursuit.path[rank], ridges)
    del sweeps  # frees the transposed entries before scores are computed
    mean, error = (None, None) if score is None else score
    objective = total_loss(observations, loss, model)
    seconds = time.perf_counter() - watch.began
    rank = model.rank
    after = HistoryLine(rank=rank, objective=objective, seconds=seconds, validation=mean)
    fitted = assembled(pursuit, watch, model.rows, model.columns, model.ridges, rank)
    fitted = replace(fitted, learned=model.learned)
    return replace(fitted, after=after, selection=tuple(selection), standard_error=error), pursuit


# -- before the first rank ---------------------------------------------------------------------------------------------
class Start(NamedTuple):
    """State of a fit before its first rank: loss, biases and their ridge."""

    loss: LossSetting
    biases: Biases
    bias_ridge: float  # in observations
    curvature: float  # of one observation: the unit of bias_ridge


def bias_ridge_of(setting: FitSetting) -> float:
    """Return the ridge of the biases as a number of observations: the given value or the default."""
    given = setting.bias_ridge
    return BIAS_OBSERVATIONS[setting.loss.about.targets] if given is None else given


def begin(observations: Entries, setting: FitSetting) -> Start:
    """Fit the biases. A missing parameter of the Huber or epsilon-insensitive loss is estimated from the data."""
    loss, ridge = setting.loss, bias_ridge_of(setting)
    from_data = loss.name in FROM_SPREAD and setting.loss_parameter is None
    if not setting.biases and not from_data:
        return Start(loss, no_biases(observations), ridge, 1.0)
    level = constant_score(observations, loss)
    if from_data:
        loss = replace(
            loss, parameter=parameter_from_data(observations, loss, level, ridge if setting.biases else None)
        )
    if not setting.biases:
        return Start(loss, no_biases(observations), ridge, 1.0)
    curvature = mean_curvature(observations, loss, level)
    return Start(loss, fit_biases(observations, loss, ridge=ridge * curvature, level=level), ridge, curvature)


# -- rank after rank ---------------------------------------------------------------------------------------------------
class FitHistory:
    """History of a fit, with its early-stopping rules: patience and the user's callback."""

    def __init__(
        self,
        *,
        held: bool,
        patience: Any,
        callback: Callback | None,
        history: list[HistoryLine] | None = None,
    ) -> None:
        """Start a history, or continue a given one. `held` states whether there are held-out entries."""
        if patience is not None:
            patience = as_integer(patience, "patience", 1)
            if not held:
                raise ValueError("patience needs a validation set")
        self.held, self.patience, self.callback = held, patience, callback
        self.history = list(history or [])
        self.began = time.perf_counter() - (self.history[-1]["seconds"] if self.history else 0.0)

    def record(self, pursuit: Pursuit) -> bool:
        """Append an entry for the current rank to the history and call the callback. Return True if the fit should
        stop."""
        line = HistoryLine(
            rank=pursuit.rank,
            objective=float(pursuit.objective),
            seconds=time.perf_counter() - self.began,
            validation=pursuit.mean_loss() if self.held else None,
        )
        self.history.append(line)
        asked = bool(self.callback(line.copy())) if self.callback is not None else False
        return asked or (self.patience is not None and len(self.history) - 1 - self._best_place() >= self.patience)

    def _best_place(self) -> int:
        scores = [line["validation"] if self.held else line["objective"] for line in self.history]
        return int(np.argmin(scores))  # type: ignore[arg-type]

    def selected_rank(self) -> int:
        """Return the rank with the best validation score in the history.

        Without held-out entries return the last rank, or the one with the smallest objective if that is lower.
        """
        best, last = self.history[self._best_place()], self.history[-1]
        if not self.held and not best["objective"] < last["objective"]:
            return last["rank"]  # objectives can be equal, and only the printed steps let one grow
        return best["rank"]


def climb(pursuit: Pursuit, rank: int, watch: FitHistory) -> None:
    """Add ranks to a greedy pursuit until it has `rank` of them, the gradient is zero or early stopping applies."""
    if not watch.history:
        watch.record(pursuit)
    while pursuit.rank < rank:
        if pursuit.loss.smooth:
            added = pursuit.add_smooth()
        else:
            added = pursuit.add_nonsmooth(len(watch.history), rank - pursuit.rank)
        if not added or watch.record(pursuit):
            return


# -- the model that a fit ends with ------------------------------------------------------------------------------------
def greedy(pursuit: Pursuit, watch: FitHistory, ridges: Ridges) -> Fitted:
    """Return the fitted model of a greedy pursuit without sweeps. It contains the coefficients of every rank."""
    observations, t, rank = pursuit.observations, pursuit.rank, watch.selected_rank()
    path, error = np.zeros((t, t)), None
    for k in range(t):
        path[k, : k + 1] = pursuit.path[k + 1]
    if observations.n_held:
        rows, columns = pursuit.sides(rank, pursuit.path[rank])
        model = Factors(rows, columns, pursuit.biases.level, ridges)
        error = held_score(held_losses(observations, pursuit.loss, model))[1]
    fitted = assembled(pursuit, watch, *pursuit.sides(t), ridges, rank)
    return replace(fitted, path=path, standard_error=error)


def assembled(
    pursuit: Pursuit, watch: FitHistory, rows: Side, columns: Side, ridges: Ridges, selected_rank: int
) -> Fitted:
    """Return the fitted model with given factors and biases. Offsets that were subtracted from the data are added
    back."""
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
        history=watch.history,
        selected_rank=selected_rank,
        ridges=ridges,
        loss_parameter=None if loss.about.parameter is None else loss.parameter,
        n_observations=pursuit.observations.n_observations,
    )
