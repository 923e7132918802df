"""From the texts of a command line to a verb with its arguments: the verb that is called is imported, and no other."""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from fastsketch._core.escaping import escaped
from fastsketch.cli._flags import READING, Verb, class_named, reading_of
from fastsketch.cli._signals import held


class Listed(NamedTuple):
    """A verb as the list of all verbs has it: its class, "module.class" of this folder, and one line of help."""

    name: str
    help: str


VERBS = {
    "sketch": Listed("_sketch.Sketch", "sketch the rows of files"),
    "audit": Listed("_sketch.Audit", "measure the error of a sketch over its rows"),
    "merge": Listed("_models.Merge", "merge models of the same parameters into one"),
    "info": Listed("_models.Info", "counts, parameters, certificate and spectrum of a model"),
    "transform": Listed("_transform.Transform", "components, densities, distances or codes of rows"),
    "learn": Listed("_learn.Learn", "learn a linear model from labelled rows"),
    "predict": Listed("_predict.Predict", "predictions of rows, and how good they are"),
    "recommend": Listed("_recommend.Recommend", "best items for users, from their events or from a model"),
    "watch": Listed("_watch.Watch", "print an alarm when the rows that come in are no longer as they were"),
}


class Parser(argparse.ArgumentParser):
    """Parser of one verb: it takes no abbreviated flags, and --set for what has no flag of its own.

    Attributes
    ----------
    verb : subclass of Verb, or None
    models, settable : tuple of str
        Public classes whose declared parameters --set sets, and names of READING that it sets too.
    actions : dict
        {parameter: its flag}.
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
        """Return the verb with the arguments in these texts."""
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

    def _documents(self) -> dict[str, dict[str, str]]:
        """Return {whose they are: {name: what its documentation says}} of all that --set takes."""
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
        """Return all that --set takes, with its documentation."""
        return "\n\n".join(
            "\n".join([f"parameters {whose}:", *dict.fromkeys(texts.values())])
            for whose, texts in self._documents().items()
        )


def _ordered(verb: type[Verb]) -> list[Any]:
    """Return the fields that are arguments: those of the verb itself before those of its bases."""
    declared = {item.name: item for item in dataclasses.fields(verb) if item.metadata}
    names = [name for cls in verb.__mro__ for name in vars(cls).get("__annotations__", {})]
    return [declared[name] for name in dict.fromkeys(names) if name in declared]


def _documented(verb: type[Verb], name: str) -> dict[str, str]:
    """Return metavar and help of an argument, as the docstring of the verb or of one of its bases has them."""
    from fastsketch._frame.parameters import described

    text = next((texts[name] for cls in verb.__mro__ if name in (texts := described(cls))), "")  # none under python -OO
    head, _, lines = text.partition("\n")
    metavar = head.partition(" : ")[2]
    return {"help": " ".join(lines.split()).replace("%", "%%")} | ({"metavar": metavar} if metavar else {})


class _Set(argparse.Action):
    """Keep NAME=VALUE, or print all names."""

    def __call__(self, parser: Any, namespace: Any, value: Any, option_string: str | None = None) -> None:
        if value == "help":
            print(parser.listed())
            parser.exit()
        name, sign, text = value.partition("=")
        if not sign:
            parser.error(f"--set takes NAME=VALUE, or help, got {value!r}")
        setattr(namespace, self.dest, {**getattr(namespace, self.dest), name.strip().replace("-", "_"): text})


class ExamplesLast(argparse.HelpFormatter):
    """A help that ends with lines as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if not text.startswith("examples:"):
            return super()._fill_text(text, width, indent)
        return "".join(f"{indent}{line}\n" for line in text.splitlines()).rstrip("\n")


class _Version(argparse.Action):
    """Print the version and what it computes with."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from fastsketch import show_config

        show_config()
        parser.exit()


def parse(argv: Sequence[str] | None) -> Verb:
    """Return the verb of a command line with its arguments; help, version and errors end here."""
    texts = list(sys.argv[1:] if argv is None else argv)
    if not texts or texts[0] not in VERBS:
        top_parser().parse_args(texts)
    with held():  # an interrupt of an import may come out as another error
        import_module("fastsketch._kernels.level")  # refuses a FASTSKETCH_LEVEL that this CPU lacks
        parser = parser_of(texts[0])
    return parser.arguments(texts[1:])


def parser_of(name: str) -> Parser:
    """Return the parser of a verb, whose module is imported."""
    verb = class_named(f"fastsketch.cli.{VERBS[name].name}")
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
    """Return the parser of a command line without a verb: it shows the verbs, or complains."""
    parser = Parser(
        prog="fastsketch",
        description="Matrix sketches with a guarantee, online learners and item models, for rows that do not fit in "
        "memory.",
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="show the version and what it computes with, and exit"
    )
    verbs: Any = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, verb in VERBS.items():
        verbs.add_parser(name, help=verb.help)
    return parser
