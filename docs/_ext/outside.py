"""Links that lead out of docs/, to a file or folder of the repository, lead to the code host.

On the code host the pages are read as they are, so they link by relative paths; a built page has no neighbour to link
to. A path that does not exist is left alone, and the build ends with MyST's warning about it.
"""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
HOST = "https://github.com/fastsketch/fastsketch"
LINK = re.compile(r"(?<=\]\()(?![a-z]+:)([^()\s#]+)")


def rewritten(text, folder):
    """Markdown of a file in `folder`, in which links that leave docs/ are addresses."""

    def address(match):
        path = (folder / match[1]).resolve()
        if path.is_relative_to(DOCS) or not path.is_relative_to(ROOT) or not path.exists():
            return match[1]
        return f"{HOST}/{'tree' if path.is_dir() else 'blob'}/main/{path.relative_to(ROOT).as_posix()}"

    return LINK.sub(address, text)


def of_page(app, name, source):
    path = Path(app.env.doc2path(name))
    if path.suffix == ".md":
        source[0] = rewritten(source[0], path.parent)


def setup(app):
    app.connect("source-read", of_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
