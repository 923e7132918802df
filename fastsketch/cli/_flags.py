"""How a verb declares its arguments: a dataclass, whose fields are flags, positional arguments or parameters of models.

``Verb`` is the base of all; the classes below it add the flags that several verbs share.
"""

import argparse
import dataclasses
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

TEXT = ("n_features", "zero_based")
TABLES = ("header", "separator", "decimal", "thousands", "comment", "na_values", "multiline")
# Options of reading that --set takes: the function that documents each of them.
READING = {
    **dict.fromkeys(("n_features", "zero_based", "key", "transpose", *TABLES), "fastsketch.data.open_rows"),
    "missing": "fastsketch.data.TableRows",
}


# -- fields ------------------------------------------------------------------------------------------------------------
def flag(*names: str, default: Any = None, **options: Any) -> Any:
    """Declare a field as a flag of these names, or, without a name, as a positional argument.

    The options are those of ``ArgumentParser.add_argument``, but for its metavar and its help, which stand in the
    docstring of the class as "name : METAVAR" and an indented text.
    """
    if options.get("action") == "store_true":
        default = False
    required = not names or options.get("required", False)
    metadata = {"names": names, "options": options}
    return dataclasses.field(metadata=metadata) if required else dataclasses.field(default=default, metadata=metadata)


def parameter(*names: str, **options: Any) -> Any:
    """Declare a field as a flag that sets the parameter of its name of the verb's models.

    Its value stays text, None if it is not given, until ``Verb.parameters`` knows the model and so the type.
    """
    return dataclasses.field(default=None, metadata={"names": names, "options": options, "parameter": True})


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


def _how(text: str) -> bool | str:
    if text not in ("line", "json"):
        raise argparse.ArgumentTypeError(f"must be line or json, got {text}")
    return text == "line" or text


# -- verbs -------------------------------------------------------------------------------------------------------------
@dataclass(kw_only=True)
class Verb:
    """Arguments of a verb: the base of all, with the flags that each has. The docstring of a verb is its help.

    Parameters
    ----------
    threads : N
        use N threads (default: the cores that may be used)
    json
        print the result as JSON
    """

    # Public classes whose parameters --set sets, and the names in READING that it sets too.
    MODELS: ClassVar[tuple[str, ...]] = ()
    SETTABLE: ClassVar[tuple[str, ...]] = ()

    threads: int | None = flag("--threads", type=int)
    json: bool = flag("--json", action="store_true")
    # What --set has given: texts of parameters, and values of options of reading.
    settings: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    reading: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    def run(self) -> int | None:
        """Do the job of the verb. Return the exit status, None for 0."""
        raise NotImplementedError

    def flag_of(self, name: str) -> str:
        """Return how an argument, or a parameter of a model, is given on the command line."""
        names = [item.metadata["names"] for item in dataclasses.fields(self) if item.name == name and item.metadata]
        return names[0][-1] if names and names[0] else f"--set {name}"

    def given_parameters(self) -> dict[str, str]:
        """Return the texts of the parameters of models that are given, by a flag of their own or by --set."""
        own = {item.name: getattr(self, item.name) for item in dataclasses.fields(self) if "parameter" in item.metadata}
        return self.settings | {name: text for name, text in own.items() if text is not None}

    def parameters(self, *classes: Any) -> dict[str, Any]:
        """Return the given parameters, each in the type that the first of these classes declares which has it.

        ValueError if a text is none of its type, or if no class has such a parameter: the message names the nearest.
        """
        from fastsketch._frame.parameters import annotation_of, from_text, unknown_keyword

        declared = {name: cls for cls in reversed(classes) for name, item in cls._declared.items() if not item.fixed}
        values: dict[str, Any] = {}
        for name, text in self.given_parameters().items():
            if name not in declared:
                whose = " and ".join(cls.__name__ for cls in classes)
                raise ValueError(f"{unknown_keyword(whose, name, declared)}; --set help lists them")
            values[name] = from_text(text, self.flag_of(name), annotation_of(declared[name], name))
        return values


@dataclass(kw_only=True)
class RowsVerb(Verb):
    """Verb that reads rows in whatever form ``fs.open_rows`` does.

    Parameters
    ----------
    columns : A,B,...
        names or numbers (from 0) of the columns that are read; numeric: all of numbers (default: all)
    fill : X
        number in the place of what is missing
    """

    SETTABLE = (*TEXT, "key", "transpose", *TABLES)

    inputs: list[str]
    columns: list[str] | None = flag("--columns", type=listed)
    fill: float | None = flag("--fill", type=float)


@dataclass(kw_only=True)
class ResumableVerb(Verb):
    """Verb whose job can be resumed after a kill, and shows its progress.

    Parameters
    ----------
    progress : {line,json}
        progress on standard error: a line (default: on a terminal), or lines of JSON
    resume
        go on from what the same command has left in OUTPUT.partial, if it has: only what is left is done; refused
        if OUTPUT is finished
    """

    progress: Any = flag("--progress", type=_how)
    resume: bool = flag("--resume", action="store_true")

    def job(self, progress: Any) -> Any:
        """Return the options of the job, which reports its progress in this way."""
        from fastsketch.jobs._options import Job

        return Job(resume=self.resume, progress=progress)


@dataclass(kw_only=True)
class PartsVerb(ResumableVerb):
    """Verb whose rows are cut into parts that are done at the same time.

    Parameters
    ----------
    workers : N
        parts done at the same time (default auto: by cores, memory and size; no influence on the result)
    engine : {processes,threads,dask,ADDRESS}
        where parts are done; ADDRESS, as tcp://host:8786, is of a Dask scheduler (default processes)
    """

    workers: str = flag("--workers", default="auto")
    engine: str = flag("--engine", default="processes")

    def job(self, progress: Any) -> Any:
        """See ResumableVerb."""
        try:
            workers = self.workers if self.workers == "auto" else int(self.workers)
        except ValueError:
            raise ValueError(f"--workers must be a number or auto, got {self.workers}") from None
        address = self.engine if "://" in self.engine else None
        job = super().job(progress)._replace(workers=workers, engine="dask" if address else self.engine)
        return job._replace(scheduler=address).checked()


def class_named(name: str) -> Any:
    """Return what a dotted name stands for."""
    module, _, item = name.rpartition(".")
    return getattr(import_module(module), item)


def reading_of(name: str, text: str) -> Any:
    """Return the value of an option of reading that --set has as a text."""
    from inspect import signature

    from fastsketch._frame.parameters import from_text

    text = "\t" if name == "separator" and text in ("tab", "\\t") else text
    return from_text(text, f"--set {name}", signature(class_named(READING[name])).parameters[name].annotation)
