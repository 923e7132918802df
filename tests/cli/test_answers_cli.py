"""predict and score: what a learned model says of rows from the shell, and what that is worth."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from tests.cli.test_learning_cli import write
from tests.data.sources.helpers import labelled

ROWS = np.random.default_rng(0).standard_normal((900, 8))
SCORES = ROWS @ np.random.default_rng(1).standard_normal((8, 3))
THREE = SCORES.argmax(axis=1) + 1
TWO = (SCORES[:, 0] > 0).astype(int)


@pytest.fixture(autouse=True)
def files(tmp_path):
    for name, labels in (("two", TWO), ("three", THREE), ("real", SCORES[:, 0])):
        write(tmp_path / f"{name}.svm", ROWS[:600], labels[:600])
        write(tmp_path / f"{name}.test.svm", ROWS[600:], labels[600:])


def table(text):
    return list(csv.reader(io.StringIO(text)))


def learned(run, name, *flags):
    run("learn", f"{name}.svm", *flags, "-o", "m.fsk")
    return fs.load("m.fsk")


# -- predict -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["two", "three"])
def test_labels_scores_and_probabilities(run, name):
    model = learned(run, name, "--loss", "logistic")
    rows = labelled(f"{name}.test.svm")[0]
    found = table(run("predict", "m.fsk", f"{name}.test.svm").out)
    assert found == [[f"{label:g}"] for label in model.predict(rows)]
    head, *lines = table(run("predict", "m.fsk", f"{name}.test.svm", "--what", "probabilities").out)
    assert head == [f"{label:g}" for label in model.classes]
    assert np.allclose(np.array(lines, float), model.predict_proba(rows), rtol=1e-8)
    head, *lines = table(run("predict", "m.fsk", f"{name}.test.svm", "--what", "scores").out)
    assert head == (["score"] if name == "two" else [f"{label:g}" for label in model.classes])
    assert np.allclose(np.array(lines, float).squeeze(), model.decision_function(rows), rtol=1e-7)


def test_outputs_and_inputs_of_other_kinds(run):
    model = learned(run, "three", "--loss", "logistic")
    np.save("rows.npy", ROWS[600:])
    sparse.save_npz("rows.npz", sparse.csr_array(ROWS[600:]))
    for flags, expected in (
        ((), model.predict(ROWS[600:])),
        (
            (
                "--what",
                "probabilities",
            ),
            model.predict_proba(ROWS[600:]),
        ),
        (
            (
                "--what",
                "scores",
            ),
            model.decision_function(ROWS[600:]),
        ),
    ):
        for source in ("rows.npy", "rows.npz"):
            run("predict", "m.fsk", source, *flags, "-o", "out.npy")
            found = np.load("out.npy")
            assert found.dtype == expected.dtype and found.shape == expected.shape
            assert np.allclose(found, expected)
    out = run("predict", "m.fsk", "rows.npy", "three.test.svm", "-o", "out.csv", "--json")
    assert json.loads(out.out)["n_rows"] == 600 == len(table(Path("out.csv").read_text()))


def test_real_targets(run):
    model = learned(run, "real", "--regression")
    rows, targets = labelled("real.test.svm")
    found = np.array(table(run("predict", "m.fsk", "real.test.svm").out), float)[:, 0]
    assert np.allclose(found, model.predict(rows), rtol=1e-8)
    assert "real values" in run("predict", "m.fsk", "real.test.svm", "--what", "probabilities", status=2).err
    facts = json.loads(run("predict", "m.fsk", "real.test.svm", "--what", "metrics", "--json").out)
    errors = model.predict(rows) - targets
    assert facts["examples"] == 300
    assert facts["mean_absolute_error"] == pytest.approx(np.abs(errors).mean())
    assert facts["root_mean_squared_error"] == pytest.approx(np.sqrt((errors**2).mean()))
    assert facts["r2"] == pytest.approx(1 - (errors**2).sum() / ((targets - targets.mean()) ** 2).sum())


def test_models_that_predict_no_rows(run):
    fs.FrequentDirections(3).update(ROWS).save("fd.fsk")
    fs.SketchedNewton().save("new.fsk")
    learned(run, "two")
    np.save("wide.npy", np.ones((3, 9)))
    for command, message in (
        (
            ("predict", "fd.fsk", "two.svm"),
            "fd.fsk holds a FrequentDirections: models of 'learn' predict",
        ),
        (("predict", "fd.fsk", "two.svm", "--what", "metrics"), "fd.fsk holds a FrequentDirections"),
        (("predict", "new.fsk", "two.svm"), "new.fsk holds a model that has seen no rows"),
        (("predict", "m.fsk", "none.svm"), "none.svm"),
        (("predict", "m.fsk", "two.svm", "-o", "m.fsk"), "the output m.fsk is also an input"),
        (("predict", "m.fsk", "wide.npy", "--what", "metrics"), "wide.npy holds no labels"),
        (("predict", "m.fsk", "wide.npy"), "wide.npy"),
        (("predict", "m.fsk", "two.svm", "--what", "metrics", "-o", "x.csv"), "--what metrics is printed"),
        (("predict", "m.fsk", "two.svm", "--target", 0), "--what metrics alone looks at"),
    ):
        error = run(*command, status=2).err
        assert message in error and error.count("\n") == 1, error


# -- score -------------------------------------------------------------------------------------------------------------
def test_score_of_two_classes(run):
    metrics = pytest.importorskip("sklearn.metrics")
    model = learned(run, "two", "--loss", "logistic")
    rows, labels = labelled("two.test.svm")
    facts = json.loads(run("predict", "m.fsk", "two.test.svm", "--what", "metrics", "--json").out)
    predicted = model.predict(rows)
    assert facts["examples"] == 300
    assert facts["accuracy"] == pytest.approx(metrics.accuracy_score(labels, predicted))
    assert facts["log_loss"] == pytest.approx(metrics.log_loss(labels, model.predict_proba(rows)))
    assert facts["auc"] == pytest.approx(metrics.roc_auc_score(labels, model.decision_function(rows)))
    counts = metrics.confusion_matrix(labels, predicted)
    assert facts["confusion"] == {
        a: dict(zip("01", line.tolist(), strict=True)) for a, line in zip("01", counts, strict=True)
    }
    # the same rows in two files
    both = json.loads(run("predict", "m.fsk", "two.test.svm", "two.test.svm", "--what", "metrics", "--json").out)
    assert both["examples"] == 600
    assert all(both[name] == pytest.approx(facts[name]) for name in ("accuracy", "log_loss", "auc"))


def test_score_of_more_classes(run):
    metrics = pytest.importorskip("sklearn.metrics")
    model = learned(run, "three", "--loss", "logistic")
    rows, labels = labelled("three.test.svm")
    facts = json.loads(run("predict", "m.fsk", "three.test.svm", "--what", "metrics", "--json").out)
    assert facts["accuracy"] == pytest.approx(np.mean(model.predict(rows) == labels)) and facts["accuracy"] > 0.7
    assert facts["log_loss"] == pytest.approx(metrics.log_loss(labels, model.predict_proba(rows)))
    binary = labels[:, None] == model.classes
    assert facts["auc"] == pytest.approx(metrics.roc_auc_score(binary, model.decision_function(rows)))
    text = run("predict", "m.fsk", "three.test.svm", "--what", "metrics").out
    assert f"accuracy         {facts['accuracy']:.6g}\n" in text
    title, head, *lines = text.splitlines()[-5:]
    assert title.startswith("confusion") and head.split() == ["1", "2", "3"]
    counts = metrics.confusion_matrix(labels, model.predict(rows))
    assert [line.split() for line in lines] == [
        [f"{label:g}", *map(str, row)] for label, row in zip(model.classes, counts.tolist(), strict=True)
    ]


def test_a_label_that_the_model_does_not_know(run):
    learned(run, "two")
    write(Path("other.svm"), ROWS[:3], [1, 3, 1])
    error = run("predict", "m.fsk", "other.svm", "--what", "metrics", status=2).err
    assert "other.svm, line 2: row 1 has label 3, which the model has never seen: it knows 0, 1" in error


# -- streams -----------------------------------------------------------------------------------------------------------
def piped(command, text):
    return subprocess.run(
        [sys.executable, "-m", "fastsketch", *command], input=text, capture_output=True, text=True, timeout=60
    )


def test_learn_and_predict_from_a_pipe(run):
    text = Path("two.svm").read_text()
    done = piped(["learn", "-", "--set", "n_features=8", "-o", "piped.fsk"], text)
    assert done.returncode == 0, done.stderr
    model = learned(run, "two")
    assert np.array_equal(fs.load("piped.fsk").coef, model.coef)
    done = piped(["predict", "piped.fsk", "-"], text)
    assert done.stdout == run("predict", "m.fsk", "two.svm").out
    done = piped(["learn", "/dev/stdin", "-o", "x.fsk"], text)
    assert done.returncode == 2 and "how wide its rows are must be known (--set n_features=N or" in done.stderr
    done = piped(["learn", "-", "--set", "n_features=8", "-o", "x.fsk", "--resume"], text)
    assert done.returncode == 2 and "--resume: - is no file" in done.stderr
    done = piped(["learn", "-", "--set", "n_features=5", "-o", "x.fsk"], text)
    assert done.returncode == 2 and "n_features is 5" in done.stderr
    assert not list(Path().glob("x.fsk*"))
