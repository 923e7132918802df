"""Generalized low-rank models: a sparse matrix completed under the loss that fits it, one rank after the other."""

import time
from dataclasses import asdict

import numpy as np

from fastsketch import _threads
from fastsketch._validation import as_integer, as_real
from fastsketch.io import _state
from fastsketch.lowrank import _factors
from fastsketch.lowrank._biases import fit_biases
from fastsketch.lowrank._config import LowRankConfig
from fastsketch.lowrank._data import observed
from fastsketch.lowrank._losses import LOSSES, as_observations
from fastsketch.lowrank._pursuit import Pursuit
from fastsketch.lowrank._queries import PART, FoldedIn, as_indices, finished, recommended

# Degree scaling: rows and columns count as if seen this much more often; weighted trace norm, spec of the field.
DAMPING = 30.0


class LowRankModel:
    """Model of a matrix from some of its entries: biases plus a sum of rank-one matrices, fitted greedily.

    Score z_ij = level + row_i + column_j + sum_k coefficient_k U_ik V_jk. Each rank is the leading singular pair of
    the gradient of the loss over the observed entries, so one fit has the models of every smaller rank.

    Parameters
    ----------
    rank : int
        Largest rank; at most min(m, n).
    loss : str, default "square"
        "square" (z - o)^2 / 2; "logistic" log(1 + exp(-oz)) of labels o = -1 and +1 (or 0 and 1); "huber" with
        loss_parameter delta (1); "poisson" exp(z) - oz of counts; and without a gradient "l1" |z - o|, "hinge" of
        labels, "quantile" with loss_parameter tau (0.5), "epsilon_insensitive" with loss_parameter epsilon (0.1).
    refine : {"economic", "full", "none"}, default "economic"
        Of smooth losses, after each rank: all coefficients together scaled and the new one; all of them, by L-BFGS;
        none, the step s / L alone. Square loss with "full" is rank-one matrix pursuit.
    biases : bool, default True
        A global level, one bias a row, one a column, fitted first.
    scaling : bool, default True
        Search in rows and columns scaled by (observations + 30)^(-1/4): frequent ones do not take all ranks.
    loss_parameter : float, optional
    shrink : float in (0, 1], default 1.0
        Part of each step that is made: below 1 more ranks overfit later.
    sweeps : int, default 0
        Times that columns and rows are fitted anew in turn after the last rank, with `ridge`. More accurate; the models
        of smaller rank are then gone.
    ridge, bias_ridge : float, default 10.0, 3.0
        Of factors in sweeps and fold-in, in units of the loss; of biases.
    step : {"search", "paper"}, default "search"
        Of losses without a gradient: to the lowest point along h, or step_size / sqrt(t).
    step_size : float, default 1.0
    inner, nu, inner_rank : str, float, int, default "energy", 0.99, 2
        Ranks of h in step t of those losses: until ||g - h||^2 <= nu ||g||^2 ("energy"), or nu times that of step
        t - 1 ("paper", Algorithm 3 as printed), but at most inner_rank.
    power_iterations : int, default 30
        At most, for each singular pair; before sweeps 4 will do.
    clip : (low, high), optional
        Range that ``predict`` keeps to.
    dtype : float32 or float64, optional
        Of entries and factors; that of the input if it is one of them, else float64.
    seed : int, default 0

    Attributes
    ----------
    rank_ : int
        Rank that predictions take: the best by the validation score, else the last.
    history_ : list of dict
        rank, objective, seconds, validation (None without one) of every rank from 0.
    shape_ : (m, n)
    notes : dict
        Anything that json can write; saved with the model.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range.

    Notes
    -----
    Every stored entry of a sparse matrix is an observation, zeros too; in a dense one NaN is missing. A rank costs
    some passes over the observed entries, "full" O(nnz k) at rank k. Memory beside the input: 8 bytes an entry in
    float32, 16 in float64; sweeps hold a transposed copy. A row or column without observations is predicted by the
    other biases, and so is index -1.

    The objective never grows with the rank for smooth losses, nor with step="search".

    References
    ----------
    Yao, Kwok, *Learning of Generalized Low-Rank Models: A Greedy Approach*, IJCAI 2016, Algorithms 2 and 3; Wang et
    al., *Rank-One Matrix Pursuit for Matrix Completion*, ICML 2014.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> from scipy import sparse
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 50))
    >>> seen = sparse.csr_array(np.where(rng.random((60, 50)) < 0.5, truth, 0))
    >>> model = fs.LowRankModel(3, refine="full", biases=False, scaling=False, sweeps=10, ridge=0.01).fit(seen)
    >>> rows, columns = np.nonzero(truth)
    >>> bool(np.abs(model.predict(rows, columns) - truth[rows, columns]).max() < 0.1)
    True
    """

    def __init__(
        self,
        rank,
        loss="square",
        refine="economic",
        biases=True,
        scaling=True,
        *,
        loss_parameter=None,
        shrink=1.0,
        sweeps=0,
        ridge=10.0,
        bias_ridge=3.0,
        step="search",
        step_size=1.0,
        inner="energy",
        nu=0.99,
        inner_rank=2,
        power_iterations=30,
        clip=None,
        dtype=None,
        seed=0,
    ):
        self._config = LowRankConfig.checked(
            rank,
            loss,
            refine,
            biases,
            scaling,
            loss_parameter,
            shrink,
            sweeps,
            ridge,
            bias_ridge,
            step,
            step_size,
            inner,
            nu,
            inner_rank,
            power_iterations,
            clip,
            dtype,
            seed,
        )
        self._a = None
        self._data = None
        self.history_ = []
        self.rank_ = None
        self.notes = {}

    # -- fitting ---------------------------------------------------------------------------------------------------
    def fit(self, X, weights=None, *, validation=None, patience=None, callback=None):
        """Forget everything and fit X.

        Parameters
        ----------
        X : scipy.sparse (m, n), or array (m, n) with NaN for what is missing
        weights : as X, optional
            Nonnegative, stored where X is.
        validation : float in (0, 1), or scipy.sparse (m, n), optional
            Share of the entries to hold out, or held-out entries: rank_ is the rank of the smallest mean loss on them.
        patience : int, optional
            Stop after this many ranks without a better validation score.
        callback : callable, optional
            Called with each entry of history_; what it raises leaves the model as it was, a true value returned
            ends the fit.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For input that cannot serve; the model is then as it was.
        """
        config = self._config
        data, held = self._read(X, weights, validation)
        if config.rank > min(data.m, data.n):
            raise ValueError(f"rank must be at most min(m, n) = {min(data.m, data.n)}, got {config.rank}")
        if patience is not None:
            patience = as_integer(patience, "patience", 1)
            if held is None:
                raise ValueError("patience needs a validation set")
        with _threads.blas_for(2):
            start = time.perf_counter()
            rb, cb, level = fit_biases(data, config.loss, config.loss_parameter, config.bias_ridge, config.biases)
            left, right = _scales(data, config.scaling)
            pursuit = Pursuit(
                data, config.loss, config.loss_parameter, rb, cb, left, right, config.seed, config.power_iterations
            )
            history = []
            self._climb(pursuit, config.rank, held, patience, callback, history, start)
            state = _state_of(pursuit, level)
            rank = _best_rank(history, held is not None)
            kept = data, held, left, right, pursuit.end()
            if config.sweeps and pursuit.U:
                del pursuit, kept  # scores and gradient: their room is that of the transposed copy
                state, kept = _swept(data, state, rank, config), None
                rank = len(state["path"])
        self._a, self.history_, self.rank_, self._data = state, history, rank, kept
        return self

    def add_ranks(self, n, *, patience=None, callback=None):
        """Go on from the last fit with n more ranks, as if it had been asked for them at once.

        Needs the data of the fit in memory: not for a model from a file, nor after sweeps.
        """
        n = as_integer(n, "n", 1)
        if self._a is not None and self._a["swept"]:
            raise ValueError("add_ranks cannot follow sweeps: fit with sweeps=0")
        if self._a is None or self._data is None:
            raise ValueError("add_ranks goes on from a fit of this object: call fit first (a loaded model has no data)")
        data, held, left, right, end = self._data
        total = len(self._a["path"]) + n
        if total > min(data.m, data.n):
            raise ValueError(f"rank must be at most min(m, n) = {min(data.m, data.n)}, got {total}")
        config = self._config
        with _threads.blas_for(2):
            start = time.perf_counter() - self.history_[-1]["seconds"]
            pursuit = Pursuit(
                data,
                config.loss,
                config.loss_parameter,
                self._a["rb"],
                self._a["cb"],
                left,
                right,
                config.seed,
                config.power_iterations,
            )
            pursuit.U = list(self._a["left"].T)
            pursuit.V = list(self._a["right"].T)
            pursuit.path = [row[: k + 1].copy() for k, row in enumerate(self._a["path"])]
            pursuit.go_on(end)
            history = list(self.history_)
            self._climb(pursuit, total, held, patience, callback, history, start)
            state = _state_of(pursuit, self._a["level"])
        self._a, self.history_, self.rank_ = state, history, _best_rank(history, held is not None)
        self._data = (data, held, left, right, pursuit.end())
        self._config = LowRankConfig(**{**asdict(config), "rank": total})
        return self

    def _read(self, X, weights, validation):
        config = self._config
        data = observed(X, weights, config.dtype)
        data.o = as_observations(data.o, config.loss)
        if len(data.o) == 0:
            raise ValueError("X must hold at least one observation, got none")
        if validation is None:
            return data, None
        if isinstance(validation, (int, float)) and not isinstance(validation, bool):
            share = as_real(validation, "validation", 0.0, 1.0, low_open=True)
            chosen = np.random.default_rng(config.seed).random(len(data.o)) < share
            if chosen.all() or not chosen.any():
                raise ValueError(f"validation={share:g} leaves no entry on one side of {len(data.o)}")
            return data.part(~chosen), data.part(chosen)
        held = observed(validation, None, data.o.dtype, data.n, "validation")
        held.o = as_observations(held.o, config.loss, "validation")
        if held.m != data.m or len(held.o) == 0:
            raise ValueError(f"validation must have the {data.m} rows of X and at least one entry")
        return data, held

    def _climb(self, pursuit, rank, held, patience, callback, history, start):
        """Ranks up to `rank`, each with its line in history."""
        config = self._config
        z = None if held is None else self._held_scores(pursuit, held)
        if not history:
            self._tell(pursuit, held, z, history, callback, start)
        t = len(history)
        while len(pursuit.U) < rank:
            before = len(pursuit.U)
            if LOSSES[config.loss].smooth:
                if not pursuit.add_smooth(config.refine, config.shrink):
                    break
            else:
                most = min(config.inner_rank, rank - before)
                if not pursuit.add_nonsmooth(t, config.step, config.step_size, config.nu, config.inner, most):
                    break
            t += 1
            if held is not None:
                z = self._held_scores(pursuit, held)
            stop = self._tell(pursuit, held, z, history, callback, start)
            if stop:
                break
            if patience is not None:
                scores = [line["validation"] for line in history]
                if len(scores) - 1 - int(np.argmin(scores)) >= patience:
                    break

    def _held_scores(self, pursuit, held):
        z = np.empty_like(held.o)
        dtype = held.o.dtype
        if pursuit.U:
            u = np.ascontiguousarray(np.stack(pursuit.U, axis=1) * pursuit.path[-1], dtype)
            v = np.ascontiguousarray(np.stack(pursuit.V, axis=1), dtype)
        else:
            u, v = np.zeros((held.m, 1), dtype), np.zeros((held.n, 1), dtype)
        pursuit.kernel.scores(*held.where, u, v, pursuit.rb, pursuit.cb, z)
        return z

    def _tell(self, pursuit, held, z, history, callback, start):
        line = {
            "rank": len(pursuit.U),
            "objective": float(pursuit.objective),
            "seconds": time.perf_counter() - start,
            "validation": None,
        }
        if held is not None:
            line["validation"] = pursuit.kernel.objective(pursuit.loss, pursuit.parameter, z, held.o, held.c) / len(z)
        history.append(line)
        return bool(callback(dict(line))) if callback is not None else False

    # -- what it knows ---------------------------------------------------------------------------------------------
    def _fitted(self):
        if self._a is None:
            raise ValueError("the model has not been fitted: call fit first")
        return self._a

    @property
    def shape_(self):
        a = self._fitted()
        return len(a["row"]), len(a["column"])

    def factors(self, rank=None):
        """(A (m, rank), B (n, rank)): the low-rank part of the scores is A B', each rank balanced between them."""
        a = self._fitted()
        rank = self._rank(rank)
        if a["swept"]:
            return a["left"].copy(), a["right"].copy()
        coefficients = a["path"][rank - 1, :rank] if rank else np.empty(0)
        dtype = a["left"].dtype
        one, two = _factors.balanced(a["left"][:, :rank], a["right"][:, :rank], coefficients)
        return one.astype(dtype), two.astype(dtype)

    def bias_terms(self):
        """(level, row biases (m,), column biases (n,))."""
        a = self._fitted()
        return a["level"], a["row"].copy(), a["column"].copy()

    def _rank(self, rank):
        a = self._fitted()
        if rank is None:
            return self.rank_
        rank = as_integer(rank, "rank", 0)
        if a["swept"] and rank != self.rank_:
            raise ValueError(f"after sweeps there is rank {self.rank_} alone, got {rank}")
        ranks = {line["rank"] for line in self.history_}
        if rank not in ranks:
            raise ValueError(f"rank must be one of the fit, {sorted(ranks)}, got {rank}")
        return rank

    def decision_function(self, rows, columns, rank=None):
        """Scores z of pairs (rows[k], columns[k]), float64; index -1 is one never seen."""
        a = self._fitted()
        rank = self._rank(rank)
        rows, columns = as_indices(rows, len(a["row"]), "rows"), as_indices(columns, len(a["column"]), "columns")
        if rows.shape != columns.shape:
            raise ValueError(f"rows and columns must have the same shape, got {rows.shape} and {columns.shape}")
        z = a["level"] + np.where(rows >= 0, a["row"][rows], 0.0) + np.where(columns >= 0, a["column"][columns], 0.0)
        if rank:
            left, right, coefficients = self._sides(rank)
            known = (rows >= 0) & (columns >= 0)
            for first in range(0, len(z), PART):
                part = slice(first, first + PART)
                inner = np.einsum("kq,kq->k", left[rows[part]] * coefficients, right[columns[part]], dtype=np.float64)
                z[part] += np.where(known[part], inner, 0.0)
        return z

    def predict(self, rows, columns, rank=None):
        """Predictions of pairs on the scale of X: of "logistic" the probability of the positive label.

        Of "hinge" the label, of "poisson" the rate. Index -1 stands for a row or column never seen: biases answer.
        """
        z = self.decision_function(rows, columns, rank)
        return self._finish(z)

    def predict_block(self, rows, columns=None, rank=None):
        """Predictions of all pairs of rows and columns (all columns if None), (len(rows), len(columns))."""
        return self._finish(self._block(rows, columns, rank))

    def _block(self, rows, columns, rank):
        a = self._fitted()
        rank = self._rank(rank)
        rows = as_indices(rows, len(a["row"]), "rows")
        columns = as_indices(np.arange(len(a["column"])) if columns is None else columns, len(a["column"]), "columns")
        z = (
            a["level"]
            + np.where(rows >= 0, a["row"][rows], 0.0)[:, None]
            + np.where(columns >= 0, a["column"][columns], 0.0)
        )
        if rank:
            left, right, coefficients = self._sides(rank)
            inner = (left[rows] * coefficients) @ right[columns].T
            z += np.where(rows >= 0, 1.0, 0.0)[:, None] * inner * (columns >= 0)
        return z

    def _sides(self, rank):
        """(left, right, coefficients) of the scores: the coefficients go to the rows of left that are asked for."""
        a, dtype = self._a, self._a["left"].dtype
        if a["swept"]:
            return a["left"], a["right"], np.ones(rank, dtype)
        return a["left"][:, :rank], a["right"][:, :rank], a["path"][rank - 1, :rank].astype(dtype)

    def _finish(self, z):
        return finished(self._config, self._a["level"], z)

    # -- new rows and columns --------------------------------------------------------------------------------------
    def fold_in(self, X, weights=None, *, axis=0, rank=None, ridge=None):
        """Factors of new rows (axis=0) or new columns (axis=1) for the columns or rows known, the model unchanged.

        Parameters
        ----------
        X : scipy.sparse or array with NaN
            (any, n) for axis=0; (m, any) for axis=1.
        weights : as X, optional
        axis : {0, 1}
        rank : int, optional
        ridge : float, optional
            That of the model if not given.

        Returns
        -------
        FoldedIn
            Its ``factors`` and ``biases``; ``predict(k, j)``, ``predict_block``, ``recommend``.

        Notes
        -----
        A convex problem of rank + 1 variables a row, solved by damped Newton steps (of a touching parabola for losses
        without curvature): after sweeps, the rows of X itself get the factors that they have.
        """
        a = self._fitted()
        axis = as_integer(axis, "axis", 0)
        if axis > 1:
            raise ValueError(f"axis must be 0 or 1, got {axis}")
        rank = self._rank(rank)
        config = self._config
        ridge = config.ridge if ridge is None else as_real(ridge, "ridge", 0.0, 1e300)
        data = observed(X, weights, a["left"].dtype)
        data.o = as_observations(data.o, config.loss)
        known = "column" if axis == 0 else "row"
        if (data.n if axis == 0 else data.m) != len(a[known]):
            raise ValueError(f"X must have {len(a[known])} {'columns' if axis == 0 else 'rows'}, got shape {X.shape}")
        if axis == 1:
            data = data.transposed()
        sides = self.factors(rank)
        with _threads.blas_for(2):
            factors, biases = _factors.fit_side(
                data,
                config.loss,
                config.loss_parameter,
                a["level"],
                np.zeros(data.m, a["left"].dtype),
                a[known],
                np.ascontiguousarray(sides[1 - axis]),
                ridge,
                config.bias_ridge,
                config.biases,
            )
        return FoldedIn(config, axis, factors, biases, a["level"], a[known].copy(), sides[1 - axis])

    # -- uses --------------------------------------------------------------------------------------------------------
    def recommend(self, rows, n=10, *, exclude=None, rank=None):
        """The n columns of the highest score for every row, best first.

        Parameters
        ----------
        rows : array_like of int
            -1 is a row never seen: the columns of the highest bias.
        n : int
        exclude : scipy.sparse (len(rows), n_columns) or (m, n_columns), optional
            Columns stored in a row are left out: pass the X of the fit for what has been seen.
        rank : int, optional

        Returns
        -------
        (columns, predictions) : (len(rows), n) int64 and float64
            -1 and NaN where fewer than n are left.
        """
        rows = as_indices(rows, self.shape_[0], "rows")
        return recommended(
            lambda part: self._block(rows[part], None, rank), self._finish, rows, n, exclude, self.shape_
        )

    def similar(self, index, n=10, *, axis=0, rank=None):
        """The n rows (axis=0) or columns (axis=1) whose factors are closest to that of `index` by cosine.

        Returns (indices, cosines), best first, `index` itself left out.
        """
        axis = as_integer(axis, "axis", 0)
        n = as_integer(n, "n", 1)
        side = self.factors(rank)[axis].astype(np.float64)
        index = int(as_indices([index], len(side), "index")[0])
        if index < 0:
            raise ValueError("index must be one of the fit, got -1")
        size = np.linalg.norm(side, axis=1)
        cosines = side @ side[index] / np.maximum(size * size[index], 1e-300)
        cosines[index] = -np.inf
        best = np.argsort(-cosines, kind="stable")[: min(n, len(side) - 1)]
        return best, cosines[best]

    # -- keeping it --------------------------------------------------------------------------------------------------
    def copy(self):
        """An independent model in the same state, without the data of the fit."""
        other = object.__new__(type(self))
        other.__setstate__(self._state())
        return other

    def to_bytes(self):
        """The state as bytes, without the data of the fit; ``fs.from_bytes`` reads it back."""
        return _state.pack("LowRankModel", *self._state())

    def save(self, path):
        """Write the state to a file that ``fs.load`` reads: whole or not at all, whatever happens meanwhile."""
        _state.write(path, self.to_bytes())

    def _state(self):
        params = {
            "config": asdict(self._config),
            "notes": self.notes,
            "history": self.history_,
            "rank": self.rank_,
            "fitted": None,
        }
        arrays = {}
        if self._a is not None:
            params["fitted"] = {"level": self._a["level"], "swept": self._a["swept"]}
            arrays = {name: self._a[name].copy() for name in ("left", "right", "path", "row", "column", "rb", "cb")}
        return params, arrays

    def __getstate__(self):
        return self._state()

    def __setstate__(self, state):
        params, arrays = state
        config = {**params["config"]}
        if LOSSES[config["loss"]].high == 0:
            config["loss_parameter"] = None
        self.__init__(**config)
        self.notes, self.history_, self.rank_ = dict(params["notes"]), list(params["history"]), params["rank"]
        if params["fitted"] is not None:
            m, n, t = len(arrays["row"]), len(arrays["column"]), arrays["left"].shape[1]
            if arrays["left"].shape != (m, t) or arrays["right"].shape != (n, t) or arrays["path"].shape != (t, t):
                raise ValueError("arrays of a low-rank model do not belong together")
            self._a = {**params["fitted"], **arrays}

    def __repr__(self):
        seen = "not fitted" if self._a is None else f"{self.shape_[0]} x {self.shape_[1]}, rank {self.rank_}"
        return f"<LowRankModel loss={self.loss!r} refine={self.refine!r}, {seen}>"


for _name in LowRankConfig.__dataclass_fields__:
    setattr(
        LowRankModel,
        _name,
        property(lambda self, name=_name: getattr(self._config, name), doc=f"The parameter {_name}."),
    )


def _scales(data, scaling):
    dtype = data.o.dtype
    if not scaling:
        return np.ones(data.m, dtype), np.ones(data.n, dtype)
    out = []
    for count in data.counts():
        scale = (count + DAMPING) ** -0.25
        out.append((scale / scale.max()).astype(dtype))
    return out


def _state_of(pursuit, level):
    t, dtype = len(pursuit.U), pursuit.data.o.dtype
    path = np.zeros((t, t))
    for k, row in enumerate(pursuit.path):
        path[k, : len(row)] = row
    stack = lambda side, size: np.stack(side, axis=1) if side else np.zeros((size, 0), dtype)  # noqa: E731
    return {
        "left": stack(pursuit.U, pursuit.data.m),
        "right": stack(pursuit.V, pursuit.data.n),
        "path": path,
        "rb": pursuit.rb,
        "cb": pursuit.cb,
        "level": level,
        "row": (pursuit.rb - level).astype(dtype),
        "column": pursuit.cb.copy(),
        "swept": False,
    }


def _best_rank(history, validated):
    if not validated:
        # the last is the best but for the printed step of losses without a gradient
        return (
            history[int(np.argmin([line["objective"] for line in history]))]["rank"]
            if any(line["objective"] < history[-1]["objective"] for line in history)
            else history[-1]["rank"]
        )
    return history[int(np.argmin([line["validation"] for line in history]))]["rank"]


def _swept(data, state, rank, config):
    """The state after sweeps from the model of this rank."""
    dtype = data.o.dtype
    coefficients = state["path"][rank - 1, :rank] if rank else np.empty(0)
    one, two = _factors.balanced(state["left"][:, :rank], state["right"][:, :rank], coefficients)
    model = {
        "A": one.astype(dtype),
        "B": two.astype(dtype),
        "level": state["level"],
        "row": state["row"],
        "column": state["column"],
        "loss": config.loss,
        "parameter": config.loss_parameter,
        "ridge": config.ridge,
        "bias_ridge": config.bias_ridge,
        "biased": config.biases,
    }
    flipped = data.transposed()
    for k in range(config.sweeps):
        _factors.sweep(data, flipped, model, 3 if k < config.sweeps - 1 else _factors.TURNS)
    return {
        "left": model["A"],
        "right": model["B"],
        "path": np.eye(rank),
        "rb": model["row"] + state["level"],
        "cb": model["column"],
        "level": state["level"],
        "row": model["row"],
        "column": model["column"],
        "swept": True,
    }


def _build(params, arrays):
    model = object.__new__(LowRankModel)
    model.__setstate__((params, arrays))
    return model


_state.register("LowRankModel", _build)
