"""fastsketch watch: a line of JSON for every alarm, as rows come in, and an exit status for cron."""

import json
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

import fastsketch as fs

HEAD = "a,b,c\n"


@pytest.fixture(scope="module")
def lines():
    """Lines of a table whose second column moves after row 3,000."""
    rows = np.random.default_rng(0).standard_normal((4_000, 3))
    rows[3_000:, 1] += 2
    return [",".join(f"{x:.3f}" for x in row) + "\n" for row in rows]


@pytest.fixture
def run(run):
    """The same of this verb."""
    return partial(run, "watch")


def test_alarms_are_lines_and_a_status(run, lines, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(HEAD + "".join(lines))
    (line,) = run(path, "--every", 25, status=3).out.splitlines()
    alarm = json.loads(line)
    assert 3_000 <= alarm["begin"] < alarm["row"] <= 3_500
    assert alarm["columns"][0]["column"] == "b"
    assert alarm["columns"][0]["what"] == "mean"
    path.write_text(HEAD + "".join(lines[:3_000]))
    calm = run(path, "--every", 25)
    assert calm.out == "" and "is not full" not in calm.err
    path.write_text(HEAD + "".join(lines[:1_000]))
    assert "compared with nothing: the reference of 60 blocks of 25 rows is not full" in run(path, "--every", 25).err


def test_a_later_call_goes_on(run, lines, tmp_path):
    for name, part in (("one.csv", lines[:3_010]), ("two.csv", lines[3_010:])):
        (tmp_path / name).write_text(HEAD + "".join(part))
    assert run("one.csv", "--every", 25, "-o", "m.fsk").out == ""
    (line,) = run("two.csv", "-o", "m.fsk", status=3).out.splitlines()
    assert json.loads(line)["columns"][0]["column"] == "b"
    assert fs.load("m.fsk").n_rows == 4_000
    assert run("two.csv", "-o", "m.fsk").out == ""  # no new alarm
    assert "every=25" in run("two.csv", "--every", 30, "-o", "m.fsk", status=2).err


def test_wrong_input_leaves_the_monitor_as_it_was(run, lines, tmp_path):
    (tmp_path / "rows.csv").write_text(HEAD + "".join(lines[:100]))
    run("rows.csv", "-o", "m.fsk")
    before = (tmp_path / "m.fsk").read_bytes()
    (tmp_path / "bad.csv").write_text(HEAD + "".join([*lines[:50], "1,x,2\n"]))
    assert "line 52" in run("bad.csv", "-o", "m.fsk", status=2).err
    (tmp_path / "other.csv").write_text("a,b,d\n1,2,3\n")
    run("other.csv", "-o", "m.fsk", status=2)
    fs.FrequentDirections(3).update(np.eye(3)).save(tmp_path / "s.fsk")
    assert "DriftMonitor" in run("rows.csv", "-o", "s.fsk", status=2).err
    assert "reference" in run("rows.csv", "--reference", 3, status=2).err
    assert (tmp_path / "m.fsk").read_bytes() == before


def test_a_pipe_is_read_as_it_comes(lines):
    """The alarm is there while the writer goes on."""
    command = [sys.executable, "-m", "fastsketch", "watch", "-", "--every", "25"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as watching:
        watching.stdin.write((HEAD + "".join(lines)).encode())
        watching.stdin.flush()
        assert json.loads(watching.stdout.readline())["columns"][0]["column"] == "b"  # the pipe is still open
        watching.stdin.close()
        assert watching.wait(30) == 3
