"""Pages of jobs: a question, an answer in eight lines, its guarantees; the choices of the long ones stand apart."""

import re
from pathlib import Path

import pytest

from tests.docs.blocks import blocks

PAGES = sorted(path for path in (Path(__file__).parents[2] / "docs" / "jobs").glob("*.md") if path.stem != "index")
CHOICES = PAGES[0].parents[1] / "choices"

FIRST = ["Next steps", "From the command line", "Comparison with other tools", "Errors and limits"]
FIRST += ["Guarantees and accuracy"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_answers_its_question(path):
    text = path.read_text(encoding="utf-8")
    _, question, first = text.split("\n\n")[:3]
    assert question.startswith("**") and question.endswith("?**")
    assert first.startswith(("```python", "<!-- needs"))
    code = blocks(text)[0].code
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 8
    headings = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert headings[:5] == FIRST


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
