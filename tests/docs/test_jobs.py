"""Pages of jobs: a question, an answer in eight statements, guarantees; the choices of long ones stand apart."""

import ast
import re
from pathlib import Path

import pytest

from tests.docs.blocks import blocks

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path for path in (DOCS / "jobs").glob("*.md") if path.stem != "index")
CHOICES = PAGES[0].parents[1] / "choices"

FIRST = ["Next steps", "From the command line", "Comparison with other tools", "Errors and limits"]
FIRST += ["Guarantees and accuracy"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_answers_its_question(path):
    text = path.read_text(encoding="utf-8")
    _, question, first = text.split("\n\n")[:3]
    assert question.startswith("**") and question.endswith("?**")
    assert first.startswith(("```python", "<!-- needs"))
    statements = [node for node in ast.walk(ast.parse(blocks(text)[0].code)) if isinstance(node, ast.stmt)]
    assert len(statements) <= 8  # and not lines, since a statement may need several of 76 columns
    headings = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert headings[:5] == FIRST


@pytest.mark.parametrize(
    "path",
    sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts),
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_python_on_a_page_fits_its_column(path):
    """The site cuts longer lines off, so that a reader would have to scroll."""
    code = "\n".join(block.code for block in blocks(path.read_text(encoding="utf-8")) if block.language != "text")
    assert [line for line in code.splitlines() if len(line) > 76] == []


def test_every_job_has_a_page():
    assert len(PAGES) == 11


@pytest.mark.parametrize("path", sorted(CHOICES.glob("*.md")), ids=lambda path: path.stem)
def test_choices_stand_apart_from_a_short_guide(path):
    guide = next(page for page in PAGES if page.stem == path.stem).read_text(encoding="utf-8")
    # without code, tables, and the lines that say how a table was measured
    prose = re.sub(r"^```.*?^```|^\|.*?$|^\*The command `.*?\*$|<!--.*?-->", "", guide, flags=re.MULTILINE | re.DOTALL)
    assert len(prose.split()) <= 1_000
    assert f"(../choices/{path.name})" in guide
    assert f"(../jobs/{path.name})" in path.read_text(encoding="utf-8")
