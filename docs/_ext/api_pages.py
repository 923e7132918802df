"""A page for every public name: numpydoc and autosummary, with our own members alone and signatures that can be read.

The templates beside this file ask ``Members`` what a class has. Members that come from elsewhere (scikit-learn, torch,
Python) are documented there. ``.. names-of::`` lists the names of pages, as those pages themselves do.
"""

import functools
import inspect
import re
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.ext.autosummary import import_by_name
from sphinx.util.docutils import SphinxDirective
from without_torch import stand_in

from fastsketch._frame.parameters import Parameter

PROPERTIES = (property, functools.cached_property)
# a name in a list of autosummary, indented and alone on its line
LISTED = re.compile(r"^   (fastsketch\.[\w.]+)$", re.MULTILINE)
DECLARED = re.compile(r"^\.\. py:data:: (fastsketch\.[\w.]+)$", re.MULTILINE)


def members_of(cls: type) -> tuple[list[str], list[str]]:
    """Return (methods, properties) that a class has from this library: its own first, then those of its bases."""
    methods: dict[str, None] = {}
    properties: dict[str, None] = {}
    for base in cls.__mro__:
        if base.__module__.split(".")[0] != "fastsketch":
            continue
        for name, value in vars(base).items():
            if name.startswith("_") or isinstance(value, Parameter) or inspect.isclass(value):
                continue
            if isinstance(value, PROPERTIES):
                if inspect.getdoc(value):  # else it stands among the attributes of the class
                    properties[name] = None
            elif callable(value) or isinstance(value, classmethod | staticmethod):
                methods[name] = None
    return list(methods), list(properties)


class Members:
    """Members of a class, for its template: ``own.methods("fastsketch.LowRankModel")``."""

    def methods(self, name: str) -> list[str]:
        return members_of(import_by_name(name)[1])[0]

    def properties(self, name: str) -> list[str]:
        return members_of(import_by_name(name)[1])[1]


class NamesOf(SphinxDirective):
    """List the pages, a line each: the title, and links to the names on it."""

    has_content: ClassVar = True

    def run(self) -> list[nodes.Node]:
        folder = Path(self.get_source_info()[0]).parent
        lines: list[str] = []
        for page in self.content:
            path = folder / f"{page}.rst"
            self.env.note_dependency(str(path))
            names = ", ".join(f":py:obj:`{name.rpartition('.')[2]} <{name}>`" for name in names_in(path))
            lines += [f":doc:`{page}`", f"   {names}", ""]
        return self.parse_text_to_nodes("\n".join(lines))


def names_in(path: Path) -> list[str]:
    """Return the names that have an entry on a page."""
    text = path.read_text(encoding="utf-8")
    return LISTED.findall(text) + DECLARED.findall(text)


def hide_signature(
    _app: Sphinx, what: str, _name: str, item: Any, _options: Any, signature: str | None, _returns: str | None
) -> tuple[str | None, None] | None:
    """Leave out signatures of what nobody constructs: protocols, abstract classes, errors, dicts with known keys."""
    if what not in ("class", "exception"):
        return None
    protocol, keys = getattr(item, "_is_protocol", False), hasattr(item, "__required_keys__")
    nobody_calls = protocol or keys or inspect.isabstract(item) or issubclass(item, BaseException)
    return (None, None) if nobody_calls else (signature, None)


def configure(app: Sphinx, config: Config) -> None:
    """Register our templates, and signatures with a line for each parameter where one line is too short."""
    config.templates_path = [*config.templates_path, str(Path(__file__).parent / "templates")]
    config.autosummary_context = {**config.autosummary_context, "own": Members()}
    config.python_maximum_signature_line_length = 72
    config.python_trailing_comma_in_multi_line_signatures = False
    config.toc_object_entries_show_parents = "hide"


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx, beside numpydoc and autosummary."""
    stand_in()
    app.connect("config-inited", configure, priority=100)
    app.connect("autodoc-process-signature", hide_signature)
    app.add_directive("names-of", NamesOf)
    app.add_css_file("api.css")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
