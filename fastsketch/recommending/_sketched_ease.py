"""The recommender EASE, learned in one pass from a sketch of users' rows."""

# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import MOST_SIZE, Rows, as_array, as_flag, as_integer, as_numbers
from fastsketch._kernels.guard import changes, reads
from fastsketch.data.names._triples import Table
from fastsketch.recommending._best_items import (
    Explanation,
    ItemFilter,
    Recommendations,
    explain_score,
    find_similar,
    recommend,
)
from fastsketch.recommending._item_events import columns_to_ids, convert_events, convert_exclusions, ids_to_columns
from fastsketch.recommending._item_learning import RIDGE_LIMIT, ItemLearner
from fastsketch.recommending._item_weights import RidgePath
from fastsketch.ridge import _held_out as held_out
from fastsketch.ridge._held_out import HeldOut


class SketchedEASE(ItemLearner):
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
