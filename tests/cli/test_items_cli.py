"""items: an item model of many files of users, its names, its checkpoints, its parts merged."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.cli import main
from fastsketch.data.sources import _source
from fastsketch.jobs import _run
from tests.helpers import same_state

ITEMS = 40
NAMES = [f"item {j}" for j in range(ITEMS)]


def users(n=300, seed=0):
    rng = np.random.default_rng(seed)
    taste = rng.integers(4, size=(n, 1)) == np.arange(ITEMS) % 4
    return sparse.csr_array((rng.random((n, ITEMS)) < np.where(taste, 0.4, 0.02)).astype(float))


@pytest.fixture
def run(capfd, tmp_path, monkeypatch):
    """Run a command in a folder with two files of users, learned in parts of some 50 rows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_run, "PART_BYTES", 6000)
    monkeypatch.setattr(_run, "STATES_OF_A_PART", 0)
    monkeypatch.setattr(_source, "CHUNK_BYTES", 4000)
    sparse.save_npz("monday.npz", sparse.csr_matrix(users()))
    sparse.save_npz("tuesday.npz", sparse.csr_matrix(users(seed=1)))
    Path("names.txt").write_text("\n".join(NAMES) + "\n")

    def run(*args, status=0):
        try:
            got = main([str(arg) for arg in args])
        except SystemExit as stop:  # argparse
            got = stop.code
        out = capfd.readouterr()
        assert got == status, out.err
        return out

    return run


ITEMS_OF = ("items", "monday.npz", "tuesday.npz", "-l", 8, "-o", "o.fsk")


def test_many_files_are_one_stream(run):
    found = json.loads(run(*ITEMS_OF, "--json").out)
    assert (found["kind"], found["n_rows"], found["n_features"]) == ("SketchedEASE", 600, ITEMS)
    assert found["ridge"] > 0
    model = fs.load("o.fsk")
    assert model.notes == {"inputs": ["monday.npz", "tuesday.npz"], "events": {"relevant": None, "binary": False}}
    model.notes = {}
    assert same_state(model, fs.run(fs.SketchedEASE(8), ["monday.npz", "tuesday.npz"], workers=3, engine="threads"))
    whole = fs.SketchedEASE(8).update(sparse.vstack([users(), users(seed=1)], format="csr"))
    assert np.allclose(model.popularity, whole.popularity)
    assert "ridge" in run("info", "o.fsk").out
    assert json.loads(run("info", "o.fsk", "--json").out)["n_rows"] == 600


def test_flags_are_the_parameters(run):
    run(
        *ITEMS_OF,
        "--ridge",
        7,
        "--set",
        "method=rfd",
        "--set",
        "decay=0.99",
        "--set",
        "activity_power=0",
        "--set",
        "dtype=float64",
    )
    model = fs.load("o.fsk")
    assert (model.ridge, model.method, model.decay, model.activity_power) == (7.0, "rfd", 0.99, 0.0)
    assert model.resolved["dtype"] == np.float64
    assert "ridge must" in run(*ITEMS_OF, "--ridge", 0, status=2).err
    assert "method must" in run(*ITEMS_OF, "--set", "method=cfd", status=2).err


@pytest.mark.parametrize("stop", [2, 3, 6])
def test_resumed_to_the_same_bits(run, monkeypatch, stop):
    command = (*ITEMS_OF, "--names", "names.txt", "--set", "decay=0.999")
    run(*command)
    whole = Path("o.fsk").read_bytes()
    Path("o.fsk").unlink()
    update, calls = fs.SketchedEASE.update, []

    def interrupted(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == stop + 1:
            raise KeyboardInterrupt
        return update(self, *args, **kwargs)

    monkeypatch.setattr(fs.SketchedEASE, "update", interrupted)
    assert "--resume goes on from it" in run(*command, status=130).err
    monkeypatch.setattr(fs.SketchedEASE, "update", update)
    assert list(Path("o.fsk.partial").glob("node-*.fsk"))
    assert "binary is on now" in run(*command, "--binary", "--resume", status=2).err
    assert "--ridge is 3.0 now and was none" in run(*command, "--ridge", 3, "--resume", status=2).err
    run(*command, "--resume")
    assert Path("o.fsk").read_bytes() == whole


def test_names_of_items(run):
    run(*ITEMS_OF, "--names", "names.txt")
    assert list(fs.load("o.fsk").item_ids) == NAMES
    assert "item 3" not in run("info", "o.fsk", "--json").out  # as long as the data
    for text, message in (
        ("\n".join(NAMES[:-1]), "names.txt has 39 names for the 40 columns"),
        ("\n".join([*NAMES[:-1], "item 3"]), "names.txt, line 40: 'item 3' is the name of line 4 too"),
        ("a\n\nb", "names.txt, line 2: a name must not be empty"),
    ):
        Path("names.txt").write_text(text)
        assert message in run(*ITEMS_OF, "--names", "names.txt", status=2).err
    Path("names.txt").write_text("\n".join(NAMES), "utf-8-sig")
    run(*ITEMS_OF, "--names", "names.txt")
    assert list(fs.load("o.fsk").item_ids) == NAMES  # without the byte order mark
    Path("names.txt").write_bytes(b"a\n\xff\n")
    assert "names.txt, line 2: the names must be UTF-8" in run(*ITEMS_OF, "--names", "names.txt", status=2).err
    assert "none.txt" in run(*ITEMS_OF, "--names", "none.txt", status=2).err


def test_parts_are_merged_with_their_names(run):
    for day in ("monday", "tuesday"):
        run("items", f"{day}.npz", "-l", 8, "--names", "names.txt", "-o", f"{day}.fsk")
    run("merge", "monday.fsk", "tuesday.fsk", "-o", "week.fsk")
    week = fs.load("week.fsk")
    meaning = {"relevant": None, "binary": False}
    assert week.notes == {"merged": ["monday.fsk", "tuesday.fsk"], "events": meaning}
    assert list(week.item_ids) == NAMES
    assert week.n_rows == 600
    whole = fs.SketchedEASE(8).update(sparse.vstack([users(), users(seed=1)], format="csr"))
    assert np.allclose(week.popularity, whole.popularity, rtol=1e-5)
    Path("names.txt").write_text("\n".join([*NAMES[:0:-1], "one more"]))
    run("items", "tuesday.npz", "-l", 8, "--names", "names.txt", "-o", "tuesday.fsk")
    run("merge", "monday.fsk", "tuesday.fsk", "-o", "other.fsk")  # columns go by their names
    other, turned = fs.load("other.fsk"), fs.load("tuesday.fsk")
    assert list(other.item_ids) == [*NAMES, "one more"]
    expected = np.append(fs.load("monday.fsk").popularity, 0.0)
    expected[[*range(39, 0, -1), 40]] += turned.popularity
    assert np.allclose(other.popularity, expected, rtol=1e-6)
    run("items", "tuesday.npz", "-l", 8, "-o", "unnamed.fsk")
    assert "only one of the two" in run("merge", "monday.fsk", "unnamed.fsk", "-o", "week.fsk", status=2).err
    run("items", "tuesday.npz", "-l", 8, "--binary", "-o", "binary.fsk")
    error = run("merge", "unnamed.fsk", "binary.fsk", "-o", "week.fsk", status=2).err
    assert "binary.fsk: its events have another meaning (--relevant, --binary) than those of unnamed.fsk" in error
    assert list(fs.load("week.fsk").item_ids) == NAMES


def test_counts_that_count_as_one(run, monkeypatch):
    monkeypatch.setattr(_run, "PART_BYTES", 1 << 20)
    sparse.save_npz("counts.npz", sparse.csr_matrix(users() * 3.0))
    np.save("counts.npy", users().toarray() * 3.0)
    run("items", "monday.npz", "-l", 8, "-o", "ones.fsk")
    ones = fs.load("ones.fsk")
    for path in ("counts.npz", "counts.npy"):
        run("items", path, "-l", 8, "--binary", "-o", "o.fsk")
        model = fs.load("o.fsk")
        assert model.notes["events"] == {"relevant": None, "binary": True}
        model.notes = ones.notes
        assert same_state(model, ones)
    np.save("counts.npy", -users().toarray() * 3.0)
    assert "row 0 holds -3.0" in run("items", "counts.npy", "--binary", "-o", "o.fsk", status=2).err


def test_recommend_and_evaluate_take_the_model(run):
    """With names, as text has them: the lists are those of the model."""
    run(*ITEMS_OF, "--names", "names.txt")
    model = fs.load("o.fsk")
    row = np.zeros(ITEMS)
    row[[0, 4, 8]] = 1
    expected = model.recommend(row, 4)
    items = ("item 0", "item 4", "item 8")
    (found,) = json.loads(run("recommend", "o.fsk", "--items", *items, "-n", 4, "--json").out)["recommendations"]
    assert found["items"] == expected.items[0].tolist()
    assert np.allclose(found["scores"], expected.scores[0])
    Path("events.csv").write_text("".join(f"ann,{name}\n" for name in items))
    (found,) = json.loads(run("recommend", "o.fsk", "--events", "events.csv", "-n", 4, "--json").out)["recommendations"]
    assert (found["id"], found["items"]) == ("ann", expected.items[0].tolist())
    run("items", "monday.npz", "-l", 8, "-o", "unnamed.fsk")
    assert "'items --names'" in run("recommend", "unnamed.fsk", "--items", "item 0", status=2).err


def test_bad_rows_are_named(run):
    lines = ["1 1:1 3:2", "# a comment", "1 2:1", "1 1:-1 4:1"]
    Path("t.svm").write_text("\n".join(lines) + "\n")
    error = run("items", "t.svm", "-o", "o.fsk", status=2).err
    assert "t.svm, line 4: rows must not be negative: row 2 holds -1.0 in column 0" in error
    assert not Path("o.fsk").exists()
    Path("t.svm").write_text("\n".join(lines[:3]) + "\n")
    run("items", "t.svm", "--set", "n_features=9", "-l", 4, "-o", "o.fsk")
    assert fs.load("o.fsk").popularity.tolist()[4:] == [0.0] * 5


def test_text_and_matrices_are_the_same_rows(run, monkeypatch):
    monkeypatch.setattr(_run, "PART_BYTES", 1 << 20)
    rows = users().toarray()
    text = "\n".join("0 " + " ".join(f"{j + 1}:{row[j]:g}" for j in np.flatnonzero(row)) for row in rows)
    Path("t.svm").write_text(text + "\n")
    np.save("t.npy", rows)
    for path in ("t.svm", "t.npy", "monday.npz"):
        run("items", path, "--set", f"n_features={ITEMS}", "-l", 8, "-o", f"{path}.fsk")
    one, two, three = (fs.load(f"{path}.fsk") for path in ("t.svm", "t.npy", "monday.npz"))
    for model in (one, two, three):
        model.notes = {}
    assert same_state(one, two) and same_state(one, three)
