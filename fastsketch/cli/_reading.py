"""What verbs read: rows, as their model has read its own, and models."""

import stat
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

# The note of a model that holds the options with which its rows were read, and the types of those options.
READING = "reading"
REMEMBERED: dict[str, Any] = {
    **dict.fromkeys(("zero_based", "transpose", "header", "multiline"), bool),
    **dict.fromkeys(("key", "separator", "decimal", "thousands", "comment", "na_values"), str),
    "columns": (str, list),
    "fill": (float, int),
}


# -- how rows are read -------------------------------------------------------------------------------------------------
def given_reading(verb: RowsVerb) -> dict[str, Any]:
    """Return the options of ``open_rows`` that the command line gives."""
    given = dict(verb.reading)
    if verb.columns is not None:
        given["columns"] = "numeric" if verb.columns == ["numeric"] else [as_column(name) for name in verb.columns]
    return given if verb.fill is None else {**given, "fill": verb.fill}


def remembered_reading(notes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of ``open_rows`` that the notes of a model remember."""
    remembered = notes.get(READING, {})
    options = cast("dict[str, Any]", remembered) if isinstance(remembered, dict) else {"": None}
    if not all(name in REMEMBERED and isinstance(value, REMEMBERED[name]) for name, value in options.items()):
        raise StateError(f"the notes of the model do not say how rows were read: {remembered!r:.200}")
    return options


def reading_notes(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the note by which a model remembers these options of ``open_rows``; an empty dict for none."""
    remembered = {name: options[name] for name in REMEMBERED if options.get(name) is not None}
    return {READING: remembered} if remembered else {}


def common_reading(notes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the note of a merged model: the options that the notes of all its parts remember alike."""
    first, *others = map(remembered_reading, notes)
    return reading_notes({name: value for name, value in first.items() if all(o.get(name) == value for o in others)})


def rows_in(verb: RowsVerb, model: Any = None, *, beside: Any = None) -> Source:
    """Return the rows of the inputs of a verb, one file after another.

    For a model or an estimator they are read as its own rows were, but for the options that are given, and the columns
    are those that it knows by name.
    """
    how = given_reading(verb)
    names: Iterable[str] | None = None
    if model is not None:
        how = {**remembered_reading(getattr(model, "notes", {})), **how}
        names = getattr(model, "feature_names", getattr(model, "feature_names_in_", None))
        n_features = getattr(model, "n_features", getattr(model, "n_features_in_", None))
        how |= {} if n_features is None else {"n_features": n_features}
        if names is not None and verb.columns is None and any(isinstance(k, str) for k in how.get("columns", ())):
            how.pop("columns")  # the model's names say the same, and rows without names have no others
    if beside is not None:
        how["beside"] = beside
    return open_named(verb.inputs, how, None if names is None or verb.columns is not None else list(names))


def open_named(paths: Sequence[str], how: dict[str, Any], names: list[str] | None) -> Source:
    """Open rows with their columns in the order of these names, if they have them; else as they are."""
    if names is not None and not any(map(comes_once, paths)):
        with suppress(ValueError):  # what is wrong is said below, or of the rows as they come
            by_name: dict[str, Any] = {**how, "columns": names}
            return open_rows(list(paths), **by_name)
    source = open_rows(list(paths), **how)
    known = source.feature_names
    if names is None or known is None or list(known) == names or not set(names) <= set(known):
        return source
    return open_rows(source, columns=names)


# -- models ------------------------------------------------------------------------------------------------------------
def load_model(name: str, kinds: Any = object, otherwise: str = "") -> Any:
    """Return the model in a file, or, with "-" or a pipe, in what comes through it.

    A model of none of these kinds is a StateError, whose message ends as `otherwise` says.
    """
    model = _loaded(name)
    if not isinstance(model, kinds):
        raise StateError(f"{name} holds a {type(model).__name__}{otherwise}")
    return model


def _loaded(name: str) -> Any:
    if name == STANDARD:
        content = sys.stdin.buffer.read()
        if not content:
            raise StateError("standard input is empty: a model was expected")
        return _from(content, "standard input")
    path = Path(name)
    try:
        is_pipe = stat.S_ISFIFO(path.stat().st_mode)
    except OSError:  # load says which
        is_pipe = False
    return _from(path.read_bytes(), name) if is_pipe else load(name)


def _from(content: bytes, name: str) -> Any:
    try:
        return from_bytes(content)
    except StateError as error:
        raise StateError(str(error).replace("the state", name, 1)) from None
