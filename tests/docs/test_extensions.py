"""What docs/_ext does to pages: links, figures, names of other projects, formulas, BibTeX entries, examples not run."""

import importlib.util
import os
import re
import subprocess
import sys
import types
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def extension(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / "_ext" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("link", "folder", "page", "expected"),
    [
        ("threads.md#files", DOCS, DOCS, "threads.md#files"),
        ("../CHANGELOG.md#top", DOCS, DOCS, "https://github.com/fastsketch/fastsketch/blob/main/CHANGELOG.md#top"),
        ("examples/recipes", ROOT, DOCS, "https://github.com/fastsketch/fastsketch/tree/main/examples/recipes"),
        ("docs/threads.md#files", ROOT, DOCS / "project", "../threads.md#files"),
        ("logo.svg", DOCS / "_static", DOCS / "project", "../_static/logo.svg"),
        ("../no-such-file.md", DOCS, DOCS, "../no-such-file.md"),
        ("../../../elsewhere.md", DOCS, DOCS, "../../../elsewhere.md"),
        ("https://example.org/a", DOCS, DOCS, "https://example.org/a"),
        ("#here", DOCS, DOCS, "#here"),
    ],
)
def test_a_link_that_leaves_the_documents_leads_to_the_code_host(link, folder, page, expected):
    assert extension("outside").rewritten(f"See [it]({link}).", folder, page) == f"See [it]({expected})."


def test_a_picture_is_shown_wherever_it_lies(tmp_path, monkeypatch):
    outside = extension("outside")
    monkeypatch.setattr(outside, "ROOT", tmp_path)
    (tmp_path / "results").mkdir()
    for name in ("speed.png", "speed.json"):
        (tmp_path / "results" / name).write_bytes(b"")
    text = "[![Speed](../results/speed.png)](../results/speed.json)"
    host = "https://github.com/fastsketch/fastsketch/blob/main/results/speed.json"
    found = outside.rewritten(text, tmp_path / "docs", tmp_path / "docs")
    assert found == f"[![Speed](../results/speed.png)]({host})"


def test_inventories_have_a_line_for_each_name(tmp_path):
    inventories = extension("inventories")
    mapping = inventories.mapping(tmp_path)
    assert set(mapping) == set(inventories.SITES)
    address, path = mapping["numpy"]
    head, body = Path(path).read_bytes().split(b"zlib.\n", 1)
    assert address == "https://numpy.org/doc/stable/" and head.startswith(
        b"# Sphinx inventory version 2\n# Project: numpy"
    )
    line = "numpy.ndarray py:class 1 reference/generated/numpy.ndarray.html#$ -"
    assert line in zlib.decompress(body).decode().splitlines()


def test_formulas_are_mathml():
    pytest.importorskip("sphinx")
    formulas = extension("formulas")
    found = formulas.mathml(r"A'A \le \dots", None, block=True)
    assert found.startswith("<math") and 'display="block"' in found and "<mi>A</mi>" in found and "≤" in found
    assert formulas.TAG.search(r"x \tag{3}")[1] == "3"


def test_a_formula_that_cannot_be_set_stays_as_it_is(monkeypatch):
    pytest.importorskip("sphinx")
    formulas, warned = extension("formulas"), []
    monkeypatch.setattr(formulas.log, "warning", lambda text, error, location: warned.append(str(error)))
    assert formulas.mathml(r"a < \nonsense", None, block=False) == "<code>a &lt; \\nonsense</code>"
    assert warned == [r'Unknown LaTeX command "\nonsense".']


def test_entries_of_the_citation():
    pytest.importorskip("docutils")
    citation = extension("citation")
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    software = citation.entry(cited)
    assert software.startswith("@software{fastsketch,\n  author = {{The fastsketch developers}},")
    assert f"  version = {{{cited['version']}}},\n" in software
    papers = [citation.entry(paper) for paper in cited["references"]]
    assert papers[0].startswith("@article{chen2021making,\n  author = {Chen, Xixian and Yang, Haiqin and ")
    assert papers[-1].startswith("@inproceedings{yao2016greedy,") and "booktitle = {Proceedings" in papers[-1]
    keys = [re.match(r"@\w+\{(\w+),", text)[1] for text in [software, *papers]]
    assert len(set(keys)) == len(papers) + 1


@pytest.fixture
def stored(tmp_path, monkeypatch):
    module = extension("stored")
    example = tmp_path / "examples" / "neighbours" / "plot_search.py"
    example.parent.mkdir(parents=True)
    example.write_text('"""\nA search\n========\n\nWords.\n"""\n\n# needs: json, no_such_package\nimport json\n')
    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    monkeypatch.setattr(module, "EXAMPLES", tmp_path / "examples")
    monkeypatch.setattr(module, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(module, "PICTURES", tmp_path / "docs" / "pictures")
    return module


PAGE = "A search\n========\n\nWords.\n\n.. GENERATED FROM PYTHON SOURCE LINES 7-8\n\n.. code-block:: Python\n"


def test_an_example_says_what_is_missing(stored):
    (example,) = stored.examples()
    assert stored.missing(example) == ["no_such_package"] and stored.title(example) == "A search"
    assert not re.search(stored.settings()["filename_pattern"], str(example))
    page = stored.with_note(PAGE, example)
    assert page.index("Words.") < page.index("Not run here, because no_such_package is not installed.\n")
    assert page.index("no_such_package") < page.index("GENERATED") and "image" not in page


def test_a_stand_in_is_no_package(stored, monkeypatch):
    """Pages of the reference are made with a module in torch's place; an example needs torch itself."""
    without_torch = extension("without_torch")
    monkeypatch.setitem(sys.modules, "no_such_package", without_torch.StandIn("no_such_package"))
    (example,) = stored.examples()
    assert stored.missing(example) == ["no_such_package"]


def test_the_torch_module_is_imported_with_a_stand_in():
    code = "import importlib.util as u; find = u.find_spec"
    code += "; u.find_spec = lambda name: None if name == 'torch' else find(name)"
    code += "; import without_torch; without_torch.stand_in(); import fastsketch.torch; print(fastsketch.torch.__all__)"
    path = os.pathsep.join([str(DOCS / "_ext"), *filter(None, sys.path)])
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert "FrequentDirections" in run.stdout, run.stderr


def test_an_example_that_is_not_run_shows_its_stored_picture(stored):
    (example,) = stored.examples()
    (stored.PICTURES / "plot_search.png").write_bytes(b"")
    page = stored.with_note(PAGE, example)
    assert (
        "installed. The picture is a stored one.\n\n.. image:: /pictures/plot_search.png\n   :alt: A search\n" in page
    )
    example.write_text(example.read_text().replace(", no_such_package", ""))
    assert "   Not run in this build. The picture is a stored one.\n" in stored.with_note(PAGE, example)
    assert re.search(stored.settings()["filename_pattern"], str(example))


def test_an_example_that_was_run_is_shown_as_it_is(stored):
    (example,) = stored.examples()
    page = PAGE + "\n.. image-sg:: /gallery/images/sphx_glr_plot_search_001.png\n"
    assert stored.with_note(page, example) == page


def test_pictures_of_an_index_have_words(stored):
    image = ".. image:: /gallery/images/thumb/sphx_glr_plot_search_thumb.png\n    :alt:\n"
    found = stored.with_words(
        f"<div id='sg-tag-list' class='a'>{image}<div id='sg-tag-list' class='a'>", {"plot_search": "A search"}
    )
    assert "    :alt: A search\n" in found and found.count("id='sg-tag-list'") == 1


def test_an_example_elsewhere_is_not_one(stored):
    assert not re.search(stored.settings()["ignore_pattern"], "plot_search.py")
    for name in ("store_pictures.py", "/a/gallery/store_pictures.py"):
        assert re.search(stored.settings()["ignore_pattern"], name)


def test_a_page_names_the_code_that_has_changed_since_its_results(monkeypatch):
    pytest.importorskip("sphinx.errors")
    figures = extension("figures")
    app = types.SimpleNamespace(env=types.SimpleNamespace(doc2path=lambda name: str(DOCS / f"{name}.md")))
    monkeypatch.setattr(figures.pages.provenance, "changed", lambda modules: ["sketching"])
    page, other = ["# Maps\n"], ["# Start\n"]
    figures.note_changes(app, "benchmarks/maps", page)
    figures.note_changes(app, "start", other)
    assert re.search(r"^\*Subpackages whose code has changed .*`ffd_real`: sketching.*\.\*$", page[0], re.MULTILINE)
    assert other == ["# Start\n"]
    monkeypatch.setattr(figures.pages.provenance, "changed", lambda modules: [])
    figures.note_changes(app, "benchmarks/maps", other)
    assert other == ["# Start\n"]
