"""Models that come through a pipe."""

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
