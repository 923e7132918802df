"""complete, predict and recommend from the shell."""

import csv
import gzip
import json

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.cli import main
from tests.helpers import command as run


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    truth = 3 + rng.standard_normal((40, 2)) @ rng.standard_normal((2, 25))
    lines = [(f"user {i}", f"item-{j}", truth[i, j]) for i in range(40) for j in range(25) if rng.random() < 0.5]
    with (tmp_path / "r.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "item", "rating", "when"])
        writer.writerows([*line, 0] for line in lines)
    with gzip.open(tmp_path / "r.tsv.gz", "wt") as file:
        file.writelines(f"{a}\t{b}\t{c}\n" for a, b, c in lines)
    (tmp_path / "pairs.csv").write_text("user 3,item-4\nuser 5,item-6\nnobody,item-6\n")
    np.savez(tmp_path / "truth.npz", truth=truth)
    return tmp_path


def test_complete_predict_recommend(folder):
    done = run(
        "complete", "r.csv", "-r", 2, "--set", "sweeps=8", "--set", "ridge=0.1", "-o", "m.fsk", "--json", cwd=folder
    )
    out = json.loads(done.stdout)
    assert (out["n_rows"], out["n_features"], out["selected_rank"]) == (40, 25, 2)
    run("predict", "m.fsk", "pairs.csv", "-o", "p.csv", cwd=folder)
    found = list(csv.reader((folder / "p.csv").read_text().splitlines()))
    (folder / "named.csv").write_text("user,item\n" + (folder / "pairs.csv").read_text())  # a header is no pair
    run("predict", "m.fsk", "named.csv", "--set", "header=yes", "-o", "q.csv", cwd=folder)
    assert (folder / "q.csv").read_text() == (folder / "p.csv").read_text()
    with np.load(folder / "truth.npz") as file:
        truth = file["truth"]
    assert [line[:2] for line in found] == [["user 3", "item-4"], ["user 5", "item-6"], ["nobody", "item-6"]]
    assert float(found[0][2]) == pytest.approx(truth[3, 4], abs=0.3)
    assert float(found[1][2]) == pytest.approx(truth[5, 6], abs=0.3)
    model = fs.load(folder / "m.fsk")
    assert float(found[2][2]) == pytest.approx(model.predict("nobody", "item-6")[0], rel=1e-6)
    out = json.loads(
        run("recommend", "m.fsk", "user 7", "nobody", "-n", 3, "--exclude", "r.csv", "--json", cwd=folder).stdout
    )["recommendations"]
    assert [entry["known"] for entry in out] == [True, False]
    seen = {line[1] for line in csv.reader((folder / "r.csv").read_text().splitlines()) if line[0] == "user 7"}
    assert len(out[0]["items"]) == 3
    assert not seen & set(out[0]["items"])
    about = json.loads(run("info", "m.fsk", "--json", cwd=folder).stdout)
    assert (about["kind"], about["n_rows"], about["n_features"], about["selected_rank"]) == ("LowRankModel", 40, 25, 2)
    assert about["notes"] == {}
    text = run("recommend", "m.fsk", "user 7", "nobody", cwd=folder).stdout
    assert "unknown: by biases" in text


def test_it_is_the_model(folder):
    run(
        "complete",
        "r.tsv.gz",
        "--loss",
        "huber",
        "-r",
        3,
        "--validation",
        0.1,
        "--set",
        "dtype=float64",
        "-o",
        "m.fsk",
        cwd=folder,
    )
    saved = fs.load(folder / "m.fsk")
    with gzip.open(folder / "r.tsv.gz", "rt") as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    rows, columns = (ids.places([line[k] for line in lines]) for k, ids in enumerate((saved.row_ids, saved.column_ids)))
    x = sparse.coo_array(([float(line[2]) for line in lines], (rows, columns)), shape=(40, 25))
    model = fs.LowRankModel(3, loss="huber").fit(x, validation=0.1)
    assert np.array_equal(saved.predict_block(saved.row_ids), model.predict_block(np.arange(40)))
    shown = run("complete", "r.csv", "-o", "n.fsk", "--validation", 0.2, "--patience", 2, cwd=folder).stdout
    assert "validation" in shown
    assert "rank    0" in shown


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,b\n", "line 1: 3 columns"),
        ("a,b,1\na,c\n", "line 2: there are 2 columns, in the first line 3"),
        ("a,b,1\nc,d,x\n", "bad.csv, line 2: column 3: 'x' is no finite decimal number"),
        ("", "holds no lines"),
        ("a,b,1\na,b,2\n", "(a, b) more than once"),
        ("a,b,nan\n", "line 1: 'a', 'b', 'nan': nothing tells whether this is a header"),
        ("a,b,nan\na,c,1\n", "line 1: column 3: 'nan' is no finite decimal number"),
    ],
)
def test_bad_files_are_named(folder, text, match):
    (folder / "bad.csv").write_text(text)
    assert match in run("complete", "bad.csv", "-o", "x.fsk", cwd=folder, status=2).stderr
    assert not (folder / "x.fsk").exists()


def test_bad_use_is_named(folder):
    assert "cannot be read" in run("complete", "none.csv", "-o", "x.fsk", cwd=folder, status=2).stderr
    fs.LowRankModel(1).fit(sparse.csr_array(np.eye(3))).save(folder / "bare.fsk")
    assert "holds no ids" in run("recommend", "bare.fsk", "a", cwd=folder, status=2).stderr
    fs.FrequentDirections(4).update(np.eye(3)).save(folder / "fd.fsk")
    assert (
        "fd.fsk holds a FrequentDirections"
        in run("predict", "fd.fsk", "pairs.csv", "-o", "y.csv", cwd=folder, status=2).stderr
    )
    assert "labels" in run("complete", "r.csv", "--loss", "logistic", "-o", "x.fsk", cwd=folder, status=2).stderr
    for flags, message in [
        (("--loss", "cubic"), "loss must be one of 'square'"),
        (("--set", "learning_rate=2"), "learning_rate must lie in (0, 1], got 2"),
    ]:
        assert message in run("complete", "r.csv", *flags, "-o", "x.fsk", cwd=folder, status=2).stderr
    assert not (folder / "x.fsk").exists()


def test_predictions_of_labels(folder):
    rng = np.random.default_rng(0)
    lines = [f"{i},{j},{1 if i % 2 == j % 2 else 0}\n" for i in range(20) for j in range(12) if rng.random() < 0.7]
    (folder / "links.csv").write_text("".join(lines))
    (folder / "pairs.csv").write_text("0,0\n0,1\n")
    run("complete", "links.csv", "--loss", "logistic", "-r", 2, "--set", "ridge=0.1", "-o", "m.fsk", cwd=folder)
    values = []
    for flags in (
        (),
        (
            "--what",
            "probabilities",
        ),
    ):
        run("predict", "m.fsk", "pairs.csv", *flags, "-o", "p.csv", cwd=folder)
        values.append([float(line[2]) for line in csv.reader((folder / "p.csv").read_text().splitlines())])
    assert values[0] == [1, -1]
    assert 0 < values[1][1] < 0.5 < values[1][0] < 1
    run("complete", "r.csv", "-o", "s.fsk", cwd=folder)
    assert (
        "logistic"
        in run("predict", "s.fsk", "pairs.csv", "--what", "probabilities", "-o", "q.csv", cwd=folder, status=2).stderr
    )


def test_the_rank_is_at_most_the_smaller_side(folder):
    (folder / "few.csv").write_text("a,x,1\na,y,2\nb,x,3\nb,y,5\n")
    out = json.loads(run("complete", "few.csv", "-o", "m.fsk", "--json", cwd=folder).stdout)
    assert out["rank"] == 2
    assert fs.load(folder / "m.fsk").rank == 2


def test_a_table_that_is_not_text_is_named(tmp_path, capsys):
    np.save(tmp_path / "rows.npy", np.ones((3, 3)))
    assert main(["complete", str(tmp_path / "rows.npy"), "-o", str(tmp_path / "m.fsk")]) == 2
    assert "rows.npy is not text" in capsys.readouterr().err
