"""Comparison of two sketches: what changed in variance, in which columns, and whether the change is significant."""

# pyright: reportPrivateUsage=false

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import zip_longest
from typing import Any, NamedTuple, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.random import Key, raw_numbers
from fastsketch._core.threads import one_blas_thread
from fastsketch._core.validation import as_integer, as_seed
from fastsketch._core.warning import warn_caller
from fastsketch._frame.batches import require_same_names
from fastsketch.sketching import FrequentDirections
from fastsketch.streams._window import Window, merge_pair

Matrix: TypeAlias = NDArray[np.float64]
Compared: TypeAlias = FrequentDirections | Window | Sequence[FrequentDirections]

# Bound on the rounding of the eigenvalues of a difference, in units of the largest (LAPACK, and two products).
ROUNDING = 64.0
# Largest ratio of the median weights of both sides' blocks: beyond it the shorter blocks differ by their length alone.
MAX_WEIGHT_RATIO = 1.1
# Largest sum of squares of both sides: beyond it products overflow.
MAX_SQUARES = 1e300
# Largest number of permutations; each takes some kilobytes.
MAX_PERMUTATIONS = 100_000


class Comparison(NamedTuple):
    """The differences between two sketches: changes of variance with certified intervals, and the columns that changed.

    They are those of C = A'A / (sum of weights), C after minus C before.

    For sketches with ``center`` C is the covariance matrix. For others it is the matrix of second moments about zero,
    which a change of means changes too.

    Attributes
    ----------
    values : ndarray (n,)
        Eigenvalues of the difference of the sketches, by decreasing magnitude; positive where variance has grown. In
        squared units of the rows, per unit of weight.
    low, high : ndarray (n,)
        Certified intervals. If values[i] is the j-th largest (for values[i] < 0: j-th smallest) eigenvalue, the j-th
        largest (smallest) eigenvalue of the difference of the rows themselves lies in [low[i], high[i]]. So does the
        change of the variance of the rows along directions[i].
    directions : ndarray (n, d)
        Orthonormal eigenvectors of the difference of the sketches. Not certified: where two eigenvalues are closer than
        their intervals are long, the eigenvectors of the rows may be any mixture of theirs.
    before, after : ndarray (n,)
        Variance along each direction, according to the sketches.
    p_value : float or None
        p-value of the hypothesis that nothing changed, sensitive to changes that are large relative to the variance in
        their direction too. None if no blocks were given.
    p_values : ndarray (n,) or None
        For each change the share of arrangements of the blocks whose largest change is at least as large. If all are
        large and `p_value` is small, then what changed has little variance.
    column_changes : ndarray (d,)
        Change of the variance of each column.
    column_low, column_high : ndarray (d,)
        Certified intervals of these.
    mean_change : ndarray (d,) or None
        Change of the means, exact; None for sketches without ``center``.
    angles : ndarray (k,)
        Principal angles between the leading directions before and after, in radians, ascending; k = n, or fewer if a
        side has fewer directions.
    outside : ndarray (2, 2)
        Share of the variance outside of the n leading directions of the sketch before: certified lower and upper bound,
        in the first row before, in the second row after.
    feature_names : tuple of str or None

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((4000, 6))
    >>> louder = rows * [1, 1, 3, 1, 1, 1]
    >>> changed = fs.compare(fs.FrequentDirections(8).update(rows), fs.FrequentDirections(8).update(louder))
    >>> round(float(changed.values[0])), changed.mean_change is None
    (8, True)
    """

    values: Matrix
    low: Matrix
    high: Matrix
    directions: Matrix
    before: Matrix
    after: Matrix
    p_value: float | None
    p_values: Matrix | None
    column_changes: Matrix
    column_low: Matrix
    column_high: Matrix
    mean_change: Matrix | None
    angles: Matrix
    outside: Matrix
    feature_names: tuple[str, ...] | None

    def columns(self, n: int = 10, *, change: int | None = None) -> list[tuple[str | int, float]]:
        """Return the columns that changed most, as (name or number, value) pairs, largest change first.

        Parameters
        ----------
        n : int, default 10
            Number of columns.
        change : int, optional
            Index of a change: values are then the squared entries of its direction, which sum to 1. By default values
            are ``column_changes``.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((4000, 6))
        >>> louder = rows * [1, 1, 3, 1, 1, 1]
        >>> changed = fs.compare(fs.FrequentDirections(8).update(rows), fs.FrequentDirections(8).update(louder))
        >>> [name for name, share in changed.columns(1, change=0)]
        [2]
        """
        n = as_integer(n, "n", 1)
        if change is None:
            values = self.column_changes
        else:
            values = self.directions[as_integer(change, "change", 0, len(self.values))] ** 2
        best = np.argsort(-np.abs(values), kind="stable")[:n]
        return [(self._name(int(j)), float(values[j])) for j in best]

    def _name(self, column: int) -> str | int:
        return column if self.feature_names is None else self.feature_names[column]

    def __str__(self) -> str:
        lines: list[str] = []
        for i in range(len(self.values)):
            p_text = "" if self.p_values is None else f", p = {self.p_values[i]:.2g}"
            columns = ", ".join(f"{name} {share:.0%}" for name, share in self.columns(3, change=i))
            lines.append(
                f"{self.before[i]:.4g} -> {self.after[i]:.4g} along {columns}: a change of {self.values[i]:+.4g}, "
                f"certainly in [{self.low[i]:.4g}, {self.high[i]:.4g}]{p_text}"
            )
        shares = [f"{low:.1%} to {high:.1%}" for low, high in self.outside]
        if self.p_value is not None:
            lines.append(f"any change, also of little variance: p = {self.p_value:.2g}")
        lines.append(f"outside the leading directions before: {shares[0]} of the variance, now {shares[1]}")
        return "\n".join(lines)


class Moments(NamedTuple):
    """Second-moment matrix S = A'A / (sum of weights) of a sketch, stored as S or as a factor B with S = B'B."""

    gram: Matrix | None  # S (d, d) of an exact sketch
    rows: Matrix | None  # B (r, d) of other sketches, S = B'B

    @classmethod
    def from_sketch(cls, sketch: FrequentDirections) -> Self:
        """Return the second moments that a sketch approximates, as a ``Moments``; the sketch must have seen rows."""
        if sketch._is_exact():
            return cls(sketch.gram() / sketch.total_weight, None)
        return cls(None, sketch.sketch().astype(np.float64) / np.sqrt(sketch.total_weight))

    def project(self, basis: Matrix | None) -> Matrix:
        """Return Q S Q' for an orthonormal basis Q (rows), the second moments in that basis; S itself if the basis is
        None.
        """
        if self.gram is not None:
            # Q S Q'
            return self.gram if basis is None else basis @ self.gram @ basis.T
        assert self.rows is not None
        projected = self.rows if basis is None else self.rows @ basis.T
        # (B Q')'(B Q')
        return projected.T @ projected

    def variances(self) -> Matrix:
        """Return the second moment of each column, the diagonal of S."""
        if self.gram is not None:
            return np.diag(self.gram).copy()
        assert self.rows is not None
        return (self.rows**2).sum(axis=0)


class ComparedSketch(NamedTuple):
    """Summary of one of two compared sketches: second moments with error bounds, leading directions and mean.

    S - under I <= A'A <= S + over I, all divided by the sum of the weights.
    """

    weight: float
    moments: Moments
    under: float
    over: float
    trace: float
    vt: Matrix  # (r, d) leading directions
    mean: Matrix | None

    def share_outside(self, vt: Matrix) -> tuple[float, float]:
        """Return guaranteed bounds (lower, upper) on the fraction of the variance outside of the span of orthonormal
        rows vt (r, d).
        """
        # trace(V S V')
        inside_variance = float(np.trace(self.moments.project(vt)))
        low, high = inside_variance - len(vt) * self.under, inside_variance + len(vt) * self.over
        inside = np.clip([high / self.trace, low / self.trace] if self.trace else [1.0, 1.0], 0.0, 1.0)
        return float(1.0 - inside[0]), float(1.0 - inside[1])


def _summarise(sketch: FrequentDirections, name: str) -> ComparedSketch:
    """Return a ``ComparedSketch``: a sketch's second moments, error bounds, directions and mean.
    ValueError, with `name` in its message, if the sketch cannot be compared.
    """
    if sketch.compressor is not None:
        raise ValueError(f"{name} has a compressor: of what a random map does to its rows nothing is certain")
    weight = sketch.total_weight
    if not weight > 0.0:
        raise ValueError(f"{name} has seen no rows")
    mean, trace, exact = sketch.mean, sketch.squared_norm, sketch._is_exact()
    spectrum = sketch._overview(None if exact else 1)
    error = spectrum.rounding
    if exact:
        vt, over, under = spectrum.spectrum.vectors, 0.0, 0.0
    else:
        vt, over = sketch.components.astype(np.float64), sketch.shrinkage
        under = sketch.shrinkage if sketch._method.compensates else 0.0
    moments = Moments.from_sketch(sketch)
    return ComparedSketch(weight, moments, (under + error) / weight, (over + error) / weight, trace / weight, vt, mean)


@one_blas_thread
def compare(
    a: Compared, b: Compared, *, n: int = 5, permutations: int = 999, n_directions: int = 32, seed: int = 0
) -> Comparison:
    """Compare two sketches, and report the directions and columns whose variance changed.

    They may be of two days, two shops, or before and after an event.

    Parameters
    ----------
    a, b : FrequentDirections, Window, or sequence of FrequentDirections
        Before and after. They must have the same number of columns, the same names if both have names, and both
        ``center`` or both not. Methods, sizes and weights may differ; a compressor is refused. A sequence holds the
        blocks of one side, in order. If both sides are sequences or windows, whose blocks are about equally long, the
        result has ``p_values``.
    n : int, default 5
        Largest number of changes that are listed.
    permutations : int, default 999
        Number of random arrangements of the blocks for p-values, at most 100,000. p-values are at least 1 /
        (permutations + 1).
    n_directions : int, default 32
        Number of leading directions of both sides together within which p-values look for a change. Every arrangement
        takes the eigenvalues of a matrix of this size.
    seed : int, default 0
        Seed of the arrangements.

    Returns
    -------
    Comparison

    Raises
    ------
    TypeError, ValueError
        If an argument is not such a sketch, has seen no rows, or does not match the other.

    Warns
    -----
    UserWarning
        If the blocks of one side are more than 1.1 times as long as those of the other; there are no p-values then.

    Notes
    -----
    Let D be the difference of A'A / n of the rows, M that of the sketches, and Delta_a and Delta_b the certificates.
    Then M - (Delta_a / n_a) I <= D <= M + (Delta_b / n_b) I. By Weyl's inequality the j-th largest eigenvalues of D and
    M differ by no more than that, the zeros of the d x d matrix M included, and so do x'Dx and x'Mx for any unit vector
    x. The eigenvalues of M are those of a matrix of at most 2 l rows, in the directions of both sketches. This holds
    for B'B of "fd", "pfd", "tfd", "isvd" and "rfd" (without alpha); "cfd" has Delta on both sides; with solver="exact"
    only rounding remains.

    A p-value is the share of random assignments of the blocks to the two sides that make as large a change, within the
    ``n_directions`` leading directions of both together (for sketches at most l - 1). Blocks must be exchangeable if
    nothing changes, that is, so long that the rows of one block do not predict the next, and about equally long; blocks
    of less than half of the median weight are ignored. Certified intervals are statements about the rows that were
    seen; p-values tell whether further rows would show the change again.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rng = np.random.default_rng(0)
    >>> before, after = rng.standard_normal((2, 8000, 40))
    >>> after[:, 7] *= 2.0
    >>> days = [[fs.FrequentDirections(16).update(part) for part in np.split(rows, 8)] for rows in (before, after)]
    >>> changed = fs.compare(*days, n=1)
    >>> changed.columns(1, change=0)[0][0], changed.p_values
    (7, array([0.001]))
    """
    n, permutations = as_integer(n, "n", 1), as_integer(permutations, "permutations", 1, MAX_PERMUTATIONS + 1)
    seed, n_directions = as_seed(seed), as_integer(n_directions, "n_directions", 1)
    (sketch_a, blocks_a), (sketch_b, blocks_b) = _sketch_and_blocks(a, "a"), _sketch_and_blocks(b, "b")
    blocks = [blocks_a, blocks_b]
    names = _matched_names(sketch_a, sketch_b)
    summary_a, summary_b = _summarise(sketch_a, "a"), _summarise(sketch_b, "b")
    mass = summary_a.weight * summary_a.trace + summary_b.weight * summary_b.trace
    if not mass <= MAX_SQUARES:
        raise ValueError(
            f"a and b hold rows whose squares add up to {mass:.1g}, at most {MAX_SQUARES:g}: scale the rows"
        )
    error_below, error_above = summary_a.over + summary_b.under, summary_b.over + summary_a.under
    basis = _joint_basis(summary_a, summary_b)
    s, t = summary_a.moments.project(basis), summary_b.moments.project(basis)
    rounding = ROUNDING * float(np.finfo(float).eps) * float(np.trace(s) + np.trace(t))
    values, vectors = np.linalg.eigh(t - s)
    largest = np.argsort(-np.abs(values), kind="stable")[:n]
    values, vectors = values[largest], vectors[:, largest]
    p_value = p_values = None
    if all(blocks) and _have_similar_weights(blocks):
        p_value, p_values = _permutation_p_values(
            blocks, _pooled_directions(sketch_a, sketch_b, blocks, n_directions), len(values), permutations, seed
        )
    column_changes = summary_b.moments.variances() - summary_a.moments.variances()
    k = min(n, len(summary_a.vt), len(summary_b.vt))
    cosines = np.linalg.svd(summary_a.vt[:k] @ summary_b.vt[:k].T, compute_uv=False)
    return Comparison(
        values,
        values - error_below - rounding,
        values + error_above + rounding,
        vectors.T if basis is None else vectors.T @ basis,
        np.einsum("ij,ij->j", vectors, s @ vectors),
        np.einsum("ij,ij->j", vectors, t @ vectors),
        p_value,
        p_values,
        column_changes,
        column_changes - error_below - rounding,
        column_changes + error_above + rounding,
        None if summary_a.mean is None or summary_b.mean is None else summary_b.mean - summary_a.mean,
        np.arccos(np.clip(cosines, 0.0, 1.0)),
        np.array([side.share_outside(summary_a.vt[:n]) for side in (summary_a, summary_b)]),
        names,
    )


def _sketch_and_blocks(value: Any, name: str) -> tuple[FrequentDirections, list[FrequentDirections]]:
    """Return (sketch of all rows, list of sketches of its blocks) for an argument of ``compare``.
    The p-values are computed from the blocks.

    A single sketch has no blocks. TypeError or ValueError for other arguments.
    """
    blocks: list[Any] = []
    if isinstance(value, Window):
        blocks, value = list(value.block_models.values()), value.model
        blocks = [block for block in blocks if getattr(block, "total_weight", 1)]
    elif isinstance(value, Iterable):
        blocks = [block for block in cast("Iterable[Any]", value) if getattr(block, "total_weight", 1)]
        if not blocks:
            raise ValueError(f"{name} must have blocks with rows, got none")
    for block in blocks or [value]:
        if not isinstance(block, FrequentDirections):
            raise TypeError(
                f"{name} must be a FrequentDirections, several, or a Window of them, got a {type(block).__name__}"
            )
    return (value if isinstance(value, FrequentDirections) else reduce(merge_pair, blocks)), blocks


def _have_similar_weights(blocks: Sequence[list[FrequentDirections]]) -> bool:
    """Return True if the blocks of both sketches have about the same median weight, so that they can be permuted.

    Otherwise warn that there are no p-values.
    """
    weight_a, weight_b = (float(np.median([block.total_weight for block in side])) for side in blocks)
    if max(weight_a, weight_b) <= MAX_WEIGHT_RATIO * min(weight_a, weight_b):
        return True
    warn_caller(
        f"no p-values: the blocks of a have a median weight of {weight_a:g}, those of b of {weight_b:g}, and chance "
        "arranges blocks that are about equally long"
    )
    return False


def _matched_names(sketch_a: FrequentDirections, sketch_b: FrequentDirections) -> tuple[str, ...] | None:
    """Return the column names that two sketches have in common; ValueError if their columns or centring differ."""
    if sketch_a.center != sketch_b.center:
        raise ValueError(f"a has center={sketch_a.center}, b has center={sketch_b.center}: they say different things")
    if None not in (sketch_a.n_features, sketch_b.n_features) and sketch_a.n_features != sketch_b.n_features:
        raise ValueError(f"a has n_features={sketch_a.n_features}, b has {sketch_b.n_features}")
    return require_same_names(sketch_b.feature_names, sketch_a.feature_names, "the columns of b")


def _pooled_directions(
    sketch_a: FrequentDirections, sketch_b: FrequentDirections, blocks: Sequence[list[FrequentDirections]], most: int
) -> Matrix:
    """Return the leading directions, as rows, of the rows of both sketches together, at most `most`.

    Blocks are merged alternately from one side and the other. If the two merged sketches were merged, their directions
    would fit the noise of their own side, and find it again there.
    """
    if sketch_a._is_exact() and sketch_b._is_exact():
        moments = sum(
            (
                side.weight * side.moments.project(None)
                for side in (_summarise(sketch_a, "a"), _summarise(sketch_b, "b"))
            ),
            np.zeros(1),
        )
        return np.linalg.eigh(moments)[1][:, ::-1][:, :most].T
    alternating = [block for pair in zip_longest(*blocks) for block in pair if block is not None]
    return reduce(merge_pair, alternating).components[:most].astype(np.float64)


def _joint_basis(summary_a: ComparedSketch, summary_b: ComparedSketch) -> Matrix | None:
    """Return an orthonormal basis of the span of both sketches, or None if a comparison in it would not be cheaper."""
    d = summary_a.vt.shape[1]
    if (
        summary_a.moments.gram is not None
        or summary_b.moments.gram is not None
        or len(summary_a.vt) + len(summary_b.vt) >= d
    ):
        return None
    return np.linalg.qr(np.vstack([summary_a.vt, summary_b.vt]).T)[0].T


def _permutation_p_values(
    blocks: Sequence[list[FrequentDirections]], leading: Matrix, n: int, permutations: int, seed: int
) -> tuple[float, Matrix]:
    """Return (p-value of any change between two sketches, p-values of the n largest changes), by permutations.
    Each permutation assigns the blocks to the two sketches at random, and computes the changes again.

    The blocks' moments are restricted to the directions `leading` (q, d), which must not depend on the sides.
    """
    if not len(leading):  # rows of zeros, or rows that all equal their mean: every arrangement has no change
        return 1.0, np.ones(n)
    summaries = [_summarise(block, "a block") for side in blocks for block in side]
    in_b = np.repeat([False, True], [len(side) for side in blocks])
    weights = np.array([side.weight for side in summaries])
    is_long = weights >= np.median(weights) / 2
    summaries, in_b, weights = (
        [side for side, keep in zip(summaries, is_long, strict=True) if keep],
        in_b[is_long],
        weights[is_long],
    )
    sums = np.array([side.weight * side.moments.project(leading) for side in summaries])
    means = np.zeros((len(summaries), len(leading)))
    if summaries[0].mean is not None:  # about the mean of each arrangement's side
        means = np.array([side.mean for side in summaries], np.float64) @ leading.T
        means -= np.average(means, axis=0, weights=weights)
        sums += np.einsum("k,ki,kj->kij", weights, means, means)
    drawn = raw_numbers(seed, Key.ARRANGEMENT, 0, 0, permutations * len(in_b)).reshape(permutations, -1)
    arrangements = np.vstack([in_b, in_b[np.argsort(drawn, axis=1)]]).astype(np.float64)

    def moments_of(assignment: Matrix) -> Matrix:
        mass = assignment @ weights
        centres = (assignment * weights) @ means / mass[:, np.newaxis]
        products = (assignment @ sums.reshape(len(summaries), -1)).reshape(-1, *sums.shape[1:])
        return products / mass[:, np.newaxis, np.newaxis] - np.einsum("ki,kj->kij", centres, centres)

    differences = moments_of(arrangements) - moments_of(1.0 - arrangements)
    changes = np.sort(np.abs(np.linalg.eigvalsh(differences)), axis=1)[:, ::-1]
    whitener = whitening(sums.sum(axis=0))
    shares = np.abs(np.linalg.eigvalsh(whitener @ differences @ whitener.T)).max(axis=1, initial=0.0)
    largest = np.sort(changes[:, 0])
    p_values = _share_as_large(largest, changes[0, :n])
    smaller_p_values = np.minimum(_share_as_large(largest, changes[:, 0]), _share_as_large(np.sort(shares), shares))
    return float((smaller_p_values <= smaller_p_values[0]).mean()), np.concatenate(
        [p_values, np.ones(n - len(p_values))]
    )


def _share_as_large(ascending: Matrix, values: Matrix) -> Matrix:
    """Return a p-value for each of `values`: the fraction of the numbers in `ascending` that are at least as large."""
    return 1.0 - np.searchsorted(ascending, values * (1.0 - 1e-9)) / len(ascending)


def whitening(moments: Matrix) -> Matrix:
    """Return a whitening matrix W for the second moments M: W M W' = I.

    Directions in which M is only rounding error are dropped.
    """
    values, vectors = np.linalg.eigh(moments)
    is_significant = values > ROUNDING * float(np.finfo(np.float32).eps) * values[-1]
    return vectors[:, is_significant].T / np.sqrt(values[is_significant])[:, np.newaxis]
