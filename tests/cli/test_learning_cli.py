"""learn from the shell."""

import json

import numpy as np
import pytest

import fastsketch as fs
from tests.helpers import command as run
from tests.helpers import same_state


def write(path, rows, labels):
    with path.open("w") as file:
        for row, label in zip(rows, labels, strict=True):
            file.write(f"{label:g} " + " ".join(f"{j + 1}:{row[j]:.17g}" for j in np.flatnonzero(row)) + "\n")


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((900, 12)) * (rng.random((900, 12)) < 0.25)
    labels = np.where(rows @ rng.standard_normal(12) > 0, 1.0, -1.0)
    rows[0, 11] = 0.5  # the width is known from the first row on
    write(tmp_path / "train.svm", rows[:600], labels[:600])
    write(tmp_path / "test.svm", rows[600:], labels[600:])
    np.savez(tmp_path / "truth.npz", rows=rows, labels=labels)
    return tmp_path


def test_labels_in_runs_are_told(folder):
    with np.load(folder / "truth.npz") as truth:
        at = np.argsort(truth["labels"], kind="stable")
        write(folder / "sorted.svm", truth["rows"][at], truth["labels"][at])
    said = run("learn", "sorted.svm", "-o", "m.fsk", cwd=folder).stderr
    assert said.count("labels come in runs: 2 in ") == 1 and "Shuffle the rows" in said
    assert "runs" not in run("learn", "sorted.svm", "--set", "decay=0.99", "-o", "m.fsk", cwd=folder).stderr


def test_learn_and_test(folder):
    from scipy import sparse

    out = json.loads(run("learn", "train.svm", "-l", 5, "-o", "m.fsk", "--json", cwd=folder).stdout)
    out |= json.loads(run("predict", "m.fsk", "test.svm", "--what", "metrics", "--json", cwd=folder).stdout)
    with np.load(folder / "truth.npz") as truth:
        rows, labels = truth["rows"], truth["labels"]
    model = fs.SketchedNewton(5).update(sparse.csr_array(rows[:600]), labels[:600])
    saved = fs.load(folder / "m.fsk")
    model.notes = saved.notes
    assert same_state(saved, model)
    assert out["accuracy"] == pytest.approx(np.mean(model.predict(rows[600:]) == labels[600:]))
    assert out["accuracy"] > 0.65  # a tenth above what always the same answer would give
    assert out["mean_loss"] == pytest.approx(model.progress["mean_loss"])
    text = run("learn", "train.svm", "--every", 150, cwd=folder).stdout
    assert text.count("error rate") == 5  # four lines as it goes, one at the end
    assert not list(folder.glob("*.fsk.partial"))


@pytest.mark.parametrize(
    "options",
    [
        {"method": "ada_fd", "learning_rate": 0.5},
        {"method": "ada_diag", "form": "dual_averaging"},
        {"method": "ogd", "penalty": "l2", "penalty_strength": 1e-3, "loss_scale": 2.0},
    ],
)
def test_adaptive_methods(folder, options):
    from scipy import sparse

    flags = [part for name, value in options.items() for part in ("--set", f"{name}={value}")]
    done = run(
        "learn",
        "train.svm",
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
    out |= json.loads(run("predict", "m.fsk", "test.svm", "--what", "metrics", "--json", cwd=folder).stdout)
    model.notes = saved.notes
    assert same_state(saved, model)
    assert out["accuracy"] == pytest.approx(np.mean(model.predict(rows[600:]) == labels[600:]))
    assert out["learning_rate"] == model.resolved["learning_rate"]
    about = json.loads(run("info", "m.fsk", "--json", cwd=folder).stdout)
    assert (about["kind"], about["method"], about["n_rows"]) == ("AdaptiveSubgradient", options["method"], 600)
    error = run("learn", "train.svm", "--method", "adam", "--set", "learning_rate=0", cwd=folder, status=2).stderr
    assert "learning_rate must lie in (0, " in error


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({"decay": 0.99, "curvature": "loss"}, []),
        ({"method": "ada_ffd", "decay": 0.99}, []),
        ({"decay": 1.0, "curvature": "gradient", "loss": "square"}, ["--regression"]),
    ],
)
def test_forgetting_and_curvature(folder, options, more):
    flags = [part for name, value in options.items() for part in ("--set", f"{name}={str(value).lower()}")]
    run("learn", "train.svm", *flags, *more, "-o", "m.fsk", cwd=folder)
    model = fs.load(folder / "m.fsk")
    assert {name: getattr(model, name) for name in options} == options
    for wrong, message in [
        (("--set", "decay=1.5"), "decay must lie in (0, 1]"),
        (("--set", "decay=0.9", "--set", "alpha0=0"), "decay must be 1 with alpha0=0"),
        (("--set", "drift=restart"), "drift"),
        (("--set", "curvature=flat"), "curvature must be"),
        (("--set", "curvature=loss", "--method", "ogd"), "--set curvature does not belong to --method ogd"),
    ]:
        error = run("learn", "train.svm", *wrong, "-o", "x.fsk", cwd=folder, status=2).stderr
        assert message in error, error


def test_regression(folder):
    with np.load(folder / "truth.npz") as truth:
        rows = truth["rows"]
    write(folder / "r.svm", rows, np.tanh(rows[:, 0]))
    done = run("learn", "r.svm", "--regression", "--loss", "huber", "-o", "h.fsk", "--json", cwd=folder)
    out = json.loads(done.stdout)
    out |= json.loads(run("predict", "h.fsk", "r.svm", "--what", "metrics", "--json", cwd=folder).stdout)
    assert out["root_mean_squared_error"] ** 2 < 0.05
    assert out["loss"] == "huber"
    assert "error_rate" not in out
    done = run("learn", "r.svm", "--regression", "--method", "ada_ffd", "--json", cwd=folder)
    assert json.loads(done.stdout)["loss"] == "square"


def test_bad_input(folder):
    write(folder / "real.svm", np.eye(3), [1, 2, 0.5])
    (folder / "t.csv").write_text("a,b,label\n1,2,yes\n2,1,no\n")
    np.save(folder / "rows.npy", np.eye(3))
    for command, message in [
        (("learn", "real.svm", "-o", "x.fsk"), "real.svm, line 3: targets: the label of row 2 must be an integer"),
        (("learn", "rows.npy", "-o", "x.fsk"), "rows.npy holds no labels: they are read from svmlight text and tables"),
        (("learn", "train.svm", "--loss", "square", "-o", "x.fsk"), "--loss square is of real targets: it needs --reg"),
        (("learn", "train.svm", "--loss", "logistic", "--regression", "-o", "x.fsk"), "does not go with --regression"),
        (("learn", "train.svm", "--target", "y", "-o", "x.fsk"), "--target is of tables"),
        (("learn", "t.csv", "-o", "x.fsk"), "t.csv is a table: --target names the column of labels"),
        (("learn", "t.csv", "--target", "y", "-o", "x.fsk"), "t.csv has no column 'y': it has 'a', 'b', 'label'"),
        (
            ("learn", "t.csv", "--set", "header=yes", "--target", "4", "-o", "x.fsk"),
            "t.csv has 3 columns, numbered from 0: 4 is none of them",
        ),
        (("learn", "t.csv", "train.svm", "--target", "2", "-o", "x.fsk"), "train.svm holds svmlight text"),
        (("learn", "train.svm", "--set", "classes=1,2", "-o", "x.fsk"), "train.svm, line"),
        (("learn", "train.svm", "--class-weight", "heavy", "-o", "x.fsk"), "class_weight must be 'balanced'"),
        (("learn", "none.svm", "-o", "x.fsk"), "none.svm"),
        (("learn", "train.svm", "-l", 1, "-o", "x.fsk"), "sketch_size"),
        (("learn", "train.svm", "--method", "fd", "--set", "alpha0=0", "-o", "x.fsk"), "alpha0"),
        (("learn", "train.svm", "--method", "sgd", "-o", "x.fsk"), "--method must be one of rfd, fd,"),
        (
            ("learn", "train.svm", "--set", "learning_rate=1", "-o", "x.fsk"),
            "--set learning_rate does not belong to --method rfd",
        ),
        (
            ("learn", "train.svm", "--method", "ogd", "--set", "alpha0=1", "-o", "x.fsk"),
            "--set alpha0 does not belong to",
        ),
        (("learn", "train.svm", "--every", -1, "-o", "x.fsk"), "--every"),
        (("learn", "train.svm", "-o", "none/x.fsk"), "folder of the output"),
    ]:
        error = run(*command, cwd=folder, status=2).stderr
        assert message in error, error
        assert error.count("\n") == 1
    assert not list(folder.glob("x.fsk"))


def test_none_by_name(folder):
    run("learn", "train.svm", "--set", "constraint=none", "-o", "m.fsk", cwd=folder)
    assert fs.load(folder / "m.fsk").constraint is None


def test_a_ridge_regression_of_text_and_tables(folder):
    with np.load(folder / "truth.npz") as truth:
        rows = truth["rows"]
    targets = np.round(rows @ np.arange(12) + 3.0, 3)
    write(folder / "train.svm", rows[:600], targets[:600])
    table = np.column_stack([targets, rows])
    names = ",".join(["price", *(f"c{column}" for column in range(12))])
    for name, part in (("train.csv", table[:600]), ("test.csv", table[600:])):
        np.savetxt(folder / name, part, "%.17g", ",", header=names, comments="")
    ridge = ("--method", "ridge", "--set", "ridge=0.5")
    model = fs.SketchedRidge(ridge=0.5).update(rows[:600], targets[:600])
    expected = model.predict(rows[600:])
    run("learn", "train.svm", *ridge, "-o", "text.fsk", cwd=folder)
    run("learn", "train.csv", "--target", "price", *ridge, "-o", "table.fsk", cwd=folder)
    done = run("predict", "table.fsk", "test.csv", "--what", "metrics", "--json", cwd=folder)
    assert json.loads(done.stdout)["root_mean_squared_error"] == pytest.approx(
        np.sqrt(np.mean((expected - targets[600:]) ** 2))
    )
    unscaled = fs.SketchedRidge(ridge=0.5, scale=False).update(rows[:600], targets[:600])  # as sparse rows are
    for name, one in (("text.fsk", unscaled), ("table.fsk", model)):
        assert np.allclose(fs.load(folder / name).coef(), one.coef())
    run("predict", "table.fsk", "test.csv", "-o", "out.npy", cwd=folder)
    assert np.allclose(np.load(folder / "out.npy"), expected)
    measured = run("predict", "text.fsk", "test.csv", "--what", "metrics", "--target", "price", "--json", cwd=folder)
    assert json.loads(measured.stdout)["r2"] > 0.99


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["train.csv"], "train.csv is a table: --target names the column of labels"),
        (["train.csv", "--target", "word"], "train.csv, line 2: targets must hold real numbers: row 0 holds 'a'"),
        (["gap.csv", "--target", "price"], "gap.csv, line 3, row 1: the target is missing"),
        (["gap.csv", "--target", "size"], "--numeric or --ignore), or give a number in its place (fill=, --fill)"),
        (["train.csv", "--target", "price"], "(--ignore A,B leaves columns out)"),
        (["train.csv", "--target", "price"], "word"),
        (["train.svm", "--class-weight", "balanced"], "SketchedRidge has no parameter 'class_weight'"),
        (["train.svm", "--every", 5], "--every does not belong to --method ridge"),
        (["train.csv", "--target", "price", "--set", "missing=refuse"], "--set missing does not belong to --method ri"),
        (["train.csv", "--target", "price", "--categorical", "word"], "--ignore A,B leaves others out, and --fill X"),
        (["train.csv", "--target", "price", "--ignore", "none"], "--ignore: train.csv has no column 'none'"),
        (
            ["train.csv", "--target", "price", "--target", "word"],
            "--target must be given once: several targets, of --method",
        ),
        (["train.svm", "--set", "ridge=-1"], "ridge must lie in"),
    ],
)
def test_what_a_ridge_regression_refuses(folder, flags, message):
    (folder / "train.csv").write_text("price,word\n1,a\n2,b\n")
    (folder / "gap.csv").write_text("price,size\n1,2\n,3\n4,5\n")
    done = run("learn", *flags, "--method", "ridge", cwd=folder, status=2)
    assert message in done.stderr and "Traceback" not in done.stderr


@pytest.fixture
def houses(folder):
    """Write tables with a column of words and a gap, with names or not, and of numbers; return these (400, 4)."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((400, 4))
    table[:, 2] += 3 * table[:, 0]
    table = np.round(table, 3)
    lines = [f"h{k}," + ",".join(f"{value:g}" for value in row) for k, row in enumerate(table)]
    lines[7] = lines[7].replace(f",{table[7, 1]:g},", ",,", 1)
    (folder / "houses.csv").write_text("\n".join(["id,size,age,price,rent", *lines]) + "\n")
    (folder / "bare.csv").write_text("\n".join(lines) + "\n")
    table[7, 1] = 0.5
    np.savetxt(folder / "numbers.csv", table, "%g", ",", header="size,age,price,rent", comments="")
    return table


def test_columns_are_left_out_and_filled_in(folder, houses):
    expected = fs.SketchedRidge(ridge=1.0).update(houses[:, :2], houses[:, 2])
    how = ("--method", "ridge", "--set", "ridge=1", "--fill", 0.5)
    for name, target, ignored, head in (
        ("houses.csv", "price", "id,rent", "header=yes"),
        ("bare.csv", 3, "0,4", "header=no"),
    ):
        run("learn", name, "--target", target, "--ignore", ignored, *how, "--set", head, "-o", "m.fsk", cwd=folder)
        assert np.allclose(fs.load(folder / "m.fsk").coef(), expected.coef())
        run("predict", "m.fsk", name, "--set", head, "-o", "out.csv", cwd=folder)
        lines = (folder / "out.csv").read_text().splitlines()
        assert lines[:-400] == (["price"] if head == "header=yes" else [])
        assert np.allclose(np.array(lines[-400:], float), expected.predict(houses[:, :2]), atol=1e-6)
        measured = run("predict", "m.fsk", name, "--set", head, "--what", "metrics", "--json", cwd=folder)
        assert json.loads(measured.stdout)["examples"] == 400
    done = run("learn", "houses.csv", "--target", "price", "--fill", 1, cwd=folder, status=2)
    assert "--fill is of --method ridge" in done.stderr


def test_several_targets_and_their_intervals(folder, houses):
    run("learn", "numbers.csv", "--target", "price,rent", "--method", "ridge", "-o", "m.fsk", cwd=folder)
    expected = fs.SketchedRidge().update(houses[:, :2], houses[:, 2:])
    assert np.allclose(fs.load(folder / "m.fsk").coef(), expected.coef())
    for what, head, answers in (
        ("labels", "price,rent", expected.predict(houses[:, :2])),
        ("intervals", "price lower,rent lower,price upper,rent upper", expected.predict_interval(houses[:, :2])),
    ):
        run("predict", "m.fsk", "numbers.csv", "--what", what, "-o", "out.csv", cwd=folder)
        assert (folder / "out.csv").read_text().startswith(head + "\n")
        written = np.loadtxt(folder / "out.csv", delimiter=",", skiprows=1)
        assert np.allclose(written, np.hstack(answers) if what == "intervals" else answers, atol=1e-5)
    measured = json.loads(run("predict", "m.fsk", "numbers.csv", "--what", "metrics", "--json", cwd=folder).stdout)
    off = houses[:, 2:] - expected.predict(houses[:, :2])
    assert measured["mean_absolute_error"] == pytest.approx(np.abs(off).mean())
    assert measured["r2"] == pytest.approx((1 - (off**2).mean(axis=0) / houses[:, 2:].var(axis=0)).mean())


def test_probabilities_of_a_ridge_regression(folder):
    run("learn", "train.svm", "--method", "ridge", "-o", "m.fsk", cwd=folder)
    done = run("predict", "m.fsk", "test.svm", "--what", "probabilities", cwd=folder, status=2)
    assert "predicts real values" in done.stderr
