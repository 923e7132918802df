"""Parse a command line into a ``Verb`` with its arguments; only the module of the requested subcommand is imported."""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from fastsketch._core.escaping import escaped
from fastsketch.cli._flags import READING, Verb, class_named, reading_of
from fastsketch.cli._signals import held

# Name of a verb: (module and class within this folder, one line of help).
VERBS = {
    "sketch": ("_sketch.Sketch", "sketch the rows of files"),
    "audit": ("_sketch.Audit", "measure the error of a sketch over its rows"),
    "merge": ("_models.Merge", "merge models of the same parameters into one"),
    "info": ("_models.Info", "counts, parameters, certificate and spectrum of a model"),
    "transform": ("_transform.Transform", "components, densities, distances or codes of rows"),
    "learn": ("_learn.Learn", "learn a linear model from labelled rows"),
    "predict": ("_predict.Predict", "predictions of rows, and how good they are"),
    "recommend": ("_recommend.Recommend", "best items for users, from their events or from a model"),
    "watch": ("_watch.Watch", "print an alarm when the rows that come in are no longer as they were"),
}


class Parser(argparse.ArgumentParser):
    """A parser for the arguments of one subcommand, built from the fields of its class.

    Flags cannot be abbreviated. Model parameters without a flag are set by --set.

    Attributes
    ----------
    verb : subclass of Verb
    models, settable : tuple of str
        Public classes whose parameters --set can set, and options in READING that it can set as well.
    actions : dict
        {model parameter: the argparse action of its flag}.
    """

    def __init__(self, *args: Any, verb: type[Verb] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, "formatter_class": ExamplesLast, **kwargs})
        self.verb = verb or Verb
        self.models, self.settable = self.verb.MODELS, self.verb.SETTABLE
        self.actions: dict[str, argparse.Action] = {}
        for item in [] if verb is None else _ordered(verb):
            names: tuple[str, ...] = item.metadata["names"]
            options: dict[str, Any] = {**item.metadata["options"], **_documented(self.verb, item.name)}
            if not names:
                self.add_argument(item.name, **options)
                continue
            default = None if item.default is dataclasses.MISSING else item.default
            action = self.add_argument(*names, dest=item.name, default=default, **options)
            if "parameter" in item.metadata:
                self.actions[item.name] = action
        if self.models or self.settable:
            whose = [f"of {model}" for model in self.models] + ["of how inputs are read"] * bool(self.settable)
            text = f"a parameter {' or '.join(whose)}, as often as needed: --set help lists them all"
            self.add_argument("--set", action=_Set, default={}, metavar="NAME=VALUE", dest="settings", help=text)

    def arguments(self, texts: Sequence[str]) -> Verb:
        """Parse the arguments of the subcommand, and return the subcommand with them.

        If they are wrong, an error is printed and the process exits with status 2.
        """
        args = vars(self.parse_intermixed_args(texts))
        given: dict[str, str] = dict(args.pop("settings", {}))
        reading: dict[str, Any] = {}
        try:
            reading = {name: reading_of(name, given.pop(name)) for name in self.settable if name in given}
            if given and not self.models:
                raise ValueError(self._unknown(next(iter(given))))
        except ValueError as error:
            self.error(str(error))
        return self.verb(**args, settings=given, reading=reading)

    def error(self, message: str) -> Any:
        """Print a usage error and exit.

        If an unknown flag has the name of a model parameter, the message suggests --set.
        """
        _, _, flag = message.partition("unrecognized arguments: --")
        name = flag.partition(" ")[0].partition("=")[0].replace("-", "_")
        if name and any(name in known for known in self._documents().values()):
            message += f" (--set {name}=VALUE sets it)"
        super().error(escaped(message))

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print a message to a file.

        Unlike argparse, it does not ignore errors such as a full disk.
        """
        print(message, end="", file=file or sys.stderr)

    def exit(self, status: int = 0, message: str | None = None) -> Any:
        """Write buffered standard output, so that its errors are reported, and exit the process."""
        sys.stdout.flush()
        super().exit(status, message)

    def _unknown(self, name: str) -> str:
        from fastsketch._frame.parameters import unknown_keyword

        known = dict.fromkeys(name for documents in self._documents().values() for name in documents)
        return f"{unknown_keyword('--set', name, known)}; --set help lists them"

    def _documents(self) -> dict[str, dict[str, str]]:
        """Return {owner: {name: documentation}} of all that --set can set."""
        from fastsketch._frame.parameters import described

        documents: dict[str, dict[str, str]] = {}
        for model in self.models:
            cls = class_named(f"fastsketch.{model}")
            texts, names = described(cls), [str(name) for name, item in cls._declared.items() if not item.fixed]
            documents[f"of {model}"] = {name: texts.get(name, name) for name in names}
        for name in self.settable:
            home = READING[name]
            documents.setdefault(f"of reading, as of {home}", {})[name] = described(class_named(home))[name]
        return documents

    def listed(self) -> str:
        """Return the text that ``--set help`` prints."""
        return "\n\n".join(
            "\n".join([f"parameters {whose}:", *dict.fromkeys(texts.values())])
            for whose, texts in self._documents().items()
        )


def _ordered(verb: type[Verb]) -> list[Any]:
    """Return the fields of a subcommand that are arguments, with those of the class before those of its bases."""
    declared = {item.name: item for item in dataclasses.fields(verb) if item.metadata}
    names = [name for cls in verb.__mro__ for name in vars(cls).get("__annotations__", {})]
    return [declared[name] for name in dict.fromkeys(names) if name in declared]


def _documented(verb: type[Verb], name: str) -> dict[str, str]:
    """Return the metavar and help text of an argument, from the docstring of the subcommand or of a base class."""
    from fastsketch._frame.parameters import described

    text = next((texts[name] for cls in verb.__mro__ if name in (texts := described(cls))), "")  # none under python -OO
    head, _, lines = text.partition("\n")
    metavar = head.partition(" : ")[2]
    return {"help": " ".join(lines.split()).replace("%", "%%")} | ({"metavar": metavar} if metavar else {})


class _Set(argparse.Action):
    """An argparse action that stores NAME=VALUE in a dict, or for "help" prints all names and exits."""

    def __call__(self, parser: Any, namespace: Any, value: Any, option_string: str | None = None) -> None:
        if value == "help":
            print(parser.listed())
            parser.exit()
        name, sign, text = value.partition("=")
        if not sign:
            parser.error(f"--set takes NAME=VALUE, or help, got {value!r}")
        setattr(namespace, self.dest, {**getattr(namespace, self.dest), name.strip().replace("-", "_"): text})


class ExamplesLast(argparse.HelpFormatter):
    """An argparse help formatter that does not wrap the examples at the end."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if not text.startswith("examples:"):
            return super()._fill_text(text, width, indent)
        return "".join(f"{indent}{line}\n" for line in text.splitlines()).rstrip("\n")


class _Version(argparse.Action):
    """An argparse action that prints the version and the configuration, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from fastsketch import show_config

        show_config()
        parser.exit()


def parse(argv: Sequence[str] | None) -> Verb:
    """Parse a command line (by default that of the process) and return the subcommand with its arguments.

    --help, --version and wrong usage exit the process here.
    """
    texts = list(sys.argv[1:] if argv is None else argv)
    if not texts or texts[0] not in VERBS:
        top_parser().parse_args(texts)
    with held():  # an interrupt of an import may come out as another error
        import_module("fastsketch._kernels.level")  # refuses a FASTSKETCH_LEVEL that this CPU lacks
        parser = parser_of(texts[0])
    return parser.arguments(texts[1:])


def parser_of(name: str) -> Parser:
    """Import the module of a subcommand, and return its parser."""
    verb = class_named(f"fastsketch.cli.{VERBS[name][0]}")
    text, _, examples = (verb.__doc__ or "").partition("Examples\n")  # indented before Python 3.13
    about = text.partition("Parameters\n")[0]
    lines = ["examples:", *map(str.strip, examples.strip().split("\n")[1:])]
    return Parser(
        prog=f"fastsketch {name}",
        description=" ".join(about.split()),
        epilog="\n  ".join(lines),
        verb=verb,
    )


def top_parser() -> argparse.ArgumentParser:
    """Return the parser for a command line without a valid subcommand; it lists all subcommands or reports an error."""
    parser = Parser(
        prog="fastsketch",
        description="Matrix sketches with a guarantee, online learners and item models, for rows that do not fit in "
        "memory.",
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="show the version and what it computes with, and exit"
    )
    verbs: Any = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (_, text) in VERBS.items():
        verbs.add_parser(name, help=text)
    return parser
