"""From the texts of a command line to its arguments: one verb is declared, that which is called."""

import argparse
import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from fastsketch.cli._flags import Parser, common
from fastsketch.cli._signals import held
from fastsketch.cli._verbs_of_events import VERBS


class _Version(argparse.Action):
    """Print the version and what it computes with."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from fastsketch import show_config

        show_config()
        parser.exit()


def parse(argv: Sequence[str] | None) -> Namespace:
    """Return the arguments of a command line, with its verb as ``verb``; help, version and errors end here."""
    texts = list(sys.argv[1:] if argv is None else argv)
    if not texts or texts[0] not in VERBS:
        return top_parser().parse_args(texts)
    args = parser_of(texts[0]).arguments(texts[1:])
    args.verb = texts[0]
    return args


def run(args: Namespace) -> int:
    """Run the verb of these arguments, whose module is imported now; return the exit status."""
    module, _, function = VERBS[args.verb].run.partition(".")
    with held():  # an interrupt of an import may come out as another error
        import_module("fastsketch._kernels.level")  # refuses a FASTSKETCH_LEVEL that this CPU lacks, before all else
        verb = getattr(import_module(f"fastsketch.cli.{module}"), function)
    return verb(args) or 0


def parser_of(name: str) -> Parser:
    """Return the parser of a verb."""
    verb = VERBS[name]
    about, _, examples = (verb.declare.__doc__ or "").partition("Examples\n")  # indented before Python 3.13
    lines = ["examples:", *map(str.strip, examples.strip().split("\n")[1:])]
    parser = Parser(
        prog=f"fastsketch {name}",
        description=" ".join(about.split()),
        epilog="\n  ".join(lines),
    )
    verb.declare(parser)
    common(parser)
    return parser


def top_parser() -> argparse.ArgumentParser:
    """Return the parser of a command line without a verb: it shows the verbs, or complains."""
    parser = Parser(
        prog="fastsketch",
        description="Matrix sketches with a guarantee, binary codes, online learners and low-rank models, for "
        "rows that do not fit in memory.",
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="show the version and what it computes with, and exit"
    )
    other = Parser(prog="fastsketch")

    def stand_in(**_: object) -> Parser:
        """Return one parser for all verbs, of which none is used here: making sixteen takes 5 ms."""
        return other

    make: Any = stand_in
    verbs: Any = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=make)
    for name, verb in VERBS.items():
        verbs.add_parser(name, help=verb.help)
    return parser
