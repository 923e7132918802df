"""Links of Markdown as the code host reads it, made links of the site.

On the code host the documents are read as they are, so they link by relative paths. A link that leaves docs/, to a file
or folder of the repository, becomes an address of the code host; one in a file that a page includes is taken from that
file's place. A path that does not exist is left alone, and the build ends with a warning about it.
"""

import os
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
HOST = "https://github.com/fastsketch/fastsketch"
PICTURES = (".png", ".svg", ".jpg")  # are copied into the site, wherever they lie
LINK = re.compile(r"(?<=\]\()(?![a-z]+:)([^()\s#]+)")


def rewritten(text, folder, page_folder):
    """Rewrite the links of Markdown from a file in `folder` for a page in `page_folder`."""

    def address(match):
        path = (folder / match[1]).resolve()
        if not path.is_relative_to(ROOT) or not path.exists():
            return match[1]
        if path.is_relative_to(DOCS) or path.suffix in PICTURES:
            return Path(os.path.relpath(path, page_folder)).as_posix()
        return f"{HOST}/{'tree' if path.is_dir() else 'blob'}/main/{path.relative_to(ROOT).as_posix()}"

    return LINK.sub(address, text)


def of_page(app, name, source):
    path = Path(app.env.doc2path(name))
    if path.suffix == ".md":
        source[0] = rewritten(source[0], path.parent, path.parent)


def of_included(app, included, _, source):  # MyST gives no folder of the page: the environment has it
    path = DOCS / included
    if path.suffix == ".md":
        source[0] = rewritten(source[0], path.resolve().parent, Path(app.env.doc2path(app.env.docname)).parent)


def setup(app):
    app.connect("source-read", of_page)
    app.connect("include-read", of_included)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
