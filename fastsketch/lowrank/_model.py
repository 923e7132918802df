"""Generalized low-rank models: a sparse matrix completed under the loss that fits it, one rank after the other."""

from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np

from fastsketch._core.losses import LOSSES, LossName, as_loss_parameter
from fastsketch._core.validation import Rows, as_integer, as_real
from fastsketch._frame.batches import FeatureNames, is_table, with_columns
from fastsketch._frame.model import Arrays
from fastsketch._frame.parameters import choice, flag, float_dtype, integer, parameter, real, seed
from fastsketch._kernels.guard import changes
from fastsketch.data.files import _checks as checks
from fastsketch.data.names._events import ColumnNames
from fastsketch.data.names._id_map import IdMap
from fastsketch.data.names._triples import Table, naming_ids
from fastsketch.lowrank._answers import LowRankAnswers
from fastsketch.lowrank._arguments import as_range, as_ridge, as_steps, check_learned
from fastsketch.lowrank._data import Observed, observed
from fastsketch.lowrank._fitted import Fitted, HistoryLine, SelectionLine, Side, validate
from fastsketch.lowrank._fitting import Callback, FitHistory, climb, fit, greedy
from fastsketch.lowrank._ids import Ids, as_matrices, known_columns, without_ids
from fastsketch.lowrank._loading import check_rank, load_matrix
from fastsketch.lowrank._pursuit import Continuation, Pursuit
from fastsketch.lowrank._queries import FoldedIn, Scale
from fastsketch.lowrank._setting import FROM_SPREAD, FitSetting, LossSetting, SideSetting
from fastsketch.lowrank._sweeps import fold_in


class LowRankModel(LowRankAnswers):
    """Model of a matrix from some of its entries: biases plus a sum of rank-one matrices, fitted greedily.

    Score z_ij = level + row_i + column_j + sum_k coefficient_k U_ik V_jk. Each rank is the leading singular pair of
    the gradient of the loss over the observed entries, so one fit has the models of every smaller rank. Sweeps then
    fit both sides of the last rank in turn.

    Parameters
    ----------
    rank : int, default 10
        Largest rank; at most min(m, n).
    loss : str, default "square"
        "square" (z - o)^2 / 2; "logistic" log(1 + exp(-oz)) and "squared_hinge" of labels o = -1 and +1 (or 0 and 1);
        "huber" with loss_parameter delta; "poisson" exp(z) - oz of counts; and, with kinks, "absolute" ``|z - o|``,
        "hinge" of labels, "quantile" with loss_parameter tau (0.5), "epsilon_insensitive" with loss_parameter epsilon.
        Stars want "square", and signs too, unless chances are asked for: it is as accurate as "logistic", and faster.
        "huber" is for values of which some are wrong by far, "absolute" where the mean distance counts.
    refine : {"economic", "full", "none"}, default "economic"
        Which coefficients are fitted again after each rank of a smooth loss. "economic": the new one and a common
        factor of all earlier ones (GLRL equation 7); "full": all of them (equation 6); "none": the new one is the step
        s / L. The square loss with "full" is rank-one matrix pursuit.
    max_refine_steps : int or None, default 2
        Newton steps of that refinement at most; of the square loss one is exact. None: until another would gain less
        than 1e-8 of the objective (or 1e-9 of that without ranks, which ends it for separable labels). "full" is then
        never worse than "economic" from the same ranks. More steps fit the entries better and overfit at smaller
        ranks: a smaller learning_rate, sweeps with their ridge, or a rank chosen by validation hold that back.
    biases : bool, default True
        Whether a global level and a bias for each row and each column are fitted first.
    scaling : bool, default True
        Search in rows and columns scaled by (observations + 30)^(-1/4): frequent ones do not take all ranks.
    loss_parameter : float, optional
        delta and epsilon are in units of X. If not given they are 1.345 and 0.1 times the robust spread of what biases
        leave (1.4826 times the median size; the standard deviation of normal residuals): ``resolved`` after the fit.
    learning_rate : float in (0, 1], default 0.7
        Factor on each step of smooth losses: below 1 more ranks overfit later.
    sweeps : int, optional
        Times that columns and rows are fitted again in turn after the last rank, with `ridge`: 10 if it is learned,
        else 4. More accurate; the models of smaller rank are then gone: 0 keeps them, and allows ``add_ranks``.
    ridge : float or "learned", optional
        L2 penalty of factors in sweeps and fold-in. "learned" (square loss only): a separate penalty for each factor,
        by empirical variational Bayes. A number is a multiple of the largest singular value that the gradient of pure
        noise would have, which is estimated before each sweep: at 1, factors of pure noise vanish. By default it is
        learned with the square loss, and chosen on held-out entries with other losses (`validation` of ``fit``; it is 1
        without sweeps, or with fewer than 300 entries). ``facts()["penalty"]`` is in units of the loss, and None if it
        is learned.
    bias_ridge : float, optional
        L2 penalty of biases, in observations of mean curvature and weight: a bias of n observations is shrunk by
        n / (n + bias_ridge). If not given 3, of labels 2.
        ``facts()["bias_penalty"]`` is in units of the loss.
    step_rule : {"line_search", "inverse_sqrt", "inverse"}, default "line_search"
        Of losses with kinks, in step t: to the lowest point along h, step_size / sqrt(t), or step_size / t.
    step_size : float, default 1.0
        In units of X over those of the slopes.
    inner_criterion, inner_tolerance, max_inner_rank : str, float, int, default "current", 0.99, 2
        Ranks of h in step t of those losses: until ||g - h||^2 <= inner_tolerance ||g||^2 ("current"), or
        inner_tolerance times that of step t - 1 ("previous", Algorithm 3 as printed), but at most max_inner_rank.
    max_power_iterations : int, default 8
        Largest number of power iterations for each singular pair; without sweeps 30 are worth their time.
    power_tolerance : float in [0, 1], default 1e-3
        Power iterations end when the right singular vector turns by an angle with at most this sine. Where singular
        values are close, vectors are less exact than that: ``fastsketch.papers`` has 1e-9.
    clip : (low, high), optional
        Range that predicted numbers and rates keep to; labels and probabilities need none.
    dtype : float32 or float64, optional
        Of entries and factors; that of the input if it is one of them, else float64.
    seed : int, default 0

    Attributes
    ----------
    selected_rank : int or None
        Rank that predictions take: the last, or without sweeps the one that held-out entries have chosen.
    selection : list of dict
        For each model that was scored: rank, ridge and bias_ridge, its validation loss with standard_error, and its
        gain, by which the loss is lower than that of biases alone, with gain_error, the standard error of the gain.
    history : list of dict
        rank, objective, seconds, validation (None without one) of every rank from 0.
    shape : (m, n)
    row_ids, column_ids : IdMap or None
        Ids of rows and columns, if the fit was given some; the methods then take and return these.
    notes : dict
        Anything that json can write; saved with the model.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range.

    Notes
    -----
    Every stored entry of a sparse matrix is an observation, zeros too; in a dense one NaN is missing. A rank costs some
    passes over the observed entries, "full" O(nnz k) at rank k. Memory beside the input: 8 bytes an entry in float32,
    16 in float64; sweeps hold a transposed copy, and a fit that chooses one of the entries that are left. A row or
    column without observations is predicted by the other biases, and so is index -1.

    The objective never grows with the rank for smooth losses, nor with step_rule="line_search".

    With the losses of numbers ("square", "huber", "absolute", "quantile", "epsilon_insensitive") a model of c X is c
    times the model of X, whatever ridges are given; a delta, epsilon, clip or step_size that is given must be
    multiplied too.

    References
    ----------
    Yao, Kwok, *Learning of Generalized Low-Rank Models: A Greedy Approach*, IJCAI 2016, Algorithms 2 and 3; Wang et
    al., *Rank-One Matrix Pursuit for Matrix Completion*, ICML 2014; Lim, Teh, KDD Cup 2007 (`ridge`).

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> from scipy import sparse
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 50))
    >>> x = sparse.csr_array(np.where(rng.random((60, 50)) < 0.5, truth, 0))
    >>> model = fs.LowRankModel(3, refine="full", biases=False, scaling=False, sweeps=10, ridge=0.01).fit(x)
    >>> rows, columns = np.nonzero(truth)
    >>> bool(np.abs(model.predict(rows, columns) - truth[rows, columns]).max() < 0.1)
    True
    """

    rank: int = integer(default=10, kw_only=False)
    loss: LossName = choice(tuple(LOSSES), default="square")
    refine: Literal["economic", "full", "none"] = choice(("economic", "full", "none"), default="economic")
    max_refine_steps: int | None = parameter(as_steps, default=2)
    biases: bool = flag(default=True)
    scaling: bool = flag(default=True)
    loss_parameter: float | None = real(default=None, low=-1e300)
    learning_rate: float = real(default=0.7, high=1.0, low_open=True)
    sweeps: int | None = integer(default=None)
    ridge: float | Literal["learned"] | None = parameter(as_ridge, default=None)
    bias_ridge: float | None = real(default=None)
    step_rule: Literal["line_search", "inverse_sqrt", "inverse"] = choice(
        ("line_search", "inverse_sqrt", "inverse"), default="line_search"
    )
    step_size: float = real(default=1.0, low_open=True)
    inner_criterion: Literal["current", "previous"] = choice(("current", "previous"), default="current")
    inner_tolerance: float = real(default=0.99, high=1.0, low_open=True)
    max_inner_rank: int = integer(default=2, at_least=1)
    max_power_iterations: int = integer(default=8, at_least=1)
    power_tolerance: float = real(default=1e-3, high=1.0)
    clip: tuple[float, float] | None = parameter(as_range, default=None)
    dtype: np.dtype[Any] | None = float_dtype(default=None)
    seed: int = seed(default=0)

    def _check(self) -> None:
        as_loss_parameter(self.loss, self.loss_parameter)
        check_learned(self.ridge, self.loss, self.sweeps)

    def _begin(self) -> None:
        super()._begin()
        self._continuation: Continuation | None = None

    # -- fitting ---------------------------------------------------------------------------------------------------
    @changes
    def fit(
        self,
        X: Rows | Table,
        *,
        columns: ColumnNames | None = None,
        row_ids: Any = None,
        column_ids: Any = None,
        sample_weight: Rows | None = None,
        validation: float | Rows | Table | None = None,
        patience: int | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Forget everything and fit X.

        Parameters
        ----------
        X : scipy.sparse (m, n), array (m, n) with NaN for what is missing, or a table
            A table is ``fastsketch.data.Triples`` of rows, columns and values, by ids of any type; or {row id:
            {column id: value}}; or, where `columns` says so, a data frame or the path of a file. Its ids, in ascending
            order, become rows and columns. A pair has one value: one that comes twice is an error.
        columns : (row, column, value), optional
            X is a data frame or a file, and these are the names, or numbers from 0, of its columns. Without them a
            file has no more than these, and a data frame is a matrix, and refused if it has three columns or fewer, or
            names such as "user" and "item".
        row_ids, column_ids : vectors of ids (m,) and (n,), optional
            Ids of the rows and columns of a matrix X: integers or strings, see ``fastsketch.data.IdMap``.
        sample_weight : as X, optional
            Weight of each observation: 0 or from 1e-100 to 1e100 (float32: 1e-30 to 1e30), stored where X is;
            (n_lines,) if X is a table. All of them times a number give the same predictions. An observation of weight
            0 is checked, and then left out, and so is an id of a table that has no other.
        validation : float in (0, 1), or scipy.sparse (m, n), or a table if X is one, optional
            Share of the entries to hold out (0.1 if not given, unless ridge is given); the fit is then made of all
            entries. Or held-out entries of your own, which are not fitted. They say how large the loss is, and how
            much lower than that of biases alone: ``facts()``. Where the ridge is neither given nor learned they choose
            it, the one of 4, 2, 1, 1/2 and 1/4 with the least loss; ``facts()["chosen_by"]`` is "validation",
            "argument", or "default" where there are too few entries to tell. The scored fit takes about as long as the
            fit, that of five ridges two to four times as long. Without sweeps they choose the rank, of a fit to the
            entries left. ``LowRankModel(**{**model.resolved, "rank": model.selected_rank})`` is the same fit without a
            choice.
        patience : int, optional
            Stop after this many ranks without a better validation score, in the fit that chooses.
        callback : callable, optional
            Called with each entry of the history, of the fit that chooses and of the one to all entries; what it raises
            leaves the model as it was, a true value returned ends the fit.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For input that cannot serve; the model is then as it was.

        Examples
        --------
        >>> import fastsketch as fs
        >>> ratings = {
        ...     "ann": {"Alien": 5, "Heat": 4, "Ran": 1},
        ...     "bob": {"Alien": 4, "Heat": 5, "Ran": 2, "Ikiru": 1},
        ...     "cat": {"Alien": 1, "Ran": 5, "Ikiru": 4},
        ...     "dan": {"Heat": 1, "Ran": 4, "Ikiru": 5},
        ... }
        >>> fs.LowRankModel(1, ridge=0.1).fit(ratings)
        <LowRankModel(rank=1, ridge=0.1): 4 x 4, rank 1>
        >>> import numpy as np
        >>> fs.LowRankModel(1).fit(np.array([[1.0, 2.0], [2.0, np.nan], [3.0, 6.0]])).predict([1], [1]).round(1)
        array([3.2])
        """
        given = as_matrices(X, sample_weight, validation, columns=columns, row_ids=row_ids, column_ids=column_ids)
        ids, setting = given.ids, self._setting()
        with naming_ids(ids.rows, ids.columns):
            entries, apart = load_matrix(given.X, given.sample_weight, given.validation, setting)
        watch = FitHistory(held=given.validation is not None, patience=patience, callback=callback)
        names = given.feature_names
        del given
        fitted, pursuit = fit(entries, setting, watch, apart)
        self._fitted, self._continuation, self._ids = fitted, pursuit.end() if self.sweeps == 0 else None, ids
        self._feature_names = names
        return self

    @changes
    def add_ranks(self, n: int, *, patience: int | None = None, callback: Callback | None = None) -> Self:
        """Go on from the last fit with n more ranks, as if it had been asked for them at once.

        The parameter ``rank`` becomes the total: ``type(model)(**model.parameters)`` fits the same data to the same
        model. The data of the fit must still be in memory, unchanged: copies share them, files and pickles do not
        hold them.

        Parameters
        ----------
        n : int
        patience, callback
            As for ``fit``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If sweeps are asked for, for a model that was not fitted or comes from a file, and for more ranks than
            min(m, n); the model is then as it was.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> model = fs.LowRankModel(1, sweeps=0).fit(rng.standard_normal((20, 3)) @ rng.standard_normal((3, 10)))
        >>> model.add_ranks(2).parameters["rank"], len(model.history)
        (3, 4)
        """
        n = as_integer(n, "n", 1)
        if self.sweeps != 0:
            raise ValueError("add_ranks cannot follow sweeps: fit with sweeps=0")
        fitted, before = self._fitted, self._continuation
        if fitted is None or before is None:
            raise ValueError(
                "add_ranks goes on from a fit in memory: call fit first (files and pickles do not hold the data)"
            )
        total = fitted.ranks + n
        check_rank(total, before.observations.m, before.observations.n)
        watch = FitHistory(
            held=before.observations.n_held > 0, patience=patience, callback=callback, history=fitted.history
        )
        pursuit = Pursuit.resumed(before, fitted, self._loss_setting(fitted), self._setting())
        climb(pursuit, total, watch)
        self._values.rank = total
        self._fitted, self._continuation = greedy(pursuit, watch, fitted.ridges), pursuit.end()
        return self

    def _setting(self) -> FitSetting:
        return FitSetting(**vars(self._values)).of(self._asked_loss())

    def _asked_loss(self) -> LossSetting:
        """Return the loss with the parameter of the table where none was given."""
        return LossSetting(self.loss, as_loss_parameter(self.loss, self.loss_parameter))

    def _loss_setting(self, fitted: Fitted) -> LossSetting:
        """Return the loss as it was fitted."""
        asked = self._asked_loss()
        return asked if fitted.loss_parameter is None else replace(asked, parameter=fitted.loss_parameter)

    # -- new rows and columns --------------------------------------------------------------------------------------
    def fold_in(
        self,
        X: Rows | Table,
        *,
        sample_weight: Rows | None = None,
        axis: int = 0,
        rank: int | None = None,
        ridge: float | None = None,
    ) -> FoldedIn:
        """Fit new rows (axis=0) or new columns (axis=1) to the columns or rows known, the model unchanged.

        Parameters
        ----------
        X : scipy.sparse or array with NaN
            (any, n) for axis=0; (m, any) for axis=1. Or a table, if the model has ids: then the new ones are in the
            order in which their ids appear, and what is said of ids that the model does not know is left out. Columns
            of a data frame are, for axis=0, matched with the names or ids of the model's columns, in any order; a name
            that is missing or unknown is refused.
        sample_weight : as X, optional
        axis : {0, 1}
        rank : int, optional
        ridge : float, optional
            In the units of the model's; that of the model if not given.

        Returns
        -------
        FoldedIn
            Its ``factors`` and ``biases``; ``predict(k, j)``, ``predict_block``, ``recommend``; ``ids`` of a table.

        Notes
        -----
        A convex problem of rank + 1 variables a row, solved by damped Newton steps (of a touching parabola for losses
        without curvature): after sweeps, the rows of X itself get the factors that they have.

        Examples
        --------
        >>> import fastsketch as fs
        >>> ratings = {
        ...     "ann": {"Alien": 5, "Heat": 4, "Ran": 1},
        ...     "bob": {"Alien": 4, "Heat": 5, "Ran": 2, "Ikiru": 1},
        ...     "cat": {"Alien": 1, "Ran": 5, "Ikiru": 4},
        ...     "dan": {"Heat": 1, "Ran": 4, "Ikiru": 5},
        ... }
        >>> model = fs.LowRankModel(1, ridge=0.1).fit(ratings)
        >>> new = model.fold_in({"eve": {"Alien": 5, "Ran": 1}})
        >>> new.predict(["eve"], ["Heat"]).round() > 3
        array([ True])
        """
        fitted = self._known()
        axis = as_integer(axis, "axis", 0)
        if axis > 1:
            raise ValueError(f"axis must be 0 or 1, got {axis}")
        rank = fitted.rank(rank)
        ridges, learned = fitted.ridges, fitted.learned
        if ridge is not None:
            ridges, learned = replace(ridges, ridge=as_real(ridge, "ridge", 0.0, 1e300)), None
        penalty: Any = (ridges.penalty or 0.0) if learned is None else learned[axis]
        data, new_ids = self._observed(X, sample_weight, axis)
        biases = fitted.row if axis else fitted.column
        known = Side(np.ascontiguousarray(fitted.factors(rank)[1 - axis]), biases.copy())
        loss = self._loss_setting(fitted)
        setting = SideSetting(loss, fitted.level, penalty, ridges.bias_penalty, self.biases)
        new = fold_in(data if axis == 0 else data.transposed(), setting, known)
        return FoldedIn(
            axis=axis, new=new, known=known, scale=self._scale(), ids=new_ids, known_ids=self._ids.side(1 - axis)
        )

    def _observed(self, X: Any, sample_weight: Any, axis: int) -> tuple[Observed, IdMap | None]:
        """Return the entries of new rows (or columns) beside the known columns (or rows), and the ids of a table."""
        fitted, new_ids, entries = self._known(), None, X
        table = known_columns(X, self._ids.side(1 - axis), axis)
        if table is not None:
            if sample_weight is not None:
                raise ValueError("sample_weight is for matrices: X is a table")
            entries, new_ids = table
        elif axis == 0:
            order = self._column_order(X, "X")
            entries = with_columns(X, order, "X")
            order = self._column_order(sample_weight, "sample_weight") if is_table(sample_weight) else order
            sample_weight = None if sample_weight is None else with_columns(sample_weight, order, "sample_weight")
        data = observed(entries, loss=self.loss, sample_weight=sample_weight, dtype=fitted.left.dtype)
        size, side = (data.m, "rows") if axis else (data.n, "columns")
        if size != fitted.shape[1 - axis]:
            raise ValueError(f"X must have {fitted.shape[1 - axis]} {side}, got shape {(data.m, data.n)}")
        return data.with_weight(), new_ids

    # -- what the frame asks for -------------------------------------------------------------------------------------
    @property
    def selected_rank(self) -> int | None:
        """Return the rank that predictions take; None before the fit."""
        return None if self._fitted is None else self._fitted.selected_rank

    @property
    def history(self) -> list[HistoryLine]:
        """Return rank, objective, seconds and validation (None without one) of every rank from 0, before any sweeps.

        validation is the score of this rank in the fit that has chosen. [] before the fit. ``facts`` has the figures of
        the model in use.
        """
        return [] if self._fitted is None else [line.copy() for line in self._fitted.history]

    @property
    def selection(self) -> list[SelectionLine]:
        """Return rank, ridge, bias_ridge, validation, gain and the errors of these, of every model that was scored.

        The line without a ridge is of biases alone; [] before the fit, and where no entries were held out.
        """
        return [] if self._fitted is None else [line.copy() for line in self._fitted.selection]

    @property
    def shape(self) -> tuple[int, int]:
        """Return (m, n) of the matrix; ValueError before the fit."""
        return self._known().shape

    @property
    def n_rows(self) -> int:
        """Return the rows of the matrix; 0 before the fit."""
        return 0 if self._fitted is None else self._fitted.shape[0]

    @property
    def n_features(self) -> int | None:
        """Return the columns of the matrix; None before the fit."""
        return None if self._fitted is None else self._fitted.shape[1]

    def _column_names(self) -> FeatureNames | None:
        """Return the names of the columns: those of the data frame that was fitted, or their ids as text; or None."""
        return self._feature_names or (None if self._ids.columns is None else tuple(map(str, self._ids.columns)))

    @property
    def row_ids(self) -> IdMap | None:
        """Return the ids of the rows; None if the fit was given none."""
        return self._ids.rows

    @property
    def column_ids(self) -> IdMap | None:
        """Return the ids of the columns; None if the fit was given none."""
        return self._ids.columns

    def _scale(self) -> Scale:
        return Scale(self.loss, self.clip, self._known().level)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        if self._fitted is None:
            return {}, {}
        ids = self._ids
        return {**self._fitted.scalars(), **ids.scalars()}, {**self._fitted.arrays(), **ids.arrays()}

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        if state:
            own = without_ids(arrays, state)
            validate(state, own, dtype=self.dtype)
            shape = own["row"].size, own["column"].size
            self._ids = Ids.read(state, arrays, shape=shape)
            if state["loss_parameter"] is not None:
                as_loss_parameter(self.loss, state["loss_parameter"])
        else:
            checks.only(arrays)

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._fitted = Fitted.read(state, arrays) if state else None
        if self._ids == Ids():  # else these are what has been validated
            self._ids = Ids.read(state, arrays, shape=None)

    def _keep_in_memory(self, other: Self) -> None:
        other._continuation, other._ids = self._continuation, self._ids

    def _resolved(self) -> dict[str, Any]:
        fitted, swept = self._fitted, {"sweeps": self._setting().sweeps}
        if fitted is None:
            from_data = self.loss_parameter is None and self.loss in FROM_SPREAD
            known = not from_data and LOSSES[self.loss].parameter is not None
            return {"loss_parameter": self._asked_loss().parameter if known else None, "dtype": self.dtype, **swept}
        parameter = None if LOSSES[self.loss].parameter is None else self._loss_setting(fitted).parameter
        ridges = {"ridge": fitted.ridges.ridge, "bias_ridge": fitted.ridges.bias_ridge}
        return {"loss_parameter": parameter, "dtype": fitted.left.dtype, **ridges, **swept}

    def _facts(self) -> dict[str, Any]:
        if self._fitted is None:
            return {}
        line = self._fitted.line()
        about: dict[str, Any] = {"selected_rank": line["rank"], "swept": self._fitted.swept}
        about["n_observations"] = self._fitted.n_observations
        about["penalty"], about["bias_penalty"] = self._fitted.ridges.penalty, self._fitted.ridges.bias_penalty
        about.update(objective=line["objective"], validation=line["validation"])
        about["standard_error"] = self._fitted.standard_error
        rank, ridges = self._fitted.selected_rank, self._fitted.ridges
        used = {"rank": rank, "ridge": ridges.ridge if rank else None, "bias_ridge": ridges.bias_ridge}
        tried = next((each for each in self._fitted.selection if used.items() <= each.items()), None)
        about["chosen_by"] = "validation" if self._fitted.selection else "default" if self.ridge is None else "argument"
        return {**about, **{name: None if tried is None else tried[name] for name in ("gain", "gain_error")}}

    def _seen(self) -> str:
        if self._fitted is None:
            return "not fitted"
        return f"{self.n_rows} x {self.n_features}, rank {self.selected_rank}"
