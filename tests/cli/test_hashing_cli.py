"""hash, encode and search from the shell."""

import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest

import fastsketch as fs
from tests.helpers import IN_SMALL_PARTS, same_state, stream
from tests.helpers import command as run

ROWS = (stream("signal", np.random.default_rng(0), 1500, 24) + 2).astype(np.float32)


@pytest.fixture
def folder(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    np.save(tmp_path / "more.npy", ROWS[:200] * 2)
    return tmp_path


def test_hash_encode_search(folder):
    out = json.loads(
        run("quantize", "rows.npy", "more.npy", "--n-bits", 12, "-o", "m.fsk", "--json", cwd=folder).stdout
    )
    assert (out["n_rows"], out["n_bits"], out["rotation"], out["method"]) == (1700, 12, "itq", "srht")
    model = fs.load(folder / "m.fsk")
    expected = fs.SketchHash(12).update(ROWS).update(ROWS[:200] * 2)
    expected.notes = model.notes
    assert same_state(model, expected)
    assert "rows per second" in run("transform", "m.fsk", "rows.npy", "more.npy", "-o", "c.npy", cwd=folder).stdout
    codes = np.load(folder / "c.npy")
    assert np.array_equal(codes, model.encode(np.vstack([ROWS, ROWS[:200] * 2])))
    about = json.loads(run("info", "m.fsk", "--json", cwd=folder).stdout)
    assert (about["kind"], about["n_rows"], about["n_features"]) == ("SketchHash", 1700, 24)


def test_parts_merge(folder):
    for part, name in enumerate(["rows.npy", "more.npy"]):
        run("quantize", name, "--n-bits", 8, "--set", f"part={part}", "-o", f"{part}.fsk", cwd=folder)
    run("merge", "0.fsk", "1.fsk", "-o", "all.fsk", cwd=folder)
    assert fs.load(folder / "all.fsk").n_rows == 1700
    run("quantize", "rows.npy", "--n-bits", 8, "-o", "again.fsk", cwd=folder)
    assert "already been merged" in run("merge", "0.fsk", "again.fsk", "-o", "x.fsk", cwd=folder, status=2).stderr
    assert not (folder / "x.fsk").exists()


def test_svmlight_rows(folder):
    (folder / "rows.svm").write_text("".join(f"1 {i % 6 + 1}:{i} 8:1\n" for i in range(1, 60)))
    run("quantize", "rows.svm", "--n-bits", 4, "-o", "m.fsk", cwd=folder)
    run("transform", "m.fsk", "rows.svm", "-o", "c.npy", cwd=folder)
    assert np.load(folder / "c.npy").shape == (59, 1)


def test_a_killed_run_resumes(folder):
    np.save(folder / "big.npy", np.random.default_rng(0).standard_normal((20_000, 200)))
    command = ["quantize", "big.npy", "--n-bits", "32", "-o"]
    process = subprocess.Popen([*IN_SMALL_PARTS, *command, "cut.fsk"], cwd=folder)
    end = time.monotonic() + 60
    while not list(folder.glob("cut.fsk.partial/node-*.fsk")) and time.monotonic() < end and process.poll() is None:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (folder / "cut.fsk").exists()
    for rest in (["cut.fsk", "--resume"], ["whole.fsk"]):
        subprocess.run([*IN_SMALL_PARTS, *command, *rest], cwd=folder, check=True, capture_output=True)
    assert (folder / "cut.fsk").read_bytes() == (folder / "whole.fsk").read_bytes()
    assert not (folder / "cut.fsk.partial").exists()


def test_bad_input(folder):
    run("quantize", "rows.npy", "--n-bits", 8, "-o", "m.fsk", cwd=folder)
    run("transform", "m.fsk", "rows.npy", "-o", "c.npy", cwd=folder)
    run("sketch", "rows.npy", "-l", 4, "-o", "s.fsk", cwd=folder)
    np.save(folder / "narrow.npy", ROWS[:, :5])
    np.save(folder / "nan.npy", ROWS * np.nan)
    np.save(folder / "wide.npy", np.zeros((3, 2), np.uint8))
    (folder / "text.npy").write_text("x")
    before = (folder / "c.npy").read_bytes()
    for command, message in [
        (("quantize", "rows.npy", "--n-bits", 25, "-o", "x.fsk"), "at most the 24 features"),
        (("quantize", "rows.npy", "--n-bits", 0, "-o", "x.fsk"), "n_bits must be"),
        (
            ("quantize", "rows.npy", "--n-bits", 64, "--set", "sketch_size=10", "-o", "x.fsk"),
            "n_bits must be at most 5",
        ),
        (("quantize", "nan.npy", "--n-bits", 8, "-o", "x.fsk"), "a NaN in column 0"),
        (("quantize", "rows.npy", "narrow.npy", "--n-bits", 4, "-o", "x.fsk"), "number of columns"),
        (("quantize", "rows.npy", "--n-bits", 4, "-o", "none/x.fsk"), "folder of the output"),
        (("transform", "m.fsk", "narrow.npy", "-o", "c.npy"), "24 columns"),
        (("transform", "m.fsk", "nan.npy", "-o", "c.npy"), "finite"),
        (
            ("transform", "m.fsk", "rows.npy", "--what", "scores", "-o", "c.npy"),
            "--what must be codes or rows for a Ske",
        ),
        (("transform", "m.fsk", "rows.npy", "-k", 3, "-o", "c.npy"), "--n-components is not for codes"),
        (("transform", "none.fsk", "rows.npy", "-o", "c.npy"), "none.fsk"),
        (("merge", "m.fsk", "s.fsk", "-o", "x.fsk"), "s.fsk"),
        (
            ("quantize", "rows.npy", "--n-bits", 8, "--set", "method=lsh", "-o", "x.fsk"),
            "method must be one of 'srht', 'fd'",
        ),
        (("quantize", "rows.npy", "--n-bits", 8, "--set", "rotation=qr", "-o", "x.fsk"), "rotation must be"),
    ]:
        error = run(*command, cwd=folder, status=2).stderr
        assert message in error, error
        assert error.count("\n") == 1
    assert (folder / "c.npy").read_bytes() == before
    assert not list(folder.glob("x.*"))
    assert not list(folder.glob(".*"))


def test_rotation_none_is_none(folder):
    run("quantize", "rows.npy", "--n-bits", 8, "--set", "rotation=none", "-o", "m.fsk", cwd=folder)
    assert fs.load(folder / "m.fsk").rotation is None
