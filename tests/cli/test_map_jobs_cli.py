"""encode, predict, score and transform as jobs over parts: the same for any workers, and gone on with after a stop."""

import json
import subprocess
import sys

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.cli import main
from fastsketch.jobs import _mapping
from tests.helpers import command
from tests.reliability.figures import environment

ROWS = np.random.default_rng(0).standard_normal((3000, 12))
LABELS = np.where(ROWS @ np.linspace(1, -1, 12) > 0, 1, -1)


def run(folder, *words, data=None):
    """The command line, with parts of 100 rows; in a process of its own where it reads from standard input."""
    if data is None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_mapping, "PART_BYTES", 9600)
            done = command(*words, cwd=folder, status=None)
        return subprocess.CompletedProcess(words, done.returncode, done.stdout.encode(), done.stderr.encode())
    code = "import sys; from fastsketch.jobs import _mapping; from fastsketch.cli import main\n"
    code += "_mapping.PART_BYTES = 9600\nsys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        input=data,
        check=False,
    )


def facts(*arguments, **options):
    found = run(*arguments, "--json", **options)
    assert found.returncode == 0, found.stderr.decode()
    return json.loads(found.stdout or found.stderr)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("maps")
    np.save(folder / "rows.npy", ROWS)
    with (folder / "rows.svm").open("w") as file:
        for label, row in zip(LABELS, ROWS, strict=True):
            file.write(f"{label} " + " ".join(f"{k + 1}:{value:.17g}" for k, value in enumerate(row)) + "\n")
    fs.SketchHash(10).update(ROWS).save(folder / "hash.fsk")
    fs.FrequentDirections(8, center=True).update(ROWS).save(folder / "sketch.fsk")
    fs.SketchedNewton(4).update(ROWS, LABELS.astype(float)).save(folder / "learner.fsk")
    return folder


def test_encode(folder):
    expected = fs.load(folder / "hash.fsk").encode(ROWS)
    for words in ([], ["--workers", 2], ["--workers", 2, "--engine", "threads"]):
        assert facts(folder, "transform", "hash.fsk", "rows.npy", "-o", "codes.npy", *words)["n_rows"] == 3000
        assert np.array_equal(np.load(folder / "codes.npy"), expected)
    piped = run(folder, "transform", "hash.fsk", "-", "-o", "-", data=(folder / "rows.npy").read_bytes())
    assert piped.stdout == (folder / "codes.npy").read_bytes()
    pq = pytest.importorskip("pyarrow.parquet")
    facts(folder, "transform", "hash.fsk", "rows.npy", "-o", "codes.parquet", "--workers", 2, "--engine", "threads")
    codes = np.frombuffer(b"".join(pq.read_table(folder / "codes.parquet")["code"].to_pylist()), np.uint8)
    assert np.array_equal(codes.reshape(-1, 2), expected)


def test_resume(folder):
    source = fs.open_rows([str(folder / "rows.npy")], n_features=12)
    told = []

    def stop(report):
        told.append(report)
        if report["parts"] >= 10:
            raise KeyboardInterrupt

    encoder = fs.load(folder / "hash.fsk").encoder()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("fastsketch.jobs._progress.PAUSE", 0.0)
        job = _mapping.Job(progress=stop, workers=1)
        _mapping.write_results(encoder.encode, source, folder / "again.npy", _mapping.Npy(), job, 9600)
    found = facts(folder, "transform", "hash.fsk", "rows.npy", "-o", "again.npy", "--resume")
    assert found["parts_kept"] == 10
    assert np.array_equal(np.load(folder / "again.npy"), encoder.encode(ROWS))
    for words, message in [
        (["-", "-o", "again.npy", "--resume"], "resume: these rows can be read only once"),
        (["rows.npy", "-o", "-", "--resume"], "--resume needs an output that is a regular file"),
        (["rows.npy", "-o", "x.npy", "--workers", "0"], "workers must be at least 1"),
        (["rows.npy", "-o", "x.npy", "--workers", "many"], "--workers must be a number or auto"),
        (
            ["rows.npy", "-o", "x.npy", "--engine", "tcp://127.0.0.1:9"],
            "no Dask scheduler answers at tcp://127.0.0.1:9",
        ),
    ]:
        data = (folder / "rows.npy").read_bytes() if words[0] == "-" else None
        refused = run(folder, "transform", "hash.fsk", *words, data=data)
        assert refused.returncode == 2, refused.stderr
        assert message in refused.stderr.decode()
    assert not list(folder.glob("x.npy*"))


def test_predict_and_score(folder):
    learner = fs.load(folder / "learner.fsk")
    one = run(folder, "predict", "learner.fsk", "rows.svm", "--what", "probabilities")
    two = run(
        folder, "predict", "learner.fsk", "rows.svm", "--what", "probabilities", "--workers", 2, "--engine", "threads"
    )
    assert one.stdout == two.stdout and one.stdout.startswith(b"-1,1\n")
    facts(folder, "predict", "learner.fsk", "rows.npy", "-o", "labels.npy", "--workers", 2, "--engine", "threads")
    assert np.array_equal(np.load(folder / "labels.npy"), learner.predict(ROWS))
    found = facts(folder, "predict", "learner.fsk", "rows.svm", "--what", "metrics")
    assert found["examples"] == 3000 and found["accuracy"] == np.mean(learner.predict(ROWS) == LABELS)


def test_transform_takes_the_columns_that_a_model_knows(tmp_path, monkeypatch, capsys):
    """In their order, of a file that has more; ids of rows stand beside what is said of these."""
    skl = pytest.importorskip("fastsketch.sklearn")
    monkeypatch.chdir(tmp_path)
    lines = [f"r{k},{c},{a},{b}" for k, (a, b, c) in enumerate(ROWS[:50, :3].tolist())]
    (tmp_path / "x.csv").write_text("\n".join(["id,c,a,b", *lines]) + "\n")
    sketch = ["sketch", "x.csv", "--columns", "a,b", "--center", "-o", "s.fsk"]
    for words in (sketch, ["transform", "s.fsk", "x.csv", "-o", "o.csv"]):
        assert main(words) == 0, capsys.readouterr().err
    rows = ROWS[:50, :2]
    expected = skl.SketchedPCA.from_model(fs.FrequentDirections(64, center=True).update(rows)).transform(rows)
    assert np.allclose(np.loadtxt("o.csv", delimiter=",", skiprows=1).reshape(expected.shape), expected, rtol=1e-6)
    assert main(["transform", "s.fsk", "x.csv", "--what", "distances", "--beside", "id", "-o", "o.csv"]) == 0
    head, *found = (tmp_path / "o.csv").read_text().splitlines()
    assert head == "id,distances" and [line.split(",")[0] for line in found] == [f"r{k}" for k in range(50)]
    assert main(["audit", "s.fsk", "x.csv"]) == 0
    np.save("rows.npy", ROWS[:50, :2])  # without names, as it comes
    assert main(["transform", "s.fsk", "rows.npy", "-o", "n.npy"]) == 0 and np.allclose(np.load("n.npy"), expected)


def test_transform(folder):
    skl = pytest.importorskip("fastsketch.sklearn")
    sketch = fs.load(folder / "sketch.fsk")
    pca = skl.SketchedPCA.from_model(sketch, n_components=3)
    found = facts(folder, "transform", "sketch.fsk", "rows.npy", "-k", 3, "-o", "out.npy", "--workers", 2)
    assert found["columns"] == 3
    assert np.allclose(np.load(folder / "out.npy"), pca.transform(ROWS))
    text = run(folder, "transform", "sketch.fsk", "rows.npy", "-k", 2).stdout.decode().splitlines()
    assert text[0] == "sketchedpca0,sketchedpca1" and len(text) == 3001
    covariance = skl.SketchedCovariance.from_model(sketch)
    for what, expected in [("scores", covariance.score_samples), ("distances", covariance.mahalanobis)]:
        facts(folder, "transform", "sketch.fsk", "rows.npy", "--what", what, "-o", "out.npy")
        assert np.allclose(np.load(folder / "out.npy"), expected(ROWS))
    pca.save(folder / "pca.fsk")
    facts(folder, "transform", "pca.fsk", "rows.npy", "-o", "out.npy")
    assert np.allclose(np.load(folder / "out.npy"), pca.transform(ROWS))
    for words, message in [
        (["learner.fsk", "rows.npy"], "holds a SketchedNewton, not a sketch, an estimator with components or"),
        (["sketch.fsk", "rows.npy", "--what", "colours"], "--what must be"),
        (["pca.fsk", "rows.npy", "-k", "2"], "--n-components is for sketches"),
        (["pca.fsk", "rows.npy", "--what", "distances"], "--what must be components"),
    ]:
        refused = run(folder, "transform", *words)
        assert refused.returncode == 2, refused.stderr
        assert message in refused.stderr.decode()
