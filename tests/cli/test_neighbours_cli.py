"""quantize and codes of rows, from the shell."""

import json

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.cli import main
from tests.helpers import same_state, stream

ROWS = (stream("signal", np.random.default_rng(0), 1200, 24) + 2).astype(np.float32)


@pytest.fixture
def run(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", ROWS)

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


def test_codes_of_a_hash_with_factors(run):
    run("quantize", "rows.npy", "--n-bits", 16, "-o", "h.fsk")
    run("transform", "h.fsk", "rows.npy", "--factors", "-o", "c.npy")
    model, codes = fs.load("h.fsk"), np.load("c.npy")
    assert np.array_equal(codes, model.encode(ROWS, factors=True))


def test_bad_input(run, quantized, tmp_path):
    run("sketch", "rows.npy", "-l", 4, "-o", "s.fsk")
    (tmp_path / "rows.csv").write_text("1,2\n3,zwölf\n", encoding="utf-8")
    for command, message in [
        (("quantize", "rows.npy", "-b", 0, "-o", "x.fsk"), "n_bytes must be"),
        (("quantize", "rows.csv", "-b", 2, "-o", "x.fsk"), "rows.csv, line 2: column 2"),
        (("transform", "q.fsk", "rows.npy", "--factors", "-o", "x.npy"), "--factors is for codes of a hash"),
    ]:
        error = run(*command, status=2).err
        assert message in error, error
        assert error.count("\n") == 1
    assert not list(tmp_path.glob("x.*"))
