"""Unknown keywords of an estimator's constructor: the error names the nearest one that there is."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from fastsketch._model import older_names
from fastsketch._parameters import unknown_keyword


class NamedKeywords:
    """The first base of an estimator; ``get_params`` and ``clone`` see the signature of its constructor as ever."""

    # {older name: name} of parameters; "" where there is no successor
    _RENAMED: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = _checked(cls.__init__)  # type: ignore[method-assign]


def _checked(init: Callable[..., None]) -> Callable[..., None]:
    """`init`, which raises TypeError naming what an unknown keyword may stand for."""
    known = dict(list(inspect.signature(init).parameters.items())[1:])
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return init

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        cls: type[Any] = type(self)
        for key in kwargs:
            if key not in known:
                raise TypeError(unknown_keyword(f"{cls.__name__}()", key, known, older_names(cls)))
        init(self, *args, **kwargs)

    return __init__
