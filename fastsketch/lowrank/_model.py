"""Generalized low-rank models: completion of a matrix under a loss that suits its values."""

from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.losses import LOSSES, LossName, as_loss_parameter
from fastsketch._core.validation import Rows, as_integer, as_real
from fastsketch._frame.batches import FeatureNames, is_table, with_columns
from fastsketch._frame.model import Arrays, Model
from fastsketch._frame.parameters import choice, flag, float_dtype, integer, parameter, real, seed
from fastsketch._kernels.guard import changes
from fastsketch.data.files import _checks as checks
from fastsketch.data.names._events import ColumnNames
from fastsketch.data.names._id_map import IdMap
from fastsketch.data.names._triples import Table, naming_ids
from fastsketch.lowrank._arguments import as_range, as_ridge, as_steps, check_learned
from fastsketch.lowrank._data import Array, Observed, observed_entries
from fastsketch.lowrank._fitted import Fitted, HistoryLine, SelectionLine, Side, validate_state
from fastsketch.lowrank._fitting import Callback, FitHistory, add_ranks_until, fit, greedy_model
from fastsketch.lowrank._ids import Ids, as_matrices, drop_id_arrays, exclusion_matrix, matrix_of_new_table
from fastsketch.lowrank._loading import check_rank, load_matrix
from fastsketch.lowrank._pursuit import Continuation, Pursuit
from fastsketch.lowrank._queries import FoldedIn, Scale, recommend_columns
from fastsketch.lowrank._setting import DEVIATION_MULTIPLES, FitSetting, LossSetting, SideSetting
from fastsketch.lowrank._sweeps import fold_in


class LowRankModel(Model):
    """Matrix completion by a low-rank model, under one of nine losses.

    The score of entry (i, j) is z_ij = level + row_i + column_j + sum_k coefficient_k U_ik V_jk, the sum of biases and
    of rank-one matrices. Ranks are added one after the other (GLRL, Yao and Kwok 2016): each one is the leading
    singular pair of the gradient of the loss at the observed entries. Sweeps then fit the factors of columns and of
    rows in turn (alternating least squares for the square loss).

    Parameters
    ----------
    rank : int, default 10
        Largest rank, at most min(m, n).
    loss : str, default "square"
        Loss of a score z for an observed value o. Smooth losses are "square" (z - o)^2 / 2, "huber" with delta =
        `loss_parameter`, "logistic" log(1 + exp(-oz)) and "squared_hinge" for labels o = -1 and +1 (or 0 and 1), and
        "poisson" exp(z) - oz for counts. Losses with kinks are "absolute" ``|z - o|``, "hinge" for labels, "quantile"
        with tau = `loss_parameter` (default 0.5), and "epsilon_insensitive" with epsilon = `loss_parameter`.
        "square" is right for ratings. It is right for signs too, unless probabilities are needed: it is as accurate as
        "logistic", and faster. "huber" is for data in which some values are grossly wrong, "absolute" for a small mean
        absolute error.
    refine : {"economic", "full", "none"}, default "economic"
        Coefficients that are fitted again after each rank of a smooth loss. "economic": the new one and a common
        factor of all earlier ones (GLRL, equation 7). "full": all of them (equation 6); with the square loss this is
        rank-one matrix pursuit. "none": no fit; the new one is the step s / L.
    max_refine_steps : int or None, default 2
        Largest number of Newton steps of this fit. One step is exact for the square loss. With None, steps end when
        another one would gain less than 1e-8 of the objective plus 1e-9 of the objective without ranks; "full" is then
        never worse than "economic" from the same ranks. More steps fit the entries better, and overfit at smaller
        ranks, which a smaller `learning_rate`, sweeps, or a rank chosen by validation prevent.
    biases : bool, default True
        Whether a global level and biases of rows and columns are fitted before the first rank.
    scaling : bool, default True
        Whether singular vectors are searched in rows and columns that are multiplied by (number of observations +
        30)^(-1/4). Otherwise the most frequent rows and columns dominate all ranks.
    loss_parameter : float, optional
        delta of the Huber loss and epsilon of the epsilon-insensitive loss, in units of X. By default they are 1.345
        (Huber 1981) and 0.1 times (scikit-learn, ``SVR``) the robust standard deviation of the residuals of the biases
        (1.4826 times their median absolute value). ``resolved`` has the value after the fit.
    learning_rate : float in (0, 1], default 0.7
        Factor on each step of a smooth loss. Values below 1 delay overfitting to larger ranks.
    sweeps : int, optional
        Number of alternating fits of columns and rows after the last rank. By default 10 if the ridge is learned, else
        4. Sweeps make the model more accurate, but only the model of the last rank remains. With 0 the models of all
        smaller ranks remain, and ``add_ranks`` is possible.
    ridge : float or "learned", optional
        L2 penalty of factors in sweeps and ``fold_in``. "learned" (square loss only): a separate penalty for each
        factor, by empirical variational Bayes. A number is a multiple of the largest singular value that the gradient
        of pure noise would have, which is estimated before each sweep: at 1, factors of pure noise vanish. By default
        it is learned for the square loss, and for other losses chosen on held-out entries (`validation` of ``fit``),
        or 1 without sweeps or with fewer than 5 entries. ``facts()["penalty"]`` has the penalty in units of the loss,
        None if it is learned.
    bias_ridge : float, optional
        L2 penalty of biases, as a number of observations of mean curvature and weight: a bias of n observations is
        shrunk by n / (n + bias_ridge). Default 3, for labels 2. For numbers, biases beyond three robust standard
        deviations of the residuals are not shrunk, so that a column or row with a distant zero does not change the
        predictions of others. ``facts()["bias_penalty"]`` has the penalty in units of the loss.
    step_rule : {"line_search", "inverse_sqrt", "inverse"}, default "line_search"
        Length of step t along the direction h for a loss with kinks: to the minimum, step_size / sqrt(t), or
        step_size / t.
    step_size : float, default 1.0
        Factor of "inverse_sqrt" and "inverse", in units of X divided by those of the slopes of the loss.
    inner_criterion, inner_tolerance, max_inner_rank : str, float, int, default "current", 0.99, 2
        Ranks of h for a loss with kinks, whose subgradient is g. They are added until ||g - h||^2 <= inner_tolerance
        ||g||^2 ("current"), or <= inner_tolerance times ||g - h||^2 of step t - 1 ("previous", Algorithm 3 as
        printed), at most `max_inner_rank`.
    max_power_iterations : int, default 8
        Largest number of power iterations for a singular pair. Without sweeps, 30 can pay.
    power_tolerance : float in [0, 1], default 1e-3
        Power iterations end when the right singular vector turns by an angle whose sine is at most this. Vectors of
        close singular values are less exact. ``fastsketch.papers`` uses 1e-9.
    clip : (low, high), optional
        Range to which predicted numbers and rates are clipped. Labels and probabilities are not clipped.
    dtype : float32 or float64, optional
        Of entries and factors. By default that of X if it is one of the two, else float64.
    seed : int, default 0
        Seed of the initial vectors of searches and of the random split of entries.

    Attributes
    ----------
    selected_rank : int or None
        Rank that predictions use: the last, or without sweeps the one with the best validation score. None before the
        fit.
    selection : list of dict
        A dict for each model that was scored on held-out entries: rank, ridge, bias_ridge, validation (the mean loss)
        and its standard_error, gain (how much lower this loss is than that of biases alone) and its standard error
        gain_error.
    history : list of dict
        rank, objective, seconds and validation (None without held-out entries) of each rank from 0.
    shape : (m, n)
    row_ids, column_ids : IdMap or None
        Ids of rows and columns if the fit had some. Methods then take and return ids instead of indices.
    notes : dict
        Anything that can be written as JSON. It is saved with the model.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range.

    Notes
    -----
    Every stored entry of a sparse matrix is an observation, zeros included. In a dense matrix NaN is missing. A rank
    costs some passes over the observed entries, and with "full" O(nnz k) operations at rank k. In addition to the input
    a fit needs 8 bytes an entry in float32 and 16 in float64. Sweeps also store a transposed copy, and a fit that holds
    out entries a copy of the others. A row or column without observations has the bias 0 and no factors.

    The objective does not grow with the rank for smooth losses, nor for others with ``step_rule="line_search"``.

    For losses of numbers ("square", "huber", "absolute", "quantile", "epsilon_insensitive") a model of c X predicts c
    times as much as the model of X with the same ridges. A given delta, epsilon, clip or step_size must then be
    multiplied by c too.

    References
    ----------
    Yao, Kwok, *Learning of Generalized Low-Rank Models: A Greedy Approach*, IJCAI 2016, Algorithms 2 and 3; Wang et
    al., *Rank-One Matrix Pursuit for Matrix Completion*, ICML 2014; Lim, Teh, KDD Cup 2007 (`ridge`); Efron, Morris,
    *Limiting the Risk of Bayes and Empirical Bayes Estimators*, JASA 1972 (`bias_ridge`).

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
        self._ids = Ids()
        self._fitted: Fitted | None = None
        self._continuation: Continuation | None = None

    def _require_fitted(self) -> Fitted:
        """Return the fitted model. Raise ValueError if ``fit`` has not been called."""
        if self._fitted is None:
            raise ValueError("the model has not been fitted: call fit first")
        return self._fitted

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
        """Fit the model to the observed entries of X.

        An earlier fit is discarded.

        Parameters
        ----------
        X : scipy.sparse (m, n), array (m, n) with NaN for missing entries, or a table
            A table is ``fastsketch.data.Triples`` of row ids, column ids and values, or {row id: {column id: value}},
            or, with `columns`, a data frame or the path of a file. Its ids in ascending order become rows and columns.
            A pair that occurs twice is an error.
        columns : (row, column, value), optional
            Names, or positions from 0, of the three columns of a data frame or a file. Without them a file must have
            only these three columns, and a data frame is read as a matrix; one with at most three columns, or with
            names such as "user" and "item", is then refused.
        row_ids, column_ids : vectors of ids (m,) and (n,), optional
            Ids of the rows and columns of a matrix X: integers or strings, see ``fastsketch.data.IdMap``.
        sample_weight : as X, optional
            Weight of each observation, with the sparsity structure of X, or (n_lines,) if X is a table: 0, or from
            1e-100 to 1e100 (float32: from 1e-30 to 1e30). Weights that are all multiplied by the same number give the
            same predictions. An observation of weight 0 is checked and dropped, and so is an id without others.
        validation : float in (0, 1), scipy.sparse (m, n), or a table if X is one, optional
            Entries that are held out, to score the model: ``facts()`` has their mean loss, and how much lower it is
            than that of biases alone.

            - A number is the share of the entries that are held out at random. The model is then fitted again to all
              entries. Default 0.1, and no entries if `ridge` is given or without sweeps. With fewer than 300 entries
              none are held out if the ridge is learned; otherwise five-fold cross-validation chooses it.
            - A matrix or table has the held-out entries. They are not fitted.

            If the ridge is neither given nor learned, it is the one of 4, 2, 1, 1/2 and 1/4 with the smallest held-out
            loss, and the fit takes three to five times as long. Without sweeps the held-out entries choose the rank,
            and the model is not fitted again. ``facts()["chosen_by"]`` is "validation", "argument" or "default".
            ``LowRankModel(**{**model.resolved, "rank": model.selected_rank})`` repeats the fit without a choice.
        patience : int, optional
            Ranks are added until this many in a row have not improved the validation score.
        callback : callable, optional
            Called with each dict of ``history``, in the fit that is scored and in the fit of all entries. If it returns
            a true value, no more ranks are added. If it raises an exception, the model stays as it was.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For invalid arguments. The model stays as it was.

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
        arguments = as_matrices(X, sample_weight, validation, columns=columns, row_ids=row_ids, column_ids=column_ids)
        ids, setting = arguments.ids, self._setting()
        with naming_ids(ids.rows, ids.columns):
            entries, hold_outs = load_matrix(arguments.X, arguments.sample_weight, arguments.validation, setting)
        fit_history = FitHistory(has_held_out=arguments.validation is not None, patience=patience, callback=callback)
        names = arguments.feature_names
        del arguments
        fitted, pursuit = fit(entries, setting, fit_history, hold_outs)
        self._fitted, self._continuation, self._ids = fitted, pursuit.continuation() if self.sweeps == 0 else None, ids
        self._feature_names = names
        return self

    @changes
    def add_ranks(self, n: int, *, patience: int | None = None, callback: Callback | None = None) -> Self:
        """Add n ranks to a model that was fitted with ``sweeps=0``.

        The result is bitwise identical to one fit with all ranks, and the parameter ``rank`` becomes their number. The
        model must have been fitted in this process: it refers to the data of the fit, which must not be changed. Copies
        of a model share the data; files and pickles do not contain them.

        Parameters
        ----------
        n : int
            Number of ranks to add.
        patience, callback
            As for ``fit``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the model has sweeps, was not fitted or was loaded from a file, or if the total is larger than min(m, n).
            The model stays as it was.

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
        fitted, continuation = self._fitted, self._continuation
        if fitted is None or continuation is None:
            raise ValueError(
                "add_ranks goes on from a fit in memory: call fit first (files and pickles do not hold the data)"
            )
        total = fitted.n_ranks + n
        check_rank(total, continuation.observations.m, continuation.observations.n)
        fit_history = FitHistory(
            has_held_out=continuation.observations.n_held_out > 0,
            patience=patience,
            callback=callback,
            history=fitted.history,
        )
        pursuit = Pursuit.resume(continuation, fitted, self._fitted_loss(fitted), self._setting())
        add_ranks_until(pursuit, total, fit_history)
        self._values.rank = total
        self._fitted, self._continuation = greedy_model(pursuit, fit_history, fitted.ridges), pursuit.continuation()
        return self

    def _setting(self) -> FitSetting:
        return FitSetting(**vars(self._values)).with_loss(self._given_loss())

    def _given_loss(self) -> LossSetting:
        """Return the loss function that the parameters define. If the loss has a parameter that was not given, it is
        the default.
        """
        return LossSetting(self.loss, as_loss_parameter(self.loss, self.loss_parameter))

    def _fitted_loss(self, fitted: Fitted) -> LossSetting:
        """Return the loss function that the fit has used, with the value of its parameter, which may have been
        estimated from the data.
        """
        asked = self._given_loss()
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
        """Compute the factors and biases of new rows (axis=0) or columns (axis=1), without refitting the model.

        The model is not changed.

        Parameters
        ----------
        X : scipy.sparse, array with NaN for missing entries, or a table
            New rows (k, n) for axis=0, new columns (m, k) for axis=1. A table needs a model with ids: the new ones are
            then in the order in which their ids appear, and entries of unknown columns (or rows) are ignored. For
            axis=0 the columns of a data frame are matched by name with those of the model, in any order; a missing or
            unknown name is an error.
        sample_weight : as X, optional
            Weights of the observations; not for a table.
        axis : {0, 1}, default 0
        rank : int, optional
            Rank of the model; ``selected_rank`` by default.
        ridge : float, optional
            In the units of the parameter `ridge`. By default the penalty of the fit.

        Returns
        -------
        FoldedIn
            Has the ``factors`` and ``biases`` of the new rows or columns, and methods ``predict``, ``predict_block``
            and ``recommend``.

        Notes
        -----
        Each row is a convex problem with rank + 1 variables, which is solved by damped Newton steps. Losses with kinks
        are replaced by parabolas that touch them. After sweeps, rows of the fit get the factors that they had in it,
        except rows whose bias was not shrunk (`bias_ridge`).

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
        fitted = self._require_fitted()
        axis = as_integer(axis, "axis", 0)
        if axis > 1:
            raise ValueError(f"axis must be 0 or 1, got {axis}")
        rank = fitted.validate_rank(rank)
        ridges, learned = fitted.ridges, fitted.learned
        if ridge is not None:
            ridges, learned = replace(ridges, ridge=as_real(ridge, "ridge", 0.0, 1e300)), None
        penalty: Any = (ridges.penalty or 0.0) if learned is None else learned[axis]
        data, new_ids = self._validate_new_entries(X, sample_weight, axis)
        biases = fitted.row if axis else fitted.column
        fixed = Side(np.ascontiguousarray(fitted.factors(rank)[1 - axis]), biases.copy())
        loss = self._fitted_loss(fitted)
        setting = SideSetting(loss, fitted.level, penalty, ridges.bias_penalty, self.biases)
        folded = fold_in(data if axis == 0 else data.transpose(), setting, fixed)
        return FoldedIn(
            axis=axis, new=folded, known=fixed, scale=self._scale(), ids=new_ids, known_ids=self._ids.of_axis(1 - axis)
        )

    def _validate_new_entries(self, X: Any, sample_weight: Any, axis: int) -> tuple[Observed, IdMap | None]:
        """Validate new rows (or columns). Return their entries, and their ids if they are given as a table."""
        fitted, new_ids, entries = self._require_fitted(), None, X
        table = matrix_of_new_table(X, self._ids.of_axis(1 - axis), axis)
        if table is not None:
            if sample_weight is not None:
                raise ValueError("sample_weight is for matrices: X is a table")
            entries, new_ids = table
        elif axis == 0:
            order = self._column_order(X, "X")
            entries = with_columns(X, order, "X")
            order = self._column_order(sample_weight, "sample_weight") if is_table(sample_weight) else order
            sample_weight = None if sample_weight is None else with_columns(sample_weight, order, "sample_weight")
        data = observed_entries(entries, loss=self.loss, sample_weight=sample_weight, dtype=fitted.left.dtype)
        size, side = (data.m, "rows") if axis else (data.n, "columns")
        if size != fitted.shape[1 - axis]:
            raise ValueError(f"X must have {fitted.shape[1 - axis]} {side}, got shape {(data.m, data.n)}")
        return data.drop_zero_weights(), new_ids

    # -- scores ----------------------------------------------------------------------------------------------------
    def decision_function(self, rows: ArrayLike, columns: ArrayLike, *, rank: int | None = None) -> Array:
        """Compute the model's scores of the matrix entries at (rows[k], columns[k]).

        Parameters
        ----------
        rows, columns : array_like of int, or of ids (k,)
            Index -1, or an unknown id, is an unseen row or column, which has no bias and no factors.
        rank : int, optional
            Rank of the model; ``selected_rank`` by default.

        Returns
        -------
        ndarray (k,)
            In the dtype of the fit.
        """
        fitted = self._require_fitted()
        rank = fitted.validate_rank(rank)
        return fitted.score_pairs(*self._ids.pair_positions(rows, columns, fitted.shape), rank)

    def decision_block(self, rows: ArrayLike, columns: ArrayLike | None = None, *, rank: int | None = None) -> Array:
        """Compute the model's scores of the submatrix of the given rows and columns.

        Parameters
        ----------
        rows : array_like of int, or of ids
        columns : array_like of int, or of ids, optional
            All columns by default.
        rank : int, optional
            Rank of the model; ``selected_rank`` by default.

        Returns
        -------
        ndarray (len(rows), len(columns))
            In the dtype of the fit.
        """
        fitted = self._require_fitted()
        m, n = fitted.shape
        column_positions = np.arange(n) if columns is None else self._ids.positions(columns, 1, n, "columns")
        return fitted.score_block(self._ids.positions(rows, 0, m, "rows"), column_positions, fitted.validate_rank(rank))

    def predict(self, rows: ArrayLike, columns: ArrayLike, *, rank: int | None = None) -> Array:
        """Predict the values of the matrix entries at (rows[k], columns[k]).

        Predictions are labels -1 and +1, rates for "poisson", and otherwise the scores. Rates and scores are clipped to
        ``clip``. For a score of 0 the more frequent label is predicted, or +1 without biases.

        Parameters
        ----------
        rows, columns : array_like of int, or of ids (k,)
            Index -1, or an unknown id, is an unseen row or column: the bias of the other side, if that is known, and
            the level are its prediction.
        rank : int, optional
            Rank of the model; ``selected_rank`` by default.

        Returns
        -------
        ndarray (k,)
            In the dtype of the fit.

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
        >>> model.predict(["ann", "cat"], ["Ikiru", "Heat"]).round()
        array([1., 2.])
        """
        return self._scale().to_predictions(self.decision_function(rows, columns, rank=rank))

    def predict_proba(self, rows: ArrayLike, columns: ArrayLike, *, rank: int | None = None) -> Array:
        """Predict the probability of the label +1 at the entries (rows[k], columns[k]), for the logistic loss.

        Parameters
        ----------
        rows, columns : array_like of int, or of ids (k,)
            As for ``predict``.
        rank : int, optional
            Rank of the model; ``selected_rank`` by default.

        Returns
        -------
        ndarray (k,)
            In the dtype of the fit.

        Raises
        ------
        ValueError
            For another loss.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> friends = np.where(np.eye(2).repeat(10, 0).repeat(10, 1) > 0, 1.0, -1.0)  # two camps
        >>> friends[0, 1] = friends[0, 15] = np.nan  # not known: a friend, and one of the others
        >>> model = fs.LowRankModel(1, loss="logistic", ridge=0.1, biases=False).fit(friends)
        >>> model.predict_proba([0, 0], [1, 15]).round(1)
        array([1., 0.])
        """
        return self._scale().to_probabilities(self.decision_function(rows, columns, rank=rank))

    def predict_block(self, rows: ArrayLike, columns: ArrayLike | None = None, *, rank: int | None = None) -> Array:
        """Predict the values of the submatrix of the given rows and columns.

        Parameters
        ----------
        rows : array_like of int, or of ids
        columns : array_like of int, or of ids, optional
            All columns by default.
        rank : int, optional
            Rank of the model; ``selected_rank`` by default.

        Returns
        -------
        ndarray (len(rows), len(columns))
            In the dtype of the fit.

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
        >>> model.predict_block(["ann", "dan"]).shape, list(model.column_ids)
        ((2, 4), ['Alien', 'Heat', 'Ikiru', 'Ran'])
        """
        return self._scale().to_predictions(self.decision_block(rows, columns, rank=rank))

    def complete(self, *, max_memory: float = 1e9) -> Array:
        """Return the whole matrix of predictions.

        Observed entries are predicted too, and not copied.

        Parameters
        ----------
        max_memory : float, default 1e9
            Largest size of the result in bytes.

        Returns
        -------
        ndarray (m, n)
            In the dtype of the fit.

        Raises
        ------
        ValueError
            If the result would be larger. ``predict_block`` predicts some rows at a time.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> seen = np.array([[1.0, 2.0, 3.0], [2.0, np.nan, 6.0], [3.0, 6.0, 9.0]])
        >>> fs.LowRankModel(1, ridge=0.01, biases=False, sweeps=9).fit(seen).complete().round()[1]
        array([2., 4., 6.])
        """
        fitted, limit = self._require_fitted(), as_real(max_memory, "max_memory", 0.0, 1e300, low_open=True)
        (m, n), need = fitted.shape, fitted.left.itemsize * fitted.row.size * fitted.column.size
        if need > limit:
            raise ValueError(
                f"the {m:,} x {n:,} predictions take {need:,} bytes, more than max_memory={limit:g}: predict_block "
                "predicts some rows at a time"
            )
        return self._scale().to_predictions(fitted.score_block(np.arange(m), np.arange(n), fitted.selected_rank))

    def factors(self, rank: int | None = None) -> tuple[Array, Array]:
        """Return the factors A of rows and B of columns, whose product A B' is the low-rank part of the scores.

        Parameters
        ----------
        rank : int, optional
            Rank of the model; ``selected_rank`` by default.

        Returns
        -------
        (A, B) : ndarrays (m, rank) and (n, rank)
            Copies, in which corresponding columns have entries of about the same size.

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
        >>> import numpy as np
        >>> a, b = model.factors()
        >>> level, rows, columns = model.bias_terms()
        >>> scores = level + rows[:, None] + columns + a @ b.T
        >>> bool(np.allclose(scores, model.decision_block(["ann", "bob", "cat", "dan"]), atol=1e-4))
        True
        """
        fitted = self._require_fitted()
        return fitted.factors(fitted.validate_rank(rank))

    def bias_terms(self) -> tuple[float, Array, Array]:
        """Return the global bias, and copies of the row biases (m,) and the column biases (n,)."""
        fitted = self._require_fitted()
        return fitted.level, fitted.row.copy(), fitted.column.copy()

    # -- uses --------------------------------------------------------------------------------------------------------
    def recommend(
        self,
        rows: ArrayLike,
        n: int = 10,
        *,
        exclude: Rows | Table | None = None,
        allow: ArrayLike | None = None,
        rank: int | None = None,
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Recommend n columns for each given row, best first, and return (columns, predictions), both (len(rows), n).

        The items of the highest predicted rating are often not those that a person would choose next, since which items
        people rate says more than how they rate them. To recommend items, learn from events with ``SketchedEASE``.

        Parameters
        ----------
        rows : array_like of int, or of ids
            For -1, or an unknown id, these are the columns with the highest biases.
        n : int, default 10
        exclude : scipy.sparse (len(rows), n_columns) or (m, n_columns), or a table by ids, optional
            Stored entries of a row are not recommended: pass the X of the fit to exclude what was observed.
        allow : vector of int, or of ids, optional
            The only columns that may be recommended, to all rows. IndexError for an unknown column, KeyError for an
            unknown id.
        rank : int, optional
            Rank of the model; ``selected_rank`` by default.

        Returns
        -------
        columns : ndarray (len(rows), n)
            Indices (int64), -1 if fewer than n columns remain. With ids: int64 for integer ids, else objects, with None
            if fewer remain.
        predictions : ndarray (len(rows), n) of float64
            As from ``predict``, for "logistic" the probability of +1; NaN if fewer than n columns remain.

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
        >>> films, predictions = model.recommend(["ann"], 1, exclude=ratings)
        >>> films
        array([['Ikiru']], dtype=object)
        """
        fitted = self._require_fitted()
        rank, (m, columns) = fitted.validate_rank(rank), fitted.shape
        row_positions = self._ids.positions(rows, 0, m, "rows")
        exclusion = exclusion_matrix(exclude, rows, self._ids)
        best, predictions = recommend_columns(
            row_positions,
            n,
            row_side=fitted.row_side(row_positions, rank),
            column_side=fitted.column_side(np.arange(columns), rank),
            scale=self._scale(),
            exclude=exclude if exclusion is None else exclusion,
            allow=self._ids.sorted_positions(allow, 1, "allow"),
            n_rows=m if exclusion is None else None,
        )
        return self._ids.ids_at(best, 1), predictions

    def similar(
        self, index: Any, n: int = 10, *, axis: int = 0, rank: int | None = None
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Find the n rows or columns most similar to a given one, and return (indices, cosines of factors), best first.

        Parameters
        ----------
        index : int, or an id
            KeyError for an unknown id.
        n : int, default 10
        axis : {0, 1}, default 0
        rank : int, optional
            Rank of the model; ``selected_rank`` by default.

        Returns
        -------
        (indices, cosines) : ndarray (n,) both
            Best first, without `index` itself; shorter if there are fewer others. With ids, ids instead of indices.

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
        >>> users, cosines = model.similar("ann", 1)
        >>> users
        array(['bob'], dtype=object)
        """
        axis = as_integer(axis, "axis", 0)
        if axis > 1:
            raise ValueError(f"axis must be 0 or 1, got {axis}")
        n = as_integer(n, "n", 1)
        factors = self.factors(rank)[axis].astype(np.float64)
        index = self._ids.position(index, axis, len(factors), "index")
        if index < 0:
            raise ValueError("index must be one of the fit, got -1")
        lengths = np.linalg.norm(factors, axis=1)
        cosines = factors @ factors[index] / np.maximum(lengths * lengths[index], 1e-300)
        cosines[index] = -np.inf
        best = np.argsort(-cosines, kind="stable")[: min(n, len(factors) - 1)]
        return self._ids.ids_at(best, axis), cosines[best]

    # -- required by the frame ---------------------------------------------------------------------------------------
    @property
    def selected_rank(self) -> int | None:
        """Return the rank that predictions use; None before the fit."""
        return None if self._fitted is None else self._fitted.selected_rank

    @property
    def history(self) -> list[HistoryLine]:
        """Return a list of dicts with rank, objective, seconds and validation, one for each rank from 0.

        ``validation`` is the score of the rank in the fit with held-out entries, None without one. The list is empty
        before the fit. ``facts()`` describes the final model.
        """
        return [] if self._fitted is None else [line.copy() for line in self._fitted.history]

    @property
    def selection(self) -> list[SelectionLine]:
        """Return a list of dicts, one for each candidate model that was scored on held-out entries.

        Its keys are those of the attribute in the class docstring. The last dict, whose ridge is None, is that of
        biases alone. The list is empty before the fit, and if no entries were held out.
        """
        return [] if self._fitted is None else [line.copy() for line in self._fitted.selection]

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape (m, n) of the fitted matrix. Raise ValueError before the fit."""
        return self._require_fitted().shape

    @property
    def n_rows(self) -> int:
        """Return the number of rows of the matrix; 0 before the fit."""
        return 0 if self._fitted is None else self._fitted.shape[0]

    @property
    def n_features(self) -> int | None:
        """Return the number of columns of the matrix; None before the fit."""
        return None if self._fitted is None else self._fitted.shape[1]

    def _column_names(self) -> FeatureNames | None:
        """Return the column names of the fitted data frame, or the column ids as text, or None without either."""
        return self._feature_names or (None if self._ids.columns is None else tuple(map(str, self._ids.columns)))

    @property
    def row_ids(self) -> IdMap | None:
        """Return the ids of the rows; None if the fit had none."""
        return self._ids.rows

    @property
    def column_ids(self) -> IdMap | None:
        """Return the ids of the columns; None if the fit had none."""
        return self._ids.columns

    def _scale(self) -> Scale:
        return Scale(self.loss, self.clip, self._require_fitted().level)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        if self._fitted is None:
            return {}, {}
        ids = self._ids
        return {**self._fitted.scalars(), **ids.scalars()}, {**self._fitted.arrays(), **ids.arrays()}

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        if state:
            own = drop_id_arrays(arrays, state)
            validate_state(state, own, dtype=self.dtype)
            shape = own["row"].size, own["column"].size
            self._ids = Ids.from_state(state, arrays, shape=shape)
            if state["loss_parameter"] is not None:
                as_loss_parameter(self.loss, state["loss_parameter"])
        else:
            checks.only(arrays)

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._fitted = Fitted.from_state(state, arrays) if state else None
        if self._ids == Ids():  # else these are what has been validated
            self._ids = Ids.from_state(state, arrays, shape=None)

    def _keep_in_memory(self, other: Self) -> None:
        other._continuation, other._ids = self._continuation, self._ids

    def _resolved(self) -> dict[str, Any]:
        fitted, swept = self._fitted, {"sweeps": self._setting().sweeps}
        if fitted is None:
            from_data = self.loss_parameter is None and self.loss in DEVIATION_MULTIPLES
            known = not from_data and LOSSES[self.loss].parameter is not None
            return {"loss_parameter": self._given_loss().parameter if known else None, "dtype": self.dtype, **swept}
        parameter = None if LOSSES[self.loss].parameter is None else self._fitted_loss(fitted).parameter
        ridges = {"ridge": fitted.ridges.ridge, "bias_ridge": fitted.ridges.bias_ridge}
        return {"loss_parameter": parameter, "dtype": fitted.left.dtype, **ridges, **swept}

    def _facts(self) -> dict[str, Any]:
        if self._fitted is None:
            return {}
        line = self._fitted.selected_line()
        facts: dict[str, Any] = {"selected_rank": line["rank"], "swept": self._fitted.swept}
        facts["n_observations"] = self._fitted.n_observations
        facts["penalty"], facts["bias_penalty"] = self._fitted.ridges.penalty, self._fitted.ridges.bias_penalty
        facts.update(objective=line["objective"], validation=line["validation"])
        facts["standard_error"] = self._fitted.standard_error
        rank, ridges = self._fitted.selected_rank, self._fitted.ridges
        selected = {"rank": rank, "ridge": ridges.ridge if rank else None, "bias_ridge": ridges.bias_ridge}
        selection_line = next(
            (
                line_of_candidate
                for line_of_candidate in self._fitted.selection
                if selected.items() <= line_of_candidate.items()
            ),
            None,
        )
        facts["chosen_by"] = "validation" if self._fitted.selection else "default" if self.ridge is None else "argument"
        return {
            **facts,
            **{name: None if selection_line is None else selection_line[name] for name in ("gain", "gain_error")},
        }

    def _seen(self) -> str:
        if self._fitted is None:
            return "not fitted"
        return f"{self.n_rows} x {self.n_features}, rank {self.selected_rank}"
