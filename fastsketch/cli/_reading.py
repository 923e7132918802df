"""Open the rows and models that subcommands read. A model's notes store how its rows were read, for later rows."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from fastsketch._frame.loading import from_bytes, load
from fastsketch.cli._flags import RowsVerb, as_column
from fastsketch.cli._output import STANDARD
from fastsketch.data.files import StateError
from fastsketch.data.sources import Source, comes_once, open_rows

# The note of a model that holds the options with which its rows were read; the options and their types.
READING = "reading"
REMEMBERED: dict[str, Any] = {
    **dict.fromkeys(("zero_based", "transpose", "header", "multiline"), bool),
    **dict.fromkeys(("key", "separator", "decimal", "thousands", "comment", "na_values"), str),
    "columns": (str, list),
    "fill": (float, int),
}


# -- how rows are read -------------------------------------------------------------------------------------------------
def given_reading(verb: RowsVerb) -> dict[str, Any]:
    """Return the options of ``open_rows`` that the command line sets."""
    given = dict(verb.reading)
    if verb.columns is not None:
        given["columns"] = "numeric" if verb.columns == ["numeric"] else [as_column(name) for name in verb.columns]
    return given if verb.fill is None else {**given, "fill": verb.fill}


def remembered_reading(notes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of ``open_rows`` that are stored in the notes of a model.

    Raise StateError if they are invalid.
    """
    remembered = notes.get(READING, {})
    options = cast("dict[str, Any]", remembered) if isinstance(remembered, dict) else {"": None}
    if not all(name in REMEMBERED and isinstance(value, REMEMBERED[name]) for name, value in options.items()):
        raise StateError(f"the notes of the model do not say how rows were read: {remembered!r:.200}")
    return options


def reading_notes(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reading options as a note {"reading": options} for a model; an empty dict if no option is set."""
    remembered = {name: options[name] for name in REMEMBERED if options.get(name) is not None}
    return {READING: remembered} if remembered else {}


def common_reading(notes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the reading options that are equal in the notes of all models, as a note for their merged model."""
    first, *others = map(remembered_reading, notes)
    return reading_notes({name: value for name, value in first.items() if all(o.get(name) == value for o in others)})


def rows_in(verb: RowsVerb, model: Any = None, *, beside: Any = None) -> Source:
    """Open all inputs of a subcommand as one source, one file after another.

    Parameters
    ----------
    verb : RowsVerb
    model : model or estimator, optional
        Its rows' options of reading are the defaults, and its column names are selected, in their order.
    beside : str or int, optional
        An extra column that is read in addition to the rows.
    """
    how = given_reading(verb)
    names: Iterable[str] | None = None
    if model is not None:
        how = {**remembered_reading(getattr(model, "notes", {})), **how}
        names = getattr(model, "feature_names", getattr(model, "feature_names_in_", None))
        n_features = getattr(model, "n_features", getattr(model, "n_features_in_", None))
        how |= {} if n_features is None else {"n_features": n_features}
        if names is not None and verb.columns is None and any(isinstance(k, str) for k in how.get("columns", ())):
            how.pop("columns")  # the names of the model select the same columns
    if beside is not None:
        how["beside"] = beside
    return open_named(verb.inputs, how, None if names is None or verb.columns is not None else list(names))


def open_named(paths: Sequence[str], how: dict[str, Any], names: list[str] | None) -> Source:
    """Open rows and select the columns with these names, in this order.

    Rows that lack one of the columns are opened unchanged.
    """
    if names is not None and not any(map(comes_once, paths)):
        with suppress(ValueError):  # errors are reported when the rows are opened below
            by_name: dict[str, Any] = {**how, "columns": names}
            return open_rows(list(paths), **by_name)
    source = open_rows(list(paths), **how)
    known = source.feature_names
    if names is None or known is None or list(known) == names or not set(names) <= set(known):
        return source
    return open_rows(source, columns=names)


# -- models ------------------------------------------------------------------------------------------------------------
def load_model(name: str, kinds: Any = object, otherwise: str = "") -> Any:
    """Load a model from a file, a pipe or, for "-", the standard input.

    Raise StateError, with a message that ends with `otherwise`, if the model is not an instance of `kinds`.
    """
    if comes_once(name):
        shown = "standard input" if name == STANDARD else name
        content = sys.stdin.buffer.read() if name == STANDARD else Path(name).read_bytes()
        if not content:
            raise StateError(f"{shown} is empty: a model was expected")
        try:
            model = from_bytes(content)
        except StateError as error:
            raise StateError(str(error).replace("the state", shown, 1)) from None
    else:
        model = load(name)
    if not isinstance(model, kinds):
        raise StateError(f"{name} holds a {type(model).__name__}{otherwise}")
    return model
