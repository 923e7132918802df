"""learn from the shell."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import fastsketch as fs
from tests.helpers import same_state


def run(*args, cwd, status=0):
    command = [sys.executable, "-m", "fastsketch", *map(str, args)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done


def write(path, rows, labels):
    with path.open("w") as file:
        for row, label in zip(rows, labels, strict=True):
            file.write(f"{label:g} " + " ".join(f"{j + 1}:{row[j]:.17g}" for j in np.flatnonzero(row)) + "\n")


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((900, 12)) * (rng.random((900, 12)) < 0.25)
    labels = np.where(rows @ rng.standard_normal(12) > 0, 1, -1)
    rows[0, 11] = 0.5  # the width is known from the first row on
    write(tmp_path / "train.svm", rows[:600], labels[:600])
    write(tmp_path / "test.svm", rows[600:], labels[600:])
    np.savez(tmp_path / "truth.npz", rows=rows, labels=labels)
    return tmp_path


def test_learn_and_test(folder):
    from scipy import sparse

    done = run("learn", "train.svm", "--test", "test.svm", "-l", 5, "-o", "m.fsk", "--json", cwd=folder)
    out = json.loads(done.stdout)
    with np.load(folder / "truth.npz") as truth:
        rows, labels = truth["rows"], truth["labels"]
    model = fs.SketchedNewton(5).update(sparse.csr_array(rows[:600]), labels[:600])
    saved = fs.load(folder / "m.fsk")
    model.notes = saved.notes
    assert same_state(saved, model)
    assert out["test_accuracy"] == pytest.approx(np.mean((model.predict(rows[600:]) > 0) == (labels[600:] > 0)))
    assert out["test_accuracy"] > 0.65  # a tenth above what always the same answer would give
    assert out["mean_loss"] == pytest.approx(model.progress["mean_loss"])
    text = run("learn", "train.svm", "--every", 150, cwd=folder).stdout
    assert text.count("error rate") == 5  # four lines as it goes, one at the end
    assert not list(folder.glob("*.fsk.partial"))


@pytest.mark.parametrize(
    "options",
    [
        {"method": "ada-fd", "eta": 0.5},
        {"method": "ada-diag", "form": "pds"},
        {"method": "ogd", "penalty": "l2", "strength": 1e-3},
    ],
)
def test_adaptive_methods(folder, options):
    from scipy import sparse

    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    done = run(
        "learn",
        "train.svm",
        "--test",
        "test.svm",
        "-l",
        5,
        "--loss",
        "logistic",
        *flags,
        "-o",
        "m.fsk",
        "--json",
        cwd=folder,
    )
    with np.load(folder / "truth.npz") as truth:
        rows, labels = truth["rows"], truth["labels"]
    model = fs.AdaptiveSubgradient(5, loss="logistic", **options).update(sparse.csr_array(rows[:600]), labels[:600])
    saved, out = fs.load(folder / "m.fsk"), json.loads(done.stdout)
    model.notes = saved.notes
    assert same_state(saved, model)
    assert out["test_accuracy"] == pytest.approx(np.mean((model.predict(rows[600:]) > 0) == (labels[600:] > 0)))
    assert out["eta"] == options.get("eta", 0.1)
    about = json.loads(run("info", "m.fsk", "--json", cwd=folder).stdout)
    assert (about["kind"], about["method"], about["rounds"]) == ("AdaptiveSubgradient", options["method"], 600)
    assert "eta" in run("learn", "train.svm", "--method", "adam", "--eta", 0, cwd=folder, status=2).stderr


def test_regression(folder):
    with np.load(folder / "truth.npz") as truth:
        rows = truth["rows"]
    write(folder / "r.svm", rows, np.tanh(rows[:, 0]))
    options = ("--regression", "--loss", "huber", "--alpha0", 1, "--json")
    done = run("learn", "r.svm", "--test", "r.svm", *options, cwd=folder)
    out = json.loads(done.stdout)
    assert out["test_mean_squared_error"] < 0.05
    assert "online_error_rate" not in out


def test_a_killed_run_resumes(folder):
    with np.load(folder / "truth.npz") as truth:
        rows, labels = np.tile(truth["rows"], (60, 1)), np.tile(truth["labels"], 60)
    write(folder / "big.svm", rows, labels)
    command = ["learn", "big.svm", "--every", "200", "--checkpoint", "0.001", "-o"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fastsketch", *command, "cut.fsk"], cwd=folder, stdout=subprocess.DEVNULL
    )
    end = time.monotonic() + 60
    while not (folder / "cut.fsk.partial").exists() and time.monotonic() < end and process.poll() is None:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (folder / "cut.fsk").exists()
    run(*command, "cut.fsk", "--resume", cwd=folder)
    run(*command, "whole.fsk", cwd=folder)
    one, two = fs.load(folder / "cut.fsk"), fs.load(folder / "whole.fsk")
    assert np.array_equal(one.weights, two.weights)
    assert one.progress == two.progress


def test_bad_input(folder):
    write(folder / "three.svm", np.eye(3), [1, 2, 3])
    write(folder / "ones.svm", np.eye(3), [1, 1, 1])
    write(folder / "late.svm", np.eye(3), [1, 1, 2])
    np.save(folder / "rows.npy", np.eye(3))
    for command, message in [
        (("learn", "three.svm", "-o", "x.fsk"), "labels must be two"),
        (("learn", "ones.svm", "late.svm", "-o", "x.fsk"), "the first rows had only 1"),
        (("learn", "rows.npy", "-o", "x.fsk"), "svmlight text only"),
        (("learn", "none.svm", "-o", "x.fsk"), "none.svm"),
        (("learn", "train.svm", "--test", "none.svm", "-o", "x.fsk"), "none.svm"),
        (("learn", "train.svm", "-l", 1, "-o", "x.fsk"), "sketch_size"),
        (("learn", "train.svm", "--sketch", "fd", "-o", "x.fsk"), "alpha0"),
        (("learn", "train.svm", "--every", -1, "-o", "x.fsk"), "--every"),
        (("learn", "train.svm", "-o", "none/x.fsk"), "folder of the output"),
    ]:
        error = run(*command, cwd=folder, status=2).stderr
        assert message in error, error
        assert error.count("\n") == 1
    assert not list(folder.glob("x.fsk"))
