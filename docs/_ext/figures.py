"""Pages with figures of stored results say at their end which code has changed since the results were measured.

The figures themselves are written by `bench/pages.py` from `bench/templates`, results that are stored have digests of
the modules that they were measured with.
"""

import sys
from pathlib import Path

from sphinx.errors import ExtensionError

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))

import pages  # noqa: E402


def note_changes(app, name, source):
    """Append a line to a page that is written from a template."""
    template = pages.written().get(Path(app.env.doc2path(name)).resolve())
    if template is None:
        return
    try:
        changed = pages.code_changes(template.read_text(encoding="utf-8"), pages.Results())
    except ValueError as error:
        raise ExtensionError(str(error)) from None
    if changed:
        listed = "; ".join(f"`{command}`: {', '.join(older)}" for command, older in changed.items())
        source[0] += f"\n*Subpackages whose code has changed since a result was measured: {listed}.*\n"


def setup(app):
    app.connect("source-read", note_changes, priority=400)  # before links are rewritten
    return {"parallel_read_safe": True, "parallel_write_safe": True}
