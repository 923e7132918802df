"""The table of names in docs/glossary.md holds: one name for one thing, few positional arguments, no other words."""

import ast
import importlib
import inspect
import re
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

import pytest

import fastsketch as fs

ROOT = Path(__file__).parents[1]
ROOMS = ("", *fs._ROOMS, "recommending.ranking", "reference.baselines")
FACES = ("sklearn", "torch", "anndata")
NEEDS = {"torch": "torch", "sklearn": "sklearn", "anndata": "anndata"}  # what is not there has no names to look at
# Names for which the table has another one.
OTHER_WORDS = {
    "rule",
    "sketch",
    "weights",
    "eta",
    "strength",
    "shrink",
    "step",
    "inner",
    "nu",
    "inner_rank",
}


def exported(rooms=ROOMS):
    """(name, object) of every public function and class of some rooms, modules of `reference` among them."""
    for room in rooms:
        if room in NEEDS and find_spec(NEEDS[room]) is None:
            continue
        module = importlib.import_module(f"fastsketch.{room}" if room else "fastsketch")
        for name in getattr(module, "__all__", dir(module)):
            item = getattr(module, name)
            if not name.startswith("_") and (inspect.isclass(item) or inspect.isroutine(item)):
                yield f"{module.__name__}.{name}", item


def signatures(rooms=ROOMS):
    """(name, signature without self) of every public function, method and constructor that the package defines."""
    for name, item in exported(rooms):
        if inspect.isroutine(item):
            yield name, inspect.signature(item)
        elif not issubclass(item, Exception | dict | tuple) and not getattr(item, "_is_protocol", False):
            yield name, inspect.signature(item)
            for method, member in inspect.getmembers(item, inspect.isroutine):
                home = getattr(member, "__module__", None) or ""
                if method.startswith("_") or not home.startswith("fastsketch") or not callable(member):
                    continue  # not callable: a cached_property, which Python 3.14 counts among routines
                bound = not isinstance(inspect.getattr_static(item, method), classmethod | staticmethod)
                parameters = list(inspect.signature(member).parameters.values())[bound:]
                yield f"{name}.{method}", inspect.Signature(parameters)


def attributes(rooms):
    """(name, attribute) of every public attribute that a class of the package has."""
    for name, item in exported(rooms):
        if inspect.isclass(item) and not issubclass(item, Exception | dict):
            for attribute in dir(item):
                if not attribute.startswith("_"):
                    yield name, attribute


@pytest.mark.parametrize("room", [*ROOMS, *FACES])
def test_at_most_two_positional_arguments(room):
    if room in NEEDS:
        pytest.importorskip(NEEDS[room])
    checked = 0
    for name, signature in signatures((room,)):
        positional = [p.name for p in signature.parameters.values() if p.kind <= p.POSITIONAL_OR_KEYWORD]
        if positional == ["X", "y", "sample_weight"] and name.endswith(".score"):
            continue  # as in scikit-learn's ClassifierMixin and RegressorMixin, whose callers pass three
        assert len(positional) <= 2, f"{name}({', '.join(positional)})"
        assert not any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()), name
        checked += 1
    assert checked


def test_errors_name_no_class_that_nobody_knows():
    """Too many arguments were refused by "Reading.search()"."""
    known = {item.__name__ for _, item in exported((*ROOMS, *FACES)) if inspect.isclass(item)}
    for name, item in exported((*ROOMS, *FACES)):
        for method, member in inspect.getmembers(item, inspect.isroutine) if inspect.isclass(item) else ():
            if isinstance(member, cached_property):  # a routine from Python 3.14 on
                continue
            function = inspect.unwrap(getattr(member, "__func__", member))
            if not method.startswith("_") and (getattr(function, "__module__", "") or "").startswith("fastsketch"):
                owner = function.__qualname__.rpartition(".")[0]
                assert not owner or owner in known, f"{name}.{method}: {function.__qualname__}"
    with pytest.raises(TypeError, match=r"^(CodeIndex\.)?search\(\) takes from 2 to 3 positional arguments"):
        fs.CodeIndex.search(1, 2, 3, 4)


def test_no_parameter_has_another_word():
    for name, signature in signatures((*ROOMS, *FACES)):
        other = OTHER_WORDS & set(signature.parameters)
        assert not other, f"{name}: {other}"


def test_trailing_underscores_are_of_estimators_alone():
    for path in (ROOT / "fastsketch").rglob("*.py"):
        if "sklearn" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "name", None) or ""
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Store):
                continue  # another library's, read
            assert not re.fullmatch(r"[a-z]\w*[a-z0-9]_", name), f"{path.name}:{getattr(node, 'lineno', 0)} {name}"
    for name, attribute in attributes(ROOMS):
        assert not attribute.endswith("_"), f"{name}.{attribute}"


def test_declared_fields_state_their_default():
    """Type checkers take a field for required if its specifier is called without a default, whatever happens later."""
    for path in (ROOT / "fastsketch").rglob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            found = re.match(r"    \w+: .* = (seed|float_dtype)\((.*)\)$", line)
            assert not found or "default=" in found[2], f"{path.name}: {line.strip()}"


# -- the table -----------------------------------------------------------------------------------------------------
def words():
    """Names of the first column of the table in docs/glossary.md."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").split("## Names in the interface")[1]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    return [word for cell in rows for word in re.findall(r"`(\w+)(?:\(\))?`", cell)]


def test_every_word_has_one_row():
    found = words()
    assert len(found) > 50 and len(set(found)) == len(found)
    assert not OTHER_WORDS & set(found)


def test_every_word_is_a_name():
    for package in NEEDS.values():
        pytest.importorskip(package)
    known = {parameter for _, signature in signatures((*ROOMS, *FACES)) for parameter in signature.parameters}
    known |= {attribute for _, attribute in attributes((*ROOMS, *FACES))} | set(fs.__all__) | set(fs.data.__all__)
    known |= {"last_scores"}  # set on the instance
    assert set(words()) <= known, set(words()) - known
