"""Every default is the one of docs/defaults.md: in classes, in estimators, and on the command line."""

import argparse
import ast
import importlib
import inspect
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple, get_args

import pytest

import fastsketch as fs
from fastsketch.cli._parser import make_parser

PAGE = Path(__file__).parents[1] / "docs" / "defaults.md"
ESTIMATORS = {
    "FrequentDirections": ("SketchedPCA", "SketchedCovariance"),
    "SketchHash": ("SketchHasher",),
    "SketchQuantizer": ("SketchCoder",),
    "SketchedNewton": ("SketchedNewtonClassifier", "SketchedNewtonRegressor"),
    "AdaptiveSubgradient": ("AdaptiveSubgradientClassifier", "AdaptiveSubgradientRegressor"),
    "LowRankModel": ("LowRankCompleter",),
    "SketchedEASE": ("EASERecommender",),
}
COMMANDS = {
    "FrequentDirections": "sketch",
    "GroupSketches": "groups",
    "SketchHash": "hash",
    "SketchQuantizer": "quantize",
    "SketchedNewton": "learn",
    "AdaptiveSubgradient": "learn",
    "LowRankModel": "complete",
    "SketchedEASE": "items",
}
REQUIRED = inspect.Parameter.empty
ABSENT, SAME = "–", "="


class Row(NamedTuple):
    names: list[str]
    parameter: str
    default: object
    estimators: dict  # {estimator, or "" for all others: value}
    command: dict  # {flag, or "" without one: value}
    reason: str


def value(cell):
    """A cell's value: a literal in backticks, "required", or one of the signs."""
    if cell in (ABSENT, SAME):
        return cell
    return REQUIRED if cell == "required" else ast.literal_eval(re.fullmatch(r"`(.*)`", cell)[1])


def cases(cell):
    """{"": value, name: its exception, ...} of a cell like "=; `1.0` in Name"."""
    first, *others = cell.split("; ")
    out = {"": value(first)}
    for other in others:
        found = re.fullmatch(r"(.+) (?:in|with) (\S+)", other)
        out[found[2]] = value(found[1])
    return out


def read_table(text):
    """The rows of the page's first table; later ones are measurements."""
    out = []
    first = re.search(r"(?:^\|.*\|\n?)+", text, re.MULTILINE)[0]
    for line in re.findall(r"^\|(.*)\|$", first, re.MULTILINE)[2:]:
        names, parameter, default, estimators, command, reason = (cell.strip() for cell in line.split("|"))
        parameter = re.fullmatch(r"`(\w+)`", parameter)[1]
        out.append(Row(names.split(", "), parameter, value(default), cases(estimators), cases(command), reason))
    return out


@cache
def table():
    """{name of a class: {parameter: row}}."""
    out = defaultdict(dict)
    for row in read_table(PAGE.read_text(encoding="utf-8")):
        for name in row.names:
            assert row.parameter not in out[name], f"{name}.{row.parameter} has two rows"
            out[name][row.parameter] = row
    return dict(out)


def public_classes(room):
    """The classes that a room exports, but for those without defaults: exceptions, protocols, results."""
    module = importlib.import_module(f"fastsketch.{room}" if room else "fastsketch")
    for name in module.__all__:
        item = getattr(module, name)
        if inspect.isclass(item) and (name in table() or has_defaults(item)):
            yield item


def has_defaults(cls):
    """Whether a class is made with arguments that have defaults: models are, exceptions, protocols and results not."""
    if issubclass(cls, Exception | dict) or getattr(cls, "_is_protocol", False):
        return False
    return any(default is not REQUIRED for default in defaults(cls).values())


def defaults(item):
    return {name: p.default for name, p in inspect.signature(item).parameters.items() if p.kind is not p.VAR_KEYWORD}


# -- classes and functions -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "room",
    [
        "",
        "codes",
        "hashing",
        "indexing",
        "io",
        "jobs",
        "lowrank",
        "merging",
        "online",
        "quantizing",
        "recommending",
        "reference.baselines",
        "sketching",
        "sources",
    ],
)
def test_classes(room):
    for cls in public_classes(room):
        rows = table()[cls.__name__]
        known = {name: row.default for name, row in rows.items()}
        found = defaults(cls)
        if "method" in known and "method" not in found:
            assert known.pop("method") == cls(4).method  # settled by the class
        assert found == known, cls.__name__


def test_torch_optimisers():
    pytest.importorskip("torch")
    for cls in public_classes("torch"):
        assert defaults(cls) == {name: row.default for name, row in table()[cls.__name__].items()}, cls.__name__


def test_functions():
    checked = 0
    for name, rows in table().items():
        function = getattr(fs, name, None)
        if inspect.isfunction(function):
            for parameter, row in rows.items():
                assert defaults(function)[parameter] == row.default, f"{name}: {parameter}"
                checked += 1
    assert checked >= 4


# -- estimators ----------------------------------------------------------------------------------------------------
def test_estimators():
    pytest.importorskip("sklearn")
    family = {estimator: name for name, estimators in ESTIMATORS.items() for estimator in estimators}
    for cls in public_classes("sklearn"):
        name = cls.__name__
        expected = {}
        for parameter, row in {**table().get(family[name], {}), **table().get(name, {})}.items():
            given = row.estimators.get(name, row.estimators[""])
            if given != ABSENT:
                parameter = "random_state" if parameter == "seed" else parameter
                expected[parameter] = row.default if given == SAME else given
        assert defaults(cls) == expected, name


# -- the command line ----------------------------------------------------------------------------------------------
@cache
def flags(command):
    """{name: action} of the parameters' flags of a command."""
    parser = make_parser()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    chosen = commands.choices[command]
    parameters = chosen.get_default("parameters")
    return {action.dest: action for action in chosen._actions if action.dest in parameters}


@pytest.mark.parametrize("name", COMMANDS)
def test_command_line(name):
    found = flags(COMMANDS[name])
    for parameter, row in table()[name].items():
        given = row.command[""]
        if given == ABSENT:
            assert parameter not in found, f"--{parameter}"
            continue
        assert f"--{parameter.replace('_', '-')}" in found[parameter].option_strings
        default = found[parameter].default
        if given == SAME:
            assert default is argparse.SUPPRESS, f"--{parameter}: the class has the default"
        else:
            # without a default of its own the flag has that of the first class of its command
            first = next(other for other, command in COMMANDS.items() if command == COMMANDS[name])
            assert given == (table()[first][parameter].default if default is argparse.SUPPRESS else default)
    known = {
        parameter for other, command in COMMANDS.items() if command == COMMANDS[name] for parameter in table()[other]
    }
    assert set(found) <= known


@pytest.mark.parametrize("name", COMMANDS)
def test_help_states_the_default(name):
    for parameter, row in table()[name].items():
        given = row.command[""]
        default = row.default if given == SAME else given
        if given == ABSENT or default is False:
            continue
        text = flags(COMMANDS[name])[parameter].help
        if default is None:  # "(default: ...)" says how the model finds a value
            assert "(default " not in text, f"--{parameter}: {text}"
            continue
        stated = re.search(r"\(default (\S+?)[;)]", text)
        shown = f"{default:g}" if isinstance(default, float) else str(default)
        assert stated and stated[1] == shown, f"--{parameter}: {text}"


@pytest.mark.parametrize("name", COMMANDS)
def test_choices_are_those_of_the_class(name):
    cls = getattr(fs, name)
    checked = 0
    for parameter, action in flags(COMMANDS[name]).items():
        declared = inspect.signature(cls).parameters.get(parameter)
        if declared is None:
            continue
        choices = [
            choice for kind in (declared.annotation, *get_args(declared.annotation)) for choice in get_args(kind)
        ]
        choices = [choice for choice in choices if isinstance(choice, str)]
        shown = f"{action.metavar} {action.help}"
        for choice in choices:
            assert re.search(rf"\b{choice}\b", shown), f"{name}: --{parameter} does not show {choice}"
            checked += 1
        if choices and action.metavar.startswith("{"):
            assert set(action.metavar[1:-1].split(",")) - {"none"} == set(choices) - {"none"}
    assert checked >= 2


def test_regression_has_the_defaults_of_the_regressors():
    from fastsketch.cli._learning import REGRESSION

    for name in ("SketchedNewton", "AdaptiveSubgradient"):
        rows, regressor = table()[name].items(), f"{name}Regressor"
        assert {p: row.command["--regression"] for p, row in rows if "--regression" in row.command} == REGRESSION
        # the regressors scale targets, and their losses with them; and estimators differ by more than their targets
        own = ("loss_scale", "constraint", "scale")
        theirs = {
            p: row.estimators[regressor]
            for p, row in rows
            if row.estimators.get(regressor, ABSENT) != ABSENT and p not in own
        }
        assert theirs == REGRESSION


# -- the table itself ----------------------------------------------------------------------------------------------
def test_differences_have_a_reason():
    for row in read_table(PAGE.read_text(encoding="utf-8")):
        given = [*row.estimators.values(), *row.command.values()]
        values = [item for item in given if item not in (SAME, ABSENT)]
        own = row.default == ABSENT and len(values) == 1  # of an estimator alone, and one value
        assert bool(row.reason) or own or not values, f"{row.names}: {row.parameter} needs a reason"


def test_the_table_is_read():
    head = "| a | b | c | d | e | f |\n|---|---|---|---|---|---|\n"
    rows = read_table(head + "| A, B | `p` | `1.5` | =; `None` in E; – in F | `2`; `3` with --g | why |")
    assert rows == [Row(["A", "B"], "p", 1.5, {"": SAME, "E": None, "F": ABSENT}, {"": 2, "--g": 3}, "why")]
