"""Open the rows and models that subcommands read. A model's notes store how its rows were read, for later rows."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from fastsketch._frame.loading import from_bytes, load
from fastsketch.cli._flags import RowsVerb, as_column
from fastsketch.cli._output import STANDARD_STREAM
from fastsketch.data.files import StateError
from fastsketch.data.sources import Source, comes_once, open_rows

# The note of a model that holds the options with which its rows were read; the options and their types.
READING = "reading"
REMEMBERED_TYPES: dict[str, Any] = {
    **dict.fromkeys(("zero_based", "transpose", "header", "multiline"), bool),
    **dict.fromkeys(("key", "separator", "decimal", "thousands", "comment", "na_values"), str),
    "columns": (str, list),
    "fill": (float, int),
}


# -- how rows are read -------------------------------------------------------------------------------------------------
def reading_of_command_line(verb: RowsVerb) -> dict[str, Any]:
    """Return the options of ``open_rows`` that the command line sets."""
    options = dict(verb.reading)
    if verb.columns is not None:
        options["columns"] = "numeric" if verb.columns == ["numeric"] else [as_column(name) for name in verb.columns]
    return options if verb.fill is None else {**options, "fill": verb.fill}


def remembered_reading(notes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of ``open_rows`` that are stored in the notes of a model.

    Raise StateError if they are invalid.
    """
    remembered = notes.get(READING, {})
    options = cast("dict[str, Any]", remembered) if isinstance(remembered, dict) else {"": None}
    if not all(
        name in REMEMBERED_TYPES and isinstance(value, REMEMBERED_TYPES[name]) for name, value in options.items()
    ):
        raise StateError(f"the notes of the model do not say how rows were read: {remembered!r:.200}")
    return options


def reading_notes(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reading options as a note {"reading": options} for a model; an empty dict if no option is set."""
    remembered = {name: options[name] for name in REMEMBERED_TYPES if options.get(name) is not None}
    return {READING: remembered} if remembered else {}


def common_reading_notes(notes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the note with those reading options that the notes of all models have in common."""
    first_options, *other_options = map(remembered_reading, notes)
    return reading_notes(
        {name: value for name, value in first_options.items() if all(o.get(name) == value for o in other_options)}
    )


def open_inputs(verb: RowsVerb, model: Any = None, *, beside: Any = None) -> Source:
    """Open all inputs of a subcommand, and return one source that reads one file after another.

    Parameters
    ----------
    verb : RowsVerb
    model : model or estimator, optional
        Its rows' options of reading are the defaults, and its column names are selected, in their order.
    beside : str or int, optional
        An extra column that is read in addition to the rows.
    """
    options = reading_of_command_line(verb)
    names: Iterable[str] | None = None
    if model is not None:
        options = {**remembered_reading(getattr(model, "notes", {})), **options}
        names = getattr(model, "feature_names", getattr(model, "feature_names_in_", None))
        n_features = getattr(model, "n_features", getattr(model, "n_features_in_", None))
        options |= {} if n_features is None else {"n_features": n_features}
        if names is not None and verb.columns is None and any(isinstance(k, str) for k in options.get("columns", ())):
            options.pop("columns")  # the names of the model select the same columns
    if beside is not None:
        options["beside"] = beside
    return open_columns(verb.inputs, options, None if names is None or verb.columns is not None else list(names))


def open_columns(paths: Sequence[str], options: dict[str, Any], names: list[str] | None) -> Source:
    """Open files as one source, and return a source of the columns with the given names, in this order.

    `options` are those of ``open_rows``. Rows that lack one of the columns are opened unchanged.
    """
    if names is not None and not any(map(comes_once, paths)):
        with suppress(ValueError):  # errors are reported when the rows are opened below
            by_name: dict[str, Any] = {**options, "columns": names}
            return open_rows(list(paths), **by_name)
    source = open_rows(list(paths), **options)
    feature_names = source.feature_names
    if names is None or feature_names is None or list(feature_names) == names or not set(names) <= set(feature_names):
        return source
    return open_rows(source, columns=names)


# -- models ------------------------------------------------------------------------------------------------------------
def load_model(name: str, kinds: Any = object, otherwise: str = "") -> Any:
    """Load a model from a file, a pipe or, for "-", the standard input.

    Raise StateError, with a message that ends with `otherwise`, if the model is not an instance of `kinds`.
    """
    if comes_once(name):
        display_name = "standard input" if name == STANDARD_STREAM else name
        content = sys.stdin.buffer.read() if name == STANDARD_STREAM else Path(name).read_bytes()
        if not content:
            raise StateError(f"{display_name} is empty: a model was expected")
        try:
            model = from_bytes(content)
        except StateError as error:
            raise StateError(str(error).replace("the state", display_name, 1)) from None
    else:
        model = load(name)
    if not isinstance(model, kinds):
        raise StateError(f"{name} holds a {type(model).__name__}{otherwise}")
    return model
