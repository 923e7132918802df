"""The demo: what it writes, prints and claims."""

import json

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.cli import main


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
    from fastsketch.demo import _run

    whole = _run.photographs()
    monkeypatch.setattr(_run, "photographs", lambda: [image[:40, :120] for image in whole])
    monkeypatch.setattr(_run, "PEER_ROWS", 4000)
    out = json.loads(run("demo", "--output", tmp_path / "d", "--json", "-l", 20))
    assert out["n_rows"] == 2 * 25 * 105
    assert 0 < out["true_error"] <= out["error_bound"]
    for picture in ("spectrum.png", "neighbours.png", "online.png", "restored.png"):
        assert (tmp_path / "d" / picture).read_bytes().startswith(b"\x89PNG")
    assert out["absolute_psnr"] > out["square_psnr"] > out["damaged_psnr"]
    assert out["newton_online_error"] < 0.03 < 0.1 < max(out["online_errors_by_step"]["gradient descent"].values())
    assert fs.load(tmp_path / "d" / "patches.fsk").n_rows == out["n_rows"]
    text = run("demo", "--output", tmp_path / "d", "-l", 20)
    assert "within the certificate" in text


def test_patches_are_patches():
    pytest.importorskip("sklearn")
    from sklearn.feature_extraction.image import extract_patches_2d

    from fastsketch.demo._patches import Patches

    image = np.random.default_rng(0).random((9, 12, 3))
    expected = extract_patches_2d(image, (4, 4)).reshape(-1, 48)
    assert np.array_equal(np.vstack(list(Patches([image], 4).stream())), expected)
