"""What docs/check_pages.py finds wrong with built pages, a fault at a time."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "docs" / "check_pages.py"
GOOD = """<html lang="en"><head><title>A page</title><link rel="stylesheet" href="look.css"/></head><body>
<h1 id="top">A page</h1><svg><title>not the page's</title></svg><a href="#top">up</a>
<a href="there/other.html#one">one</a>
<a href="there/">a folder</a> <a href="https://example.org">elsewhere</a> <a href="mailto:x@example.org">write</a>
<img src="spectrum.png" srcset="spectrum.png 1x, large.png 2x" alt="A spectrum that falls"/></body></html>"""
OTHER = '<html lang="en"><head><title>Other</title></head><body><h1 id="one">Other</h1></body></html>'


def check_pages():
    spec = importlib.util.spec_from_file_location("check_pages", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def faults(folder, page, style="p {color: red}"):
    (folder / "there").mkdir()
    for name, text in (("page.html", page), ("there/other.html", OTHER), ("there/index.html", OTHER)):
        (folder / name).write_text(text, encoding="utf-8")
    for name in ("spectrum.png", "large.png"):
        (folder / name).write_bytes(b"")
    (folder / "look.css").write_text(style, encoding="utf-8")
    return list(check_pages().faults(folder))


def test_nothing_is_wrong_with_a_good_page(tmp_path):
    assert faults(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (' lang="en"', "", "no language"),
        ("<title>A page</title>", "<title> </title>", "no title"),
        ("<h1", "<h2", "0 headings of the first order"),
        ("<h1", "<h1>Twice</h1><h1", "2 headings of the first order"),
        ('<a href="#top"', '<a id="top" href="#top"', "an id twice: top"),
        ('alt="A spectrum that falls"', "", "a picture without words: spectrum.png"),
        ("A spectrum that falls", "Spectrum", "a picture without words: spectrum.png"),
        ('href="#top"', 'href="#bottom"', "no such place: #bottom"),
        ("other.html#one", "other.html#two", "no such place: there/other.html#two"),
        ("there/other.html#one", "there/another.html", "leads nowhere: there/another.html"),
        ("large.png", "huge.png", "not there: huge.png"),
        ("look.css", "//cdn.example.org/look.css", "loaded from elsewhere: //cdn.example.org/look.css"),
        (
            "<svg>",
            '<script src="https://example.org/a.js"></script><svg>',
            "loaded from elsewhere: https://example.org/a.js",
        ),
        ("<svg>", '<svg><image href="https://example.org/a.png"/>', "loaded from elsewhere: https://example.org/a.png"),
        ("<svg>", '<input type="image" src="//example.org/a.png"/><svg>', "loaded from elsewhere: //example.org/a.png"),
        ("<body>", '<body style="background: url(//example.org/a.png)">', "a style of the page loads from elsewhere"),
        (
            "<svg>",
            '<style>@import "//a.org/a.css";</style><svg>',
            "a style of the page loads from elsewhere",
        ),
    ],
)
def test_each_fault_is_found(tmp_path, old, new, fault):
    assert old in GOOD
    assert faults(tmp_path, GOOD.replace(old, new, 1)) == [f"page.html: {fault}"]


def test_a_style_that_loads_from_elsewhere_is_found(tmp_path):
    style = "@font-face {src: url('https://example.org/font.woff')}"
    assert faults(tmp_path, GOOD, style) == ["look.css: loads from elsewhere"]


def test_a_drawing_that_loads_from_elsewhere_is_found(tmp_path):
    (tmp_path / "a.svg").write_text('<svg><image width="3" href="https://example.org/a.png"/></svg>')
    assert faults(tmp_path, GOOD) == ["a.svg: loads from elsewhere"]


def test_a_folder_without_pages_is_a_fault(tmp_path):
    assert list(check_pages().faults(tmp_path)) == [f"{tmp_path} has no pages"]
