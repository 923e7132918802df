"""The gallery: which examples are run, and what is shown of those that are not.

An example says what it needs beyond the dependencies in a line of its own, with the names by which Python imports them:

    # needs: faiss, torch

It is run if these are there and the build runs the gallery (`make docs`). If it is not run, its page says why and shows
`_static/gallery/NAME.png`, drawn when it was last run (`python docs/_ext/stored.py` copies the pictures of a full build
there).
"""

import importlib.util
import re
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
EXAMPLES = DOCS.parent / "examples" / "gallery"
PAGES = DOCS / "gallery"
PICTURES = DOCS / "_static" / "gallery"
NEEDS = re.compile(r"^# needs: *(.+)$", re.MULTILINE)
THUMB = (400, 280)


def examples():
    """The scripts, by path."""
    return sorted(EXAMPLES.rglob("plot_*.py"))


def missing(example):
    """What an example needs and is not installed."""
    needed = [name for line in NEEDS.findall(example.read_text(encoding="utf-8")) for name in re.split(r"[,\s]+", line)]
    return [name for name in needed if name and importlib.util.find_spec(name) is None]


def settings():
    """What `sphinx_gallery_conf` takes."""
    run = [example.stem for example in examples() if not missing(example)]
    return {
        "examples_dirs": [str(EXAMPLES)],
        "gallery_dirs": [str(PAGES)],
        "filename_pattern": rf"/({'|'.join(run) or 'none'})\.py$",
        "thumbnail_size": THUMB,
        "show_memory": False,
        "show_signature": False,
        "download_all_examples": False,
        "within_subsection_order": "FileNameSortKey",
        "remove_config_comments": True,
        "matplotlib_animations": False,
        "plot_gallery": "True",
    }


def note(example):
    """What the page of an example that was not run says, in reStructuredText."""
    lacking = missing(example)
    text = (
        f"Not run here: {' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not installed."
        if lacking
        else "Not run in this build."
    )
    picture = PICTURES / f"{example.stem}.png"
    if not picture.exists():
        return f".. note::\n\n   {text}\n\n"
    where = "/" + picture.relative_to(DOCS).as_posix()
    return f".. note::\n\n   {text} The picture is a stored one.\n\n.. image:: {where}\n   :alt: {example.stem}\n\n"


def setup(app):
    return {"parallel_read_safe": True, "parallel_write_safe": True}
