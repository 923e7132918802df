"""How rows were read is remembered by their model, and other rows are read in the same way by every verb."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.io import mmwrite

import fastsketch as fs

RNG = np.random.default_rng(0)
ROWS = np.round(RNG.standard_normal((300, 4)) * [9, 3, 1, 0.3] + 2, 3)
LABELS = (ROWS[:, 0] > 2).astype(int)


def svmlight(path, rows, first):
    cells = [" ".join(f"{j + first}:{v:g}" for j, v in enumerate(row)) for row in rows]
    Path(path).write_text("".join(f"{label} {row}\n" for label, row in zip(LABELS[: len(rows)], cells, strict=True)))


def table(path, rows, *, separator=",", decimal=".", head="a{s}b{s}c{s}d{s}y\n", labels=LABELS):
    cells = [[f"{v:g}".replace(".", decimal) for v in row] for row in rows]
    cells = [[*line, str(y)] for line, y in zip(cells, labels[: len(rows)], strict=True)]
    Path(path).write_text(head.format(s=separator) + "".join(separator.join(line) + "\n" for line in cells))


def write(kind, name, rows):
    """Write rows in a form that needs an option: return the file."""
    if kind == "zero_based":
        svmlight(f"{name}.svm", rows, 0)
        # a file without index 0, which nothing but the option tells from one that counts from 1
        if name == "new":
            text = [line.split(" ") for line in Path("new.svm").read_text().splitlines()]
            Path("new.svm").write_text("\n".join(" ".join([line[0], *line[2:]]) for line in text) + "\n")
        return f"{name}.svm"
    if kind == "decimal":
        table(f"{name}.csv", rows, separator=";", decimal=",")
    elif kind == "separator":
        table(f"{name}.csv", rows, separator="|")
    elif kind == "header":
        table(f"{name}.csv", rows, head="2019{s}2020{s}2021{s}2022{s}y\n")
    elif kind in ("columns", "positions"):
        table(f"{name}.csv", rows, head="a{s}b{s}c{s}d{s}y\n" if kind == "columns" else "", labels=[9] * len(rows))
    elif kind == "fill":
        gaps = rows.copy()
        table(f"{name}.csv", gaps)
        lines = Path(f"{name}.csv").read_text().splitlines()
        lines[3] = "," + lines[3].partition(",")[2]
        Path(f"{name}.csv").write_text("\n".join(lines) + "\n")
    elif kind == "transpose":
        mmwrite(f"{name}.mtx", rows.T)
        return f"{name}.mtx"
    return f"{name}.csv"


OPTIONS = {
    "zero_based": ["--set", "zero_based=yes"],
    "decimal": ["--set", "decimal=,"],
    "separator": ["--set", "separator=|"],
    "header": ["--set", "header=yes"],
    "columns": ["--columns", "c,a"],
    "positions": ["--columns", "2,0", "--set", "header=no"],
    "fill": ["--fill", "1.5"],
    "transpose": ["--set", "transpose=yes"],
}


def answers(run, verb, model, new, options):
    if verb == "transform":
        run("transform", model, new, "-k", 1, "-o", "out.npy", *options)
        return np.load("out.npy").tolist()
    if verb == "codes":
        run("transform", "codes.fsk", new, "-o", "out.npy", *options)
        return np.load("out.npy").tolist()
    if verb == "audit":
        return json.loads(run("audit", model, new, "--json", *options, status=1).out)["error"]
    Path("monitor.fsk").write_bytes(Path("watched.fsk").read_bytes())
    run("watch", new, "-o", "monitor.fsk", *options)
    return fs.load("monitor.fsk").to_bytes()


@pytest.mark.parametrize("kind", OPTIONS)
def test_verbs_of_rows(run, kind):
    """With the options given again, and without them, the answers are the same; and they are those of these rows."""
    options = OPTIONS[kind]
    old, new = write(kind, "old", ROWS), write(kind, "new", ROWS[:200])
    run("sketch", old, "--center", "-l", 3, "-o", "m.fsk", *options)
    run("watch", old, "--every", 10, "-o", "watched.fsk", *options)
    model = fs.load("m.fsk")
    codes = fs.run(fs.SketchQuantizer(3), fs.open_rows(old, **{"n_features": None, **model.notes["reading"]}))
    codes.notes = model.notes
    codes.save("codes.fsk")
    reading = model.notes["reading"]
    assert set(reading) == {"positions": {"columns", "header"}}.get(kind, {kind})
    rows = np.vstack(
        [
            np.asarray(getattr(rows, "toarray", lambda rows=rows: rows)())
            for rows in fs.open_rows(new, **{**reading, "n_features": model.n_features})
        ]
    )
    assert np.allclose(answers(run, "transform", "m.fsk", new, []), _projected(model, rows), atol=1e-4)
    for verb in ("transform", "codes", "audit", "watch"):
        found = [answers(run, verb, "m.fsk", new, some) for some in ([], options)]
        assert found[0] == found[1], verb


def _projected(model, rows):
    pca = pytest.importorskip("fastsketch.sklearn").SketchedPCA
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return pca.from_model(model, n_components=1).transform(rows)


@pytest.mark.parametrize("method", ["rfd", "ridge"])
@pytest.mark.parametrize("kind", ["zero_based", "decimal", "separator", "header"])
def test_predictions(run, kind, method):
    options = OPTIONS[kind]
    old, new = write(kind, "old", ROWS), write(kind, "new", ROWS[:200])
    target = [] if kind == "zero_based" else ["--target", "y"]
    run("learn", old, *target, "--method", method, "-o", "m.fsk", *options)
    for what in ("labels", "metrics"):
        found = []
        for some in ([], options):
            out = run("predict", "m.fsk", new, "--what", what, *(["--json"] if what == "metrics" else []), *some).out
            found.append({k: v for k, v in json.loads(out).items() if "second" not in k} if what == "metrics" else out)
        assert found[0] == found[1]
        if what == "metrics":
            assert found[0]["examples"] == 200
            if kind != "zero_based":  # whose rows lack the column that tells most
                assert found[0].get("accuracy", found[0].get("r2")) > 0.4


def test_events(run):
    lines = [f"u{k % 9}|12400{k:05d}|i{k * k % 7}" for k in range(90)]
    Path("e.csv").write_text("\n".join(["who|when|what", *lines]) + "\n")
    options = ["--set", "separator=|", "--columns", "who,what"]
    run("recommend", "e.csv", *options, "-o", "m.fsk")
    assert fs.load("m.fsk").notes["reading"] == {"separator": "|", "columns": ["who", "what"]}
    found = [run("recommend", "m.fsk", "--events", "e.csv", *some).out for some in ([], options)]
    assert found[0] == found[1] and "12400" not in found[0]


def test_merged_models_remember_what_all_do(run):
    for name, options in (("a", ["--set", "decimal=,", "--fill", "1"]), ("b", ["--set", "decimal=,"])):
        file = write("decimal", name, ROWS)
        run("sketch", file, "--columns", "a,b", *options, "-o", f"{name}.fsk")
    run("merge", "a.fsk", "b.fsk", "-o", "m.fsk")
    assert fs.load("m.fsk").notes["reading"] == {"decimal": ",", "columns": ["a", "b"]}


@pytest.mark.parametrize("reading", [3, {"path": "x"}, {"decimal": 7}, {"columns": 5}, {"zero_based": "perhaps"}])
def test_notes_are_not_trusted(run, reading):
    np.save("rows.npy", ROWS)
    model = fs.FrequentDirections(3, center=True).update(ROWS)
    model.notes = {"reading": reading}
    model.save("m.fsk")
    error = run("transform", "m.fsk", "rows.npy", "-o", "out.npy", status=2).err
    assert "the notes of the model do not say how rows were read" in error and error.count("\n") == 1


def test_a_learner_looks_inside_files(run):
    """Tables and svmlight text are known by what they hold, whatever their names are."""
    table("t.data", ROWS)
    svmlight("s.data", ROWS, 1)
    run("learn", "t.data", "--target", "y", "-o", "t.fsk")
    run("learn", "s.data", "-o", "s.fsk")
    assert fs.load("t.fsk").n_rows == fs.load("s.fsk").n_rows == 300
    assert "--target is of tables" in run("learn", "s.data", "--target", "y", "-o", "x.fsk", status=2).err
    assert "t.data is a table: --target names" in run("learn", "t.data", "-o", "x.fsk", status=2).err
    assert run("predict", "t.fsk", "t.data").out.count("\n") == 300
    assert run("predict", "s.fsk", "s.data").out.count("\n") == 300
