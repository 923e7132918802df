"""Pages of jobs: a question, an answer in eight lines, its guarantees, and then every choice in full."""

from pathlib import Path

import pytest

from tests.docs.blocks import blocks

PAGES = sorted(path for path in (Path(__file__).parents[2] / "docs" / "jobs").glob("*.md") if path.stem != "index")

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
    assert len(PAGES) == 10
