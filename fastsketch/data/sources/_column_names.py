"""Check names of columns, compare those of several sources, and find columns by name or position."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._source import Source


def names_of_labels(labels: Iterable[Any], of: str) -> tuple[str, ...] | None:
    """Return the column labels of a data frame as strings, or None if they are the integers from 0 to n - 1 in order.

    pandas numbers columns without names so. Other labels that are no strings (ids of items, years, wavelengths) are
    converted. TypeError if only some are strings. ValueError for 0 to n - 1 in another order: the columns have been
    moved, and a model without names would match them by position.
    """
    labels = list(labels)
    strings = [isinstance(label, str) for label in labels]
    if any(strings) and not all(strings):
        odd = labels[strings.index(False)]
        raise TypeError(f"{of} must have names of columns that are all strings, or none: column {odd!r} has none")
    numbered = list(range(len(labels)))
    if labels == numbered:  # also for a frame without columns
        return None
    names = tuple(map(str, labels))
    if set(names) == set(map(str, numbered)):
        place = next(place for place, name in enumerate(names) if name != str(place))
        raise ValueError(
            f"{of} must have columns numbered 0 to {len(names) - 1} in order, or names: column {place} has the number "
            f"{names[place]}; sort them, as frame.sort_index(axis=1), or give them names that are words"
        )
    return names


def common_names(sources: Sequence[Source]) -> tuple[str, ...] | None:
    """Return the column names that several sources have in common; None if no source has names.

    Sources without names are ignored. Raise SourceError if the names of two sources differ.
    """
    named = [source for source in sources if source.feature_names is not None]
    for source in named[1:]:
        check_names(source.feature_names or (), named[0].feature_names or (), source.name, named[0].name)
    return named[0].feature_names if named else None


def check_names(names: Sequence[str], expected: Sequence[str], of: str, first: str) -> None:
    """Raise SourceError at the first column name that differs from the expected one."""
    for place, (name, other) in enumerate(zip(names, expected, strict=False)):
        if name != other:
            known = set(names)
            lacking = [name for name in expected if name not in known]
            twice = next((name for name, count in Counter(expected).items() if count > 1), None)
            advice = f"; it lacks {', '.join(map(repr, lacking[:5]))}{', ...' * (len(lacking) > 5)}" if lacking else ""
            if sorted(names) == sorted(expected):
                advice = " (the same columns in another order)"
                advice += f"; {twice!r} is there twice, so that names do not match columns" if twice else ""
            raise SourceError(f"{of}: column {place + 1} is {name!r}, in {first} it is {other!r}{advice}")
    if len(names) != len(expected):
        longer, at = (names, of) if len(names) > len(expected) else (expected, first)
        extra = longer[min(len(names), len(expected))]
        raise SourceError(f"{of} has {len(names)} columns, {first} has {len(expected)}: only {at} has {extra!r}")


def unique_names(cells: Sequence[str], of: str) -> tuple[str, ...]:
    """Return the names of a csv header, with each empty name replaced by its position.

    Positions count from 1; the name is "unnamed 1" instead of "1" if that is taken. Raise SourceError if two columns
    have the same name.

    SourceError if two columns have the same name.
    """
    known = set(cells)
    names = tuple(
        cell or (f"unnamed {place}" if str(place) in known else str(place)) for place, cell in enumerate(cells, 1)
    )
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise SourceError(f"{of}: two columns are called {twice!r}: rename one of them")
    return names


def positions(source: Source, columns: Sequence[str | int], argument: str = "columns") -> list[int]:
    """Return the positions of the given columns (names or positions) in a source, checked by ``positions_of``."""
    return positions_of(columns, source.feature_names, source.n_features, source.name, argument)


def positions_of(
    columns: Sequence[str | int], names: Sequence[Any] | None, n: int, of: str, argument: str = "columns"
) -> list[int]:
    """Convert column names or positions to positions in a table of n columns.

    names=None: the columns have no names. ValueError, which begins with the name of the argument, for a column that
    does not exist or occurs twice.
    """
    place, out = {name: k for k, name in enumerate(names or ())}, list[int]()
    for column in columns:
        if not isinstance(column, str) and column >= n and str(column) in place:
            column = str(column)  # a name such as a year
        if not isinstance(column, str) and column not in place:  # a data frame may have integer column labels
            if not -n <= column < n:
                raise ValueError(f"{argument}: {of} has {n} columns, got position {column}")
            out.append(column % n)
            continue
        if names is None:
            raise ValueError(f"{argument}: {of} has no names of columns, got {column!r}: give positions")
        if column not in place:
            known = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
            raise ValueError(f"{argument}: {of} has no column {column!r}: it has {known}")
        if len(place) < n and names.count(column) > 1:
            raise ValueError(f"{argument}: {of} has {names.count(column)} columns {column!r}: give positions")
        out.append(place[column])
    if len(set(out)) < len(out):
        twice = next(column for at, column in enumerate(columns) if out[at] in out[:at])
        raise ValueError(f"{argument}: {twice!r} stands there twice")
    return out
