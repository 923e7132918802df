"""The directive `citation`: CITATION.cff as entries for BibTeX, the software first, then the papers."""

import datetime
from pathlib import Path

import yaml
from docutils import nodes
from docutils.parsers.rst import Directive

FILE = Path(__file__).resolve().parents[2] / "CITATION.cff"
KINDS = {"article": "article", "conference-paper": "inproceedings", "software": "software"}
FIELDS = {  # of BibTeX: of CITATION.cff
    "title": "title",
    "journal": "journal",
    "booktitle": "collection-title",
    "volume": "volume",
    "year": "year",
    "version": "version",
    "doi": "doi",
    "url": "url",
    "license": "license",
}


def names(authors):
    """Join authors as BibTeX does; a group is in braces, so that it is not taken for a person."""
    return " and ".join(
        f"{{{author['name']}}}" if "name" in author else f"{author['family-names']}, {author['given-names']}"
        for author in authors
    )


def entry(item):
    """Return the text of one entry."""
    kind, first = item.get("type", "software"), item["authors"][0]
    year = item.get("year", datetime.date.today().year)
    word = item["title"].split()[0].lower()
    key = word if "name" in first else f"{first['family-names'].lower()}{year}{word}"
    fields = {"author": names(item["authors"])}
    fields |= {name: item[source] for name, source in FIELDS.items() if source in item}
    fields.setdefault("url", item.get("repository-code"))
    lines = [f"  {name} = {{{value}}},\n" for name, value in fields.items() if value is not None]
    return f"@{KINDS[kind]}{{{key},\n{''.join(lines)}}}\n"


class Citation(Directive):
    """Directive without arguments or content."""

    def run(self):
        self.state.document.settings.record_dependencies.add(str(FILE))
        cited = yaml.safe_load(FILE.read_text(encoding="utf-8"))
        out = [nodes.paragraph(text="The software:"), nodes.literal_block(text=entry(cited), language="bibtex")]
        for paper in cited["references"]:
            out.append(nodes.paragraph(text=f"{paper['title']} ({paper['notes']}):"))
            out.append(nodes.literal_block(text=entry(paper), language="bibtex"))
        return out


def setup(app):
    app.add_directive("citation", Citation)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
