"""Names of columns: the same in all sources that go together, and those that are asked for."""

from collections.abc import Sequence

from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._source import Source


def common_names(sources: Sequence[Source]) -> tuple[str, ...] | None:
    """Return the names of the columns, which all sources that have names have in common.

    SourceError names what differs.
    """
    named = [source for source in sources if source.feature_names is not None]
    for source in named[1:]:
        check_names(source.feature_names or (), named[0].feature_names or (), source.name, named[0].name)
    return named[0].feature_names if named else None


def check_names(names: Sequence[str], expected: Sequence[str], of: str, first: str) -> None:
    """Raise SourceError that names the first column which differs."""
    for place, (name, other) in enumerate(zip(names, expected, strict=False)):
        if name != other:
            order = " (the same columns in another order)" if sorted(names) == sorted(expected) else ""
            raise SourceError(f"{of}: column {place + 1} is {name!r}, in {first} it is {other!r}{order}")
    if len(names) != len(expected):
        longer, at = (names, of) if len(names) > len(expected) else (expected, first)
        extra = longer[min(len(names), len(expected))]
        raise SourceError(f"{of} has {len(names)} columns, {first} has {len(expected)}: only {at} has {extra!r}")
