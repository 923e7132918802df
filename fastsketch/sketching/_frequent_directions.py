"""The public sketch objects."""

from collections import namedtuple
from math import ldexp

import numpy as np

from fastsketch._validation import as_integer, as_real, as_rows, as_vector, as_weights, natural_dtype
from fastsketch.io import _state
from fastsketch.sketching._choose import ENGINES, make_engine
from fastsketch.sketching._combine import merge_engines
from fastsketch.sketching._config import SketchConfig
from fastsketch.sketching._layout import ROUNDING, SHRINKAGE, SQUARED_NORM
from fastsketch.sketching._operators import gram_operator, inverse_operator, solve_gram
from fastsketch.sketching._rules import RULES

# What one read-out finds: B = diag(s) vt, and the certificate that belongs to it.
Reading = namedtuple("Reading", "s vt shrinkage rounding mean squared_norm")

# Units of rounding of the largest squared singular value by which a read-out itself may be off.
READ_OUT_ROUNDING = 8.0


class FrequentDirections:
    """Sketch B (at most l x d) of a stream of rows A (n x d) with B'B close to A'A and a certificate.

    Parameters
    ----------
    sketch_size : int
        l >= 2, the most rows the sketch keeps. With l > d nothing is ever removed: the sketch is exact.
    rule : {"fd", "pfd", "cfd", "isvd", "rfd"}, default "fd"
        What a shrink subtracts: Frequent Directions; its parameterized form (the top l - floor(beta l) rows keep
        their length); the compensative read-out; iterative SVD (nothing is subtracted, no a-priori guarantee);
        Robust FD, whose ``alpha`` halves the error.
    alpha0 : float, default 0.0
        Initial regulariser of "rfd": the target is A'A + alpha0 I. In units of squared rows.
    beta : float in [0, 1], optional
        Share of rows that "pfd" shrinks, 0.2 if not given.
    buffer_size : int, optional
        Rows b collected between shrinks beyond l: default l (the doubled buffer), 6 l for sparse streams. 0 shrinks
        at every row, as the papers' basic algorithms do.
    solver : {"auto", "gram", "svd", "exact"}, default "auto"
        How a shrink is computed: from the Gram matrix of the buffer; by LAPACK's gesdd; or not at all: "exact"
        accumulates A'A (d x d, float64) and shrinks once, at read-out. "auto" takes "exact" up to d = 11 l + 300,
        where it is faster, else "gram".
    center : bool, default False
        Subtract the mean of all rows seen, exactly and online, so that B'B is close to (A - mu)'(A - mu).
    decay : float in (0, 1], default 1.0
        Every new row multiplies the weight of all earlier rows by this. See also ``fade``.
    dtype : float32 or float64, optional
        Of the sketch; by default that of the first batch (float32 stays, everything else becomes float64).
    compressor : fs.Compressor or its kind ("srht", "countsketch", "sparse", "gaussian", "sampling"), optional
        A random map that turns every m rows into q before they reach the sketch (q = ``sketch_size`` unless given):
        with "srht" Fast Frequent Directions of FROSH, Algorithm 2. Several times faster; the bound then covers what
        the shrinks remove, not the error of the random map, and ``squared_norm`` is an estimate.

    Attributes
    ----------
    n_rows, n_features : int
        Rows seen (weights do not count) and columns d; n_features is None before the first batch.
    notes : dict
        Anything that json can write; saved with the state.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range; the message names it.

    Notes
    -----
    Guarantee, at any moment and after any merges, with Delta = ``shrinkage``: 0 <= A'A - B'B <= Delta I for "fd",
    "pfd" and "isvd"; an error within [-Delta, Delta] for "cfd" and within [-Delta/2, Delta/2] of B'B + alpha I for
    "rfd". For "fd", "cfd" and "rfd" Delta <= ||A - A_k||_F^2 / (l - k) for every k < l.

    Cost: about 7 d l flops a row; memory (l + b) d + 3 (l + b)^2 elements. An update that spans more than eight
    buffers keeps a copy of the buffer while it runs, from which it is undone if it is refused or interrupted; a
    shorter one runs to its end before an interrupt is seen. Objects are not to be updated from two threads at once.

    References
    ----------
    Liberty 2013; Ghashami, Liberty, Phillips, Woodruff 2016; Desai, Ghashami, Phillips 2016; RFD: Luo, Chen, Zhang,
    Li, Zhang, JMLR 20 (2019), Algorithms 1, 2, 4, 5 and 8. Centring: FROSH Algorithm 1, step 7.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((500, 40))
    >>> s = fs.FrequentDirections(16, solver="gram").update(rows)
    >>> error = np.linalg.norm(rows.T @ rows - s.sketch().T @ s.sketch(), 2)
    >>> bool(error <= s.error_bound), s.n_rows
    (True, 500)
    """

    def __init__(
        self,
        sketch_size=64,
        *,
        rule="fd",
        alpha0=0.0,
        beta=None,
        buffer_size=None,
        solver="auto",
        center=False,
        decay=1.0,
        dtype=None,
        compressor=None,
    ):
        self._config = SketchConfig.checked(
            sketch_size, rule, alpha0, beta, buffer_size, solver, center, decay, dtype, compressor
        )
        self._engine = None
        self._reading = None
        self.notes = {}

    # -- taking rows in --------------------------------------------------------------------------------------------
    def update(self, rows, weights=None):
        """Add one row or many.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d)
            Real and finite. Sparse rows are never made dense as a whole; explicit zeros are harmless.
        weights : array_like (n,) or float, optional
            Finite, >= 0: a row of weight w counts as sqrt(w) times itself.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For anything that is no matrix of finite real numbers of the width seen before. The sketch is then as it
            was before the call.
        """
        rows = as_rows(rows, self.n_features)
        weights = as_weights(weights, rows.shape[0])
        engine = self._engine
        if engine is None:
            dtype = np.dtype(self._config.dtype) if self._config.dtype else natural_dtype(rows.dtype)
            engine = make_engine(self._config, rows, dtype)
        self._reading = None
        engine.update(rows, weights)
        self._engine = engine
        return self

    def fade(self, factor):
        """Multiply the weight of everything seen so far by a factor in (0, 1]: decay per batch, or per day."""
        factor = as_real(factor, "factor", 0.0, 1.0, low_open=True)
        if self._engine is not None:
            engine = self._engine.clone()
            engine.fade(factor)
            self._reading = None
            self._engine = engine
        return self

    def merge(self, other):
        """Add the rows that another sketch has seen, as if they had passed through this one.

        Parameters
        ----------
        other : FrequentDirections
            Of the same parameters, width and dtype; it is not changed.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If the two do not belong together. alpha0 counts once; means and counts combine exactly.
        """
        if not isinstance(other, FrequentDirections):
            raise TypeError(f"other must be a FrequentDirections, got {type(other).__name__}")
        mine, theirs = self._config.as_dict(), other._config.as_dict()
        for config in (mine, theirs):
            if config["compressor"]:
                del config["compressor"]["first_block"]
        for name, value in mine.items():
            if theirs[name] != value and name != "dtype":
                raise ValueError(f"other has {name}={theirs[name]!r}, this sketch has {value!r}: they do not merge")
        if other._engine is None:
            return self
        if self._engine is None:
            if self._config.dtype not in (None, other.dtype.name):
                raise ValueError(f"other has dtype {other.dtype}, this sketch has {self._config.dtype}")
            self._engine, self._reading = other._engine.clone(), None
            return self
        for name in ("n_features", "dtype"):
            if getattr(self, name) != getattr(other, name):
                raise ValueError(f"other has {name}={getattr(other, name)}, this sketch has {getattr(self, name)}")
        engine = self._engine.clone()
        merge_engines(engine, other._engine.clone())
        self._engine, self._reading = engine, None
        return self

    # -- reading: never changes the state --------------------------------------------------------------------------
    def _read(self):
        if self._engine is None:
            raise ValueError("the sketch has seen no rows: call update first")
        if self._reading is None:
            from scipy.linalg import svd

            engine = self._engine.clone()
            rows = engine.reduce().astype(np.float64, copy=False)
            dtype, eps = engine.dtype, np.finfo(engine.dtype).eps
            try:
                _, s, vt = svd(rows, full_matrices=False, check_finite=False)
            except np.linalg.LinAlgError:
                _, s, vt = svd(rows, full_matrices=False, check_finite=False, lapack_driver="gesvd")
            rank = int(np.count_nonzero(s > s[0] * np.finfo(s.dtype).eps)) if s.size else 0
            s, vt = s[:rank], vt[:rank]
            unit, book = ldexp(1.0, engine.exponent), engine.a["book"]
            shrinkage = float(book[SHRINKAGE])
            rounding = np.hypot(np.sqrt(book[ROUNDING]), READ_OUT_ROUNDING * eps * s[0] ** 2 if rank else 0.0)
            if RULES[self.rule].compensates and shrinkage > 0:
                s = np.sqrt(s**2 + shrinkage)
            # largest component of each vector positive: the same signs whatever solver found them
            if rank:
                vt = vt * np.where(vt[np.arange(rank), np.abs(vt).argmax(axis=1)] < 0, -1.0, 1.0)[:, np.newaxis]
            with np.errstate(over="ignore", under="ignore"):
                self._reading = Reading(
                    (s * unit).astype(dtype),
                    vt.astype(dtype, copy=False),
                    float(np.float64(shrinkage) * unit * unit),
                    float(rounding * unit * unit),
                    engine.a["mean"] * unit if self.center else None,
                    float(book[SQUARED_NORM] * unit * unit),
                )
        return self._reading

    def sketch(self):
        """B, a new array (r, d) with r <= sketch_size: orthogonal rows, longest first, every row seen included."""
        reading = self._read()
        return reading.s[:, np.newaxis] * reading.vt

    @property
    def singular_values(self):
        """Lengths of the rows of ``sketch()``, descending, (r,)."""
        return self._read().s.copy()

    @property
    def components(self):
        """Orthonormal directions of the rows of ``sketch()``, (r, d); the largest entry of each is positive."""
        return self._read().vt.copy()

    @property
    def shrinkage(self):
        """Delta, the sum of the squared singular values removed, for ``sketch()`` as it is now (squared units)."""
        return 0.0 if self._engine is None else self._read().shrinkage

    @property
    def error_bound(self):
        """Bound on the spectral norm of A'A - B'B (of A'A + alpha0 I - B'B - alpha I for "rfd"), from one pass.

        Delta (half of it for "rfd") plus an allowance for the rounding of the shrinks, which matters in float32 when
        Delta is within about 1e-5 of ||A||_2^2.
        """
        if self._engine is None:
            return 0.0
        return RULES[self.rule].error_bound(self.shrinkage) + self._read().rounding

    @property
    def alpha(self):
        """Regulariser that goes with ``sketch()``: alpha0 + Delta / 2 for "rfd", else 0."""
        return self._config.alpha0 + self.shrinkage / 2 if RULES[self.rule].regularises else 0.0

    @property
    def mean(self):
        """Weighted mean of the rows, (d,) float64; None unless ``center``."""
        return None if self._engine is None or not self.center else self._read().mean.copy()

    @property
    def squared_norm(self):
        """||A||_F^2 of the weighted, decayed and (with ``center``) centred rows."""
        if self._engine is None:
            return 0.0
        if self.center or self.compressor is not None:
            return self._read().squared_norm
        return float(self._engine.a["book"][SQUARED_NORM] * ldexp(1.0, self._engine.exponent) ** 2)

    @property
    def weight(self):
        """Sum of the (decayed) weights of all rows: n_rows if neither weights nor decay are used."""
        return 0.0 if self._engine is None else self._engine.weight

    @property
    def n_rows(self):
        return 0 if self._engine is None else self._engine.n_rows

    @property
    def n_features(self):
        return None if self._engine is None else self._engine.n_features

    @property
    def dtype(self):
        """dtype of the sketch; None until it is given or the first batch decides it."""
        if self._engine is not None:
            return self._engine.dtype
        return np.dtype(self._config.dtype) if self._config.dtype else None

    @property
    def solver(self):
        """The solver in use: "gram", "svd" or "exact"; the parameter as given before the first batch."""
        return (self._config if self._engine is None else self._engine.config).solver

    def gram(self):
        """The d x d matrix that stands for A'A, float64: B'B + alpha I, or A'A itself with solver="exact".

        Memory d^2. With "exact" its error is that of rounding, whatever ``error_bound`` says about ``sketch()``.
        """
        self._read()
        if self.solver == "exact" and self._engine.accumulated:
            engine = self._engine.clone()
            return engine.gram() * ldexp(1.0, engine.exponent) ** 2
        b = self.sketch().astype(np.float64, copy=False)
        out = b.T @ b
        out[np.diag_indices_from(out)] += self.alpha
        return out

    # -- using it --------------------------------------------------------------------------------------------------
    def operator(self, *, inverse=False, alpha=None):
        """B'B + alpha I, or its inverse, as a scipy.sparse.linalg.LinearOperator (d, d).

        Parameters
        ----------
        inverse : bool, default False
            The inverse serves as the preconditioner ``M`` of scipy.sparse.linalg.cg.
        alpha : float, optional
            Regulariser in place of the sketch's own ``alpha``.

        Raises
        ------
        ValueError
            If the inverse of a singular matrix is asked for.
        """
        s, vt, alpha = self._regularised(alpha, inverse)
        make = inverse_operator if inverse else gram_operator
        return make(s, vt, alpha, np.dtype(np.float64))

    def solve(self, v, *, alpha=None):
        """(B'B + alpha I)^-1 v for v of shape (d,) or (d, k), in O(d l) a vector (Woodbury).

        Parameters
        ----------
        v : array_like
            Finite right-hand sides.
        alpha : float, optional
            Regulariser in place of the sketch's own ``alpha``; needed where that is 0 and B'B is singular.
        """
        s, vt, alpha = self._regularised(alpha, True)
        return solve_gram(s, vt, alpha, as_vector(v, vt.shape[1]).astype(np.float64, copy=False))

    def _regularised(self, alpha, inverse):
        reading = self._read()
        alpha = self.alpha if alpha is None else as_real(alpha, "alpha", 0.0, np.finfo(float).max)
        if inverse and alpha == 0 and len(reading.s) < self.n_features:
            raise ValueError("alpha must be positive: the sketch alone is singular (rule='rfd' brings its own alpha)")
        return reading.s.astype(np.float64), reading.vt.astype(np.float64), alpha

    # -- keeping it ------------------------------------------------------------------------------------------------
    def copy(self):
        """An independent sketch in the same state."""
        other = object.__new__(type(self))
        other.__setstate__(self.__getstate__())
        return other

    def to_bytes(self):
        """The state as bytes; ``fs.from_bytes`` reads it back, and continues with the same bits."""
        params, arrays = self._state()
        return _state.pack("FrequentDirections", params, arrays)

    def save(self, path):
        """Write the state to a file that ``fs.load`` reads: whole or not at all, whatever happens meanwhile."""
        _state.write(path, self.to_bytes())

    def _state(self):
        engine = self._engine
        params = {"config": self._config.as_dict(), "notes": self.notes, "engine": None}
        if engine is None:
            return params, {}
        params["engine"] = {
            "kind": engine.kind,
            "solver": engine.config.solver,
            "n_features": engine.n_features,
            "buffer_size": engine.capacity - self.sketch_size,
            "dtype": engine.dtype.name,
        }
        return params, engine.arrays(copy=True)

    def __getstate__(self):
        return self._state()

    def __setstate__(self, state):
        params, arrays = state
        self._config = SketchConfig.checked(**params["config"])
        self.notes = dict(params["notes"])
        self._reading = None
        self._engine = None
        about = params["engine"]
        if about is not None:
            # the buffer as it was, whatever a later version takes by default: a resume is to give the same bits
            config = self._config.resolved(about["solver"], as_integer(about["buffer_size"], "buffer_size", 0))
            d = as_integer(about["n_features"], "n_features", 1)
            engine = ENGINES[about["kind"]](config, d, np.dtype(about["dtype"]))
            engine.restore(arrays)
            self._engine = engine

    def __repr__(self):
        seen = "no rows yet" if self._engine is None else f"{self.n_rows} rows of {self.n_features}"
        return f"<{type(self).__name__} sketch_size={self.sketch_size} rule={self.rule!r}, {seen}>"


def _parameter(name):
    return property(lambda self: getattr(self._config, name), doc=f"The parameter {name}.")


for _name in ("sketch_size", "rule", "alpha0", "beta", "center", "decay", "compressor"):
    setattr(FrequentDirections, _name, _parameter(_name))


class RobustFrequentDirections(FrequentDirections):
    """Frequent Directions whose regulariser alpha grows by half of what each shrink removes: half the error bound.

    ``RobustFrequentDirections(l, alpha0)`` is ``FrequentDirections(l, rule="rfd", alpha0=alpha0)``; the other
    parameters are the same. B'B + alpha I is positive definite as soon as anything was removed, and never worse
    conditioned than A'A + alpha0 I (RFD paper, Theorems 3 and 4).

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((500, 40))
    >>> s = fs.RobustFrequentDirections(16, solver="gram").update(rows)
    >>> x = s.solve(np.ones(40))
    >>> bool(np.allclose(s.operator() @ x, 1.0))
    True
    """

    def __init__(
        self,
        sketch_size=64,
        alpha0=0.0,
        *,
        buffer_size=None,
        solver="auto",
        center=False,
        decay=1.0,
        dtype=None,
        compressor=None,
    ):
        super().__init__(
            sketch_size,
            rule="rfd",
            alpha0=alpha0,
            buffer_size=buffer_size,
            solver=solver,
            center=center,
            decay=decay,
            dtype=dtype,
            compressor=compressor,
        )


def merge(sketches):
    """Merge sketches of the same parameters into a new one; none of them is changed.

    Neighbours are merged in pairs, level by level, so that every row passes log2(len(sketches)) shrinks and the
    result depends on the order of the list alone.

    Raises
    ------
    TypeError, ValueError
        If the list is empty or two do not belong together.
    """
    level = [sketch.copy() if isinstance(sketch, FrequentDirections) else sketch for sketch in sketches]
    if not level:
        raise ValueError("sketches must hold at least one sketch")
    if not isinstance(level[0], FrequentDirections):
        raise TypeError(f"sketches must hold FrequentDirections, got {type(level[0]).__name__}")
    while len(level) > 1:
        pairs = [left.merge(right) for left, right in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def _build(params, arrays):
    cls = RobustFrequentDirections if params["config"]["rule"] == "rfd" else FrequentDirections
    sketch = object.__new__(cls)
    sketch.__setstate__((params, arrays))
    return sketch


_state.register("FrequentDirections", _build)
