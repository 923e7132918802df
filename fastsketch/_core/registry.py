"""Functions of rooms above that rooms below call by a name: the package says where they are when it is imported."""

from importlib import import_module
from typing import Any

_places: dict[str, tuple[str, str]] = {}


def provide(name: str, module: str, function: str) -> None:
    """Say in which module the function is that others call by this name."""
    _places[name] = module, function


def provided(name: str) -> Any:
    """Return the function of a name; its module is imported when it is first asked for."""
    module, function = _places[name]
    return getattr(import_module(module), function)
