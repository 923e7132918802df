"""fastsketch sketch --by."""

import json

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.cli import main


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((900, 12)).astype(np.float32)
    keys = rng.integers(0, 7, 900)
    np.save(tmp_path / "a.npy", np.column_stack([keys[:500], rows[:500]]).astype(np.float32))
    np.save(tmp_path / "b.npy", np.column_stack([keys[500:], rows[500:]]).astype(np.float32))
    return tmp_path, rows, keys


def test_as_in_python(table, capsys):
    folder, rows, keys = table
    out = folder / "groups.fsk"
    inputs = [str(folder / "a.npy"), str(folder / "b.npy")]
    assert main(["sketch", *inputs, "--by", "0", "-l", "5", "--center", "-o", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    groups = fs.GroupSketches.load(out)
    assert facts["n_groups"] == len(groups) == 7 and facts["n_rows"] == 900 and facts["output"] == str(out)
    assert groups.notes == {"inputs": ["a.npy", "b.npy"], "by": 0}
    for key in groups:
        mine = fs.FrequentDirections(5, solver="gram", center=True).update(rows[keys == key])
        assert groups[key].to_bytes() == mine.to_bytes()
    assert main(["info", str(out)]) == 0
    assert "largest error bound" in capsys.readouterr().out


def test_columns(table, capsys):
    folder, rows, keys = table
    out = folder / "groups.fsk"
    command = ["sketch", str(folder / "?.npy"), "--by", "0", "--columns", "0,3", "-l", "2", "-o", str(out)]
    assert main(command) == 0
    assert fs.load(out)[3].n_features == 2
    assert sorted(path.name for path in folder.iterdir()) == ["a.npy", "b.npy", "groups.fsk"]


def test_merged_groups(table, capsys):
    folder, rows, keys = table
    for name in "ab":
        assert main(["sketch", str(folder / f"{name}.npy"), "--by", "0", "-o", str(folder / f"{name}.fsk")]) == 0
    both = folder / "both.fsk"
    assert main(["merge", str(folder / "a.fsk"), str(folder / "b.fsk"), "-o", str(both)]) == 0
    assert fs.load(both).n_rows == 900 and sorted(fs.load(both)) == list(range(7))


def test_what_cannot_be(table, capsys):
    folder, _, _ = table
    out = str(folder / "groups.fsk")
    for arguments, message in (
        ([str(folder / "a.npy"), "--by", "shop", "-o", out], "no names of columns"),
        ([str(folder / "a.npy"), "--by", "99", "-o", out], "13 columns, got position 99"),
        ([str(folder / "a.npy"), "--by", "1", "-o", out], "an integer or a string is one"),
        ([str(folder / "a.npy"), "--by", "0", "-o", str(folder / "a.npy")], "is also an input"),
        ([str(folder / "a.npy"), "--by", "0", "-o", out, "--workers", "2"], "--workers does not go with --by"),
    ):
        assert main(["sketch", *arguments]) == 2
        assert message in capsys.readouterr().err
    assert not (folder / "groups.fsk").exists()
