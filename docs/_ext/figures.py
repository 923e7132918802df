"""Figures of stored results in the pages: references in double braces, read by `bench/pages.py`.

A page refers to `bench/results/COMMAND.json` where it shows a figure, a table or a picture of a benchmark. Here the
references are replaced when the site is built; one that cannot be found ends the build with its line.
"""

import sys
from pathlib import Path

from sphinx.errors import ExtensionError

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))

import pages  # noqa: E402


def fill(app, name, source):
    """Replace the references of a page."""
    if "{{" not in source[0]:
        return
    path = Path(app.env.doc2path(name))
    try:
        source[0] = pages.rendered(source[0], path.relative_to(ROOT).as_posix(), path, pages.Results())
    except pages.PageError as error:
        raise ExtensionError(str(error)) from None


def setup(app):
    app.connect("source-read", fill, priority=400)  # before links are rewritten: pictures are links
    return {"parallel_read_safe": True, "parallel_write_safe": True}
