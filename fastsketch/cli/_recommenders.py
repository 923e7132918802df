"""What `recommend` asks, and `evaluate` measures: item models, models of ratings, lists of the most popular."""

import warnings
from argparse import Namespace
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fastsketch._frame.model import Model
from fastsketch.cli._flags import parameters_of
from fastsketch.cli._reading import load_model
from fastsketch.cli._user_events import Meaning, UserEvents, meaning_in, names_of
from fastsketch.data.names._id_map import ids_of_text, positions, taken
from fastsketch.lowrank import LowRankModel
from fastsketch.recommending import SketchedEASE
from fastsketch.recommending.ranking import top_items

MODELS = ("item", "ratings", "popularity")


class RecommendedItems(NamedTuple):
    """The best items of some users."""

    items: NDArray[np.int64]  # (users, n), -1 where there is none
    scores: NDArray[np.float64]  # (users, n), NaN there
    known: NDArray[np.bool_]  # (users,) whether they have told the model anything


class ItemModel:
    """Scores of items from the items that a user has: users need not be those that it has learned from."""

    fallback = "popular items"

    def __init__(self, model: SketchedEASE, items: list[str], meaning: Meaning) -> None:
        self.model, self.items, self.meaning = model, items, meaning
        self.users: list[str] | None = None  # it keeps none

    @classmethod
    def learned(cls, seen: Any, items: list[str], meaning: Meaning, parameters: dict[str, Any]) -> "ItemModel":
        """Return a model of rows of summed values, CSR (users, items)."""
        liked = meaning.liked(seen)
        if not liked.nnz:
            raise ValueError("no event counts: none has a value above 0, or of --relevant or more")
        model = SketchedEASE(**parameters)
        _check_size(liked, items, model)
        model.update(liked, item_ids=items)
        model.recommend(liked[:1], 1)  # reads the sketch, which is a part of learning
        return cls(model, items, meaning)

    def best(self, users: Sequence[str], seen: Any, n: int, exclude: Any, allow: Any) -> RecommendedItems:
        """Return the best items for users with these rows of summed values."""
        liked = self.meaning.liked(seen)
        _check_size(liked, self.items, self.model)
        allow = None if allow is None or self.model.item_ids is None else taken(self.model.item_ids, allow)
        best = self.model.recommend(liked, n, exclude_seen=False, exclude=exclude, allow=allow)
        items = positions(best.items, best.scores, self.model.item_ids)
        return RecommendedItems(items, best.scores, liked @ (self.model.popularity > 0) > 0)

    def noted(self) -> Model:
        """Return the model with notes of what its events mean, so that it can be used after it was saved."""
        self.model.notes = {"events": self.meaning._asdict()}
        return self.model


def _check_size(liked: Any, items: list[str], model: SketchedEASE) -> None:
    """Raise ValueError with the id of an item whose values leave the range of the model's numbers."""
    dtype = model.resolved["dtype"]
    huge = liked.data > np.finfo(dtype).max
    if huge.any():
        place = int(np.argmax(huge))
        raise ValueError(
            f"the values of a user for the item {items[liked.indices[place]]!r} add up to {liked.data[place]:g}, more "
            f"than {dtype} holds: --binary counts every event as 1"
        )


class Popular:
    """The items that most users have, the same for everybody but for what they have already."""

    fallback = "popular items"

    def __init__(self, seen: Any, items: list[str], meaning: Meaning) -> None:
        liked = meaning.liked(seen)
        self.counts = np.bincount(liked.indices, minlength=len(items)).astype(np.float64)
        self.items = items
        self.users: list[str] | None = None

    def best(self, users: Sequence[str], seen: Any, n: int, exclude: Any, allow: Any) -> RecommendedItems:
        """Return the best items for as many users as `exclude` has rows."""
        best = top_items(np.where(self.counts > 0, self.counts, -np.inf), n, exclude=exclude, allow=allow)
        known = np.ones(len(users), bool) if seen is None else np.diff(seen.indptr) > 0
        return RecommendedItems(best, np.where(best >= 0, self.counts[best], np.nan), known)

    def noted(self) -> Model:
        """Raise ValueError: there is no such model."""
        raise ValueError("-o saves a model: --model popularity has none, and the item model knows what is popular")


class Ratings:
    """The items of the highest predicted ratings."""

    fallback = "by biases"

    def __init__(self, model: LowRankModel, users: list[str], items: list[str], rank: int | None = None) -> None:
        self.model, self.users, self.items, self.rank = model, users, items, rank

    @classmethod
    def learned(cls, events: UserEvents, entries: Any, parameters: dict[str, Any]) -> "Ratings":
        """Return a model of entries (users, items), a rating each, of the users and items of a file."""
        if not events.valued:
            raise ValueError("a model of ratings needs a third column with their values")
        settings: dict[str, Any] = {"dtype": "float32", **parameters}
        settings["rank"] = min(LowRankModel(**settings).rank, *entries.shape)
        known = events.users if entries.shape[0] == len(events.users) else None  # else some of them are held out
        model = LowRankModel(**settings).fit(entries, row_ids=known, column_ids=events.items)
        return cls(model, events.users, events.items)

    def best(self, users: Sequence[str], seen: Any, n: int, exclude: Any, allow: Any) -> RecommendedItems:
        """Return the best items for users whose ratings are given, else for those that it knows."""
        rows, columns = self.model.row_ids, self.model.column_ids
        assert columns is not None
        allow = None if allow is None else taken(columns, allow)
        if seen is not None:
            new = self.model.fold_in(seen, rank=self.rank)
            ids, predictions = new.recommend(n, exclude=exclude, allow=allow)
            return RecommendedItems(positions(ids, predictions, columns), predictions, np.diff(seen.indptr) > 0)
        assert rows is not None
        asked = ids_of_text(rows, users)
        if len(asked) == len(self.users) and exclude is not None:
            # as many rows of `exclude` as the model has would be taken for the model's, and not for these users'
            asked, exclude = np.append(asked, asked[:1]), sparse.vstack([exclude, exclude[:1]], format="csr")
        ids, predictions = self.model.recommend(asked, n, exclude=exclude, allow=allow, rank=self.rank)
        k = len(users)
        places = positions(ids, predictions, columns)
        return RecommendedItems(places[:k], predictions[:k], rows.places(asked[:k]) >= 0)

    def noted(self) -> Model:
        """Return the model, as `complete` saves it."""
        return self.model


Recommender = ItemModel | Popular | Ratings


def learned(name: str, events: UserEvents, entries: Any, meaning: Meaning, args: Namespace) -> Recommender:
    """Return a recommender by its name, of entries (users, items) of a file: COO or CSR."""
    if name == "ratings":
        alone = args.verb == "recommend"  # else the item model is learned beside it, whose settings are its own
        settings = parameters_of(args, LowRankModel if alone else SketchedEASE)
        mine = {key: value for key, value in settings.items() if alone or key == "seed"}
        return Ratings.learned(events, entries, mine if args.rank is None else {**mine, "rank": args.rank})
    seen = entries.tocsr()
    if not events.valued and meaning.relevant is None:
        meaning = meaning._replace(binary=True)  # as tables without values in ``update``
    if name == "popularity":
        return Popular(seen, events.items, meaning)
    if name != "item":
        raise ValueError(f"models are {', '.join(MODELS)}: there is no {name!r}")
    return ItemModel.learned(seen, events.items, meaning, parameters_of(args, SketchedEASE))


def loaded(path: str, rank: int | None) -> Recommender:
    """Return the recommender in a state file."""
    does = "that does a model of 'complete' or of 'recommend EVENTS.csv -o MODEL.fsk', or of 'items'"
    model = load_model(path, LowRankModel | SketchedEASE, f", which recommends nothing: {does}")
    if isinstance(model, LowRankModel):
        names = names_of(model, path)
        return Ratings(model, names[0], names[1], rank)
    if rank is not None:
        raise ValueError(f"--rank is of models of ratings; {path} holds a {type(model).__name__}")
    (items,) = names_of(model, path)
    return ItemModel(model, items, meaning_in(model.notes, path))


def warn_of_ratings() -> None:
    """Warn that a model of ratings has been asked for a list."""
    warnings.warn(
        "a model of ratings says what a user would think of an item, not what they will choose: for lists of "
        "recommendations the item model is mostly far better ('fastsketch evaluate' measures both)",
        UserWarning,
        stacklevel=2,
    )
