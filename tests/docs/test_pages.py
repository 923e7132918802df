"""Every Python block and every command of a page runs, and prints what the page says."""

from pathlib import Path

import pytest

from tests.docs import test_guides
from tests.docs.blocks import blocks, run_page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MADE = ("_build", "gallery", "generated")


def pages():
    """All but those that test_guides.py runs, which looks at what they find too."""
    found = (path for path in sorted(DOCS.rglob("*.md")) if not set(path.relative_to(DOCS).parts) & set(MADE))
    names = {path.relative_to(DOCS).with_suffix("").as_posix(): path for path in found}
    assert set(test_guides.RUN) <= set(names)
    return {name: path for name, path in names.items() if name not in test_guides.RUN}


@pytest.mark.parametrize("name", [name for name, path in pages().items() if blocks(path.read_text(encoding="utf-8"))])
def test_a_page_does_what_it_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, missing = run_page(pages()[name], tmp_path)
    if missing:
        pytest.skip(f"blocks that need {', '.join(sorted(missing))} were not run: could not import")


def test_what_is_not_run_says_why():
    for name, path in pages().items():
        for block in blocks(path.read_text(encoding="utf-8")):
            assert block.not_run is None or len(block.not_run.split()) > 2, f"{name}: {block.code}"


def test_documents_beside_the_site_have_no_blocks_that_nothing_runs():
    for page in ("examples/README.md", "bench/README.md", "CHANGELOG.md", "SECURITY.md"):
        assert "```python" not in (ROOT / page).read_text(encoding="utf-8"), page
