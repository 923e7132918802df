"""Functions that read models from files and bytes, and that find the class which a file names.

A class is known once its module is imported. The file names the module, and public packages of the library are imported
when needed; ``Model`` registers classes in ``kinds``.
"""

# pyright: reportPrivateUsage=false
# (the functions of this module are part of the frame)
import contextlib
import io
import re
import sys
from collections.abc import Generator
from contextvars import ContextVar
from importlib import import_module
from os import PathLike
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files import _state as files
from fastsketch.data.files._state import StateError

kinds: dict[tuple[str, str], type[Any]] = {}  # classes of models by home and name

# Depth to which states may be nested: that of a model, and those of models in it.
MAX_DEPTH = 2
_depth: ContextVar[int] = ContextVar("states being read", default=0)

# Errors that inconsistent parameters, states or arrays cause; MemoryError if they request more than there is.
INCONSISTENT = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError)


def load(source: str | PathLike[str] | BinaryIO) -> Any:
    """Read any model of the library from a path or an open binary file.

    Parameters
    ----------
    source : str, path or binary file

    Returns
    -------
    model
        Of the kind that was saved; it continues with the same bits. ``SomeModel.load`` reads one kind only.

    Raises
    ------
    StateError
        If it is missing, empty, truncated, damaged, of another format or kind, from a newer version, or of a build
        before the first release.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np, fastsketch as fs
    >>> sketch = fs.FrequentDirections(8).update(np.eye(10))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sketch.save(Path(folder, "rows.fsk"))
    ...     again = fs.load(Path(folder, "rows.fsk"))
    >>> again
    <FrequentDirections(sketch_size=8): 10 rows of 10 features>
    >>> bool((again.sketch() == sketch.sketch()).all())
    True
    """
    with state_being_read(name_of(source)):
        return _read(source)


def _read(source: str | PathLike[str] | BinaryIO) -> Any:
    """Read a model from a file, and return it. StateError if its class is unknown or its contents are inconsistent."""
    header, arrays = files.read(source)
    kind, name = header["kind"], name_of(source)
    cls = _find_class(kind, header.get("home"))
    if cls is None and hasattr(getattr(sys.modules.get(str(header.get("home"))), kind, None), "load"):
        raise StateError(f"{name} holds an estimator: read it with {header['home']}.{kind}.load")
    if cls is None:
        raise StateError(
            f"{name} holds a {kind!r}, which this version of fastsketch does not know "
            "(a model of your own: import the module that defines it first)"
        )
    try:
        parameters, notes, state = (dict(header[key]) for key in ("parameters", "notes", "state"))
        return cls._built(parameters, notes, state, arrays, feature_names=header.get("feature_names"), trusted=False)
    except INCONSISTENT as error:
        raise StateError(f"{name}: the {kind} in it is not consistent: {error}") from error


def from_bytes(content: bytes | bytearray | memoryview) -> Any:
    """Read any model of the library from the bytes that its ``to_bytes`` returned.

    Parameters
    ----------
    content : bytes, bytearray or memoryview

    Returns
    -------
    model
        Of the kind that was saved; it continues with the same bits.

    Raises
    ------
    TypeError
        If content is not bytes.
    StateError
        As for ``load``.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> sketch = fs.FrequentDirections(8).update(np.eye(10))
    >>> fs.from_bytes(sketch.to_bytes())
    <FrequentDirections(sketch_size=8): 10 rows of 10 features>
    """
    if not isinstance(content, bytes | bytearray | memoryview):
        raise TypeError(f"content must be bytes, got {type(content).__name__}")
    return load(io.BytesIO(content))


@contextlib.contextmanager
def state_being_read(name: str) -> Generator[None]:
    """Limit, inside a ``with`` block, how deeply state files are nested in each other: StateError beyond MAX_DEPTH.

    A model may contain the states of others, as a window or an estimator does, but these contain no further ones. A
    file with deeper nesting would take many times its size of memory before it is refused.
    """
    if (depth := _depth.get()) == MAX_DEPTH:
        raise StateError(f"{name} is a state within a state within a state, and no model has such")
    token = _depth.set(depth + 1)
    try:
        yield
    finally:
        _depth.reset(token)


def inner_model(arrays: dict[str, NDArray[Any]], name: str, kinds: type[Any] | tuple[type[Any], ...]) -> Any:
    """Read the model whose state file is stored in one array of another model's state, and return it.

    Its kind is read first; the rest is read only if that is one of `kinds`.

    Raises
    ------
    ValueError
        If there is no such array, it is not a state (StateError), or its model is of another kind.
    """
    content = arrays.get(name)
    if content is None:
        raise ValueError(f"array {name!r} is missing")
    if content.dtype != np.uint8 or content.ndim != 1:
        raise ValueError(f"array {name!r} must hold the bytes of a state")
    source = io.BytesIO(content.tobytes())
    header = files.read_header(source)
    cls = _find_class(header["kind"], header.get("home"))
    if cls is None or not issubclass(cls, kinds):
        raise ValueError(f"array {name!r} holds a {header['kind']!r}, expected {_class_names(kinds)}")
    return load(source)


def _class_names(kinds: type[Any] | tuple[type[Any], ...]) -> str:
    """Format the names of one or several classes for a message."""
    return " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))


def received(
    cls: type[Any],
    parameters: dict[str, Any],
    notes: dict[str, Any],
    state: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    feature_names: Any,
) -> Any:
    """Return a model that ``pickle`` restores, rebuilt from its parameters, notes, learned state and arrays.

    ``__reduce__`` has taken the model apart, perhaps in another process. StateError if the parts are inconsistent.
    """
    # copies: unpickled arrays may be read-only, or share memory with another model
    copies = {name: np.array(array) for name, array in arrays.items()}
    try:
        return cls._built(parameters, notes, state, copies, feature_names=feature_names, trusted=False)
    except MemoryError:
        raise
    except INCONSISTENT as error:
        raise StateError(f"the {cls.__name__} that was sent or pickled is not consistent: {error}") from error


def _find_class(kind: str, home: Any) -> type[Any] | None:
    """Return the model class that a file names by `kind` and by the module `home`, which is imported if necessary.
    Return None if it is unknown.

    A class outside of the library is found by its name if the module differs, as "__main__" of a script does.
    """
    if not isinstance(home, str):
        return None
    if not home.startswith("fastsketch."):
        same_name = [
            cls for (module, name), cls in kinds.items() if name == kind and not module.startswith("fastsketch.")
        ]
        return kinds.get((home, kind)) or (same_name[-1] if same_name else None)
    if (home, kind) not in kinds:
        import_home(home)
    return kinds.get((home, kind))


def home_of(cls: type) -> str:
    """Return the name of the module from which a class is imported. For a class of this library it is the public
    package.
    """
    public = cls.__module__.partition("._")[0]
    return public if public.startswith("fastsketch.") else cls.__module__


def import_home(home: Any) -> None:
    """Import the package of this library that a file names, so that its model classes are registered. Any other name is
    ignored.

    The file may be untrusted.
    """
    if isinstance(home, str) and re.fullmatch(r"fastsketch(\.[a-z]+){1,2}", home):
        with contextlib.suppress(ImportError):
            import_module(home)


def name_of(source: files.Source) -> str:
    """Return the name of a file for messages, or "the state" for an open stream."""
    return "the state" if isinstance(source, io.IOBase) else str(source)
