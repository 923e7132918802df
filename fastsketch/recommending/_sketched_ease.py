"""EASE from one pass: item weights out of a sketch of users' rows."""

# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import MOST_SIZE, Rows, as_array, as_flag, as_integer, as_numbers
from fastsketch._kernels.guard import changes, reads
from fastsketch.data.names._triples import Table
from fastsketch.recommending._best_items import Explanation, Limits, Recommendations, explained, recommend, similar
from fastsketch.recommending._item_events import events_of, items_of, left_out, named
from fastsketch.recommending._item_learning import MOST_RIDGE, ItemLearner
from fastsketch.recommending._item_weights import RidgePath
from fastsketch.ridge import _held_out as held_out
from fastsketch.ridge._held_out import HeldOut


class SketchedEASE(ItemLearner):
    """EASE, the linear item model of Steck (2019), from one pass over users' rows, in memory items x l.

    X (users x items) holds events: 1, counts, or any positive strength; what is not stored is unknown or not wanted. A
    user's scores are x W with W_ij = -P_ij / P_jj, W_jj = 0 and P = (X'X + ridge I)^-1. Here X'X is a sketch of at most
    l rows on which the sums of squares of all columns, known exactly, are put back (docs/choices/recommending.md). New
    users are recommended to as soon as they have an event.

    Parameters
    ----------
    sketch_size : int, default 256
        l >= 2, rows of the sketch. With more than there are items its answer is that of EASE itself. A UserWarning,
        once, says where it is short for a dense catalogue, and which size would do: where the certificate of the sketch
        allows that more was lost than ridge and dropout add to the diagonal of the median item, and walks add nothing.
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
    kept_events : int, default 4_000_000
        Most events of users whose rows are kept beside the sketch, 8 bytes each (for a while twice as many): all users
        if they fit, else a uniform sample. Scores of walks over them, from a user's items to those who had them and on
        to their items (RP3, Paudel et al. 2017), are added to those of the sketch with a weight that is chosen on the
        reservoir, 0 where they add nothing (``facts()["walk_weight"]``): in sparse catalogues they are most of the
        answer. 0 keeps none, nor does a given `ridge` or a `reservoir_size` of 0.
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

    # -- answers ---------------------------------------------------------------------------------------------------
    @reads
    def decision_block(self, rows: Rows | Table) -> NDArray[Any]:
        """Compute the scores (k, items) of all items for every row, in the model's dtype, in the order of ``item_ids``.

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
        weights = self._fitted().weights
        return weights.scores(events_of(rows, self._ids, weights.n_items, self._dtype, self._column_order)[0])

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
        """Recommend the n items of the highest score for every row, best first, of equal ones the first.

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
        n, exclude_seen = as_integer(n, "n", 1, MOST_SIZE), as_flag(exclude_seen, "exclude_seen")
        events, users = events_of(rows, ids, len(squares), self._dtype, self._column_order)
        unwanted = left_out(exclude, users, ids, events.shape)
        allowed = None
        if allow is not None:
            chosen = np.unique(items_of(allow, ids, len(squares), "allow"))
            allowed = chosen[squares[chosen] > 0].astype(np.int32)
        best = recommend(
            self._fitted().weights,
            events,
            n,
            Limits(squares > 0, allowed, unwanted),
            popularity=squares,
            exclude_seen=exclude_seen,
        )
        return best._replace(items=named(best.items, ids))

    @reads
    def similar_items(self, items: ArrayLike, n: int = 10) -> Recommendations:
        """List the n items in whose scores each of these has the highest weight, best first.

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
        n, chosen = as_integer(n, "n", 1, MOST_SIZE), items_of(items, ids, len(squares), "items")
        neighbours = similar(self._fitted().weights, chosen, n, squares > 0)
        return neighbours._replace(items=named(neighbours.items, ids))

    @reads
    def explain(self, row: Rows | Table, item: Any) -> Explanation:
        """Return what each item of a row contributes to the score of an item.

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
        events = events_of(row, ids, n_items, self._dtype, self._column_order, "row")[0]
        if events.shape[0] != 1:
            raise ValueError(f"row must be one row, got {events.shape[0]}")
        explanation = explained(self._fitted().weights, events, target)
        return explanation._replace(items=named(explanation.items, ids))

    # -- the ridge, and facts --------------------------------------------------------------------------------------
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
        events = events_of(rows, self._ids, len(squares), self._dtype, self._column_order)[0]
        values: Sequence[float] | None = None
        if ridges is not None:
            values = as_numbers(ridges, as_array(ridges, "ridges").size, "ridges").tolist()
            if not values or min(values) <= 0 or max(values) > MOST_RIDGE:
                raise ValueError(f"ridges must be positive numbers, at most {MOST_RIDGE:g}, got {values}")
        able = np.flatnonzero(np.diff(events.indptr) >= 2)
        if not able.size:
            raise ValueError("rows must hold users with two items at least: one is hidden, one is shown")
        users = HeldOut(events[able], np.ones(len(able)), held_out.keys_of(events, 0, self.seed)[able], able)
        path = self._tried_path(users, values)
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
