"""The demo: what it writes, prints and claims."""

import json
import sys
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs

EXAMPLES = str(Path(__file__).parents[1] / "examples")
if EXAMPLES not in sys.path:
    sys.path.insert(0, EXAMPLES)

from demo.__main__ import main  # noqa: E402

PICTURES = ("spectrum.png", "components.png", "neighbours.png", "anomaly.png", "online.png", "restored.png")


@pytest.fixture
def run(capsys):
    """A function that runs the command line and returns its output."""

    def call(*args):
        assert main([str(arg) for arg in args]) == 0
        return capsys.readouterr().out

    return call


def test_demo(run, tmp_path, monkeypatch):
    """The demo on a corner of the photographs."""
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    from demo import run as _run

    whole = _run.photographs()
    monkeypatch.setattr(_run, "photographs", lambda: [image[150:230, 100:220] for image in whole])
    monkeypatch.setattr(_run, "PEER_ROWS", 4000)
    out = json.loads(run("--output", tmp_path / "d", "--json", "-l", 20))
    assert out["n_rows"] == 2 * 33 * 105
    assert 0 < out["true_error"] <= out["error_bound"]
    assert out["solver"] == "gram" and "solver=&#x27;gram&#x27;" in (tmp_path / "d" / "index.html").read_text()
    for picture in PICTURES:
        assert (tmp_path / "d" / picture).read_bytes().startswith(b"\x89PNG")
    assert sorted(out["files"]) == sorted(str(path) for path in (tmp_path / "d").iterdir())
    assert out["true_variances_within"] == 2 * out["components"] == 24
    assert out["widest_refined_interval"] < out["widest_interval"] / 2
    assert out["hamming_recall"] < out["codes_recall"] < out["rescored_recall"] <= 1
    assert out["anomaly_found_by_distance_from_mean"] < 0.2 < 0.8 < out["anomaly_found"]
    assert out["absolute_psnr"] > out["square_psnr"] > out["damaged_psnr"]
    assert out["newton_online_error"] < 0.03 < 0.1 < max(out["online_errors_by_step"]["gradient descent"].values())
    assert fs.load(tmp_path / "d" / "patches.fsk").n_rows == out["n_rows"]
    check_page((tmp_path / "d" / "index.html").read_text())


class _Page(HTMLParser):
    """Open elements, links, pictures and text of a page."""

    def __init__(self):
        super().__init__()
        self.open, self.pictures, self.outside, self.text = [], [], [], []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag == "img":
            self.pictures.append(found)
        if tag not in ("img", "meta"):
            self.open.append(tag)
        self.outside += [found[name] for name in ("src", "srcset", "style") if name in found]
        if tag in ("link", "script", "iframe"):
            self.outside.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def check_page(text):
    """Elements are closed, pictures are within the page and have words, nothing is fetched."""
    page = _Page()
    page.feed(text)
    page.close()
    assert page.open == []
    assert len(page.pictures) == len(PICTURES)
    for picture in page.pictures:
        assert len(picture["alt"]) > 40
        content = b64decode(picture["src"].removeprefix("data:image/png;base64,"), validate=True)
        assert content.startswith(b"\x89PNG")
    assert all(where.startswith("data:image/png") for where in page.outside)
    assert "url(" not in text and "@import" not in text
    return page


SECTION = ("A <b>title", "a.png", 'what it "shows" & more than forty letters of it', [("a<b", "1 & 2")], "m", "s")


@pytest.fixture
def no_work(monkeypatch):
    """The first job is an error: what comes before it has to refuse."""
    pytest.importorskip("sklearn")
    from demo import run as _run

    def worked(*_, **__):
        raise AssertionError("a job was begun")

    monkeypatch.setattr(_run, "sketch_patches", worked)


@pytest.mark.parametrize("name", ["codes.npy", "index.html"])
def test_a_folder_in_the_way_is_found_before_the_first_job(name, tmp_path, capsys, no_work):
    pytest.importorskip("matplotlib")
    (tmp_path / "d" / name).mkdir(parents=True)
    assert main(["--output", str(tmp_path / "d")]) != 0
    assert f"{name} is a folder" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "d").iterdir()] == [name]


def test_a_file_in_place_of_the_folder_is_found_before_the_first_job(tmp_path, capsys, no_work):
    pytest.importorskip("matplotlib")
    (tmp_path / "d").write_text("kept")
    for output in ("d", "d/below"):
        assert main(["--output", str(tmp_path / output)]) != 0
        assert "demo: error:" in capsys.readouterr().err
    assert (tmp_path / "d").read_text() == "kept"


@pytest.mark.parametrize(
    ("hidden", "said"),
    [("matplotlib.figure", "fastsketch[plot]"), ("sklearn.datasets", "fastsketch[sklearn,plot]")],
)
def test_a_missing_package_is_named_before_the_first_job(hidden, said, tmp_path, capsys, monkeypatch, no_work):
    monkeypatch.setitem(sys.modules, hidden, None)
    assert main(["--output", str(tmp_path / "d")]) != 0
    assert said in capsys.readouterr().err and not (tmp_path / "d").exists()


def test_names_on_the_page_are_escaped(tmp_path):
    from demo import page as _page
    from demo import run as _run

    folder = tmp_path / '<i> & "c"'
    folder.mkdir()
    (folder / "a.png").write_bytes(b"\x89PNG")
    section = _page.Section(*SECTION, [("next <u>", "guide.md")])
    _page.write_page(folder, lead="<em>", sections=[section] * len(PICTURES), commands=_run.commands(folder))
    page = check_page((folder / "index.html").read_text())
    said = "".join(page.text)
    for name in ("<em>", "A <b>title", "a<b", "1 & 2", "next <u>", '<i> & "c"'):
        assert name in said
    assert page.pictures[0]["alt"] == SECTION[2]


def test_an_interrupted_demo_leaves_the_old_page(tmp_path, monkeypatch):
    from demo import page as _page

    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    (tmp_path / "index.html").write_text("the old page")
    section = _page.Section(*SECTION, [])

    def write(*sections):
        _page.write_page(tmp_path, lead="", sections=sections, commands=[])

    with pytest.raises(FileNotFoundError):
        write(section, section._replace(picture="b.png"))

    def interrupted(self, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "replace", interrupted)
        write(section)
    assert {path.name for path in tmp_path.iterdir()} == {"a.png", "index.html"}
    assert (tmp_path / "index.html").read_text() == "the old page"
    write(section)
    assert "A &lt;b&gt;title" in (tmp_path / "index.html").read_text()


def test_patches_are_patches():
    pytest.importorskip("sklearn")
    from sklearn.feature_extraction.image import extract_patches_2d

    from demo.patches import Patches

    image = np.random.default_rng(0).random((9, 12, 3))
    expected = extract_patches_2d(image, (4, 4)).reshape(-1, 48)
    assert np.array_equal(np.vstack(list(Patches([image], 4).stream())), expected)
    few = Patches([image, image], 4, step=2)
    lines = expected.reshape(6, 9, 48)[::2].reshape(-1, 48)
    assert np.array_equal(np.vstack(list(few.stream())), np.vstack([lines, lines]))
    assert few.n_rows == len(few.places) == 2 * 27
    assert np.array_equal(few.at(np.arange(few.n_rows)), np.vstack([lines, lines]))
