"""The arguments of index and its actions."""

from typing import Any

from fastsketch.cli._flags import choices, common, progress, rows
from fastsketch.cli._flags_of_codes import METRICS, searched

# Choices are only shown here: the class checks them. A test compares both.
KEPT = ("none", "float16", "float32")


def add(commands: Any) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "index",
        help="rows that are searched, added and removed: a folder of codes",
        description="An index is a folder with codes of rows and, if wished, the rows themselves. Every action leaves "
        "it as it was, or complete.",
    )
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    _add(actions)
    _remove(actions)
    _search(actions)
    _reencode(actions)
    _info(actions)


def _add(actions: Any) -> None:
    parser = actions.add_parser(
        "add",
        help="add the rows of files, to a new index if there is none",
        description="Add the rows of files to an index. With --model a new index is made; of one that is there it "
        "begins a generation, encoded by the model as it is now, if the model has learned on.",
    )
    _index(parser)
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    parser.add_argument("--model", metavar="MODEL.fsk", help="a model of 'quantize' or 'hash'")
    parser.add_argument(
        "--ids",
        metavar="IDS",
        help="ids of the rows, 64-bit integers: .npy, or text with a line for each",
    )
    parser.add_argument(
        "--keep-rows", metavar=choices(KEPT), help="of a new index: the rows, too, to rescore by (default none)"
    )
    parser.add_argument("--metric", metavar=choices(METRICS), help="of a new index: what is near (default euclidean)")
    rows(parser)
    progress(parser)
    common(parser, "_indexing.add")


def _remove(actions: Any) -> None:
    parser = actions.add_parser("remove", help="remove rows by their ids", description="Remove rows by their ids.")
    _index(parser)
    parser.add_argument("numbers", nargs="*", type=int, metavar="ID")
    parser.add_argument("--ids", metavar="IDS", help="ids in a file: .npy, or text with a line for each")
    common(parser, "_indexing.remove")


def _search(actions: Any) -> None:
    parser = actions.add_parser(
        "search", help="nearest rows of query rows", description="Find the rows nearest to every row of a file."
    )
    _index(parser)
    parser.add_argument("queries", metavar="QUERIES", help="rows, as for 'add'")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--rescore", metavar="ROWS.npy", help="rows to rescore by, row i that of id i")
    which.add_argument("--codes-only", action="store_true", help="do not rescore, though the index keeps rows")
    searched(parser)
    common(parser, "_indexing.search")


def _reencode(actions: Any) -> None:
    parser = actions.add_parser(
        "reencode",
        help="bring old generations forward",
        description="Encode the rows of older generations by the present encoder: those that the index keeps, or "
        "those of a file.",
    )
    _index(parser)
    parser.add_argument("--rows", metavar="ROWS.npy", help="the rows, if the index keeps none: row i that of id i")
    parser.add_argument("--decoded", action="store_true", help="without rows: what their codes stand for")
    common(parser, "_indexing.reencode")


def _info(actions: Any) -> None:
    parser = actions.add_parser("info", help="facts of an index", description="Show what an index holds.")
    _index(parser)
    common(parser, "_indexing.info")


def _index(parser: Any) -> None:
    parser.add_argument("index", metavar="INDEX", help="the folder of the index")
