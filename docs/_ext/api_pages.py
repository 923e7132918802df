"""A page for every public name: numpydoc and autosummary, with our own members alone and signatures that can be read.

The templates beside this file ask ``members_of`` what a class has. Members that come from elsewhere (scikit-learn,
torch, Python) are documented there.
"""

import functools
import inspect
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

from fastsketch._parameters import Parameter

PROPERTIES = (property, functools.cached_property)


def members_of(cls: type) -> tuple[list[str], list[str]]:
    """(methods, properties) that a class has from this library, in the order of their definition, bases first."""
    methods: dict[str, None] = {}
    properties: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        ours = base.__module__.split(".")[0] == "fastsketch"
        for name, value in vars(base).items():
            if name.startswith("_") or isinstance(value, Parameter):
                continue
            if isinstance(value, PROPERTIES):
                kind = properties
            elif callable(value) or isinstance(value, classmethod | staticmethod):
                kind = methods
            else:
                continue
            if ours and not inspect.isclass(value):
                kind[name] = None
    return list(methods), list(properties)


class Members:
    """What the template of a class is given: ``own.methods("fastsketch.LowRankModel")``."""

    def methods(self, name: str) -> list[str]:
        return members_of(_object(name))[0]

    def properties(self, name: str) -> list[str]:
        return members_of(_object(name))[1]


def _object(name: str) -> Any:
    from sphinx.ext.autosummary import import_by_name

    return import_by_name(name)[1]


def hide_signature(
    _app: Sphinx, what: str, _name: str, item: Any, _options: Any, signature: str | None, _returns: str | None
) -> tuple[str | None, None] | None:
    """No signature where nobody makes one: protocols, abstract classes, errors, dicts with known keys."""
    if what not in ("class", "exception"):
        return None
    nobody_calls = (
        getattr(item, "_is_protocol", False) or inspect.isabstract(item) or hasattr(item, "__required_keys__")
    )
    return (None, None) if nobody_calls or issubclass(item, BaseException) else (signature, None)


def configure(app: Sphinx, config: Config) -> None:
    """What the templates count on, whatever else conf.py says."""
    config.templates_path = [*config.templates_path, str(Path(__file__).parent / "templates")]
    config.autosummary_generate = True
    config.autosummary_generate_overwrite = True
    config.autosummary_context = {**config.autosummary_context, "own": Members()}
    # types are in the docstrings, shorter than in the annotations
    config.autodoc_typehints = "none"
    config.autodoc_preserve_defaults = False
    # the templates list members themselves
    config.numpydoc_show_class_members = False
    config.add_module_names = True
    config.python_maximum_signature_line_length = 88


def setup(app: Sphinx) -> dict[str, Any]:
    """Bring in numpydoc and autosummary with one configuration."""
    for extension in ("sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc"):
        app.setup_extension(extension)
    app.connect("config-inited", configure, priority=100)
    app.connect("autodoc-process-signature", hide_signature)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
