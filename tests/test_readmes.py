"""Each subpackage has a short README.md whose links lead to files; readers begin there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(path.parent for path in (ROOT / "fastsketch").glob("*/__init__.py")) + [ROOT / "csrc"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_subpackage_has_a_short_readme_whose_links_exist(folder):
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert len(re.sub(r"\]\([^)]*\)", "]", text).split()) <= 350
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if not link.startswith("https:")]
    assert links and all((folder / link).exists() for link in links), [p for p in links if not (folder / p).exists()]
