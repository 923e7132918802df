"""Pages are what their templates and the stored results make of them."""

import re

import pytest

import pages
import store

RECORD = {
    "format": 1,
    "command": "speed",
    "fastsketch": "1.0",
    "date": "2026-01-31",
    "versions": {},
    "machine": {"processor": "A processor", "cores": 2, "instructions": "avx2"},
    "blas": [{"internal_api": "openblas", "version": "0.3"}],
    "presets": {},
    "options": {},
    "seconds": 1.0,
    "tables": [
        {
            "name": "main",
            "columns": ["d", "kind of", "rows/s", "||A||"],
            "rows": [["512", "a, b", "1,500", "2e-3"], ["512", "c", "500 +- 20", ""], ["64", "c", "~ 9 s", "4e-3"]],
            "runs": 5,
            "note": "",
        },
        {"name": "old one", "columns": ["x"], "rows": [["1"]], "runs": 1, "note": ""},
    ],
    "timings": [],
}


@pytest.fixture
def results(tmp_path):
    store.write(RECORD, tmp_path / "results" / "speed.json")
    (tmp_path / "results" / "speed.png").write_bytes(b"")
    return pages.Results(tmp_path / "results", "1.0")


def rendered(text, results):
    return pages.rendered(text, "a.md", results.folder.parent / "docs" / "a.md", results)


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ('{{ speed[d=512, kind of="a, b"]."rows/s" }}', "1,500"),
        ('{{ speed/main[d=512, kind of=c]."rows/s" }}', "500 +- 20"),
        ('{{ speed/main[d=512, kind of=c]."rows/s" | ,.1f }}', "500.0"),
        ('{{ speed[d=512, kind of="a, b"]."rows/s" / speed[d=512, kind of=c]."rows/s" }} times', "3 times"),
        ('{{ (speed[d=64]."||A||" - 1e-3) * 1000 | .1f }}', "3.0"),
        ('{{ min(speed[d=512]."rows/s") }} to {{ max(speed[d=512]."rows/s") }}', "500 to 1500"),
        ('{{ max(speed."||A||") }}', "0.004"),
        ("{{ speed/main[d=64].kind of }}", "c"),
        ('{{ speed/"old one".x }}', "1"),
        ('{{ picture speed "what it shows" }}', "![what it shows](../results/speed.png)"),
        ("no braces { } | x |", "no braces { } | x |"),
    ],
)
def test_references(text, page, results):
    assert rendered(text, results) == page


def test_tables(results):
    page = rendered('{{ table speed columns="rows/s","||A||" where d=512 where "kind of"="a, b" }}', results)
    head, rule, row, empty, origin = page.split("\n")
    assert (head, rule, row, empty) == (r"| rows/s | \|\|A\|\| |", "|---|---|", "| 1,500 | 2e-3 |", "")
    measured = "The command `speed` measured this table on 2026-01-31, with fastsketch 1.0 and openblas 0.3"
    assert origin == f"*{measured}, on A processor (avx2); runs: 5.*"
    assert rendered("{{ table speed where d=512 where d=64 }}", results).count("\n") == 6  # one of the values


def test_a_result_of_another_version_is_marked(results):
    newer = pages.Results(results.folder, "1.1")
    page = rendered("{{ table speed }}", newer)
    assert "**fastsketch 1.0, another version than 1.1**" in page
    assert "another version" not in rendered("{{ table speed }}", results)


@pytest.mark.parametrize(
    "text", ["It is {{ speed[d=64].d }}.\n", '{{ picture speed "what it shows" }}\n', "{{ max(speed.d) }}\n"]
)
def test_a_page_with_cells_or_a_picture_of_another_version_ends_with_a_mark(text, results):
    mark = "\n*Of `speed`: **fastsketch 1.0, another version than 1.1**.*\n"
    assert rendered(text, pages.Results(results.folder, "1.1")) == rendered(text, results) + mark
    newer = pages.Results(results.folder, "1.1")
    rendered(text, newer)
    assert rendered("The next page.", newer) == "The next page."


def test_the_readme_is_marked_when_its_results_are_of_another_version():
    assert "another version than 99" in pages.page(pages.README, pages.Results(version="99"))
    assert "another version than 99" not in pages.page(pages.README)


def test_a_cell_is_one_line_without_html(results):
    table = {**RECORD["tables"][0], "rows": [["<b>a</b>\n| `<x>`", "a < b", "<1", "{{ x }}"]]}
    store.write(RECORD | {"tables": [table]}, results.folder / "speed.json")
    cells = r"\<b>a\</b> \| `<x>`"
    assert rf"| {cells} | a < b | <1 | {{{{ x }}}} |" in rendered("{{ table speed }}", results)
    assert rendered("{{ speed.d }}", pages.Results(results.folder, "1.0")) == cells


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1', "\ufeff{}"])
def test_a_result_that_cannot_be_read_is_named(text, results):
    (results.folder / "speed.json").write_text(text, encoding="utf-8")
    with pytest.raises(pages.PageError, match="^a.md:1: speed.json is no"):
        rendered("{{ table speed }}", results)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ table other }}", "no stored result of 'other'"),
        ("{{ table speed/other }}", "no table 'other'"),
        ("{{ table speed columns=d,e }}", "no column 'e'"),
        ("{{ table speed where d=3 }}", "no row"),
        ("{{ table speed sorted=d }}", "not an option"),
        ("{{ speed[d=3].d }}", "no row"),
        ("{{ speed[d=512].kind of }}", "2 rows where one is meant"),
        ("{{ speed[e=512].d }}", "no column 'e'"),
        ("{{ speed[d=64].kind of | .2f }}", "does not begin with a number"),
        ('{{ speed[d=64]."rows/s" + speed[d=64].kind of }}', "does not begin with a number"),
        ("{{ speed[d=64].d ** 2 }}", "not understood"),
        ("{{ speed[d=64].d / 0 }}", "division by zero"),
        ("{{ speed[d=64].d | .2q }}", "format"),
        ('{{ speed[d=512, kind of=c]."||A||" }}', "the cell is empty"),
        ("{{ speed[d=64].d * 1e308 * 1e308 }}", "is inf"),
        ("{{ table }}", "a table of what?"),
        ("{{ speed[d=64].d", "braces that are not closed"),
        ("{{ 3 + 4 }}", "refers to nothing"),
        ("{{ speed[d=64].d (speed[d=64].d }}", "cannot be read"),
        ('{{ picture other "x" }}', "no picture"),
        ("{{ picture speed }}", "what it shows"),
    ],
)
def test_a_reference_that_is_not_found_names_its_line(text, said, results):
    with pytest.raises(pages.PageError, match=re.escape(said)) as error:
        rendered(f"# A page\n\nwords\nand {text}\n", results)
    assert str(error.value).startswith("a.md:4: ")


@pytest.mark.parametrize("path", pages.written(), ids=lambda path: path.relative_to(pages.ROOT).as_posix())
def test_a_page_is_what_its_template_and_the_stored_results_say(path):
    page = path.read_text(encoding="utf-8")
    assert page == pages.page(path), "run bench/pages.py"
    assert "{{" not in page and "another version than" not in page


def test_no_page_has_references():
    found = [path for path in (pages.ROOT / "docs").rglob("*.md") if "_build" not in path.parts]
    assert len(found) > len(pages.written()) > 30
    assert [path.name for path in found if "{{" in path.read_text(encoding="utf-8")] == []


def test_every_result_that_is_kept_is_on_a_page():
    text = "\n".join(path.read_text(encoding="utf-8") for path in pages.written().values())
    shown = " ".join(match[1] for match in re.finditer(r"\{\{(.*?)\}\}", text, re.DOTALL))
    kept = [path.stem for path in store.RESULTS.glob("*.json") if "." not in path.stem]
    assert len(kept) > 40
    assert [command for command in kept if not re.search(rf"\b{command}\b", shown)] == []


# Numbers that the README may have outside of references: names, and sizes of what was measured.
ALLOWED = (
    r"Python 3\.\d+ or newer",
    r"BSD-3-Clause",
    r"\((JMLR|IEEE TPAMI|IEEE TKDE|IJCAI) 20\d\d\)",  # papers
    r"\b(sift5k|w8a|MovieLens-1M|NDCG@20)\b",
    r"\b(20 bytes|40 candidates|1,000 rows|5,000 rows)\b",
)
# Figures come from cells; numbers of a formula are units.
UNITS = {"1", "60", "100", "1000", "1e3", "1e6", "1e9"}


def numbers_outside(text):
    """Numbers of the prose and tables of a template: not in blocks or words of code, links, pictures, references."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\{\{.*?\}\}", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    for pattern in ALLOWED:
        text = re.sub(pattern, "", text)
    return re.findall(r"[\w.,]*\d[\w.,%]*", text)


def test_each_number_of_the_readme_is_in_a_stored_result():
    """It is a reference, which bench/pages.py has resolved; a number that was typed is refused."""
    template = pages.FRONT.read_text(encoding="utf-8")
    assert template.count("{{") > 10
    assert numbers_outside(template) == [] == numbers_of_formulas(template)


def numbers_of_formulas(text):
    """Numbers in references that are neither of a place in a table, nor of a format, nor units."""
    left = [pages.REFERENCE.sub("", pages.pieces(braces, "|", 1)[0]) for braces in pages.BRACES.findall(text)]
    shown = (words for words in left if not words.strip().startswith(("table ", "picture ")))
    return [number for words in shown for number in re.findall(r"[\d.]+(?:e-?\d+)?", words) if number not in UNITS]


def test_numbers_that_were_typed_are_found():
    text = (
        "2.5 times `x[3]` as fast, {{ a/b.c }}% of 1,000 ([2021](x4.md), Python 3.11 or newer).\n\n```\n17\n```\n| 8% |"
    )
    assert numbers_outside(text) == ["2.5", "1,000", "2021", "8%"]
    text = '{{ a[x=3, y="4 5"]."s, 6" * 0 + 17.3 | .1f }} {{ a.s / 1e3 | .2f }} {{ table a where x=3 }}'
    text += " {{ min(a.b9) - 2e-3 }}"
    assert numbers_of_formulas(text) == ["0", "17.3", "2e-3"]


def test_check_says_which_pages_are_up_to_date(tmp_path, monkeypatch, capsys):
    templates, readme = tmp_path / "templates", tmp_path / "README.md"
    front, other = templates / "README.md", tmp_path / "docs" / "jobs" / "a.md"
    (templates / "jobs").mkdir(parents=True)
    other.parent.mkdir(parents=True)
    front.write_text("# A\n")
    (templates / "jobs" / "a.md").write_text("# B\n")
    for name, path in (("ROOT", tmp_path), ("TEMPLATES", templates), ("FRONT", front), ("README", readme)):
        monkeypatch.setattr(pages, name, path)
    monkeypatch.setattr("pages.version_of_library", lambda: "1.0")
    monkeypatch.setattr("sys.argv", ["pages.py", "--check"])
    assert pages.main() == 1 and not readme.exists() and not other.exists()
    assert capsys.readouterr().out == "README.md: not up to date\ndocs/jobs/a.md: not up to date\n"
    monkeypatch.setattr("sys.argv", ["pages.py"])
    assert pages.main() == 0 and readme.read_text().endswith("# A\n") and other.read_text().endswith("# B\n")
    monkeypatch.setattr("sys.argv", ["pages.py", "--check"])
    assert pages.main() == 0
    front.write_text("{{ table none }}\n")
    assert pages.main() == 1 and "templates/README.md:1: no stored result" in capsys.readouterr().err
