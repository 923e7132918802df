"""How flags are declared: those that many commands share, and those of a model's parameters."""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

DTYPES = "{float32,float64}"
# The value of --progress without one.
LINE = "line"


class Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviated flags: what is short for one flag today could be short for two tomorrow."""

    rest: str | None = None  # the list that takes what stands alone behind a flag: argparse would not know whose it is

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def parse_known_args(  # type: ignore[override]  # argparse has overloads
        self, args: Sequence[str] | None = None, *rest: Any, **kwargs: Any
    ) -> Any:
        """As argparse, and what stands alone goes to `rest`, wherever it stands; --progress takes nothing but json."""
        found, left = super().parse_known_args(_with_values(sys.argv[1:] if args is None else args), *rest, **kwargs)
        if self.rest is not None and not any(text.startswith("-") for text in left):
            getattr(found, self.rest).extend(left)
            left = []
        return found, left


def _with_values(args: Sequence[str]) -> list[str]:
    """The arguments with a value for --progress, so that it takes none of the names behind it."""
    out: list[str] = []
    for text in args:
        if text == "json" and out and out[-1] == f"--progress={LINE}":
            out[-1] = "--progress=json"
        else:
            out.append(f"--progress={LINE}" if text == "--progress" else text)
    return out


def lazy(function: str) -> Callable[[argparse.Namespace], int | None]:
    """A command that is imported when it runs: "module.function" of this room; it returns the status, or None: 0."""
    module, name = function.split(".")

    def run(arguments: argparse.Namespace) -> int | None:
        return getattr(import_module(f"fastsketch.cli.{module}"), name)(arguments)

    return run


def or_none(text: str) -> str | None:
    """The type of a flag whose "none" stands for None."""
    return None if text == "none" else text


def choices(names: Sequence[str]) -> str:
    """How the choices of a flag are shown; the model's class checks them."""
    return f"{{{','.join(names)}}}"


def parameter(
    parser: argparse.ArgumentParser, name: str, *, short: str | None = None, group: Any = None, **options: Any
) -> None:
    """A flag that carries the name of a parameter of the model, in a group of the help if one is given.

    Without a default here it is not passed on unless it is given, and the default of the model's class holds.
    """
    flags = [f"--{name.replace('_', '-')}"]
    if short is not None:
        flags.insert(0, short)
    options.setdefault("default", argparse.SUPPRESS)
    (group or parser).add_argument(*flags, dest=name, **options)
    parser.set_defaults(parameters=(*(parser.get_default("parameters") or ()), name))


# -- flags of many commands --------------------------------------------------------------------------------------------
def common(parser: argparse.ArgumentParser, run: str) -> None:
    """The flags of every command, and the function that it runs."""
    parser.add_argument("--threads", type=int, metavar="N", help="use N threads (default: the cores that may be used)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=lazy(run))


def zero_based(parser: argparse.ArgumentParser) -> None:
    """The base of svmlight text."""
    parser.add_argument("--zero-based", action="store_true", help="svmlight indices start at 0")


def rows(parser: argparse.ArgumentParser) -> None:
    """What of the inputs are rows, for commands that read whatever fs.open_rows does."""
    zero_based(parser)
    group = parser.add_argument_group("inputs")
    group.add_argument(
        "--columns",
        type=listed,
        metavar="A,B,...",
        help="names or positions (from 0) of the columns that are read; numeric: all of numbers (default: all)",
    )
    group.add_argument("--fill", type=float, metavar="X", help="number in the place of what is missing")
    group.add_argument("--key", metavar="NAME", help="data set of HDF5 or Zarr, layer of AnnData, that holds the rows")
    dialect(group)


def dialect(group: Any) -> None:
    """How tables of text are written."""
    group.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether the first line of a table has names (default: by what stands in it and below it)",
    )
    group.add_argument(
        "--separator", type=_separator, metavar="X", help="what divides columns: ; or tab, ... (default: found)"
    )
    group.add_argument("--decimal", metavar="X", help="decimal point of numbers: . or , (default .)")


def _separator(text: str) -> str:
    return "\t" if text in ("tab", "\\t") else text


def as_column(text: str) -> str | int:
    """A column by its name or, if that is a whole number, by its number."""
    try:
        return int(text)
    except ValueError:
        return text


def listed(text: str) -> list[str]:
    """Names between commas; one that holds commas stands in double quotes."""
    from fastsketch.io._table import cells_of

    try:
        names = [name.strip() for name in cells_of(text, ",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, got {text!r}") from None
    if not all(names):
        raise argparse.ArgumentTypeError(f"names between commas must not be empty, got {text!r}")
    return names


def widths(parser: argparse.ArgumentParser) -> None:
    """The columns of inputs that do not say how many they have."""
    parser.add_argument(
        "--n-features", type=int, metavar="D", help="columns of svmlight text (default: found by reading it first)"
    )


def source(parser: argparse.ArgumentParser) -> None:
    """The flags of a command that reads rows of any width."""
    widths(parser)
    rows(parser)


def _how(text: str) -> bool | str:
    if text not in (LINE, "json"):
        raise argparse.ArgumentTypeError(f"must stand alone, or be json, got {text}")
    return text == LINE or text


def progress(parser: argparse.ArgumentParser) -> None:
    """Whether progress is shown, and how."""
    parser.add_argument(
        "--progress",
        type=_how,
        default=None,
        metavar="[json]",
        help="progress on standard error (default: on a terminal), or lines of JSON there",
    )


def in_parts(parser: argparse.ArgumentParser) -> None:
    """The flags of a command whose rows are learned in parts."""
    workers(parser, "learned")
    checkpointed(parser)


def map_job(parser: argparse.ArgumentParser, *, resumed: bool = True) -> None:
    """The flags of a command that says something of every row."""
    workers(parser, "answered")
    if resumed:
        parser.add_argument(
            "--resume",
            action="store_true",
            help="go on from what the same command has left in OUTPUT.partial: only other parts are read",
        )
    progress(parser)


def workers(parser: argparse.ArgumentParser, done: str) -> None:
    """How many parts are done at the same time, and where."""
    parser.add_argument(
        "--workers",
        default="auto",
        metavar="N",
        help=f"parts {done} at the same time (default auto: by cores, memory and size; no influence on the result)",
    )
    parser.add_argument(
        "--engine",
        default="processes",
        metavar="{processes,threads,dask}",
        help=f"where parts are {done} (default processes)",
    )
    parser.add_argument("--scheduler", metavar="ADDRESS", help=f"of a Dask cluster, where parts are {done}")


def checkpointed(parser: argparse.ArgumentParser) -> None:
    """The flags of a command that learns from rows, and can go on after a kill."""
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="folder for what has been learned so far, until the output is there (default: OUTPUT.partial)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on from the checkpoint of the same command: only what is left is learned",
    )
    progress(parser)


def dtype(parser: argparse.ArgumentParser) -> None:
    """The dtype of a model that takes that of its rows."""
    parameter(parser, "dtype", metavar=DTYPES, help="of the model (default: that of the input)")


def seed(parser: argparse.ArgumentParser, use: str) -> None:
    """The seed of a model."""
    parameter(parser, "seed", type=int, metavar="N", help=f"{use} (default 0)")
