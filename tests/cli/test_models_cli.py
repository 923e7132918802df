"""refine, export, decode, and models that come through a pipe."""

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
    for flag, value in (("--by", "0"), ("--passes", "2"), ("-l", "3"), ("--set", "beta=0.5"), ("--workers", "2")):
        error = refused(capsys, "sketch", "rows.npy", "--refine", "rows.fsk", "-o", "out.fsk", flag, value)
        assert "does not go with --refine" in error


@pytest.mark.parametrize("name", ["sketch", "components", "singular_values", "gram"])
def test_export_is_the_array(name):
    assert main(["info", "rows.fsk", "--array", name, "-o", "out.npy"]) == 0
    found = getattr(fs.load("rows.fsk"), name)
    assert np.array_equal(np.load("out.npy"), found() if callable(found) else found)


def test_export_of_a_group(capsys):
    groups = fs.sketch_groups(ROWS, by=np.arange(300) % 4, sketch_size=5)
    groups.save("groups.fsk")
    assert main(["info", "groups.fsk", "--array", "sketch", "--group", "3", "-o", "out.npy"]) == 0
    assert np.array_equal(np.load("out.npy"), groups[3].sketch())
    assert "4 groups: name one with --group" in refused(
        capsys, "info", "groups.fsk", "--array", "sketch", "-o", "out.npy"
    )
    assert "no group '9'" in refused(capsys, "info", "groups.fsk", "--array", "sketch", "--group", "9", "-o", "out.npy")
    assert "--group is for sketches of groups" in refused(
        capsys, "info", "rows.fsk", "--array", "sketch", "--group", "9", "-o", "out.npy"
    )


def test_export_of_what_there_is_not(capsys):
    assert "--array must be one of" in refused(capsys, "info", "rows.fsk", "--array", "copy", "-o", "out.npy")
    assert "has no mean" in refused(capsys, "info", "rows.fsk", "--array", "mean", "-o", "out.npy")


@pytest.mark.parametrize("kind", ["quantizer", "hash"])
def test_decode_is_that_of_python(capsys, kind):
    model = fs.SketchQuantizer(6) if kind == "quantizer" else fs.SketchHash(8, rotation=None)
    model.update(ROWS).save("model.fsk")
    flags = ["--factors"] if kind == "hash" else []
    assert main(["transform", "model.fsk", "rows.npy", "-o", "codes.npy", *flags]) == 0
    assert main(["transform", "model.fsk", "codes.npy", "--what", "rows", "-o", "out.npy", "--json"]) == 0
    encoder = model.encoder(factors=True) if kind == "hash" else model.encoder()
    assert np.array_equal(np.load("out.npy"), encoder.decode(np.load("codes.npy")))
    np.save("short.npy", np.load("codes.npy")[:, :1])
    assert "codes of 1 bytes" in refused(
        capsys, "transform", "model.fsk", "short.npy", "--what", "rows", "-o", "out.npy"
    )


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
