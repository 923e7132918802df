"""sketch --passes 2 and audit: the results of the library, resumed anywhere, and what they refuse."""

import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.data.sources import Source, _source
from fastsketch.jobs import _run
from fastsketch.sketching import FrequentDirections, SecondPass
from tests.cli.test_jobs import interrupt, write
from tests.data.sources.helpers import labelled

D = 30
ROWS = np.random.default_rng(0).standard_normal((400, D)) * np.linspace(3, 0.1, D)
TWICE = ("sketch", "rows.npy", "more.npy", "-l", 8, "--set", "solver=gram", "--passes", 2, "-o", "o.fsk")


@pytest.fixture(autouse=True)
def small_parts(run, monkeypatch):
    """Parts of 50 rows."""
    monkeypatch.setattr(_run, "PART_BYTES", 50 * D * 8)
    monkeypatch.setattr(_run, "STATES_OF_A_PART", 0)
    monkeypatch.setattr(_source, "CHUNK_BYTES", 50 * D * 8)
    np.save("rows.npy", ROWS)
    np.save("more.npy", ROWS[::-1])


@pytest.mark.parametrize("kind", [".npy", ".npz", ".svm"])
def test_the_same_as_refine(run, tmp_path, kind):
    rows, name = np.where(ROWS > 2, ROWS, 0) if kind != ".npy" else ROWS, f"t{kind}"
    if kind == ".npy":
        np.save(name, rows)
    elif kind == ".npz":
        sparse.save_npz(name, sparse.csr_array(rows))
    else:
        write(name, rows, np.ones(len(rows)))
    facts = json.loads(
        run(
            "sketch", name, "-l", 8, "--method", "tfd", "--set", "solver=gram", "--passes", 2, "-o", "o.fsk", "--json"
        ).out
    )
    assert facts["passes"] == 2 and facts["n_rows"] == 400
    found = fs.load("o.fsk")
    direct = fs.run(fs.FrequentDirections(8, method="tfd", solver="gram"), name, passes=2)
    assert found.notes == {"inputs": [name]}
    assert np.array_equal(found.sketch(), direct.sketch())
    again = fs.run(fs.FrequentDirections(8, method="tfd", solver="gram"), name).refine(name)
    assert np.allclose(found.singular_values, again.singular_values, rtol=1e-12)
    given = labelled(name)[0] if kind == ".svm" else sparse.csr_array(rows) if kind == ".npz" else rows
    memory = fs.FrequentDirections(8, method="tfd", solver="gram").update(given).refine(given)
    assert np.allclose(found.singular_values[:4], memory.singular_values[:4], rtol=0.02)


@pytest.mark.covering(1)
@pytest.mark.parametrize("stop", [1, 5, 8, 9, 16])
@pytest.mark.parametrize("cls", [FrequentDirections, SecondPass])
def test_resumed_in_either_pass_to_the_same_bits(run, monkeypatch, cls, stop):
    run(*TWICE)
    whole = Path("o.fsk").read_bytes()
    Path("o.fsk").unlink()
    undo = interrupt(monkeypatch, cls, stop)
    said = run(*TWICE, status=130).err
    undo()
    if cls is SecondPass and stop > 1:
        assert " rows in pass 2 is in " in said
    if cls is SecondPass or stop > 1:
        run(*TWICE, "--resume")
    else:
        run(*TWICE)
    assert Path("o.fsk").read_bytes() == whole
    assert not Path("o.fsk.partial").exists()


def test_another_number_of_passes_is_another_job(run, monkeypatch):
    undo = interrupt(monkeypatch, SecondPass, 3)
    run(*TWICE, status=130)
    undo()
    once = [word for word in TWICE if word not in ("--passes", 2)]
    error = run(*once, "--resume", status=2).err
    assert error.count("\n") == 1 and "another job: passes is 1 now and was 2\n" in error
    run(*TWICE, "--resume")


def test_an_input_that_changes_between_the_passes_is_found(run, monkeypatch):
    undo = interrupt(monkeypatch, SecondPass, 1)
    run(*TWICE, status=130)
    undo()
    about = Path("more.npy").stat()
    changed = ROWS[::-1].copy()
    changed[[3, 4]] = changed[[4, 3]]  # of the same size and norm
    np.save("more.npy", changed)
    assert "more.npy" in run(*TWICE, "--resume", status=2).err
    np.save("more.npy", ROWS[::-1])
    os.utime("more.npy", ns=(about.st_atime_ns, about.st_mtime_ns))
    run(*TWICE, "--resume")
    # in one run
    original = SecondPass.update

    def update(self, *args, **kwargs):
        if self.n_rows == 0:
            np.save("more.npy", changed)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(SecondPass, "update", update)
    assert "more.npy has changed" in run(*TWICE, status=2).err


def test_refusals(run):
    for switches, message in (
        (["--passes", 0], "--passes must be 1 or 2, got 0"),
        (["--passes", 3], "--passes must be 1 or 2, got 3"),
        (["--passes", 2, "--set", "decay=0.5"], "without decay"),
    ):
        error = run("sketch", "rows.npy", "-o", "o.fsk", *switches, status=2).err
        assert message in error and error.count("\n") == 1
    os.mkfifo("pipe.npy")
    error = run("sketch", "pipe.npy", "-o", "o.fsk", "--passes", 2, status=2).err
    assert "pipe.npy is no regular file" in error and error.count("\n") == 1
    assert not Path("o.fsk").exists()
    with pytest.raises(ValueError, match="compressor"):
        fs.run(fs.FrequentDirections(8, compressor="srht"), "rows.npy", passes=2)
    with pytest.raises(ValueError, match="passes must be 1 or 2, got 3"):
        fs.run(fs.FrequentDirections(8), "rows.npy", passes=3)


def test_an_exact_sum_needs_one_pass(run):
    facts = json.loads(run("sketch", "rows.npy", "-l", 8, "--passes", 2, "-o", "o.fsk", "--json").out)
    assert facts["passes"] == 1 and facts["solver"] == "exact"


def test_progress_says_which_pass(run):
    said = run(*TWICE, "--progress", "line").err
    assert "pass 1 of 2" in said and "pass 2 of 2" in said


def test_warnings_are_lines_for_a_person(run):
    for command in (
        (
            "sketch",
            "rows.npy",
            "--set",
            "solver=gram",
            "--tolerance",
            0.001,
            "--set",
            "max_sketch_size=12",
            "-o",
            "o.fsk",
        ),
        ("info", "o.fsk"),
        ("info", "o.fsk", "--json"),
    ):
        assert run(*command).err == (
            "fastsketch: warning: the tolerance of 0.001 is not met: max_sketch_size=12 is reached; raise "
            "max_sketch_size or the tolerance; error_bound says what holds instead\n"
        )


def test_tolerances_out_of_range(run):
    for value in (0, 1):
        error = run("sketch", "rows.npy", "--tolerance", value, "-o", "o.fsk", status=2).err
        assert error == f"fastsketch: error: tolerance must lie in (0, 1), both excluded, got {value}\n"
    error = run("sketch", "rows.npy", "--set", "tolerance_relative_to=largest_eigenvalue", "-o", "o.fsk", status=2).err
    assert "tolerance_relative_to belongs to tolerance, got 'largest_eigenvalue' without one" in error


# -- audit -----------------------------------------------------------------------------------------------------------
def test_audit(run):
    run("sketch", "rows.npy", "more.npy", "-l", 8, "--set", "solver=gram", "--method", "fd", "-o", "o.fsk")
    before = Path("o.fsk").read_bytes()
    found = json.loads(run("audit", "o.fsk", "rows.npy", "more.npy", "--json").out)
    b = fs.load("o.fsk").sketch()
    exact = np.linalg.norm(2 * ROWS.T @ ROWS - b.T @ b, 2)
    assert found["same_rows"] and 0.99 * exact <= found["error"] <= exact * (1 + 1e-9)
    assert found["error"] <= found["error_bound"] and found["accuracy"] <= 0.01
    said = run("audit", "o.fsk", "rows.npy", "more.npy", "--accuracy", 0.1)
    assert "error bound" in said.out
    assert Path("o.fsk").read_bytes() == before


def test_an_audit_of_other_rows_has_a_status_of_its_own(run):
    run("sketch", "rows.npy", "more.npy", "-l", 8, "--set", "solver=gram", "--method", "fd", "-o", "o.fsk")
    np.save("turned.npy", ROWS[:, ::-1])  # as many, and of the same norm
    np.save("loud.npy", 3 * ROWS)
    for inputs, same_rows, message in (
        (("rows.npy",), False, "fastsketch: warning: audit has read 400 rows"),
        (("rows.npy", "loud.npy"), False, "these are not the same rows"),
        (("turned.npy", "turned.npy"), False, "beyond the bound"),
    ):
        out = run("audit", "o.fsk", *inputs, "--json", status=1)
        found = json.loads(out.out)
        assert found["same_rows"] == same_rows and "seconds" in found
        assert message in out.err and all(line.startswith("fastsketch: warning: ") for line in out.err.splitlines())
    for solver in ("gram", "exact"):  # a bound of rounding alone
        for dtype in ("float32", "float64"):
            run(
                "sketch", "rows.npy", "-l", D + 1, "--set", f"solver={solver}", "--set", f"dtype={dtype}", "-o", "e.fsk"
            )
            run("audit", "e.fsk", "rows.npy")


def test_an_audit_that_does_not_get_as_near_as_was_asked_says_so(run, monkeypatch):
    run("sketch", "rows.npy", "-l", 8, "--set", "solver=gram", "-o", "o.fsk")
    monkeypatch.setattr("fastsketch.sketching._rereading.MOST_PASSES", 2)
    out = run("audit", "o.fsk", "rows.npy", "--accuracy", 1e-9, "--json")
    found = json.loads(out.out)
    assert found["same_rows"] and found["passes"] == 2 and found["accuracy"] > 1e-9
    said = f"ended after 2 passes, the most that it makes, with an accuracy of {found['accuracy']:.2g} instead of 1e-09"
    assert said in out.err and out.err.count("\n") == 1
    with pytest.warns(UserWarning, match="instead of 1e-09") as told:
        fs.load("o.fsk").audit(ROWS, accuracy=1e-9)
    assert told[0].filename == __file__


def test_audit_refuses(run):
    run("sketch", "rows.npy", "-l", 8, "-o", "o.fsk")
    np.save("wide.npy", np.ones((3, D + 1)))
    np.save("empty.npy", np.ones((0, D)))
    (bad := ROWS.copy())[77, 3] = np.nan
    np.save("bad.npy", bad)
    write("wide.svm", np.ones((3, D + 1)), np.ones(3))
    fs.SketchHash(4).update(np.load("rows.npy")).save("h.fsk")
    for command, message in (
        (("audit", "o.fsk", "wide.npy"), "wide.npy has 31 columns"),
        (("audit", "o.fsk", "wide.svm"), "feature 31"),
        (("audit", "o.fsk", "none.npy"), "none.npy"),
        (("audit", "o.fsk", "empty.npy", "empty.npy"), "has read no rows"),
        (("audit", "h.fsk", "rows.npy"), "SketchHash"),
        (("audit", "o.fsk", "bad.npy"), "bad.npy: rows must be finite: row 77"),
        (("audit", "o.fsk", "rows.npy", "--accuracy", 0), "accuracy"),
    ):
        error = run(*command, status=2).err
        assert message in error and error.count("\n") == 1, error
    run("sketch", "rows.npy", "-l", 8, "--set", "decay=0.9", "-o", "d.fsk")
    assert "without decay" in run("audit", "d.fsk", "rows.npy", status=2).err


def test_an_interrupted_audit_loses_nothing(run, monkeypatch):
    run("sketch", "rows.npy", "-l", 8, "-o", "o.fsk")
    from fastsketch.sketching._rereading import StoredForm

    before = Path("o.fsk").read_bytes()

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(StoredForm, "multiply", stop)
    assert "interrupted" in run("audit", "o.fsk", "rows.npy", status=130).err
    assert Path("o.fsk").read_bytes() == before and sorted(path.name for path in Path().iterdir()) == [
        "more.npy",
        "o.fsk",
        "rows.npy",
    ]


def test_threads_do_not_meet():
    """A pass that is at work refuses other calls; the sketch is as it was when it fails."""
    sketch = fs.FrequentDirections(8, solver="gram").update(ROWS)
    before, errors = sketch.to_bytes(), []

    class Slow(Source):
        n_features, name, n_rows, size, waits = D, "slow", 400, 400, False

        def read(self, start_row=0):
            thread = threading.Thread(target=lambda: errors.append(_error(lambda: sketch.update(ROWS[:1]))))
            thread.start()
            thread.join()
            yield ROWS, 400
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="disk"):
        sketch.refine(Slow())
    assert "one thread at a time" in str(errors[0])
    assert sketch.to_bytes() == before


def _error(call):
    try:
        call()
    except RuntimeError as error:
        return error
