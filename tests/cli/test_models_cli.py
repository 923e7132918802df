"""refine, and models that come through a pipe."""

import io
import json

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.cli import main

ROWS = np.random.default_rng(0).standard_normal((300, 24)) * np.linspace(3, 0.1, 24)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", ROWS)
    fs.FrequentDirections(6, solver="gram").update(ROWS).save("rows.fsk")


def refused(capsys, *arguments):
    assert main(list(arguments)) == 2
    return capsys.readouterr().err


def test_refine_is_that_of_python(capsys):
    assert main(["sketch", "rows.npy", "--refine", "rows.fsk", "-o", "out.fsk", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert fs.load("out.fsk").to_bytes() == fs.load("rows.fsk").refine(ROWS).to_bytes()
    assert facts["n_rows"] == 300 and facts["output"] == "out.fsk"


def test_refine_refuses_other_rows(capsys):
    np.save("other.npy", ROWS[::2])
    assert "these are not the same rows" in refused(
        capsys, "sketch", "other.npy", "--refine", "rows.fsk", "-o", "out.fsk"
    )
    fs.SketchHash(8).update(ROWS).save("hash.fsk")
    assert "only a sketch is refined" in refused(capsys, "sketch", "rows.npy", "--refine", "hash.fsk", "-o", "out.fsk")
    fs.FrequentDirections(6, decay=0.9).update(ROWS).save("faded.fsk")
    assert "decay" in refused(capsys, "sketch", "rows.npy", "--refine", "faded.fsk", "-o", "out.fsk")
    for flag, value in (("--passes", "2"), ("-l", "3"), ("--set", "beta=0.5"), ("--workers", "2")):
        error = refused(capsys, "sketch", "rows.npy", "--refine", "rows.fsk", "-o", "out.fsk", flag, value)
        assert "does not go with --refine" in error


class Input:
    def __init__(self, content):
        self.buffer = io.BytesIO(content)


def test_models_come_through_a_pipe(capsys, monkeypatch):
    content = fs.load("rows.fsk").to_bytes()
    monkeypatch.setattr("sys.stdin", Input(content))
    assert main(["info", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_rows"] == 300
    monkeypatch.setattr("sys.stdin", Input(content))
    assert main(["merge", "rows.fsk", "-", "-o", "both.fsk"]) == 0
    assert fs.load("both.fsk").n_rows == 600
    monkeypatch.setattr("sys.stdin", Input(b""))
    assert "standard input is empty" in refused(capsys, "info", "-")
    monkeypatch.setattr("sys.stdin", Input(b"no model"))
    assert "standard input is not a fastsketch state" in refused(capsys, "info", "-")
