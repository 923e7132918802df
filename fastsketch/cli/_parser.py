"""The commands and their arguments. Imports nothing heavy: --help must be quick."""

import argparse
from typing import Any

from fastsketch.cli import (
    _flags_of_codes,
    _flags_of_indexes,
    _flags_of_learners,
    _flags_of_sketches,
    _flags_of_tables,
)
from fastsketch.cli._examples import add_examples
from fastsketch.cli._flags import Parser, common


class _Version(argparse.Action):
    """Print the version and what it computes with."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from fastsketch import show_config

        show_config()
        parser.exit()


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line; every command sets ``run``, and ``parameters`` if it makes a model."""
    parser = Parser(
        prog="fastsketch",
        description="Matrix sketches with a guarantee, binary codes, online learners and low-rank models, for "
        "rows that do not fit in memory.",
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="show the version and what it computes with, and exit"
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _flags_of_sketches.add(commands)
    _flags_of_codes.add(commands)
    _flags_of_indexes.add(commands)
    _flags_of_learners.add(commands)
    _flags_of_tables.add(commands)
    _demo(commands)
    _warm_up(commands)
    add_examples(parser)
    return parser


def _demo(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="all jobs on two photographs, and a page of what they find (needs the extras 'sklearn' and 'plot')",
        description="Run the main jobs on real input: 16 x 16 colour patches of scikit-learn's two sample photographs "
        "as one stream of 768-dimensional rows. A sketch and its certificate beside the true error; components with "
        "the intervals of their variances; neighbours by codes and rows, beside the true ones; a changed piece found; "
        "digits learned; a photograph restored. Writes index.html, a page of pictures beside numbers, and the models.",
    )
    parser.add_argument("--output", default="demo-output", metavar="DIR", help="folder for results")
    parser.add_argument(
        "-l", "--sketch-size", type=int, default=32, metavar="L", help="rows of the sketch (default 32)"
    )
    common(parser, "_commands.demo")


def _warm_up(commands: Any) -> None:
    parser = commands.add_parser(
        "warm-up",
        help="compile what first updates and fits compile, for containers",
        description="Compile the loops that the first update of a SketchedNewton or the first fit of a LowRankModel "
        "compiles, and keep them in NUMBA_CACHE_DIR or the user's cache folder. Run it once where the image of a "
        "container is made: its processes then read them, also where nothing can be written.",
    )
    common(parser, "_warm_up.warm_up")
