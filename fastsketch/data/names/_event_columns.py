"""Choose the columns of users, items and values in a table of events, using the column names."""

import re
from collections.abc import Sequence
from typing import Any

# Usual names of the columns of users, items and values, in the singular and without an ending such as "_id".
USERS = (
    *("user", "customer", "visitor", "member", "session", "person", "client", "account", "uid", "row"),
    *("reviewer", "buyer", "listener", "viewer", "reader", "profile"),
)
ITEMS = (
    *("item", "movie", "film", "product", "article", "track", "song", "artist", "book", "page", "sku", "column"),
    *("art", "game", "recipe", "course", "asin", "isbn", "business", "restaurant", "venue", "anime", "title"),
)
VALUES = (
    *("rating", "score", "star", "value", "count", "play", "playcount", "weight", "strength", "quantity", "qty"),
    *("amount", "listen", "frequency", "freq", "vote", "overall"),
)
TIME_NAMES = {"time", "timestamp", "date", "datetime", "ts", "unixtime", "unix_time", "datum", "zeit", "zeitstempel"}
COLUMNS_NEEDED = (
    "columns must say which are users, items and values: there are {} (of a matrix fs.open_rows reads the rows)"
)


def choose_event_columns(
    names: Sequence[Any] | None, times: Sequence[str | None], words: Sequence[bool] | None = None
) -> list[int]:
    """Return the positions of the columns that hold users, items and, if the table has one, values.

    Columns of times are not considered. Names decide if one of them denotes users and one denotes items. Otherwise, if
    two or three columns remain, they are taken in their order. Otherwise the only two columns that hold words are
    taken, and the column after them.

    Parameters
    ----------
    names : sequence, optional
        Of the columns.
    times : sequence of str or None
        For each column a description of its times for messages, None if it holds no times.
    words : sequence of bool, optional
        For each column whether it holds words rather than numbers.

    Raises
    ------
    ValueError
        If neither names nor content decide; the message lists the columns.
    """
    width, lower_names = len(times), [str(name).strip().lower() for name in names or ()]
    candidates = [k for k in range(width) if times[k] is None]
    user, item = (_find_named_column(lower_names, candidates, words) for words in (USERS, ITEMS))
    if user is not None and item is not None and user != item:
        value = _find_named_column(lower_names, candidates, VALUES)
        remaining = [k for k in candidates if k not in (user, item)]
        value = remaining[0] if value is None and width <= 3 and remaining else value
        return [user, item] if value is None or value in (user, item) else [user, item, value]
    if len(candidates) in (2, 3):
        return candidates
    ids = [k for k in candidates if words is not None and words[k]]
    if len(ids) == 2:
        return [*ids, *[k for k in candidates if k > ids[1]][:1]]
    names_text = f"{width}" if names is None else f"{width}, {', '.join(map(repr, list(names)[:10]))}"
    raise ValueError(COLUMNS_NEEDED.format(names_text + (", ..." if len(lower_names) > 10 else "")))


def _find_named_column(lower_names: list[str], columns: list[int], words: Sequence[str]) -> int | None:
    """Return the position of the column whose name contains one of the words, such as "user", or None if there is no
    such column.

    That is the first column whose whole name is such a word, perhaps with an ending such as "_id", and otherwise the
    only one whose name begins with such a word. Several such columns give None.
    """
    pattern = re.compile(rf"(?:{'|'.join(words)})s?[\W_]*(?:id|name|key|code|no|nr|number)?")
    full_matches = [k for k in columns if k < len(lower_names) and pattern.fullmatch(lower_names[k])]
    prefix_matches = [k for k in columns if k < len(lower_names) and lower_names[k].startswith(tuple(words))]
    return full_matches[0] if full_matches else prefix_matches[0] if len(prefix_matches) == 1 else None


def describe_columns(columns: Sequence[int], names: Sequence[Any] | None) -> str:
    """Describe the chosen columns of users, items and values for a message."""
    kinds = ("users", "items", "values")
    phrases = [
        f"{kind} are column {k + 1}" + ("" if names is None else f" ({names[k]!r})")
        for kind, k in zip(kinds, columns, strict=False)
    ]
    return ", ".join(phrases) + ("" if len(columns) > 2 else "; there are no values")
