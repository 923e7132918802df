"""What differs between two sketches: changes of variance with certified intervals, columns, significance."""

# pyright: reportPrivateUsage=false
# (the read-out of a sketch is asked for its allowance for rounding)

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
from fastsketch._frame.batches import agreed
from fastsketch.sketching import FrequentDirections
from fastsketch.streams._window import Window, joined

Matrix: TypeAlias = NDArray[np.float64]
Compared: TypeAlias = FrequentDirections | Window | Sequence[FrequentDirections]

# Leading directions of both sides together that significance looks at: their change is a matrix of so many rows, whose
# eigenvalues every permutation needs. More cost more, and see directions that hold little beside the noise of the rest.
MOST_DIRECTIONS = 32
# Units of rounding of the largest eigenvalues by which those of a difference may be off (LAPACK, and two products).
ROUNDING = 64.0
# Of the median weights of the blocks of both sides, beyond which shorter blocks alone make a difference.
MOST_RATIO = 1.1
# Of both sides' sums of squares, beyond which products of them overflow.
MOST_MASS = 1e300
# Each takes some kilobytes.
MOST_ARRANGEMENTS = 100_000


class Comparison(NamedTuple):
    """What has changed between two sketches: C = A'A / (sum of weights) after, less the same before.

    Of sketches with ``center`` C is the covariance; else squares about zero, in which a change of means is too.

    Attributes
    ----------
    values : ndarray (n,)
        Eigenvalues of the difference of the sketches, the largest in size first; > 0 where variance has grown. In
        squared units of the rows, per unit of weight.
    low, high : ndarray (n,)
        Certified: where values[i] is the j-th largest (if > 0, else smallest), the j-th largest (smallest) eigenvalue
        of the difference of the rows themselves is within [low[i], high[i]]. The variance of the rows along
        directions[i] has also changed by a number in that interval.
    directions : ndarray (n, d)
        Orthonormal, of the difference of the sketches. Not certified: where two eigenvalues are nearer than the
        intervals are long, any mixture of their directions may be that of the rows.
    before, after : ndarray (n,)
        Variance along each direction, by the sketches.
    p_value : float or None
        Of any change, the larger ones in units of the variance there too: at most .01 in 1% of the streams that do not
        change. None if there were no blocks.
    p_values : ndarray (n,) or None
        For each change, the share of arrangements of the blocks in which the largest change of all is as large. All
        may be large where `p_value` is small: then what changed holds little variance.
    column_changes : ndarray (d,)
        Change of the variance of each column.
    column_low, column_high : ndarray (d,)
        Certified intervals of these.
    mean_change : ndarray (d,) or None
        Change of the means, exact; of sketches with ``center``.
    angles : ndarray (k,)
        Principal angles between the leading directions before and after, in radians, ascending: n, or fewer where a
        side has fewer directions.
    outside : ndarray (2, 2)
        Share of the variance that lies outside the n leading directions of the sketch before: certified least and most,
        before and after.
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
        """Return the columns that carry the change, the largest share first, as (name or number, value).

        Parameters
        ----------
        n : int, default 10
        change : int, optional
            The change of this number alone: values are the squares of the entries of its direction, of sum 1. By
            default of all: values are ``column_changes``.

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
            chance = "" if self.p_values is None else f", p = {self.p_values[i]:.2g}"
            carried = ", ".join(f"{name} {share:.0%}" for name, share in self.columns(3, change=i))
            lines.append(
                f"{self.before[i]:.4g} -> {self.after[i]:.4g} along {carried}: a change of {self.values[i]:+.4g}, "
                f"certainly in [{self.low[i]:.4g}, {self.high[i]:.4g}]{chance}"
            )
        shares = [f"{least:.1%} to {most:.1%}" for least, most in self.outside]
        if self.p_value is not None:
            lines.append(f"any change, also of little variance: p = {self.p_value:.2g}")
        lines.append(f"outside the leading directions before: {shares[0]} of the variance, now {shares[1]}")
        return "\n".join(lines)


class Moments(NamedTuple):
    """S, what a sketch knows of A'A divided by the sum of the weights."""

    gram: Matrix | None  # S (d, d) of an exact sketch
    rows: Matrix | None  # of others B (r, d), S = B'B

    @classmethod
    def of(cls, sketch: FrequentDirections) -> Self:
        """Return the moments of a sketch that has seen rows."""
        if sketch._is_exact():
            return cls(sketch.gram() / sketch.total_weight, None)
        return cls(None, sketch.sketch().astype(np.float64) / np.sqrt(sketch.total_weight))

    def within(self, basis: Matrix | None) -> Matrix:
        """Return Q S Q' for an orthonormal basis Q (q, d), None for all of the space."""
        if self.gram is not None:
            # Q S Q'
            return self.gram if basis is None else basis @ self.gram @ basis.T
        assert self.rows is not None
        turned = self.rows if basis is None else self.rows @ basis.T
        # (B Q')'(B Q')
        return turned.T @ turned

    def variances(self) -> Matrix:
        """Return the diagonal of S."""
        if self.gram is not None:
            return np.diag(self.gram).copy()
        assert self.rows is not None
        return (self.rows**2).sum(axis=0)


class Side(NamedTuple):
    """One of two sketches: S - under I <= A'A <= S + over I, all divided by the sum of the weights."""

    weight: float
    moments: Moments
    under: float
    over: float
    trace: float
    vt: Matrix  # (r, d) leading directions
    mean: Matrix | None

    def share_outside(self, vt: Matrix) -> tuple[float, float]:
        """Return the least and most share of the trace outside orthonormal directions (k, d)."""
        # trace(V S V')
        held = float(np.trace(self.moments.within(vt)))
        least, most = held - len(vt) * self.under, held + len(vt) * self.over
        inside = np.clip([most / self.trace, least / self.trace] if self.trace else [1.0, 1.0], 0.0, 1.0)
        return float(1.0 - inside[0]), float(1.0 - inside[1])


def _side_of(sketch: FrequentDirections, name: str) -> Side:
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
    moments = Moments.of(sketch)
    return Side(weight, moments, (under + error) / weight, (over + error) / weight, trace / weight, vt, mean)


@one_blas_thread
def compare(a: Compared, b: Compared, *, n: int = 5, permutations: int = 999, seed: int = 0) -> Comparison:
    """Say what has changed from one sketch to another: two days, two shops, before and after.

    Parameters
    ----------
    a, b : FrequentDirections, Window, or sequence of FrequentDirections
        Before and after. Of one number of columns, of the same names where both have some, both with ``center`` or
        both without; any method, size and weights, no compressor. A sequence is the blocks of one side, in their order;
        it, or a window, on both sides gives ``p_values``, if blocks are about equally long.
    n : int, default 5
        Changes that are listed, at most.
    permutations : int, default 999
        Arrangements of the blocks that p-values are counted in, at most 100,000: p-values are at least
        1 / (permutations + 1).
    seed : int, default 0
        Of these.

    Returns
    -------
    Comparison

    Raises
    ------
    TypeError, ValueError
        For what is no such sketch, has seen no rows, or does not go together.

    Notes
    -----
    With D the difference of A'A / n of the rows, M that of the sketches, and what their certificates bound,
    M - (Delta_a / n_a) I <= D <= M + (Delta_b / n_b) I: eigenvalues of D are in order within these of those of M
    (Weyl), zeros of the d x d matrix included, and so is x'Dx of any unit vector x. M is a matrix of at most 2 l rows
    in the directions of both. That holds for B'B of "fd", "pfd", "tfd", "isvd" and "rfd" (without alpha); "cfd" has
    Delta on both sides; of solver="exact" only rounding is left.

    A p-value asks how large the largest change would be if the blocks were put to the two sides by chance, within the
    32 leading directions of both together (of sketches at most l - 1): blocks must be exchangeable if nothing changes,
    so long that rows of one say nothing about the next, and about equally long (those of less than half of the median
    weight are left out). Certified intervals say what the rows did; p-values whether the next rows would do it again.

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
    n, permutations = as_integer(n, "n", 1), as_integer(permutations, "permutations", 1, MOST_ARRANGEMENTS + 1)
    seed = as_seed(seed)
    (one, blocks_a), (two, blocks_b) = _taken(a, "a"), _taken(b, "b")
    blocks = [blocks_a, blocks_b]
    names = _agreed(one, two)
    old, new = _side_of(one, "a"), _side_of(two, "b")
    mass = old.weight * old.trace + new.weight * new.trace
    if not mass <= MOST_MASS:
        raise ValueError(f"a and b hold rows whose squares add up to {mass:.1g}, at most {MOST_MASS:g}: scale the rows")
    below, above = old.over + new.under, new.over + old.under
    basis = _joint_basis(old, new)
    s, t = old.moments.within(basis), new.moments.within(basis)
    size = ROUNDING * float(np.finfo(float).eps) * float(np.trace(s) + np.trace(t))
    values, turn = np.linalg.eigh(t - s)
    best = np.argsort(-np.abs(values), kind="stable")[:n]
    values, turn = values[best], turn[:, best]
    chance = chances = None
    if all(blocks) and _are_alike(blocks):
        chance, chances = _chances(blocks, _pooled(one, two, blocks), len(values), permutations, seed)
    columns = new.moments.variances() - old.moments.variances()
    k = min(n, len(old.vt), len(new.vt))
    cosines = np.linalg.svd(old.vt[:k] @ new.vt[:k].T, compute_uv=False)
    return Comparison(
        values,
        values - below - size,
        values + above + size,
        turn.T if basis is None else turn.T @ basis,
        np.einsum("ij,ij->j", turn, s @ turn),
        np.einsum("ij,ij->j", turn, t @ turn),
        chance,
        chances,
        columns,
        columns - below - size,
        columns + above + size,
        None if old.mean is None or new.mean is None else new.mean - old.mean,
        np.arccos(np.clip(cosines, 0.0, 1.0)),
        np.array([side.share_outside(old.vt[:n]) for side in (old, new)]),
        names,
    )


def _taken(value: Any, name: str) -> tuple[FrequentDirections, list[FrequentDirections]]:
    """Return the sketch of a side, and its blocks where they are there."""
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
    return (value if isinstance(value, FrequentDirections) else reduce(joined, blocks)), blocks


def _are_alike(blocks: Sequence[list[FrequentDirections]]) -> bool:
    """Return whether blocks of one side could be of the other: where weights differ, they say whose a block is."""
    one, two = (float(np.median([block.total_weight for block in side])) for side in blocks)
    if max(one, two) <= MOST_RATIO * min(one, two):
        return True
    warn_caller(
        f"no p-values: the blocks of a have a median weight of {one:g}, those of b of {two:g}, and chance arranges "
        "blocks that are about equally long"
    )
    return False


def _agreed(one: FrequentDirections, two: FrequentDirections) -> tuple[str, ...] | None:
    if one.center != two.center:
        raise ValueError(f"a has center={one.center}, b has center={two.center}: they say different things")
    if None not in (one.n_features, two.n_features) and one.n_features != two.n_features:
        raise ValueError(f"a has n_features={one.n_features}, b has {two.n_features}")
    return agreed(two.feature_names, one.feature_names, "the columns of b")


def _pooled(one: FrequentDirections, two: FrequentDirections, blocks: Sequence[list[FrequentDirections]]) -> Matrix:
    """Return the leading directions (q, d) of all rows, of both sides alike.

    The blocks are merged in turn from one side and the other: directions of the two merged sketches would know the
    noise of their own side, and find it again there.
    """
    if one._is_exact() and two._is_exact():
        moments = sum(
            (side.weight * side.moments.within(None) for side in (_side_of(one, "a"), _side_of(two, "b"))), np.zeros(1)
        )
        return np.linalg.eigh(moments)[1][:, ::-1][:, :MOST_DIRECTIONS].T
    in_turn = [block for pair in zip_longest(*blocks) for block in pair if block is not None]
    return reduce(joined, in_turn).components[:MOST_DIRECTIONS].astype(np.float64)


def _joint_basis(old: Side, new: Side) -> Matrix | None:
    """Return an orthonormal basis of the rows of both sketches, or None where it is as well to take the whole space."""
    d = old.vt.shape[1]
    if old.moments.gram is not None or new.moments.gram is not None or len(old.vt) + len(new.vt) >= d:
        return None
    return np.linalg.qr(np.vstack([old.vt, new.vt]).T)[0].T


def _chances(
    blocks: Sequence[list[FrequentDirections]], leading: Matrix, n: int, permutations: int, seed: int
) -> tuple[float, Matrix]:
    """Return p-values of any change, and of each of the n largest: shares of arrangements with a change as large.

    `leading` (q, d) are directions in which the blocks' moments are looked at: they must not know the sides.
    """
    if not len(leading):  # rows of zeros, or rows that all equal their mean: every arrangement has no change
        return 1.0, np.ones(n)
    sides = [_side_of(block, "a block") for side in blocks for block in side]
    after = np.repeat([False, True], [len(side) for side in blocks])
    weights = np.array([side.weight for side in sides])
    used = weights >= np.median(weights) / 2
    sides, after, weights = [side for side, take in zip(sides, used, strict=True) if take], after[used], weights[used]
    sums = np.array([side.weight * side.moments.within(leading) for side in sides])
    means = np.zeros((len(sides), len(leading)))
    if sides[0].mean is not None:  # about the mean of each arrangement's side
        means = np.array([side.mean for side in sides], np.float64) @ leading.T
        means -= np.average(means, axis=0, weights=weights)
        sums += np.einsum("k,ki,kj->kij", weights, means, means)
    drawn = raw_numbers(seed, Key.ARRANGEMENT, 0, 0, permutations * len(after)).reshape(permutations, -1)
    arrangements = np.vstack([after, after[np.argsort(drawn, axis=1)]]).astype(np.float64)

    def moments_of(chosen: Matrix) -> Matrix:
        mass = chosen @ weights
        centres = (chosen * weights) @ means / mass[:, np.newaxis]
        products = (chosen @ sums.reshape(len(sides), -1)).reshape(-1, *sums.shape[1:])
        return products / mass[:, np.newaxis, np.newaxis] - np.einsum("ki,kj->kij", centres, centres)

    differences = moments_of(arrangements) - moments_of(1.0 - arrangements)
    changes = np.sort(np.abs(np.linalg.eigvalsh(differences)), axis=1)[:, ::-1]
    white = whitening(sums.sum(axis=0))
    shares = np.abs(np.linalg.eigvalsh(white @ differences @ white.T)).max(axis=1, initial=0.0)
    largest = np.sort(changes[:, 0])
    each = _share_as_large(largest, changes[0, :n])
    rarest = np.minimum(_share_as_large(largest, changes[:, 0]), _share_as_large(np.sort(shares), shares))
    return float((rarest <= rarest[0]).mean()), np.concatenate([each, np.ones(n - len(each))])


def _share_as_large(ascending: Matrix, values: Matrix) -> Matrix:
    """Return the share of numbers that are as large as each value, or equal up to another order of sums."""
    return 1.0 - np.searchsorted(ascending, values * (1.0 - 1e-9)) / len(ascending)


def whitening(moments: Matrix) -> Matrix:
    """Return W (r, q) with W moments W' = I, for what is more than rounding of the largest."""
    values, vectors = np.linalg.eigh(moments)
    held = values > ROUNDING * float(np.finfo(np.float32).eps) * values[-1]
    return vectors[:, held].T / np.sqrt(values[held])[:, np.newaxis]
