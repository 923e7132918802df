"""``.. command-line::``: every command with its --help, from the parser itself, so that nothing is typed twice."""

import argparse
import os
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from fastsketch.cli._parser import SUBCOMMANDS, create_parser, top_parser

# argparse wraps at the width of a terminal, which a build does not have
WIDTH = "74"


class CommandLine(SphinxDirective):
    """Directive with a section for each command: what it does, what its help says, which ends with an example."""

    has_content: ClassVar = False

    def run(self) -> list[nodes.Node]:
        return [nodes.literal_block("", _help(top_parser()), language="text"), *map(self._section, SUBCOMMANDS)]

    def _section(self, name: str) -> nodes.Node:
        title = f"fastsketch {name}"
        section = nodes.section(ids=[nodes.make_id(title)], names=[title])
        section += nodes.title("", "", nodes.literal("", title))
        section += nodes.literal_block("", _help(create_parser(name)), language="text")
        self.state.document.note_explicit_target(section)
        return section


def _help(parser: argparse.ArgumentParser) -> str:
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        return parser.format_help()
    finally:
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns


def setup(app: Sphinx) -> dict[str, Any]:
    """Make the directive known."""
    app.add_directive("command-line", CommandLine)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
