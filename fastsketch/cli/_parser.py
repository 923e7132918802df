"""Parse a command line into a ``Verb`` with its arguments; only the module of the requested subcommand is imported."""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from fastsketch._core.escaping import escaped
from fastsketch.cli._flags import READING_OPTIONS, Verb, import_object, parse_reading_option
from fastsketch.cli._signals import delay_signals

# Name of a verb: (module and class within this folder, one line of help).
SUBCOMMANDS = {
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
        for item in [] if verb is None else _argument_fields(verb):
            names: tuple[str, ...] = item.metadata["names"]
            options: dict[str, Any] = {**item.metadata["options"], **_help_of_field(self.verb, item.name)}
            if not names:
                self.add_argument(item.name, **options)
                continue
            default = None if item.default is dataclasses.MISSING else item.default
            action = self.add_argument(*names, dest=item.name, default=default, **options)
            if "parameter" in item.metadata:
                self.actions[item.name] = action
        if self.models or self.settable:
            owners = [f"of {model}" for model in self.models] + ["of how inputs are read"] * bool(self.settable)
            text = f"a parameter {' or '.join(owners)}, as often as needed: --set help lists them all"
            self.add_argument("--set", action=_Set, default={}, metavar="NAME=VALUE", dest="settings", help=text)

    def parse_arguments(self, texts: Sequence[str]) -> Verb:
        """Parse the arguments of the subcommand, and return an instance of its class.

        If they are wrong, an error is printed and the process exits with status 2.
        """
        args = vars(self.parse_intermixed_args(texts))
        settings: dict[str, str] = dict(args.pop("settings", {}))
        reading: dict[str, Any] = {}
        try:
            reading = {
                name: parse_reading_option(name, settings.pop(name)) for name in self.settable if name in settings
            }
            if settings and not self.models:
                raise ValueError(self._unknown_setting_message(next(iter(settings))))
        except ValueError as error:
            self.error(str(error))
        return self.verb(**args, settings=settings, reading=reading)

    def error(self, message: str) -> Any:
        """Print a usage error and exit.

        If an unknown flag has the name of a model parameter, the message suggests --set.
        """
        _, _, flag = message.partition("unrecognized arguments: --")
        name = flag.partition(" ")[0].partition("=")[0].replace("-", "_")
        if name and any(name in names_of_owner for names_of_owner in self._settings_documentation().values()):
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

    def _unknown_setting_message(self, name: str) -> str:
        """Return the error message for a --set of an unknown name, which suggests the most similar one."""
        from fastsketch._frame.parameters import unknown_keyword

        settable_names = dict.fromkeys(
            name for documents in self._settings_documentation().values() for name in documents
        )
        return f"{unknown_keyword('--set', name, settable_names)}; --set help lists them"

    def _settings_documentation(self) -> dict[str, dict[str, str]]:
        """Return the documentation of all that --set can set, as {owner: {name: text}}."""
        from fastsketch._frame.parameters import described

        documents: dict[str, dict[str, str]] = {}
        for model in self.models:
            cls = import_object(f"fastsketch.{model}")
            texts, names = described(cls), [str(name) for name, item in cls._declared.items() if not item.fixed]
            documents[f"of {model}"] = {name: texts.get(name, name) for name in names}
        for name in self.settable:
            home = READING_OPTIONS[name]
            documents.setdefault(f"of reading, as of {home}", {})[name] = described(import_object(home))[name]
        return documents

    def settings_help(self) -> str:
        """Return the text that ``--set help`` prints."""
        return "\n\n".join(
            "\n".join([f"parameters {owner}:", *dict.fromkeys(texts.values())])
            for owner, texts in self._settings_documentation().items()
        )


def _argument_fields(verb: type[Verb]) -> list[Any]:
    """Return the dataclass fields of a subcommand that are arguments: its own first, then those of its bases."""
    declared = {item.name: item for item in dataclasses.fields(verb) if item.metadata}
    names = [name for cls in verb.__mro__ for name in vars(cls).get("__annotations__", {})]
    return [declared[name] for name in dict.fromkeys(names) if name in declared]


def _help_of_field(verb: type[Verb], name: str) -> dict[str, str]:
    """Return {"help": text, "metavar": text} of an argument, from the docstring of the subcommand or a base class."""
    from fastsketch._frame.parameters import described

    text = next((texts[name] for cls in verb.__mro__ if name in (texts := described(cls))), "")  # none under python -OO
    head, _, lines = text.partition("\n")
    metavar = head.partition(" : ")[2]
    return {"help": " ".join(lines.split()).replace("%", "%%")} | ({"metavar": metavar} if metavar else {})


class _Set(argparse.Action):
    """An argparse action that stores NAME=VALUE in a dict, or for "help" prints all names and exits."""

    def __call__(self, parser: Any, namespace: Any, value: Any, option_string: str | None = None) -> None:
        if value == "help":
            print(parser.settings_help())
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
    if not texts or texts[0] not in SUBCOMMANDS:
        top_parser().parse_args(texts)
    with delay_signals():  # an interrupt of an import may come out as another error
        import_module("fastsketch._kernels.level")  # refuses a FASTSKETCH_LEVEL that this CPU lacks
        parser = create_parser(texts[0])
    return parser.parse_arguments(texts[1:])


def create_parser(name: str) -> Parser:
    """Import the module of a subcommand, and return its parser."""
    verb = import_object(f"fastsketch.cli.{SUBCOMMANDS[name][0]}")
    text, _, examples = (verb.__doc__ or "").partition("Examples\n")  # indented before Python 3.13
    description = text.partition("Parameters\n")[0]
    lines = ["examples:", *map(str.strip, examples.strip().split("\n")[1:])]
    return Parser(
        prog=f"fastsketch {name}",
        description=" ".join(description.split()),
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
    for name, (_, text) in SUBCOMMANDS.items():
        verbs.add_parser(name, help=text)
    return parser
