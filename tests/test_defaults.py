"""Every default is the one of docs/defaults.md: in classes, in estimators, and on the command line."""

import ast
import importlib
import inspect
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import fastsketch as fs
from fastsketch._frame.loading import kinds
from fastsketch._frame.parameters import REQUIRED as NO_DEFAULT
from fastsketch.cli._parser import create_parser

PAGE = Path(__file__).parents[1] / "docs" / "defaults.md"
ESTIMATORS = {
    "FrequentDirections": ("SketchedPCA", "SketchedCovariance"),
    "SketchHash": ("SketchHasher",),
    "SketchQuantizer": ("SketchCoder",),
    "SketchedNewton": ("SketchedNewtonClassifier", "SketchedNewtonRegressor"),
    "AdaptiveSubgradient": ("AdaptiveSubgradientClassifier", "AdaptiveSubgradientRegressor"),
    "LowRankModel": ("LowRankCompleter", "LowRankFactors"),
    "SketchedEASE": ("EASERecommender",),
    "SketchedRidge": ("SketchedRidge", "SketchedRidgeClassifier"),
}
COMMANDS = {
    "FrequentDirections": "sketch",
    "SketchedNewton": "learn",
    "AdaptiveSubgradient": "learn",
    "SketchedEASE": "recommend",
    "DriftMonitor": "watch",
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
    ["", "data.files", "data.sources", *fs._ROOMS[1:], "reference.baselines"],
)
def test_classes(room):
    for cls in public_classes(room):
        rows = table()[cls.__name__]
        known = {name: row.default for name, row in rows.items() if row.default != ABSENT}  # of its estimator alone
        found = defaults(cls)
        if "method" in known and "method" not in found:
            assert known.pop("method") == cls(4).method  # settled by the class
        assert found == known, cls.__name__


def test_defaults_need_no_check():
    """Constructors take a default as it is, so it is what its check would make of it."""
    for cls in {owner for owner in kinds.values() if owner.__module__.startswith("fastsketch.")}:
        for parameter, item in getattr(cls, "_declared", {}).items():  # an index has no declaration
            if item.default is not None and item.default is not NO_DEFAULT:
                checked = item.check(item.default, parameter)
                assert (checked, type(checked)) == (item.default, type(item.default)), f"{cls.__name__}.{parameter}"


def test_torch():
    torch = pytest.importorskip("torch")
    for cls in public_classes("torch"):
        rows = table().get(f"torch.{cls.__name__}") or table()[cls.__name__]
        found = {name: str(value) if isinstance(value, torch.dtype) else value for name, value in defaults(cls).items()}
        assert found == {name: row.default for name, row in rows.items()}, cls.__name__


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
def helped(command):
    """The parser of a command, its flags explained, and {parameter: its flag}."""
    parser = create_parser(command)
    parser.format_help()
    return parser, parser.actions


@pytest.mark.parametrize("name", COMMANDS)
def test_command_line(name):
    """Every parameter is set from the command line, and the default is the class's but where the table has another."""
    cls = getattr(fs, name)
    parser, actions = helped(COMMANDS[name])
    assert name in parser.models
    for parameter, row in table()[name].items():
        assert row.command[""] != ABSENT or parameter not in cls._declared, parameter
    assert set(table()[name]) == {parameter for parameter, item in cls._declared.items() if not item.fixed}
    known = {parameter for model in parser.models for parameter in getattr(fs, model)._declared}
    assert set(actions) <= known


def test_defaults_of_the_command_line_alone():
    others = {
        (name, parameter): row.command
        for name in COMMANDS
        for parameter, row in table()[name].items()
        if row.command[""] not in (SAME, REQUIRED)
    }
    assert others.pop(("AdaptiveSubgradient", "method")) == {"": fs.SketchedNewton().method}
    assert not others


@pytest.mark.parametrize("name", COMMANDS)
def test_help_states_the_default(name):
    parser, actions = helped(COMMANDS[name])
    for parameter, action in actions.items():
        row = table()[name].get(parameter)
        if row is None or name != parser.models[0]:
            continue
        default = row.default if row.command[""] == SAME else row.command[""]
        assert action.help, parameter
        if default in (None, False):  # "If it is not given, ..." says how the model finds a value
            assert "(default " not in action.help, f"--{parameter}: {action.help}"
            continue
        stated = re.search(r"\(default (\S+?)[,)]", action.help)
        shown = f"{default:g}" if isinstance(default, float) else str(default)
        assert stated and stated[1] == shown, f"--{parameter}: {action.help}"


@pytest.mark.parametrize("name", COMMANDS)
def test_choices_are_those_of_the_class(name):
    parser, actions = helped(COMMANDS[name])
    for parameter, item in getattr(fs, name)._declared.items():
        choices = [choice for choice in item.choices if choice is not None]
        if parameter in actions:
            shown = f"{actions[parameter].metavar} {actions[parameter].help}"
            assert all(re.search(rf"\b{choice}\b", shown) for choice in choices), f"{name}: --{parameter}: {shown}"


@pytest.mark.parametrize("name", COMMANDS)
def test_everything_that_is_set_is_listed(name, capsys):
    with pytest.raises(SystemExit) as end:
        create_parser(COMMANDS[name]).parse_arguments(["--set", "help"])
    text = capsys.readouterr().out
    assert not end.value.code
    for parameter in (*table()[name], *create_parser(COMMANDS[name]).settable):
        assert re.search(rf"^(\w+, )*{parameter}\b", text, re.MULTILINE), parameter


def test_regression_has_the_defaults_of_the_regressors():
    from fastsketch.cli._learn import REGRESSION

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
