"""EASE from one pass: item weights out of a sketch of users' rows."""

# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastsketch._batches import Batch
from fastsketch._kernels.guard import changes, reads
from fastsketch._model import Arrays, MergeableModel
from fastsketch._parameters import choice, float_dtype, integer, real, seed
from fastsketch._sparse import as_csr
from fastsketch._validation import Rows, as_flag, as_integer, as_numbers, as_real, as_weights, is_sparse
from fastsketch.features._events import ColumnNames
from fastsketch.features._id_map import IdMap, arrays_of, own_ids
from fastsketch.features._triples import Table, as_triples
from fastsketch.io import _checks as checks
from fastsketch.recommending import _held_out as held_out
from fastsketch.recommending._answers import Explanation, Limits, Recommendations, explained, recommend, similar
from fastsketch.recommending._events import MOST, as_events, column_squares, decayed, row_squares, undone
from fastsketch.recommending._held_out import HeldOut
from fastsketch.recommending._reading import Reading, read
from fastsketch.recommending._ridge import FIRST, HIDDEN, RidgePath, Trial, along, climb
from fastsketch.recommending._tables import (
    ITEM_IDS,
    batch_of,
    events_of,
    held_with_items,
    ids_of_file,
    ids_of_matrix,
    items_of,
    left_out,
    named,
    widened,
    without_ids,
)
from fastsketch.recommending._weights import ItemWeights, item_weights
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._moved_columns import with_columns

# Users on whom a ridge is chosen: a fifth of all at most, and none if they are fewer than this.
FEWEST, ONE_OF = 20, 5  # fewer than 100 users choose none
# As of the parameter.
MOST_RIDGE = 1e300

OF_SKETCH = "sketch_"


class Read(NamedTuple):
    """What was last read out."""

    weights: ItemWeights
    ridge: float
    path: RidgePath | None


class SketchedEASE(MergeableModel):
    """EASE, the linear item model of Steck (2019), from one pass over users' rows, in memory items x l.

    X (users x items) holds events: 1, counts, or any positive strength; what is not stored is unknown or not wanted. A
    user's scores are x W with W_ij = -P_ij / P_jj, W_jj = 0 and P = (X'X + ridge I)^-1. Here X'X is a sketch of at most
    l rows on which the sums of squares of all columns, known exactly, are put back (docs/jobs/recommending.md). No user
    is kept but those of the reservoir: new users are recommended to as soon as they have an event.

    Parameters
    ----------
    sketch_size : int, default 256
        l >= 2, rows of the sketch. With more than there are items the answer is that of EASE itself.
    ridge : float > 0, optional
        In squared units of the weighted rows. If it is not given, it is chosen at the first read-out by what finds
        hidden items of the users in the reservoir best (``NDCG@20``), who until then are left out of the sketch; three
        times the mean of ``popularity`` where that is hardly worse, or there are fewer than 100 users. ``select_ridge``
        chooses it on users of yours.
    method : {"isvd", "rfd"}, default "isvd"
        Of the sketch: iterative SVD ranks best wherever we have looked; Robust Frequent Directions cannot lose a taste
        that comes late, and is about as good where l is large for the data.
    activity_power : float in [0, 1], default 0.5
        A row x counts with weight (x'x)^-activity_power: a user with many events weighs more than one with few, but
        not as much more as they have events. 0 is Steck's EASE.
    dropout : float in [0, 1), default 0.5
        Weights are those which would do best if each event of a row were forgotten with this probability while they are
        learned: dropout / (1 - dropout) times the diagonal of X'X is added to it (Steck 2020). 0 is EASE as it was.
    decay : float in (0, 1], default 1.0
        Every new row multiplies the weight of all earlier rows by this. See also ``fade``.
    reservoir_size : int, default 500
        Most users that are kept for the choice of the ridge, a uniform sample of those with two items or more; at most
        a fifth of all users is left out for it. None are kept where `ridge` is given.
    dtype : float32 or float64, optional
        Of the sketch and of scores: float32 if not given.
    seed : int, default 0
        Of the users in the reservoir, and of the items that are hidden from each.

    Attributes
    ----------
    n_rows, n_features : int
        Users seen, those without events too, and items; n_features is None before the first batch.
    item_ids : IdMap or None
        What the items are called, if the model was given ids: then questions and answers are about these.
    notes : dict
        Anything that json can write; saved with the state.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range; the message names it.

    Notes
    -----
    An update costs what it costs in FrequentDirections(l, method, solver="gram"). A read-out, at the first question
    after a change, takes one more item matrix (items x (l + 1)) and about 4 items l^2 flops for each ridge that is
    tried, five or so; what is lost differs from item to item, so that of the inverse nothing but these sums over items
    is common to two ridges. A user's scores take 2 l (events + items) flops.

    Models of different users merge. Which users the reservoir holds depends on `seed`, on each user's place in its
    stream and on its items: neither on batches nor on the order of merges. Answers do by the rounding of the sketch
    alone, as far as l rows hold what was seen.

    References
    ----------
    Steck, *Embarrassingly Shallow Autoencoders for Sparse Data*, WWW 2019, and *Autoencoders that don't overfit towards
    the Identity*, NeurIPS 2020; Ghashami et al. 2016 and Luo et al. 2019 for the sketches.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rng = np.random.default_rng(0)
    >>> taste = rng.random((300, 2)) < 0.5  # two tastes, each with ten items of its own
    >>> rows = np.repeat(taste, 10, axis=1) & (rng.random((300, 20)) < 0.4)
    >>> model = fs.SketchedEASE(8).update(rows)
    >>> items, scores = model.recommend(rows[[0]], 5)
    >>> bool(taste[0, items // 10].all())
    True
    """

    sketch_size: int = integer(default=256, at_least=2, kw_only=False)
    ridge: float | None = real(default=None, low_open=True)
    method: Literal["isvd", "rfd"] = choice(("isvd", "rfd"), default="isvd")
    activity_power: float = real(default=0.5, high=1.0)
    dropout: float = real(default=0.5, high=1.0, high_open=True)
    decay: float = real(default=1.0, high=1.0, low_open=True)
    reservoir_size: int = integer(default=500)
    dtype: DTypeLike | None = float_dtype(default=None)
    seed: int = seed(default=0)

    def _begin(self) -> None:
        self._sketch = self._empty_sketch()
        self._n = 0
        self._squares: NDArray[np.float64] | None = None  # of the columns, as ``column_squares`` adds them up
        self._held: HeldOut | None = None
        self._selected: float | None = None
        self._last: Read | None = None
        self._ids: IdMap | None = None

    def _empty_sketch(self) -> FrequentDirections:
        return FrequentDirections(
            self.sketch_size, method=self.method, solver="gram", decay=self.decay, dtype=self._dtype
        )

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32 if self.dtype is None else self.dtype)

    # -- taking rows in --------------------------------------------------------------------------------------------
    @changes
    def update(
        self,
        rows: Batch | Table,
        sample_weight: ArrayLike | None = None,
        *,
        columns: ColumnNames | None = None,
        item_ids: Any = None,
    ) -> Self:
        """Add the rows of some users.

        Parameters
        ----------
        rows : scipy.sparse (k, items), array_like (k, items) or (items,), source, or a table by ids
            Real, finite and not negative: 0, or between 1e-30 and 1e30 (1e-140 and 1e140 in float64). Entries that are
            stored twice are added up, zeros are no events. A row without events counts in ``n_rows`` and, with decay,
            ages what came before: nothing else.

            A table is ``fastsketch.features.Triples`` of users, items and perhaps values, by ids of any type; or
            {user: [items]}; or, where `columns` says so, a data frame or the path of a file. Its users, in the order in
            which they appear, are rows: all events of a user must come in one table, for who comes again in another
            update is another row. Its items that are new to the model become columns at the end.
        sample_weight : array_like (k,) or float, optional
            Finite, >= 0: a factor on the weight that `activity_power` gives each row.
        columns : (user, item) or (user, item, value), optional
            `rows` are a data frame or a file, and these are the names, or numbers from 0, of its columns. Without them
            a data frame is a matrix, and refused if it has three columns or fewer, or names such as "user" and "item".
        item_ids : vector of ids (items,), optional
            What the columns of a matrix are called: integers or strings, see ``fastsketch.features.IdMap``. The first
            batch has them or none has; later ones may leave them out.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For anything that is no matrix of such numbers, naming the row and column, or of another width than the
            rows before. The model is then as it was before the call.
        """
        table = as_triples(rows, columns, "rows")
        if table is None:
            given = item_ids if item_ids is None else ids_of_matrix(rows, item_ids, self._ids, self.n_features)
            self._take_rows(rows, sample_weight)
            self._ids = self._ids if given is None else given
            return self
        batch = batch_of(table, self._ids, self.n_features, self._dtype, item_ids=item_ids)
        if batch is not None:
            self._learn(batch.events, batch.ids, sample_weight)
        return self

    def _update(self, rows: Any, sample_weight: Any) -> None:
        self._learn(as_events(rows, self.n_features, self._dtype), self._ids, sample_weight)

    def _learn(self, events: Any, ids: IdMap | None, sample_weight: Any) -> None:
        """Rows in the items of these ids, which are those of the model, and perhaps more."""
        k, n_items = events.shape
        sketch, known, held = self._of_width(n_items)
        weights = self._row_weights(events, as_weights(sample_weight, k))
        squares = column_squares(events, weights, self.decay, first=self._n, before=known)
        held = held_out.nobody(n_items, self._dtype) if held is None else held
        size = self.reservoir_size if self.ridge is None else 0
        taken = held_out.take(held, events, weights, size=size, first=self._n, seed=self.seed, decay=self.decay)
        n, before, given = self._n + k, sketch.n_rows, taken.rows.shape[0]
        try:
            if given:
                sketch.update(taken.rows, taken.weight)
        finally:
            if sketch.n_rows == before + given:  # else it has refused them, or was interrupted
                self._n, self._squares, self._held, self._last = n, squares, taken.held, None
                self._sketch, self._ids = sketch, ids
                self._drop_names(n_items)

    def _drop_names(self, n_items: int) -> None:
        """Items that have come by their ids have no names, and then none has."""
        if self._feature_names is not None and len(self._feature_names) != n_items:
            self._feature_names = None

    def _of_width(self, n_items: int) -> tuple[FrequentDirections, NDArray[np.float64] | None, HeldOut | None]:
        """(sketch, squares, users held out) for as many items: copies if there are more than before."""
        squares, held = self._squares, self._held
        if squares is None or held is None or n_items == len(squares):
            return self._sketch, squares, held
        same = np.arange(len(squares))
        sketch = with_columns(self._sketch, same, n_items)
        return sketch, widened(squares, same, n_items), held_with_items(held, same, n_items)

    def _row_weights(self, events: Any, given: NDArray[np.float64] | None) -> NDArray[np.float64]:
        squares = row_squares(events)
        # w = (x'x)^-p
        weights = np.where(squares > 0, squares, 1.0) ** -self.activity_power
        if given is None:
            return weights
        with np.errstate(over="ignore"):
            weights *= given
            heavy, most = weights * squares, MOST[self._dtype.itemsize] ** 2
        wrong = ~((heavy == 0) & ((given == 0) | (squares == 0)) | (heavy >= 1 / most) & (heavy <= most))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(f"sample_weight leaves the range of {self._dtype}: row {row} has {given[row]:g}")
        return weights

    @changes
    def fade(self, factor: float) -> Self:
        """Multiply the weight of everything seen so far by a factor in (0, 1]: decay per batch, or per day.

        Parameters
        ----------
        factor : float

        Examples
        --------
        >>> import fastsketch as fs
        >>> drinks = [["tea", "coffee"], ["tea", "milk"], ["coffee", "milk"]]
        >>> tools = [["saw", "drill"], ["saw", "nails"], ["drill", "nails"]]
        >>> model = fs.SketchedEASE(4).update({user: (drinks + tools)[user % 6] for user in range(60)})
        >>> before = model.popularity
        >>> bool((model.fade(0.5).popularity == before / 2).all())
        True
        """
        factor = as_real(factor, "factor", 0.0, 1.0, low_open=True)
        if self._squares is None or self._held is None:
            return self
        squares, held, engine = self._squares * factor, self._held.faded(factor), self._sketch._engine
        try:
            self._sketch.fade(factor)
        finally:
            if engine is None or self._sketch._engine is not engine:
                self._squares, self._held, self._last = squares, held, None
        return self

    def _in_order(self) -> str | None:
        return self._sketch._in_order()

    def _state_bytes(self, n_features: int) -> int:
        return self._sketch._state_bytes(n_features)

    def _joins_columns(self, other: Self) -> bool:
        return self._ids is not None and other._ids is not None

    def _merge(self, other: Self) -> None:
        if (self._ids is None) != (other._ids is None):
            raise ValueError("only one of the two models has ids of items: they cannot be merged")
        ids, mine, theirs = self._ids, self, other
        if ids is not None and other._ids is not None and ids != other._ids:
            ids, places = ids.extended(other._ids, "items")
            mine, theirs = self._placed(np.arange(len(self._ids or ())), len(ids)), other._placed(places, len(ids))
        n = self._n + other._n
        squares = (mine._known_squares() + theirs._known_squares()) / decayed(self.decay, n)
        held, rest = held_out.joined(mine._known_held(), theirs._known_held(), self.reservoir_size, came=n - 1)
        sketch = mine._sketch.copy().merge(theirs._sketch)
        self._eat(sketch, rest)
        selected = self._selected if self._selected == other._selected else None
        self._sketch, self._n, self._squares, self._held = sketch, n, squares, held
        self._selected, self._last, self._ids = selected, None, ids
        self._drop_names(len(squares))

    def _placed(self, places: NDArray[np.int64], width: int) -> Self:
        """A model of the same rows with its items at other places; its own ids are not those of them."""
        out = type(self)(**self.parameters)
        out._n, out._sketch = self._n, with_columns(self._sketch, places, width)
        out._squares = None if self._squares is None else widened(self._squares, places, width)
        out._held = held_with_items(self._known_held(), places, width)
        return out

    def _eat(self, sketch: FrequentDirections, users: HeldOut) -> None:
        """Give a sketch users of the past, at the weights that they have now."""
        if self.decay == 1.0:
            if len(users):
                sketch.update(users.rows, users.weight)
            return
        # a sketch of its own, whose decay their weights undo: a merge ages nothing
        step = undone(self.decay)
        for start in range(0, len(users), step):
            part = users.part(start, start + step)
            powers = self.decay ** -np.arange(len(part) - 1.0, -1.0, -1.0)
            sketch.merge(self._empty_sketch().update(part.rows, part.weight * powers))

    # -- the read-out ----------------------------------------------------------------------------------------------
    def _known_squares(self) -> NDArray[np.float64]:
        if self._squares is None:
            raise ValueError("the model has seen no rows: call update first")
        return self._squares * decayed(self.decay, self._n)

    def _known_held(self) -> HeldOut:
        self._known_squares()
        assert self._held is not None
        return self._held.aged(self.decay, self._n)

    def _last_read(self) -> Read:
        if self._last is None:
            self._last = self._read_out()
        return self._last

    def _read_out(self) -> Read:
        ridge, path = self.ridge if self._selected is None else self._selected, None
        if ridge is None:
            path = self._path()
            ridge = self._usual_ridge() if path is None else path.ridge
        return Read(item_weights(self._reading(0), ridge), ridge, path)

    def _usual_ridge(self) -> float:
        """Where a path begins; for what has no events, any."""
        known = self._known_squares()
        return FIRST * float(known[known > 0].mean()) if known.any() else 1.0

    def _path(self) -> RidgePath | None:
        """The ridge as users of the reservoir choose it, who are kept out; None if they are too few."""
        held = self._known_held()
        n = min(len(held), self._n // ONE_OF)
        if n < FEWEST:
            return None
        users = held.part(0, n)
        squares = self._known_squares() - column_squares(users.rows, users.weight)
        known = squares > 1e-9 * self._known_squares()
        if not known.any():
            return None
        reading = self._reading(n, np.where(known, squares, 0.0))
        trial = Trial(reading, *held_out.parted(users, HIDDEN), np.flatnonzero(known).astype(np.int32))
        return climb(trial, float(squares[known].mean()))

    def _reading(self, first: int, squares: NDArray[np.float64] | None = None) -> Reading:
        """Of all rows but the first users held out, and the squares of its columns."""
        sketch, users = self._sketch, self._known_held().part(first)
        squares = self._known_squares() if squares is None else squares
        if sketch._engine is None or (self.decay != 1.0 and len(users)):
            sketch = sketch.copy()
            self._eat(sketch, users)
            if sketch._engine is None:  # every row was empty
                sketch.update(held_out.nothing(len(squares), self._dtype))
            engine = sketch._seen_engine()
        else:
            engine = sketch._engine.clone()
            if len(users):
                engine.update(users.rows, users.weight)
        reading = read(engine, squares)
        # the mean of Y'Y over what is forgotten of Y = X / (1 - p) is X'X + p / (1 - p) diag X'X
        forgotten = self.dropout / (1.0 - self.dropout) / reading.unit * squares
        return reading._replace(lost=reading.lost + forgotten)

    @changes
    def select_ridge(self, rows: Rows | Table, ridges: ArrayLike | None = None) -> RidgePath:
        """Choose the ridge on users whose rows the model has not seen, in one pass over them.

        Of each user's items a fifth is hidden, as `seed` has it, and to be found from the others.

        Parameters
        ----------
        rows : as for ``update``
            Users with fewer than two items are left out.
        ridges : array_like, optional
            What to try; by default a geometric path in steps of sqrt(10), from thrice the mean of ``popularity`` in
            the direction of better ones until they are worse again.

        Returns
        -------
        RidgePath
            ``ridge``, the best one, which the model keeps from now on in place of its own choice; ``ridges``, their
            ``scores`` (mean ``NDCG@20``), ``standard_errors`` and ``n_users``.

        Raises
        ------
        TypeError, ValueError
            If the model has seen no rows, no user has two items, or a ridge is not positive.

        Examples
        --------
        >>> import fastsketch as fs
        >>> drinks = [["tea", "coffee"], ["tea", "milk"], ["coffee", "milk"]]
        >>> tools = [["saw", "drill"], ["saw", "nails"], ["drill", "nails"]]
        >>> model = fs.SketchedEASE(4).update({user: (drinks + tools)[user % 6] for user in range(60)})
        >>> others = {"a": ["tea", "coffee", "milk"], "b": ["saw", "drill", "nails"]}
        >>> path = model.select_ridge(others, ridges=[1.0, 10.0])
        >>> path.ridge == model.resolved["ridge"], path.n_users
        (True, 2)
        """
        squares = self._known_squares()
        events = events_of(rows, self._ids, len(squares), self._dtype)[0]
        values: Sequence[float] | None = None
        if ridges is not None:
            values = as_numbers(ridges, int(np.size(ridges)), "ridges").tolist()
            if not values or min(values) <= 0 or max(values) > MOST_RIDGE:
                raise ValueError(f"ridges must be positive numbers, at most {MOST_RIDGE:g}, got {values}")
        able = np.flatnonzero(np.diff(events.indptr) >= 2)
        if not able.size:
            raise ValueError("rows must hold users with two items at least: one is hidden, one is shown")
        users = HeldOut(events[able], np.ones(len(able)), held_out.keys_of(events, 0, self.seed)[able], able)
        open_items = np.flatnonzero(squares > 0).astype(np.int32)
        trial = Trial(self._reading(0), *held_out.parted(users, HIDDEN), open_items)
        path = climb(trial, self._usual_ridge() / FIRST) if values is None else along(trial, values)
        self._selected, self._last = path.ridge, None
        return path

    @property
    @reads
    def popularity(self) -> NDArray[np.float64]:
        """Sum of squares of every item's column, weighted and decayed, (items,) float64, in ``item_ids``' order.

        Examples
        --------
        >>> import fastsketch as fs
        >>> drinks = [["tea", "coffee"], ["tea", "milk"], ["coffee", "milk"]]
        >>> tools = [["saw", "drill"], ["saw", "nails"], ["drill", "nails"]]
        >>> model = fs.SketchedEASE(4).update({user: (drinks + tools)[user % 6] for user in range(60)})
        >>> bool((model.popularity > 0).all()), len(model.popularity) == len(model.item_ids)
        (True, True)
        """
        return self._known_squares().copy()

    @property
    def item_ids(self) -> IdMap | None:
        """What the items are called; None if the model was given no ids."""
        return self._ids

    # -- what it answers -------------------------------------------------------------------------------------------
    @reads
    def decision_block(self, rows: Rows | Table) -> NDArray[Any]:
        """Scores of all items for every row, (k, items) in the dtype of the model, in the order of ``item_ids``.

        That of an item that the row holds comes from its other items alone; an item without events has score 0.

        Parameters
        ----------
        rows : as for ``update``

        Examples
        --------
        >>> import fastsketch as fs
        >>> drinks = [["tea", "coffee"], ["tea", "milk"], ["coffee", "milk"]]
        >>> tools = [["saw", "drill"], ["saw", "nails"], ["drill", "nails"]]
        >>> model = fs.SketchedEASE(4).update({user: (drinks + tools)[user % 6] for user in range(60)})
        >>> scores = model.decision_block({"new": ["saw"]})
        >>> scores.shape, model.item_ids[int(scores.argmax())] in ("drill", "nails")
        ((1, 6), True)
        """
        weights = self._last_read().weights
        return weights.scores(events_of(rows, self._ids, weights.n_items, self._dtype)[0])

    @reads
    def recommend(
        self,
        rows: Rows | Table,
        n: int = 10,
        *,
        exclude_seen: bool = True,
        exclude: Rows | Table | None = None,
        allow: ArrayLike | None = None,
    ) -> Recommendations:
        """The n items of the highest score for every row, best first, of equal ones the first.

        Parameters
        ----------
        rows : as for ``update``
            Users, seen before or not. One without an event of a known item gets the most popular items, at score 0.
            Of a table, which a model with ids can read ({user: [items]} too), the users are in the order of its
            ``user_ids``, in which they appear, and items that the model does not know are left out.
        n : int
        exclude_seen : bool, default True
            Leave out the items that a row holds.
        exclude : scipy.sparse (k, items), or a table if `rows` are one, optional
            Items stored in a row are left out.
        allow : array_like of int, or of ids, optional
            The only items that may be recommended.

        Returns
        -------
        Recommendations
            ``items`` (k, n) int64 and ``scores`` (k, n) float64; -1 and NaN where fewer than n are left. An item
            without events is never recommended. Of a model with ids the items are these: int64 of integers, else
            objects, None where fewer are left.

        Raises
        ------
        TypeError, ValueError
            If rows or exclude do not fit, or the model has seen no rows.
        IndexError, of ids KeyError
            If `allow` names items that there are not: the message lists them.

        Examples
        --------
        >>> import fastsketch as fs
        >>> drinks = [["tea", "coffee"], ["tea", "milk"], ["coffee", "milk"]]
        >>> tools = [["saw", "drill"], ["saw", "nails"], ["drill", "nails"]]
        >>> model = fs.SketchedEASE(4).update({user: (drinks + tools)[user % 6] for user in range(60)})
        >>> model.recommend({"ann": ["saw", "drill"], "bob": ["tea", "milk"]}, 1).items.tolist()
        [['nails'], ['coffee']]
        """
        squares, ids = self._known_squares(), self._ids
        n, exclude_seen = as_integer(n, "n", 1), as_flag(exclude_seen, "exclude_seen")
        events, users = events_of(rows, ids, len(squares), self._dtype)
        exclude = left_out(exclude, users, ids)
        unwanted = None if exclude is None else _left_out(exclude, events.shape)
        allowed = None
        if allow is not None:
            chosen = np.unique(items_of(allow, ids, len(squares), "allow"))
            allowed = chosen[squares[chosen] > 0].astype(np.int32)
        found = recommend(
            self._last_read().weights,
            events,
            n,
            Limits(squares > 0, allowed, unwanted),
            popularity=squares,
            exclude_seen=exclude_seen,
        )
        return found._replace(items=named(found.items, ids))

    @reads
    def similar_items(self, items: ArrayLike, n: int = 10) -> Recommendations:
        """The n items in whose scores each of these has the highest weight, best first.

        Parameters
        ----------
        items : array_like of int, or of ids
        n : int

        Returns
        -------
        Recommendations
            ``items`` (k, n) int64 and ``scores`` (k, n) float64, what one event of the given item adds; -1 and NaN
            where fewer than n have events, and for an item that has none itself.

        Raises
        ------
        TypeError, ValueError, IndexError, of ids KeyError
            If there are no such items.

        Examples
        --------
        >>> import fastsketch as fs
        >>> drinks = [["tea", "coffee"], ["tea", "milk"], ["coffee", "milk"]]
        >>> tools = [["saw", "drill"], ["saw", "nails"], ["drill", "nails"]]
        >>> model = fs.SketchedEASE(4).update({user: (drinks + tools)[user % 6] for user in range(60)})
        >>> sorted(model.similar_items(["tea"], 2).items[0])
        ['coffee', 'milk']
        """
        squares, ids = self._known_squares(), self._ids
        n, chosen = as_integer(n, "n", 1), items_of(items, ids, len(squares), "items")
        found = similar(self._last_read().weights, chosen, n, squares > 0)
        return found._replace(items=named(found.items, ids))

    @reads
    def explain(self, row: Rows | Table, item: Any) -> Explanation:
        """What each item of a row contributes to the score of an item.

        Parameters
        ----------
        row : as for ``update``, one row
        item : int, or id

        Returns
        -------
        Explanation
            ``items`` (r,), int64 or ids, those of the row but `item` itself, and ``contributions`` (r,) float64,
            largest first: they add up to the item's score in ``decision_block``. Both are empty for a row without
            events.

        Raises
        ------
        TypeError, ValueError, IndexError, of ids KeyError
            If it is no single row, or there is no such item.

        Examples
        --------
        >>> import fastsketch as fs
        >>> drinks = [["tea", "coffee"], ["tea", "milk"], ["coffee", "milk"]]
        >>> tools = [["saw", "drill"], ["saw", "nails"], ["drill", "nails"]]
        >>> model = fs.SketchedEASE(4).update({user: (drinks + tools)[user % 6] for user in range(60)})
        >>> found = model.explain({"new": ["saw", "tea"]}, "drill")
        >>> list(found.items), bool(found.contributions[0] > found.contributions[1])
        (['saw', 'tea'], True)
        """
        n_items, ids = len(self._known_squares()), self._ids
        one = [as_integer(item, "item", -n_items) if ids is None else item]
        target = int(items_of(one, ids, n_items, "item")[0])
        events = events_of(row, ids, n_items, self._dtype, "row")[0]
        if events.shape[0] != 1:
            raise ValueError(f"row must be one row, got {events.shape[0]}")
        found = explained(self._last_read().weights, events, target)
        return found._replace(items=named(found.items, ids))

    # -- required by the frame -------------------------------------------------------------------------------------
    @property
    def n_rows(self) -> int:
        """Rows seen, empty ones too."""
        return self._n

    @property
    def n_features(self) -> int | None:
        """Items; None before the first batch."""
        return None if self._squares is None else len(self._squares)

    def _must_agree(self) -> dict[str, Any]:
        return {**super()._must_agree(), "dtype": self._dtype}

    def _resolved(self) -> dict[str, Any]:
        ridge = self.ridge if self._selected is None else self._selected
        ridge = ridge if self._last is None else self._last.ridge
        return {"dtype": self._dtype, "ridge": ridge}

    def _facts(self) -> dict[str, Any]:
        if self._squares is None:
            return {}
        found = self._last_read()
        out = {"ridge": found.ridge, "items_with_events": int(np.count_nonzero(self._squares))}
        return out if found.path is None else {**out, "ridge_path": found.path._asdict()}

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        if self._squares is None or self._held is None:
            return {"n_rows": 0}, {}
        about, arrays = self._sketch._state()
        of_sketch = {OF_SKETCH + name: array for name, array in arrays.items()}
        state = {"n_rows": self._n, "selected_ridge": self._selected, "sketch": about}
        arrays = {"squares": self._squares, **held_out.arrays_of(self._held), **of_sketch}
        if self._ids is None:
            return state, arrays
        return {**state, "ids": self._ids.kind}, {**arrays, **arrays_of(self._ids, ITEM_IDS)}

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        n = checks.as_count(state["n_rows"], "n_rows")
        if not arrays:
            checks.number_within(n, "n_rows", 0, 0)
            return
        rest = without_ids(self._with_ages(arrays, n), state)
        own = {name: array for name, array in rest.items() if not name.startswith(OF_SKETCH)}
        checks.only(own, "squares", *held_out.NAMES)
        d = arrays["squares"].size
        checks.number_within(d, "items", 1, checks.MOST_COLUMNS)
        checks.not_negative(rest, "squares", (d,))
        about = state["sketch"]["engine"]
        if about is not None and about["n_features"] != d:
            raise ValueError(f"its sketch has {about['n_features']} columns, its counts have {d}")
        if state["selected_ridge"] is not None:
            as_real(state["selected_ridge"], "selected_ridge", 0.0, MOST_RIDGE, low_open=True)
        size = self.reservoir_size if self.ridge is None else 0
        held_out.validate(own, d, size=size, n_rows=n, dtype=self._dtype)
        self._empty_sketch()._validate(state["sketch"], _of_sketch(rest))
        self._ids = ids_of_file(arrays, state["ids"], d) if "ids" in state else None

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        ids = self._ids  # those that have been validated
        self._begin()
        self._n = state["n_rows"]
        if arrays:
            arrays = self._with_ages(arrays, self._n)
            self._ids = own_ids(arrays, ITEM_IDS, state["ids"]) if "ids" in state and ids is None else ids
            self._squares, self._selected = arrays["squares"], state["selected_ridge"]
            self._held = held_out.from_arrays(arrays, len(arrays["squares"]))
            self._sketch._restore(state["sketch"], _of_sketch(arrays))

    def _with_ages(self, arrays: Arrays, n: int) -> Arrays:
        """Of older files, which have sums and weights as they are after n rows, the same as newer ones have them."""
        if "held_came" in arrays:
            return arrays
        with np.errstate(over="ignore"):
            squares = arrays["squares"] / decayed(self.decay, n)
        return {**arrays, "squares": squares, "held_came": np.full(len(arrays["held_key"]), n - 1)}

    def _keep_in_memory(self, other: Self) -> None:
        other._ids = self._ids


def _of_sketch(arrays: Arrays) -> Arrays:
    return {name.removeprefix(OF_SKETCH): array for name, array in arrays.items() if name.startswith(OF_SKETCH)}


def _left_out(exclude: Any, shape: tuple[int, int]) -> Any:
    if not is_sparse(exclude):
        raise TypeError(f"exclude must be a scipy.sparse matrix, got {type(exclude).__name__}")
    out = as_csr(exclude, "exclude")
    if out.shape != shape:
        raise ValueError(f"exclude must have the shape of rows, {shape}, got {out.shape}")
    return out
