"""The page of the demo: pictures beside numbers, what each means, how sure it is, and what to read next.

One file without outside resources: pictures are in it, so that it shows what one run has found, or is not there.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastsketch import __version__

DOCUMENTS = "https://github.com/fastsketch/fastsketch/blob/main/docs"

STYLE = """
:root { color-scheme: light dark; --ink: #1f2933; --soft: #52606d; --page: #fdfcf9; --line: #d5d9dd; --link: #1a56a0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --soft: #aab4be; --page: #16191d; --line: #3b434b; --link: #86b7f5; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 74rem; padding: 1rem; color: var(--ink); background: var(--page);
  font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; }
h2 { margin: 0 0 .5rem; font-size: 1.3rem; line-height: 1.3; }
a { color: var(--link); }
a:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
section { padding: 1.6rem 0; border-top: 1px solid var(--line); }
.beside { display: grid; gap: 1.2rem; }
.beside > * { min-width: 0; }
@media (min-width: 60rem) { .beside { grid-template-columns: 3fr 2fr; } }
img { display: block; width: 100%; height: auto; padding: .5rem; border-radius: .5rem; background: #fff; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem 0; border-bottom: 1px solid var(--line); text-align: left; font-weight: normal; }
td { padding-left: 1rem; text-align: right; font-weight: 600; overflow-wrap: anywhere; }
pre { overflow-x: auto; }
.soft { color: var(--soft); }
"""


class Section(NamedTuple):
    """One job of the demo."""

    title: str
    picture: str  # a file beside the page
    alternative: str  # what the picture shows, in words
    numbers: Sequence[tuple[str, str]]
    meaning: str
    sure: str
    following: Sequence[tuple[str, str]]  # (title, path within docs)
    facts: Mapping[str, Any] = {}  # all that was measured, for --json


def write_page(folder: Path, *, lead: str, sections: Sequence[Section], commands: Sequence[str]) -> None:
    """Write index.html with the pictures that are in the folder: the old page, or the whole new one."""
    body = "".join(_section(folder, section) for section in sections)
    text = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fastsketch: what one pass has found</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>What one pass has found</h1>
<p>{escape(lead)}</p>
</header>
<main>
{body}</main>
<footer>
<p>To go on with what has been learned:</p>
<pre><code>{escape(chr(10).join(commands))}</code></pre>
<p class="soft">fastsketch {escape(__version__)}, numpy {escape(np.__version__)}. Times are of this machine, while
it was as busy as it was. All numbers: <code>python examples/demo --json</code>.</p>
</footer>
</body>
</html>
"""
    unfinished = folder / "index.html.unfinished"
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(folder / "index.html")
    finally:
        unfinished.unlink(missing_ok=True)


def _section(folder: Path, section: Section) -> str:
    picture = b64encode((folder / section.picture).read_bytes()).decode()
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>\n' for name, value in section.numbers
    )
    links = ", ".join(
        f'<a href="{escape(f"{DOCUMENTS}/{path}")}">{escape(title)}</a>' for title, path in section.following
    )
    return f"""<section>
<h2>{escape(section.title)}</h2>
<div class="beside">
<div><img src="data:image/png;base64,{picture}" alt="{escape(section.alternative)}"></div>
<div>
<table>
{rows}</table>
<p>{escape(section.meaning)}</p>
<p><strong>How sure.</strong> {escape(section.sure)}</p>
<p class="soft">Read next: {links}.</p>
</div>
</div>
</section>
"""
