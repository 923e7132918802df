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


def test_names_in_readmes_are_those_of_the_code():
    """`Coordinates.features` in a README is the name of a class and its method."""
    sources = [path for path in (ROOT / "fastsketch").rglob("*") if path.suffix in {".py", ".pyx", ".pxd"}]
    words = set().union(*(re.findall(r"\w+", path.read_text(encoding="utf-8")) for path in sources))
    words |= {path.name for path in sources}
    for readme in (ROOT / "fastsketch").rglob("README.md"):
        named = re.findall(r"`(\w+(?:\.\w+)*)`", readme.read_text(encoding="utf-8"))
        unknown = [name for name in named if name not in words and not set(name.split(".")) <= words]
        assert unknown == [], readme
