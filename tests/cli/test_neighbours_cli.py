"""Codes of rows from the shell, by models that Python has learned."""

import json

import numpy as np
import pytest

import fastsketch as fs
from tests.helpers import command, stream

ROWS = (stream("signal", np.random.default_rng(0), 1200, 24) + 2).astype(np.float32)


@pytest.fixture
def run(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    fs.SketchQuantizer(12).update(ROWS).save(tmp_path / "q.fsk")
    fs.SketchHash(16).update(ROWS).save(tmp_path / "h.fsk")

    def run(*args, status=0):
        return command(*args, cwd=tmp_path, status=status)

    return run


@pytest.mark.parametrize(("name", "width"), [("q.fsk", 12), ("h.fsk", 2)])
def test_codes_are_those_of_python(run, tmp_path, name, width):
    facts = json.loads(run("transform", name, "rows.npy", "-o", "c.npy", "--json").stdout)
    assert (facts["n_rows"], facts["bytes_per_code"]) == (1200, width)
    assert np.array_equal(np.load(tmp_path / "c.npy"), fs.load(tmp_path / name).encode(ROWS))


def test_hashes_of_parts_merge(run, tmp_path):
    for part in range(2):
        fs.SketchHash(8, part=part).update(ROWS[part::2]).save(tmp_path / f"{part}.fsk")
    run("merge", "0.fsk", "1.fsk", "-o", "all.fsk")
    assert fs.load(tmp_path / "all.fsk").n_rows == 1200
    assert "already been merged" in run("merge", "0.fsk", "0.fsk", "-o", "x.fsk", status=2).stderr
    assert not (tmp_path / "x.fsk").exists()


def test_svmlight_rows(run, tmp_path):
    (tmp_path / "rows.svm").write_text("".join(f"1 {i % 6 + 1}:{i} 8:1\n" for i in range(1, 60)))
    fs.SketchHash(4).update(np.vstack(list(chunk.toarray() for chunk in fs.open_rows(tmp_path / "rows.svm")))).save(
        tmp_path / "s.fsk"
    )
    run("transform", "s.fsk", "rows.svm", "-o", "c.npy")
    assert np.load(tmp_path / "c.npy").shape == (59, 1)


def test_bad_input(run, tmp_path):
    np.save(tmp_path / "narrow.npy", ROWS[:, :5])
    np.save(tmp_path / "nan.npy", ROWS * np.nan)
    (tmp_path / "c.npy").write_bytes(b"as it was")
    for arguments, message in [
        (("q.fsk", "narrow.npy"), "24 columns"),
        (("q.fsk", "nan.npy"), "finite"),
        (("q.fsk", "rows.npy", "--what", "scores"), "--what is not for codes, and q.fsk holds a SketchQuantizer"),
        (("h.fsk", "rows.npy", "-k", 3), "--n-components is not for codes, and h.fsk holds a SketchHash"),
        (("none.fsk", "rows.npy"), "none.fsk"),
    ]:
        error = run("transform", *arguments, "-o", "c.npy", status=2).stderr
        assert message in error, error
        assert error.count("\n") == 1
    assert (tmp_path / "c.npy").read_bytes() == b"as it was"
    assert not list(tmp_path.glob(".*"))
