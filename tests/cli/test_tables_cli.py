"""Tables with words in them: learned from, resumed, predicted and scored from the shell."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.data import TableRows
from tests.cli.test_jobs import stopped

CITIES = ("Oslo", "Paris", "Rome")
LEARN = ("learn", "train.csv", "--target", "buys", "-l", "4", "-o", "m.fsk")


def make(path, n, seed, delimiter=","):
    rng = np.random.default_rng(seed)
    with Path(path).open("w", newline="") as file:
        lines = csv.writer(file, delimiter=delimiter)
        lines.writerow(["age", "city", "buys", "paid"])
        for age, place, noise in zip(rng.uniform(-1, 1, n), rng.integers(0, 3, n), rng.normal(0, 0.1, n), strict=True):
            score = age + 0.8 * (place - 1) + noise
            word = "yes" if score > 0.4 else "no" if score < -0.4 else "maybe"
            lines.writerow([f"{age:.4f}", CITIES[place], word, f"{score:.4f}"])


@pytest.fixture(autouse=True)
def files(run, monkeypatch):
    monkeypatch.setattr("fastsketch.data.names._table_rows.ROWS_AT_A_TIME", 50)
    monkeypatch.setattr("fastsketch.jobs._run.EXAMPLES_AT_A_TIME", 50)
    make("train.csv", 600, 0)
    make("test.csv", 200, 1)


def in_python(path="train.csv", **options):
    model = fs.SketchedNewton(4, **options)
    for rows, labels, _ in TableRows(path, label="buys", ignore=["paid"]).chunks():
        model.update(rows, labels)
    return model


def test_it_is_the_model_of_the_rows_as_dicts(run):
    run(*LEARN, "--ignore", "paid")
    saved, model = fs.load("m.fsk"), in_python()
    assert saved.classes.tolist() == ["maybe", "no", "yes"]
    assert np.array_equal(saved.coef, model.coef) and saved.top_features(3) == model.top_features(3)
    assert saved.notes["table"]["columns"] == {"age": "numeric", "city": "categorical"}
    rows = next(TableRows("test.csv", label="buys", ignore=["paid"]).chunks())[0]
    found = run("predict", "m.fsk", "test.csv").out.splitlines()
    assert found[:50] == model.predict(rows).tolist() and len(found) == 200
    head, *lines = csv.reader(io.StringIO(run("predict", "m.fsk", "test.csv", "--what", "probabilities").out))
    assert head == ["maybe", "no", "yes"]
    assert np.allclose(np.array(lines[:50], float), model.predict_proba(rows), rtol=1e-8)
    facts = json.loads(run("predict", "m.fsk", "test.csv", "--what", "metrics", "--json").out)
    assert facts["examples"] == 200 and facts["accuracy"] > 0.5


def test_columns_go_by_their_names(run):
    run(*LEARN, "--ignore", "paid")
    before = run("predict", "m.fsk", "test.csv").out
    lines = list(csv.reader(Path("test.csv").read_text().splitlines()))
    with Path("other.csv").open("w", newline="") as file:  # another order, no labels, one column more
        csv.writer(file, delimiter=";").writerows(
            [line[1], f"x{i}" if i else "id", line[0]] for i, line in enumerate(lines)
        )
    assert run("predict", "m.fsk", "other.csv").out == before
    assert "other.csv has no column 'buys'" in run("predict", "m.fsk", "other.csv", "--what", "metrics", status=2).err
    Path("less.csv").write_text("age,buys\n1,yes\n")
    assert "less.csv has no column 'city'" in run("predict", "m.fsk", "less.csv", status=2).err
    Path("bad.csv").write_text("age,city,buys\n1,Rome,yes\nold,Rome,no\n")
    assert "bad.csv, line 3: column 1 ('age')" in run("predict", "m.fsk", "bad.csv", status=2).err
    Path("strange.csv").write_text("age,city,buys\n1,Rome,yes\n1,Rome,perhaps\n")
    error = run("predict", "m.fsk", "strange.csv", "--what", "metrics", status=2).err
    assert (
        "strange.csv, line 3: row 1 has label perhaps, which the model has never seen: it knows maybe, no, yes" in error
    )


def test_the_column_of_labels(run):
    run(*LEARN[:2], "--target", "2", "--ignore", "3", *LEARN[4:])
    assert np.array_equal(fs.load("m.fsk").coef, in_python().coef)
    Path("bare.csv").write_text("".join(Path("train.csv").read_text().splitlines(keepends=True)[1:]))
    run("learn", "bare.csv", "--set", "header=no", "--target", "2", "--ignore", "3", "-l", "4", "-o", "b.fsk")
    assert fs.load("b.fsk").classes.tolist() == ["maybe", "no", "yes"]
    assert len(run("predict", "b.fsk", "bare.csv").out.splitlines()) == 600
    run("learn", "train.csv", "--target", "paid", "--ignore", "buys", "--regression", "-o", "r.fsk")
    facts = json.loads(run("predict", "r.fsk", "test.csv", "--what", "metrics", "--json").out)
    assert facts["root_mean_squared_error"] < 0.5
    error = run("learn", "train.csv", "--target", "buys", "--regression", "-o", "x.fsk", status=2).err
    assert "--regression needs targets that are numbers" in error
    twice = run("learn", "people.csv", "--target", "a", "--target=b", "-o", "o.fsk", status=2).err
    assert "--target must be given once: several targets, of --method ridge, are --target A,B" in twice


def test_resumed_to_the_same_bits(run, monkeypatch):
    run(*LEARN)
    whole = fs.load("m.fsk")
    for stop in (2, 7):
        stopped(run, monkeypatch, *LEARN, cls=fs.SketchedNewton, stop=stop)
        run(*LEARN, "--resume")
        assert fs.load("m.fsk").to_bytes() == whole.to_bytes()
    stopped(run, monkeypatch, *LEARN, cls=fs.SketchedNewton, stop=3)
    assert "ignore is" in run(*LEARN, "--ignore", "paid", "--resume", status=2).err


def test_weights_and_classes_by_name(run):
    run(
        *LEARN,
        "--ignore",
        "paid",
        "--class-weight",
        "maybe=3,no=1",
        "--set",
        "classes=no,maybe,yes",
        "--set",
        "hash_bits=10",
    )
    weights = {"maybe": 3.0, "no": 1.0}
    expected = in_python(class_weight=weights, classes=["no", "maybe", "yes"], hash_bits=10)
    assert np.array_equal(fs.load("m.fsk").coef, expected.coef)
    error = run(*LEARN, "--set", "classes=no,yes", status=2).err
    assert "train.csv, line" in error and "'maybe'" in error
    assert "--class-weight: maybe must be a number, got 'x'" in run(*LEARN, "--class-weight", "maybe=x", status=2).err


def test_tables_of_words_and_parquet(run):
    """A header that the names of columns tell is one of the rows that are asked about too."""
    Path("w.csv").write_text("city,buys\n" + "Oslo,yes\nRome,no\n" * 20)
    line = ("learn", "w.csv", "--target", "buys", "--json", "-o", "w.fsk")
    learned = json.loads(run(*line).out)
    tested = json.loads(run("predict", "w.fsk", "w.csv", "--what", "metrics", "--json").out)
    assert learned["n_rows"] == tested["examples"] == 40
    arrow, parquet = pytest.importorskip("pyarrow.csv"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.read_csv("w.csv"), "w.parquet")
    first = fs.load("w.fsk")
    run("learn", "w.parquet", "--target", "buys", "-o", "p.fsk")
    assert np.array_equal(fs.load("p.fsk").coef, first.coef)
    assert run("predict", "p.fsk", "w.csv").out == run("predict", "w.fsk", "w.parquet").out
    assert "none.csv" in run("predict", "w.fsk", "none.csv", "--what", "metrics", status=2).err


def test_a_table_from_a_pipe(run):
    run(*LEARN)
    text = Path("train.csv").read_text()
    line = [sys.executable, "-m", "fastsketch", "learn", "-", *LEARN[2:-1], "p.fsk"]
    done = subprocess.run(line, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(fs.load("p.fsk").coef, fs.load("m.fsk").coef)


def test_models_and_files_of_the_other_kind(run):
    run(*LEARN)
    Path("t.svm").write_text("1 1:1\n-1 2:1\n")
    run("learn", "t.svm", "-o", "s.fsk")
    assert "the model was learned from svmlight text" in run("predict", "s.fsk", "test.csv", status=2).err
    assert "t.svm has no column 'age'" in run("predict", "m.fsk", "t.svm", status=2).err


def test_a_column_of_texts_that_hardly_come_again_is_told(run):
    lines = [f"{k % 7},it came {k} days {'late' if k % 2 else 'early'},{'yes' if k % 2 else 'no'}" for k in range(90)]
    Path("texts.csv").write_text("\n".join(["n,text,late", *lines]) + "\n")
    command = ("learn", "texts.csv", "--target", "late", "-o", "m.fsk")
    assert "column 'text' holds another text in nearly every row" in run(*command).err
    for option in ("--ignore", "--categorical"):
        assert "column 'text'" not in run(*command, option, "text").err
