"""docs/project/promises.md: every promise is there, every test that it names exists, in the form that it says."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "project" / "promises.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)` \(([\w ]+)\)", PAGE)


def form_of(path, name):
    """In which form a test runs, by how it is written; tests/conftest.py says what makes a form."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    (test,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    how = [ast.unparse(decorator) for decorator in test.decorator_list]
    if "pytest.mark.long" in how:
        return "long"
    grows = any(re.search(r"covering\(|\bsome\(|marks=pytest\.mark\.long|^given\(", text) for text in how)
    return "both" if grows or any(argument.arg == "amount" for argument in test.args.args) else "short"


@pytest.mark.parametrize(("path", "name", "form"), NAMED)
def test_a_test_that_is_named_is_there_in_its_form(path, name, form):
    assert form == form_of(path, name)


def test_every_promise_has_a_test_of_the_short_form():
    """A line of the table is a promise; the long form alone holds none."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(lines) > 40
    for line in lines:
        assert re.search(r"\((short|both)\)", line), line
    assert len(NAMED) == PAGE.count("::")


def section(name, heading):
    text = (ROOT / name).read_text(encoding="utf-8")
    return text.split(f"## {heading}\n")[1].split("\n## ")[0]


def test_every_promise_is_there():
    """By their own words: README's in bold, SECURITY's list, each row of the table of reliability."""
    bold = re.findall(r"^- \*\*(.*?)\*\*:", section("README.md", "What is promised"), re.MULTILINE)
    never = re.findall(r"^- (.*?)[;:.,]", section("SECURITY.md", "What is trusted, and what is not"), re.MULTILINE)
    rows = re.findall(r"^\| ([^|]*[^|\s]) \| [^|]*\d", (ROOT / "docs" / "reliability.md").read_text(), re.MULTILINE)
    assert (len(bold), len(never)) == (4, 6) and len(rows) >= 20
    assert [words for words in (*bold, *never, *rows) if words not in PAGE] == []
