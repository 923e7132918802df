"""The gallery: each example asks, answers and runs; what its prose says in numbers, its run prints or its code has."""

import ast
import re
import runpy
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers import some

GALLERY = Path(__file__).parents[2] / "examples" / "gallery"
STORE = Path(__file__).parents[2] / "docs" / "_static" / "gallery"
EXAMPLES = sorted(GALLERY.glob("*/plot_*.py"))
SECTIONS = {example.parent: example for example in reversed(EXAMPLES)}
ONE_OF_EACH_FIRST = sorted(EXAMPLES, key=lambda example: (example not in SECTIONS.values(), example))
NEEDS = re.compile(r"^# needs: *(.+)$", re.MULTILINE)  # what docs/_ext/stored.py reads

each = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)


def source(example):
    return example.read_text(encoding="utf-8")


def prose(example):
    """The docstring, and the comments below a line of "# %%"."""
    text = source(example)
    blocks = re.findall(r"^# %%\n((?:#.*\n?)*)", text, re.MULTILINE)
    return [ast.get_docstring(ast.parse(text)), *(re.sub(r"^# ?", "", block, flags=re.MULTILINE) for block in blocks)]


def code(example):
    """What is left without any text."""
    text = re.sub(r'\A""".*?"""', "", source(example), flags=re.DOTALL)
    return re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)


def numbers(text):
    """As they are read: 3,000 and 3_000 are 3000."""
    text = re.sub(r"(?<=\d)[,_](?=\d{3})", "", text)
    return set(re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?!\w)", text))


def test_there_are_enough_and_sections_have_headers():
    assert len(EXAMPLES) >= 14
    for folder in {GALLERY, *(example.parent for example in EXAMPLES)}:
        assert (folder / "GALLERY_HEADER.rst").read_text(encoding="utf-8").splitlines()[0], folder
    assert len({example.stem for example in EXAMPLES}) == len(EXAMPLES)


@each
def test_it_begins_with_a_question_and_ends_with_how_sure(example):
    head, *_, tail = prose(example)
    title, line, empty, first = head.split("\n")[:4]
    assert re.fullmatch("=+", line) and len(line) == len(title) and not empty
    assert re.match(r"\*\*[^*]+\?\*\*", " ".join(head.split("\n")[3:])), "the first sentence is the question"
    assert tail.startswith("**How sure is this?**")
    assert re.search(r"^\*\*Next:\*\* .*:doc:`[^`]+ </jobs/[\w-]+>`", tail, re.MULTILINE)


@each
def test_its_picture_is_stored(example):
    picture = STORE / f"{example.stem}.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < 60_000


def test_no_picture_is_stored_of_nothing():
    assert {picture.stem for picture in STORE.glob("*.png")} == {example.stem for example in EXAMPLES}


@each
def test_it_uses_public_names_alone(example):
    tree, found = ast.parse(source(example)), 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_"), node.attr
            if isinstance(node.value, ast.Name) and node.value.id == "fs":
                assert node.attr in import_module("fastsketch").__all__, node.attr
                found += 1
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fastsketch"):
            found += 1
            if find_spec("torch") is None and node.module == "fastsketch.torch":
                continue
            module = import_module(node.module)
            assert {alias.name for alias in node.names} <= set(module.__all__), node.module
    assert found


@pytest.mark.parametrize("example", some(ONE_OF_EACH_FIRST, len(SECTIONS)), ids=lambda example: example.stem)
def test_it_runs_and_prints_the_numbers_of_its_prose(example, capsys, tmp_path, monkeypatch):
    for line in NEEDS.findall(source(example)):
        for name in re.split(r"[,\s]+", line):
            pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    draw = runpy.run_path(str(GALLERY / "store_pictures.py"))["draw"]
    figures = draw(example)
    printed = capsys.readouterr().out
    assert figures and printed
    for figure in figures:
        titles = [figure.get_suptitle(), *(ax.get_title(loc) for ax in figure.axes for loc in ("left", "center"))]
        assert any(titles), "no title"
        for ax in figure.axes:
            for axis, shared in ((ax.xaxis, ax.get_shared_x_axes()), (ax.yaxis, ax.get_shared_y_axes())):
                if ax.axison and axis.get_visible() and len(axis.get_ticklocs()):
                    named = [getattr(one, f"get_{axis.axis_name}label")() for one in shared.get_siblings(ax)]
                    assert any(named), (ax, axis.axis_name)
    said = numbers(re.sub(r"`[^`]*`", " ", "\n".join(prose(example))))
    assert said <= numbers(printed) | numbers(code(example)), "numbers that neither its run prints nor its code has"
