"""quantize, encode and search of its codes, from the shell."""

import json

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.cli import main
from tests.helpers import same_state, stream

ROWS = (stream("signal", np.random.default_rng(0), 1200, 24) + 2).astype(np.float32)
QUERIES = ROWS[:30] + np.float32(0.01)
IDS = np.random.default_rng(1).permutation(10**12 + np.arange(len(ROWS)))


@pytest.fixture
def run(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", ROWS)
    np.save("queries.npy", QUERIES)
    np.save("ids.npy", IDS)

    def run(*args, status=0):
        try:
            got = main([str(arg) for arg in args])
        except SystemExit as stop:  # argparse
            got = stop.code
        out = capfd.readouterr()
        assert got == status, out.err
        return out

    return run


@pytest.fixture
def quantized(run):
    """The model of 12 bytes in q.fsk, codes of the rows in c.npy."""
    run("quantize", "rows.npy", "-b", 12, "-o", "q.fsk")
    run("transform", "q.fsk", "rows.npy", "-o", "c.npy")
    return fs.load("q.fsk")


def test_quantize_and_encode(run):
    out = json.loads(run("quantize", "rows.npy", "rows.npy", "--n-bytes", 12, "-o", "q.fsk", "--json").out)
    assert (out["kind"], out["n_rows"], out["n_bytes"]) == ("SketchQuantizer", 2400, 12)
    model, expected = fs.load("q.fsk"), fs.SketchQuantizer(12).update(ROWS).update(ROWS)
    expected.notes = model.notes
    assert same_state(model, expected)
    about = json.loads(run("info", "q.fsk", "--json").out)
    assert about["fingerprint"] == model.encoder().fingerprint and about["factor_bytes"] in (1, 2)
    assert sum(about["bits_of_directions"]) == pytest.approx(8 * (12 - about["factor_bytes"]))
    assert "factor bytes" in run("info", "q.fsk").out
    facts = json.loads(run("transform", "q.fsk", "rows.npy", "-o", "c.npy", "--json").out)
    assert (facts["n_rows"], facts["bytes_per_code"]) == (1200, 12) and "n_bits" not in facts
    assert np.array_equal(np.load("c.npy"), model.encode(ROWS))
    assert json.loads(run("info", "q.fsk", "--json").out)["fingerprint"] == model.encoder().fingerprint


@pytest.mark.parametrize("metric", ["euclidean", "inner_product", "cosine"])
def test_searches_are_those_of_the_model(run, quantized, metric):
    codes = np.load("c.npy")
    flags = ("-k", 3, "--metric", metric, "--json")
    found = json.loads(run("search", "q.fsk", "queries.npy", "--codes", "c.npy", *flags).out)
    distances, indices = quantized.search(QUERIES, codes, k=3, metric=metric)
    assert found["indices"] == indices.tolist() and found["distances"] == distances.tolist()
    assert (found["queries"], found["codes"], found["metric"]) == (30, 1200, metric)
    found = json.loads(run("search", "q.fsk", "queries.npy", "--codes", "c.npy", "--rescore", "rows.npy", *flags).out)
    distances, indices = quantized.search(QUERIES, codes, k=3, metric=metric, rescore=ROWS)
    assert found["indices"] == indices.tolist() and found["distances"] == distances.tolist()
    if metric == "euclidean":
        assert [line[0] for line in found["indices"]] == list(range(30))


def test_ids_and_a_filter(run, quantized):
    allowed = IDS[100:400]
    np.savetxt("allowed.txt", allowed, fmt="%d")
    np.save("allowed.npy", allowed)
    expected = quantized.search(QUERIES, np.load("c.npy"), k=3, ids=IDS, allow=allowed, rescore=ROWS, oversample=2)[1]
    for name in ("allowed.txt", "allowed.npy"):
        flags = ("--ids", "ids.npy", "--allow", name, "--rescore", "rows.npy", "--oversample", 2, "-o", "f.npz")
        text = run("search", "q.fsk", "queries.npy", "--codes", "c.npy", "-k", 3, *flags).out
        with np.load("f.npz") as file:
            assert np.array_equal(file["indices"], expected)
    assert f"query 0: {expected[0, 0]} (" in text


def test_codes_of_a_hash_with_factors(run):
    run("quantize", "rows.npy", "--n-bits", 16, "-o", "h.fsk")
    run("transform", "h.fsk", "rows.npy", "--factors", "-o", "c.npy")
    model, codes = fs.load("h.fsk"), np.load("c.npy")
    assert np.array_equal(codes, model.encode(ROWS, factors=True))
    for metric in ("euclidean", "hamming"):
        flags = ("-k", 2, "--metric", metric, "--json")
        found = json.loads(run("search", "h.fsk", "queries.npy", "--codes", "c.npy", *flags).out)
        assert found["indices"] == model.search(QUERIES, codes, k=2, metric=metric)[1].tolist()


def test_no_queries_find_nothing(run, quantized):
    np.save("none.npy", QUERIES[:0])
    found = json.loads(run("search", "q.fsk", "none.npy", "--codes", "c.npy", "-k", 3, "--json", "-o", "f.npz").out)
    assert found["indices"] == [] and found["queries"] == 0
    with np.load("f.npz") as file:
        assert file["indices"].shape == (0, 3)


def test_bad_input(run, quantized, tmp_path):
    run("sketch", "rows.npy", "-l", 4, "-o", "s.fsk")
    np.save("short.npy", ROWS[:7])
    np.save("narrow.npy", ROWS[:, :5])
    np.save("codes9.npy", np.zeros((5, 9), np.uint8))
    np.save("columns.npy", np.asfortranarray(ROWS))
    np.save("nan.npy", QUERIES * np.nan)
    (tmp_path / "words.txt").write_text("12\n\nzwölf\n", encoding="utf-8")
    (tmp_path / "large.txt").write_text("9" * 30 + "\n")
    (tmp_path / "rows.csv").write_text("1,2\n3,zwölf\n", encoding="utf-8")
    search = ("search", "q.fsk", "queries.npy", "--codes", "c.npy")
    for command, message in [
        (("quantize", "rows.npy", "-b", 0, "-o", "x.fsk"), "n_bytes must be"),
        (("quantize", "rows.csv", "-b", 2, "-o", "x.fsk"), "rows.csv, line 2: column 2"),
        (("search", "s.fsk", "rows.npy", "--codes", "c.npy"), "s.fsk holds a FrequentDirections"),
        (("transform", "q.fsk", "rows.npy", "--factors", "-o", "x.npy"), "--factors is for codes of a hash"),
        ((*search, "--metric", "hamming"), "hamming"),
        ((*search, "--metric", "manhattan"), "metric must be one of"),
        ((*search, "-k", 1201), "k must be at most the 1200 codes"),
        ((*search, "--rescore", "short.npy"), "7"),
        ((*search, "--rescore", "narrow.npy"), "5"),
        ((*search, "--rescore", "columns.npy"), "columns.npy must hold a matrix, a row after the other"),
        ((*search, "--rescore", "rows.npy", "--oversample", 0.5), "oversample must be"),
        ((*search, "--ids", "short.npy"), "short.npy must hold one integer for each row"),
        ((*search, "--ids", "words.txt"), "words.txt, line 3: an id must be an integer, got 'zwölf'"),
        ((*search, "--allow", "large.txt"), "large.txt: ids must be integers of 64 bits"),
        ((*search, "--allow", "none.txt"), "none.txt cannot be read"),
        ((*search, "--allow", "q.fsk"), "q.fsk must be text with an integer in every line"),
        (("search", "q.fsk", "queries.npy", "--codes", "codes9.npy"), "codes must have 12 bytes"),
        (("search", "q.fsk", "nan.npy", "--codes", "c.npy"), "nan.npy: rows must be finite: row 0"),
        ((*search, "--rescore", "rows.npy", "-o", "rows.npy"), "the output rows.npy is also an input"),
    ]:
        error = run(*command, status=2).err
        assert message in error, error
        assert error.count("\n") == 1
    assert not list(tmp_path.glob("x.*"))
