"""Frequent Directions: rows go in, sketches merge; the bases hold what is read of them."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from math import ceil, ldexp
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import as_real, as_rows, as_weights, natural_dtype, rows_with_weight
from fastsketch._frame.batches import Batch
from fastsketch._frame.parameters import choice, real
from fastsketch._kernels.guard import changes, reads
from fastsketch.sketching._engines import (
    AnyEngine,
    ExactEngine,
    MappedEngine,
    exact_pays,
    make_engine,
    merge_engines,
    merges_in_place,
    misses_tolerance,
    updated,
)
from fastsketch.sketching._methods import MethodName
from fastsketch.sketching._read_again import SecondPass
from fastsketch.sketching._second_reads import SecondReads
from fastsketch.sketching._sketch_model import MOST

# Blocks that a part of a job may have, as a power of two.
PART_BITS = 32


class FrequentDirections(SecondReads):
    """Sketch B (at most l x d) of a stream of rows A (n x d) with B'B close to A'A and a certificate.

    Parameters
    ----------
    sketch_size : int, default 64
        l >= 2, the most rows the sketch keeps. With l > d nothing is ever removed: the sketch is exact. With a
        tolerance, where l starts, by default at 4.
    method : {"rfd", "fd", "pfd", "tfd", "cfd", "isvd"}, default "rfd"
        Robust FD: Frequent Directions whose ``alpha`` grows by half of each shrink's delta, which halves the error
        of B'B + alpha I; plain Frequent Directions, B'B <= A'A; its parameterized form (the top
        l - floor(beta l) rows keep their length); Tracked FD, which spares as many rows, those that hold most of A by a
        ledger that ``spectrum`` reads (docs/read-outs.md); the compensative read-out; iterative SVD (nothing is
        subtracted, no a-priori guarantee). B is the same for "rfd" and "fd".
    alpha0 : float, default 0.0
        Initial regulariser of "rfd": the target is A'A + alpha0 I. In units of squared rows.
    beta : float in [0, 1], optional
        Share of rows that "pfd" and "tfd" shrink; if not given 0.2 and 0.45.
    buffer_size : int, optional
        Rows b collected between shrinks beyond l: default l (the doubled buffer), 6 l for sparse streams; 48 l for
        those of 131,072 features or more, for eight shrinks once as many have occurred. 0 shrinks at every row, as the
        papers' basic algorithms do.
    solver : {"auto", "gram", "svd", "exact"}, default "auto"
        How a shrink is computed: from the Gram matrix of the buffer; by LAPACK's gesdd; or not at all: "exact"
        accumulates A'A (d x d, float64) and shrinks once, at read-out. "auto" takes "exact" up to d = 11 l + 300,
        where it is faster, else "gram".
    center : bool, default False
        Subtract the mean of all rows seen, exactly and online, so that B'B is close to (A - mu)'(A - mu).
    decay : float in (0, 1], default 1.0
        Every new row multiplies the weight of all earlier rows by this. See also ``fade``.
    dtype : float32 or float64, optional
        Of the sketch; by default float32 for a first batch of float16 or float32, else float64.
    compressor : fs.Compressor or its kind ("srht", "countsketch", "sparse", "gaussian", "sampling"), optional
        A random map that turns every m rows into q before they reach the sketch (q = ``sketch_size`` unless given):
        with "srht" Fast Frequent Directions of FROSH, Algorithm 2. Several times faster than a sketch without, and on
        most rows several times less accurate, far more where few directions hold nearly all; the bound then covers
        the shrinks, not the error of the random map, and ``squared_norm`` is an estimate.
    tolerance : float in (0, 1), optional
        A precision instead of a size: l grows while rows come, so that at any moment ``error_bound`` is at most this
        share of what it is relative to, and ``sketch()`` has the fewest rows that meet it. Not with a compressor.
    tolerance_relative_to : {"squared_norm", "largest_eigenvalue"}, default "squared_norm"
        ||A||_F^2, or the largest eigenvalue of A'A: its certified lower end, so that what is said is true. The former
        bounds l by about 1 / tolerance ("rfd": half of that), whatever the rows; the latter by d alone, and merges of
        parts whose leading directions differ may use it up (a UserWarning says so).
    max_sketch_size : int, optional
        Bound on l for a tolerance, at least ``sketch_size``. Where it is reached before the tolerance is met, one
        UserWarning says so, and ``error_bound`` what holds instead.

    Attributes
    ----------
    n_rows, n_features : int
        Rows seen, whatever their weight unless it is 0, and columns d; n_features is None before the first batch.
    notes : dict
        Anything that json can write; saved with the state.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range; the message names it.

    Notes
    -----
    Guarantee, at any moment and after any merges, with Delta = ``shrinkage``: 0 <= A'A - B'B <= Delta I for "fd",
    "pfd", "tfd" and "isvd"; an error within [-Delta, Delta] for "cfd" and within [-Delta/2, Delta/2] of B'B + alpha I
    for "rfd". For "fd", "cfd" and "rfd" Delta <= ||A - A_k||_F^2 / (l - k) for every k < l; for "pfd" and "tfd" the
    same with floor(beta l) in place of l.

    Cost: about 7 d l flops a row; memory (l + b) d + 3 (l + b)^2 elements. Of sparse rows d is the number of columns
    that have occurred, and the b rows between shrinks stay sparse. An update that spans more than eight
    buffers keeps a copy of the buffer while it runs, from which it is undone if it is refused or interrupted; a
    shorter one runs to its end before an interrupt is seen. While one thread updates a model, other threads that update
    or read it get a RuntimeError.

    Parameters read as they were given; ``resolved`` has the sketch_size, solver, buffer_size, dtype and compressor in
    use. Sketches that differ in sketch_size alone merge, into the larger (not with a compressor).

    With a tolerance, a shrink that would take more than nine tenths of what the rows so far allow is not made: l grows
    by at least 15%, and nothing is lost. The rest is for the read-out. solver="auto" goes over to "exact" where l has
    grown so far that it is faster; solver="exact" has nothing to grow, and its read-out chooses l.

    References
    ----------
    Liberty 2013; Ghashami, Liberty, Phillips, Woodruff 2016; Desai, Ghashami, Phillips 2016; RFD: Luo, Chen, Zhang,
    Li, Zhang, JMLR 20 (2019), Algorithms 1, 2, 4, 5 and 8. Centring: FROSH Algorithm 1, step 7.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((500, 40))
    >>> s = fs.FrequentDirections(16, solver="gram").update(rows)
    >>> error = np.linalg.norm(rows.T @ rows - s.sketch().T @ s.sketch() - s.alpha * np.eye(40), 2)
    >>> bool(error <= s.error_bound), s.n_rows
    (True, 500)
    """

    # -- rows ------------------------------------------------------------------------------------------------------
    @changes
    def update(self, rows: Batch, sample_weight: ArrayLike | None = None) -> Self:
        """Add one row or many.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d), table, or source
            Real and finite. Sparse rows are never made dense as a whole; explicit zeros are harmless. Tables, sources
            (``fs.open_rows``) and arrays that lie elsewhere (h5py, Zarr, Dask, memory maps) are read in chunks.
        sample_weight : array_like (n,) or float, optional
            Finite, >= 0: a row of weight w counts as sqrt(w) times itself, so that A'A is that of w equal rows. A row
            of weight 0 is checked and then left out: it is not counted, and earlier rows do not decay by it.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For anything that is no matrix of finite real numbers of the width seen before. The sketch is then as it
            was before the call.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((500, 40)) * np.arange(1, 41) ** -0.5
        >>> s = fs.FrequentDirections(8, solver="gram").update(rows[0])
        >>> s.update(rows[1:400]).update(rows[400:], sample_weight=2.0).n_rows
        500
        >>> s.total_weight
        600.0
        """
        return self._take_rows(rows, sample_weight)

    def _update(self, rows: Any, sample_weight: Any) -> None:
        engine = self._engine
        checked = as_rows(rows, None if engine is None else engine.n_features)
        self._absorb(*rows_with_weight(checked, as_weights(sample_weight, checked.shape[0])))

    def _absorb(self, checked: Any, weights: NDArray[np.float64] | None) -> None:
        """Learn from checked rows, all of them or none.

        A row of weight 0 adds nothing, but with ``decay`` it ages the rows before it. ``update`` leaves such rows out
        before it calls this method; a model that holds rows out for validation passes them with weight 0.
        """
        engine = self._engine
        if engine is not None and not checked.shape[0]:
            return
        if engine is None or not engine.n_rows:  # or has seen no row that could decide
            dtype = natural_dtype(checked.dtype) if self.dtype is None else np.dtype(self.dtype)
            engine = make_engine(self._setting, checked, dtype=dtype)
        self._reading = None
        if self._certain_high is not None or self._estimates is not None:
            engine = self._update_refined(engine, checked, weights)
        elif engine.setting.tolerance is None:
            engine.update(checked, weights)
        else:
            engine = updated(engine, checked, weights)
        self._engine = engine
        if engine.setting.tolerance is not None and self.max_sketch_size is not None and misses_tolerance(engine):
            self._say_that_it_misses(self._at_most())

    def _update_refined(self, engine: AnyEngine, rows: Any, weights: NDArray[np.float64] | None) -> AnyEngine:
        certain, before = (self._certain_high, self._estimates), engine.n_rows
        try:
            self._certain_high = self._estimates = None
            # in its place at once: an interrupt behind this line would find what was certain gone and no row learned
            self._engine = engine = updated(engine, rows, weights)
        except BaseException:
            if engine.n_rows == before:
                self._certain_high, self._estimates = certain
            raise
        return engine

    @changes
    def fade(self, factor: float) -> Self:
        """Multiply the weight of everything seen so far by a factor in (0, 1]: decay per batch, or per day.

        Parameters
        ----------
        factor : float

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((500, 40)) * np.arange(1, 41) ** -0.5
        >>> s = fs.FrequentDirections(8).update(rows)
        >>> s.total_weight, s.fade(0.5).total_weight
        (500.0, 250.0)
        """
        factor = as_real(factor, "factor", 0.0, 1.0, low_open=True)
        if self._engine is not None:
            engine = self._engine.clone()
            engine.fade(factor)
            self._replace(engine, self._regained * factor)
        return self

    @changes
    def _begin_with(self, engine: AnyEngine, certain_high: NDArray[np.float64] | None = None) -> None:
        """Take an engine of this setting that has seen rows elsewhere; nothing that it kept has lost length."""
        unit = ldexp(1.0, engine.exponent)
        with np.errstate(over="ignore", under="ignore"):
            regained = engine.shrinkage * unit * unit
        self._replace(engine, regained, certain_high)

    # -- merges ----------------------------------------------------------------------------------------------------
    def _merge(self, other: Self) -> None:
        # alpha0 counts once; means and counts combine exactly
        engine, theirs, regained = self._seen_engine(), other._seen_engine(), self._regained + other._regained
        if not merges_in_place(engine, theirs):
            self._replace(merge_engines(engine.clone(), theirs), regained)
            return
        # copies of its arrays, from which it is undone: a clone takes several times as long where they are short
        before, certain = engine.arrays(copy=True), (self._regained, self._certain_high, self._estimates)
        try:
            self._replace(merge_engines(engine, theirs), regained)
        except BaseException:
            engine.restore(before)
            self._replace(engine, *certain)
            raise

    @changes
    def _merge_in_order(self, others: Sequence[Self]) -> None:
        """Merge others into a sketch that nobody else has yet, with the bits of ``merge``; an error is not undone."""
        for other in others:
            other._join(self)

    @reads
    def _join(self, whole: Self) -> None:
        mine, theirs = whole._engine, self._engine
        if (
            mine is None
            or theirs is None
            or not merges_in_place(mine, theirs)
            or (mine.n_features, mine.dtype) != (theirs.n_features, theirs.dtype)
            or self._values != whole._values
            or self._feature_names not in (None, whole._feature_names)
        ):
            whole._take(self)  # with all that it checks
        else:
            whole._replace(merge_engines(mine, theirs), whole._regained + self._regained)

    def _adopt(self, other: Self) -> None:
        super()._adopt(other)
        engine = self._engine
        if not (engine is None or isinstance(engine, MappedEngine)) and engine.setting.sketch_size < self.sketch_size:
            self._engine = engine.resized(self.sketch_size)

    def _must_agree(self) -> dict[str, Any]:
        compressor = self._setting.compressor
        if compressor is not None:
            compressor = replace(compressor, first_block=0)
        agree: dict[str, Any] = {"compressor": compressor}  # first: it explains other differences
        agree |= super()._must_agree()
        agree |= {"compressor": compressor, "beta": self._beta}
        if compressor is None:  # else l decides what the random map is
            del agree["sketch_size"]
        return agree

    def _in_order(self) -> str | None:
        return None if self.decay == 1.0 else f"with decay={self.decay:g} a row counts by those that come after it"

    def _state_bytes(self, n_features: int) -> int:
        setting, d, most = self._setting, n_features, self.sketch_size
        if (tolerance := setting.tolerance) is not None:
            # l grows no further: ||A||_F^2 holds at most 1 / tolerance eigenvalues that are larger than its share
            by_norm = ceil(tolerance.counts / tolerance.value) if tolerance.relative_to == "squared_norm" else d
            most = tolerance.bounded(by_norm + 1, d)
        rows = setting.of_size(most)
        exact = setting.solver == "exact" or (setting.solver == "auto" and exact_pays(d, most))
        if exact and setting.compressor is None:
            return 8 * d * (d + ExactEngine.capacity_for(rows) + 3)  # and the mean in three parts
        return 8 * d * (2 * most + (setting.buffer_size or 0))

    def _certificate(self) -> dict[str, float]:
        engine = self._engine
        if engine is None or isinstance(engine, MappedEngine):  # a map's error is in no certificate
            return {}
        bound = self._method.error_bound(engine.shrinkage)
        with np.errstate(over="ignore"):
            known = np.ldexp([bound, engine.squared_norm], 2 * engine.exponent)
        return dict(zip(("error_bound", "squared_norm"), known.tolist(), strict=True))

    def _check_passes(self, passes: int) -> None:
        if passes > 2:
            raise ValueError(f"passes must be 1 or 2, got {passes}")
        self._check_rereadable("passes=2")

    def _passes_again(self, passes: int) -> Generator[SecondPass, SecondPass, Any]:
        return self if self._is_exact() else (yield SecondPass.of(self)).finish()

    def _for_part(self, part: int, first_block: int = 0) -> Self:
        compressor = self._setting.compressor
        if compressor is None:
            return super()._for_part(part, first_block)
        # no two parts map their blocks by the same random numbers
        place = compressor.first_block + (part << PART_BITS) + first_block
        parameters: dict[str, Any] = {**self.parameters, "compressor": replace(compressor, first_block=place)}
        return type(self)(**parameters)


class RobustFrequentDirections(FrequentDirections):
    """Frequent Directions whose regulariser alpha grows by half of each shrink's delta: half the error bound.

    ``RobustFrequentDirections(l, alpha0)`` is ``FrequentDirections(l, method="rfd", alpha0=alpha0)``; the other
    parameters are the same, and the two merge. B'B + alpha I is positive definite as soon as anything was removed, and
    never worse conditioned than Frequent Directions' B'B + alpha0 I (RFD paper, Theorem 3, what holds of Theorem 4).

    Parameters
    ----------
    sketch_size, alpha0, beta, buffer_size, solver, center, decay, dtype, compressor
        Those of FrequentDirections.
    tolerance, tolerance_relative_to, max_sketch_size
        Likewise.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((500, 40))
    >>> s = fs.RobustFrequentDirections(16, solver="gram").update(rows)
    >>> x = s.solve(np.ones(40))
    >>> bool(np.allclose(s.operator() @ x, 1.0))
    True
    """

    alpha0: float = real(default=0.0, high=MOST, kw_only=False)
    method: MethodName = choice(("rfd",), default="rfd", init=False)
