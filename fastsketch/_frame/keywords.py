"""Errors for unknown keyword arguments of estimators and optimisers, which suggest the most similar parameter."""

import functools
import inspect
from typing import Any, TypeVar

from fastsketch._frame.parameters import bare_names, unknown_keyword

Face = TypeVar("Face")


def named_keywords(cls: type[Face]) -> type[Face]:
    """Decorate a class so that an unknown keyword raises a TypeError that suggests the most similar parameter.

    ``get_params`` and ``clone`` see the same signature as before.
    """
    init: Any = cls.__init__
    parameters = dict(list(inspect.signature(init).parameters.items())[1:])

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        for key in kwargs:
            if key not in parameters:
                raise TypeError(unknown_keyword(f"{cls.__name__}()", key, parameters, cls))
        init(self, *args, **kwargs)

    bare_names(cls)
    setattr(cls, "__init__", __init__)  # noqa: B010  type checkers keep the constructor that they have seen
    return cls
