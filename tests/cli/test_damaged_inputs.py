"""Inputs that cannot be read end a command with status 2 and one line that names the file and the place."""

import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.cli import main
from fastsketch.jobs import _run
from fastsketch.jobs._checkpoint import list_entries

ROWS = np.random.default_rng(0).standard_normal((400, 6))
TEXT = "".join(f"{1 - 2 * (k % 2)} 1:{row[0]!r} 6:{row[1]!r}\n" for k, row in enumerate(ROWS.tolist())).encode()
CSV = b"".join(b"u%d,i%d,%d.5\n" % (k % 8, k // 8, k % 3) for k in range(60))


def fails(capsys, *command):
    """The one line that a command ends with."""
    assert main([str(word) for word in command]) == 2
    err = capsys.readouterr().err
    assert err.startswith("fastsketch: error: ") and err.count("\n") == 1, err
    return err


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_text(tmp_path, capsys, pack):
    suffix = {"gzip": "gz", "bz2": "bz2", "lzma": "xz"}[pack.__module__]
    svm, table, out = tmp_path / f"a.svm.{suffix}", tmp_path / f"t.csv.{suffix}", tmp_path / "o.fsk"
    middle = len(pack(TEXT)) // 2
    for damage in (lambda b: b[:-7], lambda b: b[:middle] + b"\xff" * 9 + b[middle + 9 :], lambda b: b + b"x"):
        svm.write_bytes(damage(pack(TEXT)))
        table.write_bytes(damage(pack(CSV)))
        for command in (("sketch", svm, "-l", 2), ("learn", svm, "-l", 2)):
            assert "a.svm" in fails(capsys, *command, "-o", out)
        assert "t.csv" in fails(capsys, "recommend", table, "-o", out)
    assert not out.exists()


def test_state_files_as_rows(tmp_path, capsys):
    model = tmp_path / "m.fsk"
    fs.SketchHash(3).update(ROWS).save(model)
    assert "fs.load reads a saved model" in fails(capsys, "sketch", model, "-o", tmp_path / "o.fsk")


def test_a_failure_in_the_middle_keeps_the_checkpoint(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(_run, "PART_BYTES", 2000)
    monkeypatch.setattr(_run, "STATES_OF_A_PART", 0)
    path, out = tmp_path / "a.svm", tmp_path / "o.fsk"
    path.write_bytes(TEXT + b"1 3:1 2:1\n")
    command = ("sketch", path, "-l", 3, "--set", "n_features=6", "-o", out)
    assert "a.svm: line 401: feature indices must increase" in fails(capsys, *command)
    assert not out.exists()
    rows = sum(entry.rows for entry in list_entries(Path(f"{out}.partial")))
    assert 0 < rows < 400


def write(path):
    path.write_bytes(TEXT)
    return path


def test_a_message_is_one_line(tmp_path, capsys):
    assert r"none\nof\nthem" in fails(capsys, "sketch", tmp_path / "none\nof\nthem", "-o", tmp_path / "o.fsk")
