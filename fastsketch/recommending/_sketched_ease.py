"""The recommender EASE, learned in one pass from a sketch of users' rows."""

# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastsketch._core.bottom_k import CV_FOLDS
from fastsketch._core.threads import one_blas_thread
from fastsketch._core.validation import (
    MOST_SIZE,
    Rows,
    as_array,
    as_flag,
    as_integer,
    as_numbers,
    as_real,
    as_weights,
    rows_with_weight,
)
from fastsketch._core.warning import warn_caller
from fastsketch._frame.batches import Batch, FeatureNames, with_columns
from fastsketch._frame.model import Arrays
from fastsketch._frame.parameters import choice, float_dtype, integer, real, seed
from fastsketch._kernels.guard import changes, reads
from fastsketch.data.files import _checks as checks
from fastsketch.data.names._events import ColumnNames
from fastsketch.data.names._id_map import IdMap, array_names, id_arrays, no_ids, read_ids, trusted_ids
from fastsketch.data.names._triples import Table, as_triples, select_lines
from fastsketch.recommending._best_items import (
    Explanation,
    ItemFilter,
    Recommendations,
    explain_score,
    find_similar,
    recommend,
)
from fastsketch.recommending._item_events import (
    ITEM_IDS,
    LARGEST_ENTRY,
    as_events,
    check_item_ids,
    column_decay_factor,
    column_square_sums,
    columns_to_ids,
    convert_events,
    convert_exclusions,
    entry_squares,
    ids_to_columns,
    row_square_sums,
    table_to_csr,
)
from fastsketch.recommending._item_weights import (
    HIDDEN_SHARE,
    START_RIDGE,
    GramModel,
    ItemWeights,
    RidgePath,
    RidgeTrial,
    approximate_gram,
    evaluate_ridges,
    item_weights,
    search_ridge,
    split_items,
)
from fastsketch.recommending._neighbours import RetainedUsers, Walks, compute_walks
from fastsketch.ridge import _held_out as held_out
from fastsketch.ridge._held_learner import RESERVOIR_PREFIX, SKETCH_PREFIX, HeldOutLearner
from fastsketch.ridge._held_out import HeldOut
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._moved_columns import with_columns as with_moved_columns

# A ridge is chosen on at most a fifth of all users, and only if these are at least 20: 100 users in all.
MIN_HELD_OUT_USERS = 20
# The largest ridge.
RIDGE_LIMIT = 1e300
# Prefix of the names of arrays of the retained users in a file.
RETAINED_PREFIX = "kept"


class FittedItems(NamedTuple):
    """Result of fitting the item weights: weights, ridge penalty, how it was chosen, and weight of random walks."""

    weights: ItemWeights
    ridge: float
    path: RidgePath | None
    walk_weight: float


class SketchedEASE(HeldOutLearner):
    """Recommender EASE, the linear item model of Steck (2019), learned in one pass over users' rows.

    X (users x items) holds events: 1, counts, or positive strengths. The scores of a user x are x W, with
    W_ij = -P_ij / P_jj, W_jj = 0 and P = (X'X + ridge I)^-1. Here X'X is approximated by a sketch of at most l rows and
    a diagonal that restores the exact sums of squares of the columns (docs/choices/recommending.md). Memory is
    proportional to items x l. Users who were not seen before get recommendations from their first event on.

    Parameters
    ----------
    sketch_size : int, default 256
        Number of rows l of the sketch, at least 2. With more rows than items the model is exactly EASE. A UserWarning
        is issued once if the sketch is short for a dense catalogue, and recommends a size: that is, if its error bound
        exceeds what ridge and dropout add to the diagonal for the median item, and walks have no weight.
    ridge : float > 0, optional
        In squared units of the weighted rows. By default it is chosen when the weights are first needed, by the
        ``NDCG@20`` of hidden items of the users in the reservoir, who are excluded from the sketch until then. The
        ridges are a geometric path in steps of sqrt(10) around three times the mean of ``popularity``, within 1e-3 and
        1e6 times that mean, and the one with the best score is taken. With fewer than 100 users it is the start.
        ``select_ridge`` chooses the ridge on users of your own.
    method : {"isvd", "rfd"}, default "isvd"
        Method of the sketch. Iterative SVD ("isvd") ranked best on all data that we tried. Robust Frequent Directions
        ("rfd") is guaranteed not to lose tastes that appear late, and is about as good if l is large for the data.
    activity_power : float in [0, 1], default 0.5
        A row x has the weight (x'x)^-activity_power, which reduces the influence of users with many events. 0 is
        Steck's EASE.
    dropout : float in [0, 1), default 0.5
        Denoising (Steck 2020): the weights are those of EASE if each event of a row is dropped with this probability
        during learning. dropout / (1 - dropout) times the diagonal of X'X is added to X'X. 0 is EASE.
    decay : float in (0, 1], default 1.0
        Factor by which every new row multiplies the weight of all earlier rows. See also ``fade``.
    reservoir_size : int, default 500
        The largest number of users that are held out for the choice of the ridge: a uniform sample of the users with at
        least two items, and at most a fifth of all users. None are held out if `ridge` is given.
    kept_events : int, default 4_000_000
        Limit on the events of users whose rows are retained in addition to the sketch, 8 bytes each (temporarily twice
        as many): all users if they fit, else a uniform sample. Scores of random walks over these users (RP3beta, Paudel
        et al. 2017) are added to the scores of the sketch. Their weight is chosen on the reservoir among 0, 0.03, 0.1,
        ..., 10 (``facts()["walk_weight"]``): it is 0 where walks add nothing, and in sparse catalogues walks are most
        of the score. With 0, with a given `ridge` or a `reservoir_size` of 0 no rows are retained.
    popularity_power : float in [0, 1], default 0.2
        Scores of walks are divided by the popularity of their item to this power, the beta of RP3beta (Paudel et al.
        2017). 0 are plain random walks (P3), which recommend popular items more.
    dtype : float32 or float64, optional
        Data type of the sketch and of scores; default: float32.
    seed : int, default 0
        Seed of the reservoir sample, and of the choice of hidden items.

    Attributes
    ----------
    n_rows, n_features : int
        Number of users seen, including those without events, and of items. n_features is None before the first batch.
    item_ids : IdMap or None
        Ids of the items, if the model was given ids. Arguments and results are then ids instead of columns.
    notes : dict
        Metadata of your own, JSON values; saved with the state.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range; the message names it.

    Notes
    -----
    An update costs as much as in FrequentDirections(l, method, solver="gram"). The first query after an update computes
    the weights: this takes a second item matrix (items x (l + 1)) and about 4 items l^2 flops for each ridge that is
    tried, usually five. The scores of a user take 2 l (events + items) flops.

    Models of different users can be merged. The reservoir depends on `seed`, on the position of users in their stream
    and on their items, but not on batches or the order of merges. Recommendations depend on these only by rounding, if
    l rows suffice for an exact sketch.

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

    sketch_size: int = integer(default=256, at_least=2, below=MOST_SIZE, kw_only=False)
    ridge: float | None = real(default=None, low_open=True)
    method: Literal["isvd", "rfd"] = choice(("isvd", "rfd"), default="isvd")
    activity_power: float = real(default=0.5, high=1.0)
    dropout: float = real(default=0.5, high=1.0, high_open=True)
    decay: float = real(default=1.0, high=1.0, low_open=True)
    reservoir_size: int = integer(default=500)
    kept_events: int = integer(default=4_000_000)
    popularity_power: float = real(default=0.2, high=1.0)
    dtype: DTypeLike | None = float_dtype(default=None)
    seed: int = seed(default=0)

    LEARNED = (*HeldOutLearner.LEARNED, "_squares", "_retained_users", "_ids")

    def _begin(self) -> None:
        super()._begin()
        self._warned_sketch_short = False  # whether the user was warned that the sketch is short
        self._squares: NDArray[np.float64] | None = None  # of the columns, by ``column_square_sums``
        self._retained_users = RetainedUsers()
        self._selected: float | None = None
        self._ids: IdMap | None = None

    def _empty_sketch(self, n_features: int) -> FrequentDirections:
        return FrequentDirections(
            self.sketch_size, method=self.method, solver="gram", decay=self.decay, dtype=self._dtype
        )

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32 if self.dtype is None else self.dtype)

    @property
    def n_features(self) -> int | None:
        """Number of items; None before the first batch."""
        return None if self._squares is None else len(self._squares)

    def _column_names(self) -> FeatureNames | None:
        """Return the column names of the items. Without column names, return the ids as strings, or None."""
        return self._feature_names or (None if self._ids is None else tuple(map(str, self._ids)))

    @property
    def item_ids(self) -> IdMap | None:
        """Ids of the items; None if the model has learned from rows without ids."""
        return self._ids

    def _resolved(self) -> dict[str, Any]:
        ridge = self.ridge if self._selected is None else self._selected
        ridge = ridge if self._last is None else self._last.ridge
        return {"dtype": self._dtype, "ridge": ridge}

    # -- learning --------------------------------------------------------------------------------------------------
    @changes
    def update(
        self,
        rows: Batch | Table,
        sample_weight: ArrayLike | None = None,
        *,
        columns: ColumnNames | None = None,
        item_ids: Any = None,
    ) -> Self:
        """Update the model with the events of a batch of users, one row per user.

        Parameters
        ----------
        rows : scipy.sparse (k, items), array_like (k, items) or (items,), source, or a table by ids
            Events: real, finite and nonnegative; 0, or between 1e-30 and 1e30 (1e-140 and 1e140 in float64). Entries
            that are stored twice are added up, and zeros are not events. A row without events is counted in
            ``n_rows`` and, with decay, ages earlier rows; it has no other effect. Named columns (of a data frame or a
            source) are matched with the names or ids of the items in any order; missing and unknown names are refused.

            A table is ``fastsketch.data.Triples`` of users, items and optional values, by ids of any type, or
            {user: [items]}, or, with `columns`, a data frame or the path of a file. Each user is a row, in the order of
            first appearance. All events of a user must be in one table: a user who appears in another update is
            another row. New items are appended as columns. Values of a pair are added up; without values a pair counts
            1, however often it occurs.
        sample_weight : array_like (k,) or float, optional
            Finite and nonnegative: a factor on the weight that `activity_power` gives each row. A row of weight 0 is
            checked and then ignored: the user is not counted, not drawn for the reservoir and does not age others, and
            items of a table that only such users have get no column. Otherwise the reservoir does not depend on
            weights.
        columns : (user, item) or (user, item, value), optional
            Which columns of a data frame or file hold users, items and values: names, or positions from 0. Without them
            a data frame is a matrix, and is refused if it has at most three columns, or names such as "user" and
            "item"; a file must then have two or three columns.
        item_ids : vector of ids (items,), optional
            Ids of the columns of a matrix: integers or strings, see ``fastsketch.data.IdMap``. They must be given with
            the first batch or never; later batches may omit them.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If rows are not such numbers (the message names row and column), or have another width than earlier rows.
            The model is then unchanged.
        """
        table = as_triples(rows, columns, "rows")
        if table is None:
            if item_ids is None:
                new_ids, rows = None, with_columns(rows, self._column_order(rows))
            else:
                new_ids = check_item_ids(rows, item_ids, self._ids, self.n_features)
            self._take_rows(rows, sample_weight)
            self._ids = self._ids if new_ids is None else new_ids
            return self
        if item_ids is not None:
            raise ValueError("item_ids is for matrices: rows are a table, which has ids")
        if self.n_features is not None and self._ids is None:
            raise ValueError(
                "rows are a table, and the model has seen a matrix without ids: begin with item_ids, or with a table"
            )
        if sample_weight is not None:
            weights = as_weights(sample_weight, len(table.user_ids))
            assert weights is not None
            if not weights.all():
                n_items, has_weight = len(table.item_ids), weights > 0
                table_to_csr(table, np.arange(n_items), n_items, self._dtype)  # validates the ignored users, too
                table, sample_weight = select_lines(table, has_weight[table.users], has_weight), weights[has_weight]
        if len(table):
            ids, item_columns = (self._ids or no_ids()).extended(table.item_ids, "items")
            self._learn(table_to_csr(table, item_columns, len(ids), self._dtype), ids, sample_weight)
        return self

    def _update(self, rows: Any, sample_weight: Any) -> None:
        self._learn(as_events(rows, self.n_features, self._dtype), self._ids, sample_weight)

    def _learn(self, events: Any, ids: IdMap | None, sample_weight: Any) -> None:
        """Learn validated CSR rows: update the sums of squares, the reservoir, the retained users and the sketch, all
        or none.

        New items, in additional columns at the end, enlarge the model. `ids` are the ids of all columns. A failure
        leaves the model unchanged.
        """
        k, n_items = events.shape
        width = self.n_features or n_items
        widened = self if n_items == width else self._with_moved_items(np.arange(width), n_items)
        squared_entries = entry_squares(events)
        sketch, weights = (
            widened._sketch,
            self._row_weights(row_square_sums(events, squared_entries), as_weights(sample_weight, k)),
        )
        if not weights.all():
            events, weights = rows_with_weight(events, weights, checked=True)
            k, squared_entries = events.shape[0], entry_squares(events)
        squares = column_square_sums(
            events, weights, self.decay, first_row=self._n, previous_sums=widened._squares, squares=squared_entries
        )
        reservoir = held_out.empty_reservoir(n_items, self._dtype) if widened._held is None else widened._held
        size = self.reservoir_size if self.ridge is None else 0
        reservoir, users = held_out.update_reservoir(
            reservoir, events, weights, size=size, first=self._n, seed=self.seed, decay=self.decay
        )
        names = self._feature_names if self._has_names(n_items) else None
        new_state = {"_n": self._n + k, "_squares": squares, "_held": reservoir, "_sketch": sketch, "_ids": ids}
        new_state |= {
            "_retained_users": widened._retained_users.add_users(users, self._max_retained_events),
            "_feature_names": names,
        }
        self._commit_update(new_state, users.rows, users.weight)

    @property
    def _max_retained_events(self) -> int:
        """Largest number of events of users that are retained for random walks. It is 0 if this model does not use
        walks.
        """
        return self.kept_events if self.ridge is None and self.reservoir_size else 0

    def _has_names(self, n_items: int) -> bool:
        """Return True if every item has a column name. Items that were added by a table have none."""
        return self._feature_names is not None and len(self._feature_names) == n_items

    def _row_weights(
        self, squares: NDArray[np.float64], sample_weight: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        """Return the weight of every row (k,) in the model: (x'x)^-activity_power times its sample weight.
        `squares` (k,) are the x'x.

        ValueError if the dtype of the sketch cannot represent a weighted row.
        """
        weights = np.where(squares > 0, squares, 1.0) ** -self.activity_power
        if sample_weight is None:
            return weights
        with np.errstate(over="ignore"):
            weights *= sample_weight
            weighted_squares, largest_allowed = weights * squares, LARGEST_ENTRY[self._dtype.itemsize] ** 2
        out_of_range = ~(
            (weighted_squares == 0) & ((sample_weight == 0) | (squares == 0))
            | (weighted_squares >= 1 / largest_allowed) & (weighted_squares <= largest_allowed)
        )
        if out_of_range.any():
            row = int(np.argmax(out_of_range))
            raise ValueError(f"sample_weight leaves the range of {self._dtype}: row {row} has {sample_weight[row]:g}")
        return weights

    def _faded_attributes(self, factor: float) -> dict[str, Any]:
        """Return {name: new value} of the attributes that change if ``fade`` multiplies earlier weights by `factor`."""
        assert self._squares is not None
        return {
            "_squares": self._squares * factor,
            "_retained_users": self._retained_users.map_groups(lambda users: users.faded(factor)),
        }

    # -- merging ---------------------------------------------------------------------------------------------------
    def _must_agree(self) -> dict[str, Any]:
        return {**super()._must_agree(), "dtype": self._dtype}

    def _joins_columns(self, other: Self) -> bool:
        return self._ids is not None and other._ids is not None

    def _merge(self, other: Self) -> None:
        if (self._ids is None) != (other._ids is None):
            raise ValueError("only one of the two models has ids of items: they cannot be merged")
        ids, mine, theirs = self._ids, self, other
        if ids is not None and other._ids is not None and ids != other._ids:
            ids, item_columns = ids.extended(other._ids, "items")
            mine, theirs = (
                self._with_moved_items(np.arange(self.n_features or 0), len(ids)),
                other._with_moved_items(item_columns, len(ids)),
            )
        merged_state, sketch_rows = mine._merged_attributes(theirs)
        self._learn_held_out_rows(merged_state["_sketch"], sketch_rows)
        n = merged_state["_n"]
        retained = RetainedUsers(limit=min(self._retained_users.limit, other._retained_users.limit))
        for users in (
            *mine._decayed_retained_users(arrival=n - 1),
            *theirs._decayed_retained_users(arrival=n - 1),
            sketch_rows,
        ):
            retained = retained.add_users(users, self._max_retained_events)
        squares = (mine._decayed_square_sums() + theirs._decayed_square_sums()) / column_decay_factor(self.decay, n)
        selected = self._selected if self._selected == other._selected else None
        names = self._feature_names if self._has_names(len(squares)) else None
        vars(self).update(
            merged_state, _squares=squares, _retained_users=retained, _selected=selected, _ids=ids, _feature_names=names
        )

    def _with_moved_items(self, item_columns: NDArray[np.int64], width: int) -> Self:
        """Return a copy of the model for a catalogue with more items: item i moves to column item_columns[i] of `width`
        columns.

        The copy has `width` columns and no ids.
        """
        moved = type(self)(**self.parameters)
        moved._n, moved._sketch = self._n, with_moved_columns(self._sketch, item_columns, width)
        if self._squares is not None and self._held is not None:
            moved._squares, moved._held = np.zeros(width), self._held.renumber_items(item_columns, width)
            moved._squares[item_columns] = self._squares
            moved._retained_users = self._retained_users.map_groups(
                lambda users: users.renumber_items(item_columns, width)
            )
        return moved

    # -- item weights ----------------------------------------------------------------------------------------------
    def _decayed_square_sums(self) -> NDArray[np.float64]:
        """Return the sum of squares of each column (items,), decayed to the present. ValueError before the first
        rows.
        """
        if self._squares is None:
            raise ValueError("the model has seen no rows: call update first")
        return self._squares * column_decay_factor(self.decay, self._n)

    def _decayed_retained_users(self, *, arrival: int | None = None) -> tuple[HeldOut, ...]:
        """Return the users that are retained for random walks, as a tuple of reservoirs with weights decayed to now.

        `arrival` replaces their row numbers, if the rows continue in another stream.
        """
        retained = self._retained_users.truncate(self._max_retained_events)
        return retained.map_groups(lambda users: users.apply_decay(self.decay, self._n, row_number=arrival)).groups

    def _fitted(self) -> FittedItems:
        """Return the fitted item weights, from which recommendations are computed. They are cached until the next
        update.
        """
        if self._last is None:
            self._last = self._read_out(self._decayed_square_sums(), self._decayed_reservoir())
            self._warn_if_short(self._last)
        return self._last

    def _warn_if_short(self, fitted: FittedItems) -> None:
        """Warn, once for a model, if the sketch is too small for its items, and recommend a larger size.

        All weights come from (X'X + D)^-1, which an error of at most E in X'X changes by a factor of at most 1 + E / D.
        The bound decreases at least as 1 / l, which gives the recommended size. There is no warning if walks have a
        weight: they contain what the sketch has lost.
        """
        squares, bound = self._decayed_square_sums(), self._sketch._certificate().get("error_bound", 0.0)
        if self._warned_sketch_short or fitted.walk_weight or not squares.any():
            return
        of_dropout = self.dropout / (1.0 - self.dropout) * squares[squares > 0]
        added = float(np.median(of_dropout)) + fitted.ridge
        if bound <= added:
            return
        self._warned_sketch_short = True
        size = min(len(squares) + 1, int(np.ceil(self.sketch_size * bound / added)))
        warn_caller(
            f"sketch_size={self.sketch_size} is short for these {len(squares):,} items: an eigenvalue of X'X may have "
            f"lost {bound:.3g}, more than the {added:.3g} that ridge and dropout add to the diagonal for the median "
            "item. Recommendations may be better with a larger sketch; the guarantee of sketch_size="
            f"{size} is below that"
        )

    @one_blas_thread
    def _read_out(self, squares: NDArray[np.float64], reservoir: HeldOut) -> FittedItems:
        """Choose the ridge penalty and the weight of walks, and return them with the item weights, as FittedItems.

        `squares` (items,) are the decayed sums of squares of the columns, and `reservoir` holds the held-out users.
        """
        retained = self._decayed_retained_users()
        ridge, path, weight = self._choose_ridge_and_walk_weight(squares, reservoir, retained)
        weights = item_weights(self._gram_model(squares, reservoir), ridge)
        if weight:
            walks = self._walks([*retained, reservoir])
            weights = weights._replace(walks=walks.scale(weight))
        return FittedItems(weights, ridge, path, weight)

    def _walks(self, groups: Sequence[HeldOut]) -> Walks:
        """Return the random walks over all users of the given groups, as a ``Walks`` with two transition matrices."""
        users = held_out.merge_reservoirs(groups)
        return compute_walks(users, activity_power=self.activity_power, popularity_power=self.popularity_power)

    def _choose_ridge_and_walk_weight(
        self, squares: NDArray[np.float64], reservoir: HeldOut, retained: Sequence[HeldOut]
    ) -> tuple[float, RidgePath | None, float]:
        """Return (ridge, path of tried ridges or None, walk weight) that rank hidden items of held-out users best.
        The measure is NDCG.

        The held-out users are excluded from the sums and the sketch meanwhile. A ridge that the caller has set is kept,
        and with too few held-out users the starting ridge and weight 0 are returned.

        Parameters
        ----------
        squares : ndarray (items,)
            Decayed sums of squares of the columns.
        reservoir : HeldOut
            Held-out users.
        retained : sequence of HeldOut
            Users that are retained for random walks.
        """
        ridge = self.ridge if self._selected is None else self._selected
        without = _starting_ridge(squares) if ridge is None else ridge, None, 0.0
        n = min(len(reservoir), self._n // CV_FOLDS)
        if n < MIN_HELD_OUT_USERS or (ridge is not None and not retained):
            return without
        trial_users = reservoir.take(slice(0, n))
        other_squares = squares - column_square_sums(trial_users.rows, trial_users.weight)
        has_other_events = other_squares > 1e-9 * squares
        if not has_other_events.any():
            return without
        remaining_users = reservoir.take(slice(n, None))
        gram = self._gram_model(np.where(has_other_events, other_squares, 0.0), remaining_users)
        trial = RidgeTrial(
            gram, *split_items(trial_users, HIDDEN_SHARE), np.flatnonzero(has_other_events).astype(np.int32)
        )
        path = None
        if ridge is None:
            path = search_ridge(trial, float(other_squares[has_other_events].mean()))
            ridge = path.ridge
        if not retained:
            return ridge, path, 0.0
        walks = self._walks([*retained, remaining_users])
        return ridge, path, trial.choose_walk_weight(ridge, walks)

    @one_blas_thread
    def _choose_ridge(self, users: HeldOut, ridges: Sequence[float] | None) -> RidgePath:
        """Return a RidgePath of ridge penalties, with the one that ranks hidden items of held-out users best (NDCG).

        Candidates are `ridges`, or the grid of ``search_ridge`` if they are None.
        """
        squares = self._decayed_square_sums()
        open_items = np.flatnonzero(squares > 0).astype(np.int32)
        trial = RidgeTrial(
            self._gram_model(squares, self._decayed_reservoir()), *split_items(users, HIDDEN_SHARE), open_items
        )
        return (
            search_ridge(trial, _starting_ridge(squares) / START_RIDGE)
            if ridges is None
            else evaluate_ridges(trial, ridges)
        )

    def _gram_model(self, squares: NDArray[np.float64], users: HeldOut) -> GramModel:
        """Return an approximation of X'X by a low-rank matrix plus a diagonal, as a GramModel.
        It is made from the sketch and the given held-out users; the model does not change.

        The diagonal of the approximation equals `squares` (items,), the exact sums of squares of the columns, plus the
        term of dropout.
        """
        sketch = self._sketch
        if sketch._engine is None or (self.decay != 1.0 and len(users)):
            sketch = sketch.copy()
            self._learn_held_out_rows(sketch, users)
            if sketch._engine is None:  # all rows were empty
                sketch.update(held_out.empty_csr(len(squares), self._dtype))
            engine = sketch._seen_engine()
        else:
            engine = sketch._engine.clone()
            if len(users):
                engine.update(users.rows, users.weight)
        gram = approximate_gram(engine, squares)
        # with dropout p, Y = X / (1 - p), E Y'Y = X'X + p / (1 - p) diag X'X
        dropout_diagonal = self.dropout / (1.0 - self.dropout) / gram.unit * squares
        return gram._replace(lost=gram.lost + dropout_diagonal)

    # -- files -----------------------------------------------------------------------------------------------------
    def _state(self) -> tuple[dict[str, Any], Arrays]:
        if self._squares is None or self._held is None:
            return {"n_rows": 0}, {}
        retained = self._retained_users.truncate(self._max_retained_events)
        users = retained.groups[0] if retained.groups else held_out.empty_reservoir(len(self._squares), self._dtype)
        sketch_header, reservoir_arrays, sketch_arrays = self._sketch_and_reservoir_state()
        state = {
            "n_rows": self._n,
            "selected_ridge": self._selected,
            "sketch": sketch_header,
            "kept_limit": retained.limit,
        }
        arrays = {
            "squares": self._squares,
            **reservoir_arrays,
            **held_out.state_arrays(users, RETAINED_PREFIX),
            **sketch_arrays,
        }
        if self._ids is None:
            return state, arrays
        return {**state, "ids": self._ids.kind}, {**arrays, **id_arrays(self._ids, ITEM_IDS)}

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        n = checks.as_count(state["n_rows"], "n_rows")
        if not arrays:
            checks.number_within(n, "n_rows", 0, 0)
            return
        of_ids = array_names(ITEM_IDS) if "ids" in state else ()
        model_arrays = {name: array for name, array in arrays.items() if name not in of_ids}
        non_sketch_arrays = {name: array for name, array in model_arrays.items() if not name.startswith(SKETCH_PREFIX)}
        checks.only(
            non_sketch_arrays,
            "squares",
            *held_out.state_names(RESERVOIR_PREFIX),
            *held_out.state_names(RETAINED_PREFIX),
        )
        d = arrays["squares"].size
        checks.number_within(d, "items", 1, checks.MOST_COLUMNS)
        checks.not_negative(model_arrays, "squares", (d,))
        if state["selected_ridge"] is not None:
            as_real(state["selected_ridge"], "selected_ridge", 0.0, RIDGE_LIMIT, low_open=True)
        size = self.reservoir_size if self.ridge is None else 0
        self._validate_sketch_and_reservoir(
            state, model_arrays, d, width=d, max_rows=size, min_entries=2, dtype=self._dtype
        )
        held_out.validate_state_arrays(
            non_sketch_arrays, RETAINED_PREFIX, d, max_rows=n, min_entries=1, n_rows=n, dtype=self._dtype
        )
        checks.number_within(
            len(non_sketch_arrays[f"{RETAINED_PREFIX}_data"]), "events kept", 0, self._max_retained_events
        )
        limit, key = (
            as_integer(state["kept_limit"], "kept_limit", 0, 2**64),
            non_sketch_arrays[f"{RETAINED_PREFIX}_key"],
        )
        if len(key) and int(key[-1]) >= limit:
            raise ValueError(f"the users kept have a key of {key[-1]}, not below the limit {limit}")
        self._ids = read_ids(arrays, ITEM_IDS, state["ids"]) if "ids" in state else None
        if self._ids is not None and len(self._ids) != d:
            raise ValueError(f"there are {len(self._ids)} ids of {d} items")

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        ids = self._ids  # those that have been validated
        self._begin()
        if arrays:
            self._ids = trusted_ids(arrays, ITEM_IDS, state["ids"]) if "ids" in state and ids is None else ids
            self._squares, self._selected = arrays["squares"], state["selected_ridge"]
            self._restore_sketch_and_reservoir(state, arrays, len(arrays["squares"]), width=len(arrays["squares"]))
            retained = held_out.reservoir_from_arrays(arrays, len(arrays["squares"]), RETAINED_PREFIX)
            self._retained_users = RetainedUsers((retained,) if len(retained) else (), state["kept_limit"])

    def _keep_in_memory(self, other: Self) -> None:
        other._ids, other._warned_sketch_short = self._ids, self._warned_sketch_short

    # -- answers ---------------------------------------------------------------------------------------------------
    @reads
    def decision_block(self, rows: Rows | Table) -> NDArray[Any]:
        """Compute the score of every item for every row.

        Scores (k, items) have the model's dtype and the order of ``item_ids``. The score of an item of the row comes
        from the other items of the row. An item without events has score 0.

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
        weights = self._fitted().weights
        return weights.scores(convert_events(rows, self._ids, weights.n_items, self._dtype, self._column_order)[0])

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
        """Recommend n items for each of k rows, and return (items, scores), both (k, n), highest score first.

        Of items with equal scores the first item is preferred.

        Parameters
        ----------
        rows : as for ``update``
            Users, seen before or not. A user without known items gets the most popular items, at score 0. A model with
            ids also accepts tables, such as {user: [items]}; results are then in the order of first appearance of the
            users, and unknown items are ignored.
        n : int
        exclude_seen : bool, default True
            Exclude the items of the row.
        exclude : scipy.sparse (k, items), or a table if `rows` is one, optional
            Items that must not be recommended to each user.
        allow : array_like of int, or of ids, optional
            The only items that may be recommended; all by default.

        Returns
        -------
        Recommendations
            ``items`` (k, n) int64 and ``scores`` (k, n) float64; -1 and NaN where fewer than n items are left. Items
            without events are never recommended. With a model with ids, items are ids: int64, or objects with None
            where fewer are left.

        Raises
        ------
        TypeError, ValueError
            If rows or exclude do not fit, or the model has seen no rows.
        IndexError, of ids KeyError
            If `allow` has unknown items; the message lists them.

        Examples
        --------
        >>> import fastsketch as fs
        >>> drinks = [["tea", "coffee"], ["tea", "milk"], ["coffee", "milk"]]
        >>> tools = [["saw", "drill"], ["saw", "nails"], ["drill", "nails"]]
        >>> model = fs.SketchedEASE(4).update({user: (drinks + tools)[user % 6] for user in range(60)})
        >>> model.recommend({"ann": ["saw", "drill"], "bob": ["tea", "milk"]}, 1).items.tolist()
        [['nails'], ['coffee']]
        """
        squares, ids = self._decayed_square_sums(), self._ids
        n, exclude_seen = as_integer(n, "n", 1, MOST_SIZE), as_flag(exclude_seen, "exclude_seen")
        events, users = convert_events(rows, ids, len(squares), self._dtype, self._column_order)
        exclusions = convert_exclusions(exclude, users, ids, events.shape)
        allowed = None
        if allow is not None:
            allowed_columns = np.unique(ids_to_columns(allow, ids, len(squares), "allow"))
            allowed = allowed_columns[squares[allowed_columns] > 0].astype(np.int32)
        best = recommend(
            self._fitted().weights,
            events,
            n,
            ItemFilter(squares > 0, allowed, exclusions),
            popularity=squares,
            exclude_seen=exclude_seen,
        )
        return best._replace(items=columns_to_ids(best.items, ids))

    @reads
    def similar_items(self, items: ArrayLike, n: int = 10) -> Recommendations:
        """Find the n items to whose scores each given item contributes most, best first.

        Parameters
        ----------
        items : array_like of int, or of ids
        n : int

        Returns
        -------
        Recommendations
            ``items`` (k, n) int64 and ``scores`` (k, n) float64: the contribution of one event of the given item. -1
            and NaN where fewer than n items have events, and for a given item without events.

        Raises
        ------
        TypeError, ValueError, IndexError, of ids KeyError
            If an item is unknown.

        Examples
        --------
        >>> import fastsketch as fs
        >>> drinks = [["tea", "coffee"], ["tea", "milk"], ["coffee", "milk"]]
        >>> tools = [["saw", "drill"], ["saw", "nails"], ["drill", "nails"]]
        >>> model = fs.SketchedEASE(4).update({user: (drinks + tools)[user % 6] for user in range(60)})
        >>> sorted(model.similar_items(["tea"], 2).items[0])
        ['coffee', 'milk']
        """
        squares, ids = self._decayed_square_sums(), self._ids
        n, query_items = as_integer(n, "n", 1, MOST_SIZE), ids_to_columns(items, ids, len(squares), "items")
        neighbours = find_similar(self._fitted().weights, query_items, n, squares > 0)
        return neighbours._replace(items=columns_to_ids(neighbours.items, ids))

    @reads
    def explain(self, row: Rows | Table, item: Any) -> Explanation:
        """Return how much each item of a row contributes to the score of another item.

        Parameters
        ----------
        row : as for ``update``, one row
        item : int, or id

        Returns
        -------
        Explanation
            ``items`` (r,), int64 or ids, of the row without `item` itself, and ``contributions`` (r,) float64, in
            descending order. Their sum is the score of the item in ``decision_block``. Both are empty for a row without
            events.

        Raises
        ------
        TypeError, ValueError, IndexError, of ids KeyError
            If `row` is not a single row, or the item is unknown.

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
        n_items, ids = len(self._decayed_square_sums()), self._ids
        item_list = [as_integer(item, "item", -n_items) if ids is None else item]
        target = int(ids_to_columns(item_list, ids, n_items, "item")[0])
        events = convert_events(row, ids, n_items, self._dtype, self._column_order, "row")[0]
        if events.shape[0] != 1:
            raise ValueError(f"row must be one row, got {events.shape[0]}")
        explanation = explain_score(self._fitted().weights, events, target)
        return explanation._replace(items=columns_to_ids(explanation.items, ids))

    # -- the ridge, and facts --------------------------------------------------------------------------------------
    @changes
    def select_ridge(self, rows: Rows | Table, ridges: ArrayLike | None = None) -> RidgePath:
        """Choose the ridge penalty on users that the model has not seen, and use it from now on.

        A random fifth of the items of each user is hidden, and the ridge is chosen by how well they are recommended
        from the other items.

        Parameters
        ----------
        rows : as for ``update``
            Users with fewer than two items are ignored.
        ridges : array_like, optional
            Ridges to try. Default: the path of the parameter `ridge`, searched from its start in the direction of
            better scores until they decrease.

        Returns
        -------
        RidgePath
            The chosen ``ridge``, all ``ridges``, their ``scores`` (mean ``NDCG@20``) and ``standard_errors``, and
            ``n_users``.

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
        squares = self._decayed_square_sums()
        events = convert_events(rows, self._ids, len(squares), self._dtype, self._column_order)[0]
        values: Sequence[float] | None = None
        if ridges is not None:
            values = as_numbers(ridges, as_array(ridges, "ridges").size, "ridges").tolist()
            if not values or min(values) <= 0 or max(values) > RIDGE_LIMIT:
                raise ValueError(f"ridges must be positive numbers, at most {RIDGE_LIMIT:g}, got {values}")
        splittable_users = np.flatnonzero(np.diff(events.indptr) >= 2)
        if not splittable_users.size:
            raise ValueError("rows must hold users with two items at least: one is hidden, one is shown")
        users = HeldOut(
            events[splittable_users],
            np.ones(len(splittable_users)),
            held_out.sampling_keys(events, 0, self.seed)[splittable_users],
            splittable_users,
        )
        path = self._choose_ridge(users, values)
        self._selected, self._last = path.ridge, None
        return path

    @property
    @reads
    def popularity(self) -> NDArray[np.float64]:
        """Popularity of each item: the weighted, decayed sum of its squared events.

        It is (items,) float64, in the order of ``item_ids``.

        Examples
        --------
        >>> import fastsketch as fs
        >>> drinks = [["tea", "coffee"], ["tea", "milk"], ["coffee", "milk"]]
        >>> tools = [["saw", "drill"], ["saw", "nails"], ["drill", "nails"]]
        >>> model = fs.SketchedEASE(4).update({user: (drinks + tools)[user % 6] for user in range(60)})
        >>> bool((model.popularity > 0).all()), len(model.popularity) == len(model.item_ids)
        (True, True)
        """
        return self._decayed_square_sums().copy()

    def _facts(self) -> dict[str, Any]:
        if self._squares is None:
            return {}
        fitted = self._fitted()
        out = {
            "ridge": fitted.ridge,
            "walk_weight": fitted.walk_weight,
            "items_with_events": int(np.count_nonzero(self._squares)),
        }
        return out if fitted.path is None else {**out, "ridge_path": fitted.path._asdict()}


def _starting_ridge(squares: NDArray[np.float64]) -> float:
    """Return the ridge penalty with which a search starts, in proportion to the mean sum of squares of a column. It is
    1 for a model without events.
    """
    return START_RIDGE * float(squares[squares > 0].mean()) if squares.any() else 1.0
