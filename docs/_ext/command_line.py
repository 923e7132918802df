"""``.. command-line::``: every command with its --help, from the parser itself, so that nothing is typed twice."""

import argparse
import os
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from fastsketch.cli._examples import commands_of
from fastsketch.cli._parser import make_parser

# argparse wraps at the width of a terminal, which a build does not have
WIDTH = "74"


class CommandLine(SphinxDirective):
    """Directive with a section for each command: what it does, what its help says, which ends with an example."""

    has_content: ClassVar = False

    def run(self) -> list[nodes.Node]:
        parser = make_parser()
        top = nodes.literal_block("", _help(parser), language="text")
        return [top, *self._sections(parser, parser.prog)]

    def _sections(self, parser: argparse.ArgumentParser, before: str) -> list[nodes.Node]:
        sections: list[nodes.Node] = []
        for name, command in commands_of(parser).items():
            title = f"{before} {name}"
            section = nodes.section(ids=[nodes.make_id(title)], names=[title])
            section += nodes.title("", "", nodes.literal("", title))
            section += nodes.literal_block("", _help(command), language="text")
            section += self._sections(command, title)
            sections.append(section)
            self.state.document.note_explicit_target(section)
        return sections


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
