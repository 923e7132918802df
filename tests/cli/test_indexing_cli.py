"""index, and search in one, from the shell."""

import json

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.cli import main
from fastsketch.cli._parser import parser_of
from fastsketch.cli._verbs import METRICS
from fastsketch.neighbours.codes import _search
from fastsketch.neighbours.index import _index
from tests.helpers import stream

ROWS = (stream("signal", np.random.default_rng(0), 1200, 24) + 2).astype(np.float32)
QUERIES = ROWS[:20] + np.float32(0.01)


@pytest.fixture
def run(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", ROWS)
    np.save("first.npy", ROWS[:700])
    np.save("second.npy", ROWS[700:])
    np.save("queries.npy", QUERIES)
    fs.SketchQuantizer(12).update(ROWS[:700]).save("q.fsk")
    fs.SketchHash(16).update(ROWS).save("h.fsk")

    def run(*args, status=0):
        try:
            got = main([str(arg) for arg in args])
        except SystemExit as stop:  # argparse
            got = stop.code
        out = capfd.readouterr()
        assert got == status, out.err
        return out

    return run


def found(run, *args):
    return json.loads(run("search", *args, "--json").out)


def test_an_index_is_made_searched_and_shrinks(run):
    added = json.loads(run("index", "i", "first.npy", "second.npy", "--model", "q.fsk", "--json").out)
    assert (added["added"], added["n_rows"], added["rows"], added["metric"]) == (1200, 1200, None, "euclidean")
    index = fs.CodeIndex(fs.load("q.fsk"))
    index.add(ROWS)
    expected = index.search(QUERIES, k=3)
    answer = found(run, "i", "queries.npy", "-k", 3)
    assert answer["indices"] == expected[1].tolist() and answer["distances"] == expected[0].tolist()
    run("index", "i", "--remove", "3,5")
    np.savetxt("gone.txt", np.arange(10, 15), fmt="%d")
    text = run("index", "i", "--remove", "gone.txt").out
    assert "generations (1):" in text and "7 removed" in text
    index.remove([3, 5, *range(10, 15)])
    assert found(run, "i", "queries.npy", "-k", 3)["indices"] == index.search(QUERIES, k=3)[1].tolist()
    assert json.loads(run("info", "i", "--json").out)["n_rows"] == 1193
    assert json.loads(run("info", "i", "--json").out)["n_rows"] == 1193
    assert "1,193" in run("info", "i").out and "of factors)" in run("info", "i").out


def test_ids_a_filter_and_kept_rows(run):
    ids = np.random.default_rng(0).permutation(10**9 + np.arange(1200))
    np.save("ids.npy", ids)
    run("index", "i", "first.npy", "second.npy", "--model", "q.fsk", "--ids", "ids.npy", "--keep-rows", "float32")
    answer = found(run, "i", "queries.npy", "-k", 1)
    assert answer["indices"] == ids[:20, np.newaxis].tolist()  # by exact distance
    allowed = ids[500:900]
    np.save("allowed.npy", allowed)
    index = fs.load("i")
    options = {"k": 3, "allow": allowed}
    for flags, rescore in ((("--oversample", 8), True), (("--rescore", "none"), False)):
        answer = found(run, "i", "queries.npy", "-k", 3, "--allow", "allowed.npy", *flags)
        expected = index.search(QUERIES, **options, rescore=rescore, oversample=8)[1]
        assert answer["indices"] == expected.tolist()


def test_rows_of_a_file_rescore(run):
    run("index", "i", "rows.npy", "--model", "q.fsk")
    answer = found(run, "i", "queries.npy", "-k", 1, "--rescore", "rows.npy", "-o", "f.npz")
    assert answer["indices"] == [[i] for i in range(20)]
    with np.load("f.npz") as file:
        assert file["indices"].tolist() == answer["indices"]


def test_a_model_that_learned_on_begins_a_generation(run):
    run("index", "i", "first.npy", "--model", "q.fsk")
    fs.load("q.fsk").update(ROWS[700:] * 2).save("later.fsk")
    text = run("index", "i", "second.npy", "--model", "later.fsk").out
    assert "generations (2):" in text and text.count("encodes what is added") == 1
    facts = json.loads(run("index", "i", "--reencode", "rows.npy", "--json").out)
    assert [one["n_rows"] for one in facts["generations"]] == [1200]
    index = fs.CodeIndex(fs.load("later.fsk"))
    index.add(ROWS)
    assert found(run, "i", "queries.npy", "-k", 3)["indices"] == index.search(QUERIES, k=3)[1].tolist()


def test_an_index_of_hashes(run):
    run("index", "i", "rows.npy", "--model", "h.fsk", "--metric", "hamming")
    answer = found(run, "i", "queries.npy", "-k", 2)
    assert answer["metric"] == "hamming" and isinstance(answer["distances"][0][0], int)


def test_an_index_in_cells(run):
    for folder, cells in (("whole", "none"), ("cut", "8")):
        run("index", folder, "rows.npy", "--model", "q.fsk", "--partitions", cells)
    assert fs.CodeIndex.load("cut").partitions == 8
    run("index", "cut", "--remove", "3", "--json")
    run("index", "whole", "--remove", "3")
    flags = ("queries.npy", "-k", 3)
    assert found(run, "cut", *flags, "--probes", 8)["indices"] == found(run, "whole", *flags)["indices"]
    assert len(found(run, "cut", *flags)["indices"][0]) == 3
    assert "probes must be at most the 8 cells" in run("search", "cut", *flags, "--probes", 9, status=2).err


def test_choices_shown_are_those_of_the_classes():
    (kept,) = (action for action in parser_of("index")._actions if action.dest == "keep_rows")
    assert kept.metavar == f"{{{','.join(one or 'none' for one in _index.KEPT)}}}"
    assert f"{{{','.join(_search.METRICS)}}}" == METRICS


def everything(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_bad_input_leaves_the_index_as_it_was(run, tmp_path):
    run("index", "i", "rows.npy", "--model", "q.fsk")
    run("sketch", "rows.npy", "-l", 4, "-o", "s.fsk")
    np.save("narrow.npy", ROWS[:, :5])
    nan = ROWS.copy()
    nan[900, 3] = np.nan
    np.save("nan.npy", nan)
    np.save("few.npy", np.arange(5000, 5003))
    np.save("many.npy", np.arange(5000, 7000))
    np.save("old.npy", np.arange(1200))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("x")
    before = everything(tmp_path / "i")
    for command, message in [
        (("index", "new", "rows.npy"), "there is no index new: --model names"),
        (("index", "new", "rows.npy", "--model", "s.fsk"), "s.fsk holds a FrequentDirections"),
        (("index", "new", "rows.npy", "--model", "q.fsk", "--keep-rows", "int8"), "rows must be one of"),
        (("index", "new", "rows.npy", "--model", "q.fsk", "--metric", "hamming"), "hamming"),
        (("index", "new", "nan.npy", "--model", "q.fsk"), "nan.npy: rows must be finite: row 900"),
        (("index", "no/new", "rows.npy", "--model", "q.fsk"), "the folder of the index does not exist"),
        (("index", "other", "rows.npy", "--model", "q.fsk"), "other is there, and no index"),
        (("index", "rows.npy", "rows.npy", "--model", "q.fsk"), "rows.npy is there, and no index"),
        (("index", "i", "narrow.npy"), "24 columns"),
        (("index", "i", "rows.npy", "nan.npy"), "nan.npy"),
        (("index", "i", "rows.npy", "--ids", "few.npy"), "few.npy must hold one id for each row, got 3"),
        (
            ("index", "i", "rows.npy", "--ids", "many.npy"),
            "one id for each of the 1200 rows, got 2000",
        ),
        (("index", "i", "rows.npy", "--ids", "old.npy"), "in the index already"),
        (("index", "i", "rows.npy", "--keep-rows", "float16"), "--keep-rows is settled when an index is made"),
        (("index", "i", "rows.npy", "--metric", "cosine"), "that of i is euclidean"),
        (
            ("index", "i", "rows.npy", "--partitions", "auto"),
            "--partitions is settled when an index is made: that of i",
        ),
        (("index", "new", "rows.npy", "--model", "q.fsk", "--partitions", "few"), "none, auto or a number of cells"),
        (("index", "new", "rows.npy", "--model", "q.fsk", "--partitions", "1"), "partitions must be at least 2"),
        (("index", "i", "--remove", "3", "--partitions", "4"), "--partitions goes with rows to add"),
        (
            ("search", "q.fsk", "queries.npy", "--codes", "few.npy", "--probes", "2"),
            "--probes is for an index in cells",
        ),
        (("search", "i", "queries.npy", "--probes", 4), "probes is for an index that was made with partitions"),
        (("index", "i"), "index takes one of INPUT, --remove, --reencode"),
        (("index", "i", "rows.npy", "--remove", "3"), "index takes one of"),
        (("index", "i", "--remove", "3", "--metric", "cosine"), "--metric goes with rows to add"),
        (("index", "i", "--remove", "3,x"), "3,x cannot be read"),
        (("index", "i", "--remove", "3,4000"), "4000 not found"),
        (("index", "i", "--remove", "3,3"), "3"),
        (("search", "i", "narrow.npy"), "24 columns"),
        (("search", "i", "queries.npy", "-k", 1201), "k must be at most"),
        (("search", "i", "queries.npy", "--allow", "many.npy"), "allow must be in the index"),
        (("search", "i", "queries.npy", "--rescore", "queries.npy"), "20"),
        (("search", "other", "queries.npy"), "other"),
        (("search", "i", "queries.npy", "--codes", "few.npy"), "--codes is for a model and its codes"),
        (("search", "q.fsk", "queries.npy"), "--codes CODES.npy says among which codes"),
        (("index", "new", "--reencode", "kept"), "new"),
        (("info", "none"), "none"),
    ]:
        error = run(*command, status=2).err
        assert message in error, error
        assert error.count("\n") == 1
    assert everything(tmp_path / "i") == before
    assert not (tmp_path / "new").exists()


def test_a_cut_index_is_refused(run, tmp_path):
    run("index", "i", "rows.npy", "--model", "q.fsk")
    (codes,) = (tmp_path / "i").glob("codes-*.npy")
    codes.write_bytes(codes.read_bytes()[:-9])
    assert "cut short" in run("search", "i", "queries.npy", status=2).err


def test_an_interrupted_add_adds_nothing(run, tmp_path, monkeypatch):
    run("index", "i", "first.npy", "--model", "q.fsk")
    before, add, calls = everything(tmp_path / "i"), fs.CodeIndex.add, []

    def interrupted(self, *args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return add(self, *args)

    monkeypatch.setattr(fs.CodeIndex, "add", interrupted)
    assert "i is as it was" in run("index", "i", "first.npy", "second.npy", status=130).err
    assert everything(tmp_path / "i") == before


def test_two_writers(run, tmp_path, monkeypatch):
    """Who comes second is refused, and what the first has saved stays."""
    run("index", "i", "first.npy", "--model", "q.fsk")
    load = fs.CodeIndex.load

    def loaded(path):
        index = load(path)
        other = load(path)
        other.remove([1])
        other.save(path)
        return index

    monkeypatch.setattr(fs.CodeIndex, "load", loaded)
    assert "has been changed by somebody else" in run("index", "i", "second.npy", status=2).err
    monkeypatch.undo()
    assert len(fs.load(tmp_path / "i")) == 699
