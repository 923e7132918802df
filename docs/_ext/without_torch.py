"""A stand-in for torch where it is not installed: pages of its optimisers come from docstrings, which need none of it.

torch is a download of many megabytes; the quick build is to do without.
"""

import importlib.util
import sys
from types import ModuleType
from typing import Any

MODULES = ("torch", "torch.nn", "torch.nn.parallel", "torch.optim", "torch.optim.optimizer")


class Anything:
    """Stand-in that a class can inherit from and a method be decorated with, with and without parentheses."""

    def __new__(cls, decorated: Any = None) -> Any:
        return decorated if callable(decorated) else super().__new__(cls)

    def __call__(self, decorated: Any) -> Any:
        return decorated


class StandIn(ModuleType):
    """Module whose every attribute is a class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = type(name, (Anything,), {"__module__": self.__name__})
        setattr(self, name, found)
        return found


def stand_in() -> None:
    """Put the stand-in where ``import torch`` finds it, unless there is a torch."""
    if "torch" not in sys.modules and importlib.util.find_spec("torch") is None:
        sys.modules.update({name: StandIn(name) for name in MODULES})
