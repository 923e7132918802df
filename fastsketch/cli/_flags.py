"""Base classes of the command line's subcommands ("verbs"), whose dataclass fields declare their arguments.

The docstring of the class is the text of --help. ``Verb`` has the flags of all verbs, its subclasses here those that
several verbs share.
"""

import argparse
import dataclasses
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

TEXT_OPTIONS = ("n_features", "zero_based")
TABLE_OPTIONS = ("header", "separator", "decimal", "thousands", "comment", "na_values", "multiline")
# Options of reading that --set takes: {name: the function or class that documents it}.
READING_OPTIONS = {
    **dict.fromkeys(("n_features", "zero_based", "key", "transpose", *TABLE_OPTIONS), "fastsketch.data.open_rows"),
    "missing": "fastsketch.data.TableRows",
}


# -- fields ------------------------------------------------------------------------------------------------------------
def flag(*names: str, default: Any = None, **options: Any) -> Any:
    """Return a dataclass field that declares a flag of a subcommand, or without names a positional argument.

    `options` are passed to ``ArgumentParser.add_argument``. Metavar and help are taken from the docstring of the class,
    where they are written as a numpydoc parameter: "name : METAVAR" and an indented text.
    """
    if options.get("action") == "store_true":
        default = False
    required = not names or options.get("required", False)
    metadata = {"names": names, "options": options}
    return dataclasses.field(metadata=metadata) if required else dataclasses.field(default=default, metadata=metadata)


def parameter(*names: str, **options: Any) -> Any:
    """Return a dataclass field that declares a flag which sets the model parameter of the same name.

    The value is the text from the command line, None if the flag is not given. ``Verb.parameters`` converts it.
    """
    return dataclasses.field(default=None, metadata={"names": names, "options": options, "parameter": True})


def split_names(text: str) -> list[str]:
    """Split a text at commas, and return the list of names; a name that contains a comma must be in double quotes.

    Raise ArgumentTypeError for an invalid list.
    """
    from fastsketch._frame.parameters import names_in

    try:
        return names_in(text, "it")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("it ").removeprefix("it: ")) from None


def as_column(text: str) -> str | int:
    """Convert the text of a column option: a number becomes an int, the position from 0; a name stays a string."""
    try:
        return int(text)
    except ValueError:
        return text


def progress_format(text: str) -> bool | str:
    """Convert the text of --progress: "json" stays, "line" becomes True. Other texts are refused."""
    if text not in ("line", "json"):
        raise argparse.ArgumentTypeError(f"must be line or json, got {text}")
    return text == "line" or text


# -- verbs -------------------------------------------------------------------------------------------------------------
@dataclass(kw_only=True)
class Verb:
    """Base class of the subcommands of the command line; an instance holds the arguments of a command.

    Parameters
    ----------
    threads : N
        use N threads (default: the cores that may be used)
    json
        print the result as JSON
    """

    # Public classes whose parameters --set can set, and names in READING_OPTIONS that it can set as well.
    MODELS: ClassVar[tuple[str, ...]] = ()
    SETTABLE: ClassVar[tuple[str, ...]] = ()

    threads: int | None = flag("--threads", type=int)
    json: bool = flag("--json", action="store_true")
    # Values of --set: texts of model parameters, and converted options of reading.
    settings: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    reading: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    def run(self) -> int | None:
        """Execute the command, and return its exit status; None means 0."""
        raise NotImplementedError

    def flag_of(self, name: str) -> str:
        """Return the flag that sets an argument, or "--set NAME" for a model parameter without a flag, for messages."""
        names = [item.metadata["names"] for item in dataclasses.fields(self) if item.name == name and item.metadata]
        return names[0][-1] if names and names[0] else f"--set {name}"

    def given_parameters(self) -> dict[str, str]:
        """Return {name: text} of the model parameters that the command line sets, by flags or by --set."""
        texts = {
            item.name: getattr(self, item.name) for item in dataclasses.fields(self) if "parameter" in item.metadata
        }
        return self.settings | {name: text for name, text in texts.items() if text is not None}

    def parameters(self, *classes: Any) -> dict[str, Any]:
        """Convert the model parameters that the command line sets from text; return {name: value}.

        The first of the classes that has a parameter declares its type. ValueError if a text cannot be converted, or
        if no class has the parameter; the message then suggests the most similar name.
        """
        from fastsketch._frame.parameters import annotation_of, from_text, unknown_keyword

        declared = {name: cls for cls in reversed(classes) for name, item in cls._declared.items() if not item.fixed}
        values: dict[str, Any] = {}
        for name, text in self.given_parameters().items():
            if name not in declared:
                class_names = " and ".join(cls.__name__ for cls in classes)
                raise ValueError(f"{unknown_keyword(class_names, name, declared)}; --set help lists them")
            values[name] = from_text(text, self.flag_of(name), annotation_of(declared[name], name))
        return values


@dataclass(kw_only=True)
class RowsVerb(Verb):
    """Base class of subcommands that read rows of numbers with ``fs.open_rows``.

    Parameters
    ----------
    columns : A,B,...
        names or numbers (from 0) of the columns to read; numeric: all columns of numbers (default: all)
    fill : X
        number that replaces missing values
    """

    SETTABLE = (*TEXT_OPTIONS, "key", "transpose", *TABLE_OPTIONS)

    inputs: list[str]
    columns: list[str] | None = flag("--columns", type=split_names)
    fill: float | None = flag("--fill", type=float)


@dataclass(kw_only=True)
class PartsVerb(Verb):
    """Base class of subcommands that split their rows into parts, which several workers process at the same time.

    Parameters
    ----------
    progress : {line,json}
        progress on standard error: a line (default: on a terminal), or lines of JSON
    resume
        continue the same command from OUTPUT.partial, which it has left when it was stopped; if there is none, start;
        refused if OUTPUT is finished
    workers : N
        parts processed at the same time (default auto: by cores, memory and size; no influence on the result)
    engine : {processes,threads,dask,ADDRESS}
        where parts are processed; ADDRESS, such as tcp://host:8786, is a Dask scheduler (default processes)
    """

    workers: str = flag("--workers", default="auto")
    engine: str = flag("--engine", default="processes")
    progress: Any = flag("--progress", type=progress_format)
    resume: bool = flag("--resume", action="store_true")

    def job(self, progress: Any) -> Any:
        """Return a ``Job`` with the options --workers, --engine, --resume and --progress of the command line.

        `progress` is a function that the job calls with its reports.
        """
        from fastsketch.jobs._options import Job

        try:
            workers = self.workers if self.workers == "auto" else int(self.workers)
        except ValueError:
            raise ValueError(f"--workers must be a number or auto, got {self.workers}") from None
        address = self.engine if "://" in self.engine else None
        engine = "dask" if address else self.engine
        return Job(resume=self.resume, progress=progress, workers=workers, engine=engine, scheduler=address).checked()


def import_object(name: str) -> Any:
    """Import and return the object with a dotted name such as "fastsketch.data.open_rows"."""
    module, _, item = name.rpartition(".")
    return getattr(import_module(module), item)


def parse_reading_option(name: str, text: str) -> Any:
    """Convert the text of --set NAME=TEXT for an option of reading to the type that its function declares."""
    from inspect import signature

    from fastsketch._frame.parameters import from_text

    text = "\t" if name == "separator" and text in ("tab", "\\t") else text
    return from_text(text, f"--set {name}", signature(import_object(READING_OPTIONS[name])).parameters[name].annotation)
