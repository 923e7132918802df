"""What all online linear models share: batches taken in whole or not at all, progress, regret, keeping the state."""

from dataclasses import asdict

import numpy as np

from fastsketch import _threads
from fastsketch._validation import as_rows, as_vector, as_weights, is_sparse
from fastsketch.io import _state
from fastsketch.online._losses import as_targets, loss_and_slope

# Share of nonzeros above which rows are learned from as dense ones.
DENSE_ABOVE = 0.3
# Of a["regret"]: the comparator's loss; our own loss when the comparison began.
THEIRS, BEFORE = range(2)


class OnlineLinear:
    """A model that predicts w'x and learns from one example after the other.

    A subclass has a frozen dataclass of parameters in ``_config`` (with ``sketch_size`` and ``loss``), names in
    ``_STATE`` the arrays of the dict ``_a`` that a resume needs, and defines the methods that raise
    NotImplementedError here.
    """

    _STATE = ()
    _GROWING = ()  # arrays of the state whose length depends on what was seen

    def _prepare(self):
        self._a = None
        self._comparator = None
        self._weights = None
        self.last_predictions = np.empty(0)
        self.notes = {}

    # -- what a subclass defines -----------------------------------------------------------------------------------
    def _takes_sparse(self):
        """Whether there is a form for sparse rows."""
        raise NotImplementedError

    def _start(self, d, sparse):
        """The arrays before the first round."""
        raise NotImplementedError

    def _changes_all_or_nothing(self, a):
        """Whether a single example may be learned from without a copy of the state."""
        raise NotImplementedError

    def _learn(self, a, batch, targets, weights, predictions):
        """Learn from the batch, changing `a`; what has no finite prediction has not been learned from."""
        raise NotImplementedError

    def _cause(self, a):
        """Why the weights left the range of numbers."""
        raise NotImplementedError

    def _totals(self, a):
        """(rounds, cumulative loss, mistakes)."""
        raise NotImplementedError

    def _weights_of(self, a):
        """w, (d,)."""
        raise NotImplementedError

    # -- learning --------------------------------------------------------------------------------------------------
    def update(self, rows, targets, weights=None):
        """Learn from one example or many, each predicted before it is learned from.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d)
            Real and finite. The first batch decides between the sparse and the dense form.
        targets : array_like (n,) or float
        weights : array_like (n,), optional
            Nonnegative; each multiplies the loss of its example.

        Returns
        -------
        self
            ``last_predictions`` holds the n predictions.

        Raises
        ------
        TypeError, ValueError
            For rows, targets or weights that cannot serve; the model is then as it was.
        FloatingPointError
            If the weights of the model leave the range of numbers; the message names the cause, and the model is as
            it was.

        Notes
        -----
        The same bits for any split of a stream into batches.
        """
        config = self._config
        rows = as_rows(rows, self.n_features)
        n, d = rows.shape
        targets = as_targets(targets, n, config.loss, "targets")
        weights = np.ones(n) if weights is None else as_weights(weights, n)
        sparse = (
            self._a["sparse"]
            if self._a
            else (is_sparse(rows) and self._takes_sparse() and rows.nnz <= DENSE_ABOVE * n * d)
        )
        batch = _as_csr(rows) if sparse else _as_dense(rows)
        values = batch[0] if sparse else batch
        if not np.isfinite(values).all():
            raise ValueError("rows must be finite: one holds a NaN or an infinity")
        a = self._a
        if a is None:
            a = self._start(d, sparse)
        elif n != 1 or self._comparator is not None or not self._changes_all_or_nothing(a):
            a = copied(a)  # what a refused or interrupted batch comes back to
        predictions = np.full(n, np.nan)
        self._weights = None
        with _threads.blas_for(2 * config.sketch_size), np.errstate(all="ignore"):
            try:
                self._learn(a, batch, targets, weights, predictions)
            except np.linalg.LinAlgError:
                predictions[-1] = np.nan  # numbers of such sizes that no factorisation is left
        if not np.isfinite(predictions).all():
            raise FloatingPointError(
                f"the weights left the range of numbers in round {self._totals(a)[0] + 1}: {self._cause(a)}"
            )
        if self._comparator is not None:
            predictions_there = np.asarray(rows @ self._comparator, np.float64)
            theirs = loss_and_slope(config.loss, predictions_there, targets)[0] * weights
            # one after the other, so that a split into batches changes no bit
            a["regret"][THEIRS] = np.cumsum(np.concatenate([a["regret"][:1], theirs]))[-1]
        self.last_predictions, self._a = predictions, a
        return self

    def compare_with(self, weights):
        """Measure regret against these weights (d,) from here on; returns self."""
        weights = as_vector(weights, self.n_features or len(np.asarray(weights)), "weights")
        if weights.ndim != 1:
            raise ValueError(f"weights must be a vector, got shape {weights.shape}")
        if self._a is not None:
            a = copied(self._a)
            a["regret"][:] = 0.0, self._totals(a)[1]
            self._a = a
        self._comparator = weights.astype(np.float64)
        return self

    # -- what it knows: never changes the state --------------------------------------------------------------------
    @property
    def weights(self):
        """w, (d,) float64."""
        if self._a is None:
            raise ValueError("the model has seen no rows: call update first")
        if self._weights is None:
            self._weights = self._weights_of(self._a)
        return self._weights.copy()

    def predict(self, rows):
        """w'x of every row, (n,) float64: the decision value of a classifier."""
        weights = self.weights
        rows = as_rows(rows, self.n_features)
        values = rows if isinstance(rows, np.ndarray) else rows.data
        if not np.isfinite(values).all():
            raise ValueError("rows must be finite: one holds a NaN or an infinity")
        return np.asarray(rows @ weights, np.float64)

    @property
    def progress(self):
        """dict of rounds, cumulative_loss, mean_loss, error_rate (of signs), regret (None without a comparator)."""
        rounds, loss, mistakes = (0, 0.0, 0) if self._a is None else self._totals(self._a)
        regret = None
        if self._a is not None and self._comparator is not None:
            regret = float(loss - self._a["regret"][BEFORE] - self._a["regret"][THEIRS])
        return {
            "rounds": rounds,
            "cumulative_loss": loss,
            "mean_loss": loss / max(rounds, 1),
            "error_rate": mistakes / max(rounds, 1),
            "regret": regret,
        }

    @property
    def n_rounds(self):
        """Examples learned from."""
        return 0 if self._a is None else self._totals(self._a)[0]

    @property
    def n_features(self):
        """Columns of the rows seen, None before the first."""
        return None if self._a is None else self._a["base"].shape[-1]

    # -- keeping it ------------------------------------------------------------------------------------------------
    def copy(self):
        """An independent model in the same state."""
        other = object.__new__(type(self))
        other.__setstate__(self._state())
        return other

    def to_bytes(self):
        """The state as bytes; ``fs.from_bytes`` reads it back, and continues with the same bits."""
        return _state.pack(type(self).__name__, *self._state())

    def save(self, path):
        """Write the state to a file that ``fs.load`` reads: whole or not at all, whatever happens meanwhile."""
        _state.write(path, self.to_bytes())

    def _state(self):
        params = {"config": asdict(self._config), "notes": self.notes, "sparse": None}
        arrays = {} if self._comparator is None else {"comparator": self._comparator}
        if self._a is not None:
            params["sparse"] = self._a["sparse"]
            arrays.update({name: self._a[name].copy() for name in ("regret", *self._STATE) if name in self._a})
        return params, arrays

    def __getstate__(self):
        return self._state()

    def __setstate__(self, state):
        params, arrays = state
        self.__init__(**params["config"])
        self.notes = dict(params["notes"])
        self._comparator = arrays.get("comparator")
        if params["sparse"] is None:
            return
        a = self._start(arrays["base"].shape[-1], bool(params["sparse"]))
        for name in ("regret", *self._STATE):
            if name not in a:
                continue
            if name not in self._GROWING and a[name].shape != arrays[name].shape:
                raise ValueError(f"array {name!r} has shape {arrays[name].shape}, expected {a[name].shape}")
            a[name] = arrays[name].copy()
        self._a = a

    @classmethod
    def _build(cls, params, arrays):
        model = object.__new__(cls)
        model.__setstate__((params, arrays))
        return model

    @classmethod
    def _register(cls, parameters):
        """Make the parameters readable as attributes, and the state readable by fs.load."""
        for name in parameters:
            setattr(
                cls, name, property(lambda self, name=name: getattr(self._config, name), doc=f"The parameter {name}.")
            )
        _state.register(cls.__name__, cls._build)


def copied(a):
    """The state dict with arrays of its own."""
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in a.items()}


def grown(a, names, used, room):
    """Give the arrays `names` (of which `used` entries count) space for `room` entries."""
    if len(a[names[0]]) < room:
        for name in names:
            a[name] = np.concatenate([a[name][:used], np.zeros(room - used, a[name].dtype)])


def _as_csr(rows):
    if not is_sparse(rows):
        from scipy.sparse import csr_array

        rows = csr_array(rows)
    return (
        np.ascontiguousarray(rows.data, np.float64),
        np.ascontiguousarray(rows.indices, np.int32),
        np.ascontiguousarray(rows.indptr, np.int64),
    )


def _as_dense(rows):
    return np.ascontiguousarray(rows if isinstance(rows, np.ndarray) else rows.toarray(), np.float64)
