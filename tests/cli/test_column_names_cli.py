"""Tables whose columns are in another order, or have other names, on the command line: matched by name, or refused."""

import json
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs

pd = pytest.importorskip("pandas")

NAMES = list("abcd")


@pytest.fixture(autouse=True)
def files(run):
    """The same rows in three files: as learned, reversed, and under other names."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.standard_normal((300, 4)) * [9, 3, 1, 0.3], columns=NAMES)
    rows["y"] = np.where(rows["a"] + rows["d"] > 0, 1, -1)
    for name, columns in (("right", NAMES), ("reversed", NAMES[::-1]), ("others", NAMES)):
        table = rows[columns] if name != "others" else rows[NAMES].rename(columns={"c": "other"})
        table.to_csv(f"{name}.csv", index=False)
        table.assign(y=rows["y"]).to_csv(f"labelled-{name}.csv", index=False)


def save_models():
    """Models of the rows in right.csv."""
    fs.FrequentDirections(4).update("right.csv").save("sketch.fsk")
    fs.FrequentDirections(4, center=True).update("right.csv").save("centred.fsk")
    fs.SketchHash(4).update("right.csv").save("hash.fsk")
    fs.SketchQuantizer(5).update("right.csv").save("quantizer.fsk")


# Commands that read rows by a model, and what of their answer is compared.
READERS = {
    "audit": ("audit", "sketch.fsk", "{}.csv", "--json"),
    "components": ("transform", "centred.fsk", "{}.csv", "-o", "out.csv"),
    "hash codes": ("transform", "hash.fsk", "{}.csv", "-o", "out.npy"),
    "quantizer codes": ("transform", "quantizer.fsk", "{}.csv", "-o", "out.npy"),
}


def answer(command, printed):
    """What a command says or writes, without the time that it took."""
    if "-o" not in command:
        return {name: value for name, value in json.loads(printed).items() if name != "seconds"}
    name = command[command.index("-o") + 1]
    if name.endswith(".fsk"):
        return fs.load(name).to_bytes()
    return np.load(name).tolist() if name.endswith(".npy") else Path(name).read_text()


@pytest.mark.parametrize("command", READERS.values(), ids=READERS)
def test_rows_that_a_model_is_asked_of(run, command):
    save_models()
    right, turned, others = ([word.format(name) for word in command] for name in ("right", "reversed", "others"))
    wanted = answer(right, run(*right).out)
    assert answer(turned, run(*turned).out) == wanted
    assert "other" in run(*others, status=2).err


def test_files_of_one_job(run):
    """Their columns are matched by name, and others are refused."""
    run("sketch", "right.csv", "reversed.csv", "-l", 4, "-o", "out.fsk")
    run("sketch", "right.csv", "right.csv", "-l", 4, "-o", "twice.fsk")
    assert np.array_equal(fs.load("out.fsk").sketch(), fs.load("twice.fsk").sketch())
    assert "column" in run("sketch", "right.csv", "others.csv", "-l", 4, "-o", "x.fsk", status=2).err
    assert not Path("x.fsk").exists()


@pytest.mark.parametrize("method", ["rfd", "ridge"])
def test_labelled_rows(run, method):
    options = ["--regression"] if method == "rfd" else []
    run("learn", "labelled-right.csv", "--target", "y", "--set", f"method={method}", *options, "-o", "model.fsk")
    found = {}
    for name in ("right", "reversed"):
        run("predict", "model.fsk", f"{name}.csv", "-o", "out.csv")
        found[name] = Path("out.csv").read_text()
    assert found["right"] == found["reversed"] and len(found["right"].splitlines()) >= 300
    error = run("predict", "model.fsk", "others.csv", "-o", "out.csv", status=2).err
    assert "'c'" in error


def test_models_of_other_columns_are_not_merged(run):
    for name in ("right", "reversed", "others"):
        fs.FrequentDirections(4).update(f"{name}.csv").save(f"{name}.fsk")
    for name in ("reversed", "others"):
        assert "column" in run("merge", "right.fsk", f"{name}.fsk", "-o", "out.fsk", status=2).err


def test_rows_that_are_watched(run):
    run("watch", "right.csv", "--every", 10, "--set", "reference=10", "-o", "monitor.fsk")
    seen = fs.load("monitor.fsk")
    run("watch", "reversed.csv", "-o", "monitor.fsk")
    assert fs.load("monitor.fsk").to_bytes() == seen.copy().update("right.csv").to_bytes()
    before = Path("monitor.fsk").read_bytes()
    assert "other" in run("watch", "others.csv", "-o", "monitor.fsk", status=2).err
    assert Path("monitor.fsk").read_bytes() == before
