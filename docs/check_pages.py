"""Checks the built pages: `check_pages.py [FOLDER]` prints what is wrong, and ends with 1 if anything is.

Every link within the site leads to a page, and to a place on it, that is there. Nothing is loaded from elsewhere. A
page has a language, a title and one heading of the first order, and no id twice; every picture has words for those who
do not see it.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

HTML = Path(__file__).resolve().parent / "_build" / "html"
LOADED = {  # what a browser fetches by itself to show a page
    "script": ("src",),
    "img": ("src", "srcset"),
    "source": ("src", "srcset"),
    "iframe": ("src",),
    "object": ("data",),
    "embed": ("src",),
    "video": ("src", "poster"),
    "audio": ("src",),
    "input": ("src",),
    "image": ("href", "xlink:href"),  # of SVG
    "use": ("href", "xlink:href"),
}
LOADED_LINKS = {"stylesheet", "icon", "preload", "modulepreload", "prefetch", "manifest"}
IN_STYLES = re.compile(r"url\(\s*['\"]?(https?:)?//|@import\s+['\"](https?:)?//")
IN_PICTURES = re.compile(r"<(image|use|script)\b[^>]*href=['\"](https?:)?//")


class Page(HTMLParser):
    """Contents of a page: ids, links, loaded files, title, headings, pictures without words."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.twice, self.links, self.loaded, self.silent = set(), set(), [], [], []
        self.language, self.title, self.headings = "", "", 0
        self._in_title = self._in_style = False
        self.styled = []  # by the page itself
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            if given["id"] in self.ids:
                self.twice.add(given["id"])
            self.ids.add(given["id"])
        if tag == "html":
            self.language = given.get("lang", "")
        if tag == "h1":
            self.headings += 1
        self._in_title = self._in_title or tag == "title" and not self.title
        self._in_style = self._in_style or tag == "style"
        self.styled.append(given.get("style", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "img" and says_nothing(given.get("alt", ""), given.get("src", "")):
            self.silent.append(given.get("src", ""))
        if tag == "link" and LOADED_LINKS & set(given.get("rel", "").split()):
            self.loaded.append(given.get("href", ""))
        for name in LOADED.get(tag, ()):
            if name in given:
                self.loaded += (
                    [part.split()[0] for part in given[name].split(",")] if name == "srcset" else [given[name]]
                )

    handle_startendtag = handle_starttag

    def handle_data(self, data):
        if self._in_title:
            self.title += data
        if self._in_style:
            self.styled.append(data)

    def handle_endtag(self, tag):
        if tag == "title":
            self._in_title = False
        if tag == "style":
            self._in_style = False


def says_nothing(words, source):
    """Return whether the words for a picture are none, or no more than the name of its file."""
    name = re.sub(r"[^a-z]+", " ", Path(urlsplit(source).path).stem.lower())
    return re.sub(r"[^a-z]+", " ", words.lower()).strip() in name


def faults(folder):
    """Yield what is wrong with the built pages, a line each."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    pages = {path: page for path, page in pages.items() if "_static" not in path.relative_to(folder).parts}
    if not pages:
        yield f"{folder} has no pages"
    for path, page in pages.items():
        for fault in of_page(path, page, pages):
            yield f"{path.relative_to(folder).as_posix()}: {fault}"
    for kind, pattern in (("css", IN_STYLES), ("svg", IN_PICTURES)):
        for path in folder.rglob(f"*.{kind}"):
            if pattern.search(path.read_text(encoding="utf-8")):
                yield f"{path.relative_to(folder).as_posix()}: loads from elsewhere"


def of_page(path, page, pages):
    """Yield what is wrong with one of `pages`."""
    if not page.language:
        yield "no language"
    if not page.title.strip():
        yield "no title"
    if page.headings != 1:
        yield f"{page.headings} headings of the first order"
    yield from (f"an id twice: {name}" for name in sorted(page.twice))
    yield from (f"a picture without words: {source}" for source in page.silent)
    if any(IN_STYLES.search(style) for style in page.styled):
        yield "a style of the page loads from elsewhere"
    for address in page.loaded:
        if urlsplit(address).scheme in ("http", "https") or address.startswith("//"):
            yield f"loaded from elsewhere: {address}"
        elif not urlsplit(address).scheme and not target(path, address).exists():
            yield f"not there: {address}"
    for address in page.links:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        there = target(path, address)
        if not there.exists():
            yield f"leads nowhere: {address}"
        elif parts.fragment and there in pages and unquote(parts.fragment) not in pages[there].ids:
            yield f"no such place: {address}"


def target(path, address):
    """Return the file that an address on the page `path` leads to."""
    name = unquote(urlsplit(address).path)
    there = (path.parent / name).resolve() if name else path
    return there / "index.html" if there.is_dir() else there


def main():
    folder = Path(sys.argv[1]).resolve() if sys.argv[1:] else HTML
    found = list(faults(folder))
    print("\n".join(found) if found else f"{folder}: nothing wrong with {len(list(folder.rglob('*.html')))} pages")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
