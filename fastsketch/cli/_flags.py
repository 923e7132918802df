"""How verbs and flags are declared: those of a model's parameters, which say the rest themselves, and common ones.

Whatever reads a declaration imports that room itself: no help but that of --set needs NumPy.
"""

import argparse
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from fastsketch._core.escaping import escaped

# The value of --progress without one.
LINE = "line"
# What --set says of how rows are read: where that is documented, and the default.
READING: dict[str, tuple[str, Any]] = {
    "n_features": ("fastsketch.data.open_rows", None),
    "zero_based": ("fastsketch.data.open_rows", False),
    "key": ("fastsketch.data.open_rows", None),
    "header": ("fastsketch.data.open_rows", None),
    "separator": ("fastsketch.data.open_rows", None),
    "decimal": ("fastsketch.data.open_rows", None),
    "missing": ("fastsketch.data.TableRows", "feature"),
}
ITEM_ROWS = "rows of the sketch, at least 2 (default 256)"
TEXT, TABLES = ("n_features", "zero_based"), ("header", "separator", "decimal")


class Parser(argparse.ArgumentParser):
    """A parser of one verb: it takes no abbreviated flags, and --set for what has none of its own.

    Attributes
    ----------
    models : tuple of str
        Public classes whose declared parameters are set.
    settable : tuple of str
        Names of READING that are set too.
    actions : dict
        {parameter: its flag}.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, "formatter_class": ExamplesLast, **kwargs})
        self.models: tuple[str, ...] = ()
        self.settable: tuple[str, ...] = ()
        self.actions: dict[str, argparse.Action] = {}
        self.texts: Sequence[str] = ()

    def arguments(self, texts: Sequence[str]) -> Namespace:
        """Return the arguments in these texts; what --set says of reading is among them, of models in ``settings``."""
        self.texts = texts
        args = self.parse_intermixed_args(_with_values(texts))
        given: dict[str, str] = {**vars(args).pop("settings", {})}
        try:
            for name in self.settable:
                home, default = READING[name]
                text = given.pop(name, None)
                setattr(args, name, default if text is None else _as_declared(home, name, text))
            if given and not self.models:
                raise ValueError(self._unknown(next(iter(given))))
        except ValueError as error:
            self.error(str(error))
        for name in self.actions:
            if name in args:
                given[name] = getattr(args, name)
        args.settings = given
        args.own_flags = {action.dest: action.option_strings[-1] for action in self._actions if action.option_strings}
        return args

    def error(self, message: str) -> Any:
        """See argparse; a flag that names a parameter is told how that is set."""
        _, _, flag = message.partition("unrecognized arguments: --")
        name = flag.partition(" ")[0].partition("=")[0].replace("-", "_")
        if name and any(name in known for known in self._documents().values()):
            message += f" (--set {name}=VALUE sets it)"
        super().error(escaped(message))

    def _print_message(self, message: str, file: Any = None) -> None:
        """See argparse, to which a disk that is full is no error."""
        print(message, end="", file=file or sys.stderr)

    def exit(self, status: int = 0, message: str | None = None) -> Any:
        """See argparse; what was printed is there, or an error says why not."""
        sys.stdout.flush()
        super().exit(status, message)

    def _unknown(self, name: str) -> str:
        from fastsketch._frame.parameters import unknown_keyword

        known = dict.fromkeys(name for documents in self._documents().values() for name in documents)
        return f"{unknown_keyword('--set', name, known)}; --set help lists them"

    # -- what --set help lists ----------------------------------------------------------------------------------
    def _documents(self, method: str = "") -> dict[str, dict[str, str]]:
        """Return {whose they are: {name: what its documentation says}} of all that --set takes with a method.

        With one that no model has, what models take that have none.
        """
        from fastsketch._frame.parameters import described

        documents: dict[str, dict[str, str]] = {}
        classes = {model: _public(f"fastsketch.{model}") for model in self.models}
        named = {model: f'"{method}"' in described(cls).get("method", "") for model, cls in classes.items()}
        for model, cls in classes.items():
            if method and not (named[model] if any(named.values()) else "method" not in cls._declared):
                continue
            texts, names = described(cls), [str(name) for name, item in cls._declared.items() if not item.fixed]
            documents[f"of {model}"] = {name: texts.get(name, name) for name in names}
        for name in self.settable:
            home = READING[name][0]
            documents.setdefault(f"of reading, as of {home}", {})[name] = described(_public(home))[name]
        return documents

    def listed(self) -> str:
        """Return all that --set takes, with its documentation; of a method that has been chosen, what goes with it."""
        _, _, method = " ".join(self.texts).replace("--method=", "--method ").partition("--method ")
        return "\n\n".join(
            "\n".join([f"parameters {whose}:", *dict.fromkeys(texts.values())])
            for whose, texts in self._documents(method.partition(" ")[0]).items()
        )


class ExamplesLast(argparse.HelpFormatter):
    """A help that ends with lines as they are, and names a flag's value once."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        whole = super()._format_action_invocation(action)
        if len(action.option_strings) < 2 or action.nargs == 0:
            return whole
        return f"{', '.join(action.option_strings)} {whole.rpartition(action.option_strings[-1])[2].lstrip()}"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if not text.startswith("examples:"):
            return super()._fill_text(text, width, indent)
        return "".join(f"{indent}{line}\n" for line in text.splitlines()).rstrip("\n")


def _with_values(texts: Sequence[str]) -> list[str]:
    """Return the arguments with a value for --progress, so that it takes none of the names behind it."""
    out: list[str] = []
    for text in texts:
        if text == "json" and out and out[-1] == f"--progress={LINE}":
            out[-1] = "--progress=json"
        else:
            out.append(f"--progress={LINE}" if text == "--progress" else text)
    return out


# -- verbs ------------------------------------------------------------------------------------------------------------
class Verb(NamedTuple):
    """A command: the function that runs it ("module.function"), its help, and what declares its flags."""

    run: str
    help: str
    declare: Callable[[Parser], None]


VERBS: dict[str, Verb] = {}


def verb(name: str, run: str, help: str) -> Callable[[Callable[[Parser], None]], None]:
    """Make a verb of a function that declares flags; its docstring is what --help says, with examples at its end."""

    def keep(declare: Callable[[Parser], None]) -> None:
        VERBS[name] = Verb(run, help, declare)

    return keep


# -- parameters of models ----------------------------------------------------------------------------------------------
def parameter(parser: Parser, name: str, *short: str, switch: bool = False, **options: Any) -> None:
    """Declare a flag that carries the name of a parameter of the verb's models.

    The value stays text until ``parameters_of`` knows the model, whose declaration has choices and default.
    """
    options |= {"action": "store_const", "const": "yes"} if switch else {}
    flag = f"--{name.replace('_', '-')}"
    parser.actions[name] = parser.add_argument(*short, flag, dest=name, default=argparse.SUPPRESS, **options)


def settings(parser: Parser, *models: str, reading: Iterable[str] = ()) -> None:
    """Declare --set, for the parameters of these public classes, and for these of how rows are read."""
    parser.models, parser.settable = models, tuple(reading)
    whose = " or ".join([*[f"of {model}" for model in models], *(["of how inputs are read"] if reading else [])])
    parser.add_argument(
        "--set",
        action=_Set,
        default={},
        metavar="NAME=VALUE",
        dest="settings",
        help=f"a parameter {whose}, as often as needed: --set help lists them all, with what they do",
    )


class _Set(argparse.Action):
    """Keep NAME=VALUE, or print all names."""

    def __call__(self, parser: Any, namespace: Namespace, value: Any, option_string: str | None = None) -> None:
        if value == "help":
            print(parser.listed())
            parser.exit()
        name, sign, text = value.partition("=")
        if not sign:
            parser.error(f"--set takes NAME=VALUE, or help, got {value!r}")
        setattr(namespace, self.dest, {**getattr(namespace, self.dest), name.strip().replace("-", "_"): text})


def parameters_of(args: Namespace, *classes: Any) -> dict[str, Any]:
    """Return the parameters that the arguments set, each in the type that the first class declares which has it.

    Raises
    ------
    ValueError
        If a text is none of its type, or no class has such a parameter: the message names the nearest.
    """
    from fastsketch._frame.parameters import annotation_of, from_text, unknown_keyword

    declared = {name: cls for cls in reversed(classes) for name, item in cls._declared.items() if not item.fixed}
    values: dict[str, Any] = {}
    for name, text in args.settings.items():
        if name not in declared:
            whose = " and ".join(cls.__name__ for cls in classes)
            raise ValueError(f"{unknown_keyword(whose, name, declared)}; --set help lists them")
        values[name] = from_text(text, flag_of(args, name), annotation_of(declared[name], name))
    return values


def flag_of(args: Namespace, name: str) -> str:
    """Return how a parameter is given on this command line."""
    return args.own_flags.get(name, f"--set {name}")


def _as_declared(home: str, name: str, text: str) -> Any:
    """Return a text as a value of a parameter of a function."""
    from inspect import signature

    from fastsketch._frame.parameters import from_text

    text = "\t" if name == "separator" and text in ("tab", "\\t") else text
    return from_text(text, f"--set {name}", signature(_public(home)).parameters[name].annotation)


def _public(name: str) -> Any:
    module, _, item = name.rpartition(".")
    return getattr(import_module(module), item)


# -- flags of many verbs -----------------------------------------------------------------------------------------------
def common(parser: Parser) -> None:
    """Declare the flags of every verb."""
    parser.add_argument("--threads", type=int, metavar="N", help="use N threads (default: the cores that may be used)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def rows(parser: Parser, *models: str, reading: Iterable[str] = ()) -> None:
    """Declare what of the inputs are rows, for verbs that read whatever fs.open_rows does, and --set."""
    parser.add_argument(
        "--columns",
        type=listed,
        metavar="A,B,...",
        help="names or numbers (from 0) of the columns that are read; numeric: all of numbers (default: all)",
    )
    parser.add_argument("--fill", type=float, metavar="X", help="number in the place of what is missing")
    settings(parser, *models, reading=(*TEXT, "key", *TABLES, *reading))


def output(parser: Parser, metavar: str, text: str, **options: Any) -> None:
    """Declare where the result goes; it is required unless there is a default."""
    required = "default" not in options
    parser.add_argument("-o", "--output", required=required, metavar=metavar, help=text, **options)


def listed(text: str) -> list[str]:
    """Return the names between commas; one that holds commas stands in double quotes."""
    from fastsketch._frame.parameters import names_in

    try:
        return names_in(text, "it")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("it ").removeprefix("it: ")) from None


def as_column(text: str) -> str | int:
    """Return a column as it is named everywhere: its number, from 0, if it is a whole number, else its name."""
    try:
        return int(text)
    except ValueError:
        return text


class OneColumn(argparse.Action):
    """Store a column; a second one is refused, where argparse would forget the first."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Namespace, values: Any, flag: Any = None) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{flag} stands once: several targets, of --method ridge, are {flag} A,B")
        setattr(namespace, self.dest, values)


def _how(text: str) -> bool | str:
    if text not in (LINE, "json"):
        raise argparse.ArgumentTypeError(f"must stand alone, or be json, got {text}")
    return text == LINE or text


def progress(parser: Parser) -> None:
    """Declare whether progress is shown, and how."""
    parser.add_argument(
        "--progress",
        type=_how,
        default=None,
        metavar="[json]",
        help="progress on standard error (default: on a terminal), or lines of JSON there",
    )


def in_parts(parser: Parser) -> None:
    """Declare the flags of a verb whose rows are learned in parts."""
    workers(parser, "learned")
    checkpointed(parser)


def row_by_row(parser: Parser) -> None:
    """Declare the flags of a verb that says something of every row."""
    text = "csv, or .npy or .parquet (a folder) by its name (default: csv on the standard output)"
    output(parser, "OUT", text, default="-")
    workers(parser, "answered")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on from what the same command has left in OUTPUT.partial, if it has: only other parts are read; "
        "refused if OUTPUT is finished",
    )
    progress(parser)


def workers(parser: Parser, done: str) -> None:
    """Declare how many parts are done at the same time, and where."""
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


def checkpointed(parser: Parser) -> None:
    """Declare the flags of a verb that learns from rows, and can go on after a kill."""
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="folder for what has been learned so far, until the output is there (default: OUTPUT.partial)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on from the checkpoint of the same command, if there is one: only what is left is learned; refused if "
        "OUTPUT is finished",
    )
    progress(parser)


def events_columns(parser: Parser) -> None:
    """Declare the flag that names the columns of users, items and values."""
    parser.add_argument(
        "--columns",
        type=listed,
        metavar="A,B[,C]",
        help="names or numbers (from 0) of the columns of users, items and values (default: the first; the third only "
        "if it is there and not that of times)",
    )


def events(parser: Parser) -> None:
    """Declare how events are read, and what is learned from them."""
    parser.add_argument(
        "--relevant",
        type=float,
        metavar="X",
        help="values from X on count as 1, lower ones as seen and no more (4 for five stars)",
    )
    parser.add_argument("--binary", action="store_true", help="every event counts 1, whatever its value, however often")
    events_columns(parser)
    parameter(parser, "sketch_size", "-l", metavar="L", help=ITEM_ROWS)
    parser.add_argument("-r", "--rank", type=int, metavar="R", help="of ratings (default 10, or that of the model)")
