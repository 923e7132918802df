"""Jobs of the command line: what they are resumed from, whose their output is, what an interrupt leaves."""

import gzip
import json
import os
import platform
import shutil
import signal
import subprocess
import time
from functools import partial, wraps
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.cli import _parser
from fastsketch.cli._parser import SUBCOMMANDS
from fastsketch.data.files._lock import lock_name
from fastsketch.data.sources import _source
from fastsketch.jobs import _run
from fastsketch.jobs._checkpoint import list_entries
from fastsketch.sketching import FrequentDirections
from tests.data.sources.helpers import labelled
from tests.helpers import IN_SMALL_PARTS

ROWS = np.random.default_rng(0).standard_normal((400, 30))
TRUTH = np.where(ROWS @ np.random.default_rng(1).standard_normal(30) > 0, 1.0, -1.0)


@pytest.fixture(autouse=True)
def small_parts(run, monkeypatch):
    """Parts or pieces of 50 rows, with a checkpoint after each."""
    monkeypatch.setattr(_source, "CHUNK_BYTES", 50 * 30 * 8)
    monkeypatch.setattr(_run, "PART_BYTES", 50 * 30 * 8)
    monkeypatch.setattr(_run, "STATES_OF_A_PART", 0)
    monkeypatch.setattr(_run, "EXAMPLES_AT_A_TIME", 50)
    np.save("rows.npy", ROWS)
    np.save("more.npy", ROWS[::-1])


def write(path, rows, labels):
    with gzip.open(path, "wt") if str(path).endswith(".gz") else Path(path).open("w") as file:
        for row, label in zip(rows, labels, strict=True):
            file.write(f"{label:g} " + " ".join(f"{j + 1}:{value:.9g}" for j, value in enumerate(row)) + "\n")


def interrupt(monkeypatch, cls, stop, by=KeyboardInterrupt):
    """Interrupt a job before its update number `stop`; returns the undoing."""
    original, calls = cls.update, []

    @wraps(original)
    def update(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == stop:
            if by is KeyboardInterrupt:
                raise KeyboardInterrupt
            os.kill(os.getpid(), by)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(cls, "update", update)
    return partial(monkeypatch.setattr, cls, "update", original)


def stopped(run, monkeypatch, *command, cls=FrequentDirections, stop=6):
    """Leave the partial result of an interrupted command."""
    undo = interrupt(monkeypatch, cls, stop)
    out = run(*command, status=130)
    undo()
    return out


SKETCH = ("sketch", "rows.npy", "more.npy", "-l", 8, "-o", "o.fsk")
LEARN = ("learn", "t.svm", "-l", 4, "-o", "o.fsk")


# -- identity ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "switches, message",
    [
        (["--set", "dtype=float64"], "dtype is float64 now and was none"),
        (["--set", "dtype=float32"], "dtype is float32 now and was none"),
        (["--center"], "center is on now and was off"),
        (["--method", "fd"], "method is fd now and was rfd"),
        (["-l", 9], "sketch_size is 9 now and was 8"),
    ],
)
def test_another_switch_is_another_job(run, monkeypatch, switches, message):
    stopped(run, monkeypatch, *SKETCH)
    assert message in run(*SKETCH, *switches, "--resume", status=2).err
    run(*SKETCH, "--resume")


def test_switches_of_learn(run, monkeypatch):
    write("t.svm", ROWS, TRUTH)
    command = ("learn", "t.svm", "-o", "o.fsk")
    stopped(run, monkeypatch, *command, cls=fs.SketchedNewton, stop=3)
    error = run(*command, "--regression", "--resume", status=2).err
    assert "regression is on now and was off" in error and "loss is square now" in error
    assert "n_features is 31 now and was 30" in run(*command, "--set", "n_features=31", "--resume", status=2).err
    run(*command, "--set", "n_features=30", "--resume")  # the same width, found or told


@pytest.mark.parametrize("compressed", [False, True])
def test_another_input_is_another_job(run, monkeypatch, compressed):
    """An input written anew in the same shape, at once or after what was used; and one that is longer."""
    name = "t.svm.gz" if compressed else "t.npy"

    def make(rows, to):
        if compressed:
            write(to, rows, TRUTH[: len(rows)])
        else:
            np.save(to, rows)

    make(ROWS, name)
    command = ("sketch", name, "more.npy", "-l", 8, "-o", "o.fsk")
    monkeypatch.setattr(_source, "CHUNK_BYTES", 1 << 20)  # compressed text is one part
    stopped(run, monkeypatch, *command, stop=3)
    for rows in (ROWS[::-1], ROWS[:300]):
        shutil.copy2(name, "kept")
        make(rows, name)
        assert f"{name} " in run(*command, "--resume", status=2).err
        shutil.move("kept", name)
    error = run(*command[:2], *command[3:], "--resume", status=2).err
    assert "sources are 1 now and were 2" in error
    assert "more.npy" in run("sketch", "more.npy", name, *command[3:], "--resume", status=2).err
    run(*command, "--resume")


@pytest.mark.parametrize("command", [SKETCH, LEARN])
def test_an_input_that_was_written_to_since_is_refused(run, monkeypatch, command):
    """Nobody could say which of the rows that were learned are those that it has now."""
    write("t.svm", ROWS, TRUTH)
    run(*command)
    whole, path = Path("o.fsk").read_bytes(), Path(command[1])
    stopped(run, monkeypatch, *command, cls=FrequentDirections if command is SKETCH else fs.SketchedNewton)
    about = path.stat()
    os.utime(path, ns=(1, 1))
    assert f"{path} is not what it was (modified)" in run(*command, "--resume", status=2).err
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert 0 < sum(entry.rows for entry in list_entries(Path("o.fsk.partial"))) < 400
    run(*command, "--resume")
    assert Path("o.fsk").read_bytes() == whole


def test_a_moved_input_is_the_same(run, monkeypatch):
    run(*SKETCH)
    whole = fs.load("o.fsk").to_bytes()
    stopped(run, monkeypatch, *SKETCH)
    Path("folder").mkdir()
    shutil.move("rows.npy", "folder/rows.npy")
    run("sketch", "folder/rows.npy", *SKETCH[2:], "--resume")
    assert fs.load("o.fsk").to_bytes() == whole


def test_partial_results_of_other_commands_are_refused(run, monkeypatch):
    write("t.svm", ROWS, TRUTH)
    Path("o.fsk.partial").write_bytes(b"mine")
    for command in (SKETCH, LEARN):
        assert "o.fsk.partial is a file, but the checkpoint must be a folder" in run(*command, "--resume", status=2).err
    Path("o.fsk.partial").unlink()
    stopped(run, monkeypatch, *SKETCH)
    assert "o.fsk.partial belongs to another job: kind is SketchedNewton" in run(*LEARN, "--resume", status=2).err


def test_a_damaged_model_of_a_learner_is_learned_again(run, monkeypatch):
    write("t.svm", ROWS, TRUTH)
    run(*LEARN)
    whole = Path("o.fsk").read_bytes()
    stopped(run, monkeypatch, *LEARN, cls=fs.SketchedNewton)
    (node,) = Path("o.fsk.partial").glob("node-*.fsk")
    node.write_bytes(node.read_bytes()[:-9])
    assert "cannot be used" in run(*LEARN, "--resume").err
    assert Path("o.fsk").read_bytes() == whole


# -- labels --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("pair", [(-1.0, 1.0), (0.0, 1.0), (1.0, 2.0)])
@pytest.mark.parametrize("first", ["mixed", "negative", "positive"])
@pytest.mark.filterwarnings("ignore:the labels come in runs")
def test_labels_mean_the_same_in_every_piece(run, monkeypatch, pair, first):
    """Also if many rows have one label before the other one comes; resumed; and in a test file with one label."""
    order = {"mixed": np.arange(400), "negative": np.argsort(TRUTH), "positive": np.argsort(-TRUTH)}[first]
    labels = np.where(TRUTH > 0, pair[1], pair[0])
    write("t.svm", ROWS[order], labels[order])
    command = ("learn", "t.svm", "-l", 4, "-o", "o.fsk")
    run(*command)
    whole = fs.load("o.fsk")
    assert whole.classes.tolist() == list(pair)
    expected = fs.SketchedNewton(4).update(read("t.svm"), labels[order])
    assert np.array_equal(whole.coef, expected.coef)
    for stop in (2, 5):
        stopped(run, monkeypatch, *command, cls=fs.SketchedNewton, stop=stop)
        run(*command, "--resume")
        assert fs.load("o.fsk").to_bytes() == whole.to_bytes()
    for label in pair:
        write("one.svm", ROWS[labels == label], labels[labels == label])
        found = json.loads(run("predict", "o.fsk", "one.svm", "--what", "metrics", "--json").out)
        accuracy = np.mean(whole.predict(ROWS[labels == label]) == label)
        assert found["accuracy"] == accuracy
        assert accuracy > 0.8 or first != "mixed"  # rows in the order of their labels teach the last one
    write("other.svm", ROWS[:3], [1, 3, 1])
    error = run("predict", "o.fsk", "other.svm", "--what", "metrics", status=2).err
    assert "other.svm, line 2: row 1 has label 3, which the model has never seen" in error


def read(path):
    return labelled(path)[0]


def test_one_label_alone(run):
    write("t.svm", ROWS[:20], np.ones(20))
    write("u.svm", ROWS[:20], TRUTH[:20])
    run("learn", "t.svm", "-o", "o.fsk")
    assert fs.load("o.fsk").classes.tolist() == [1.0]
    assert "never seen: it knows 1\n" in run("predict", "o.fsk", "u.svm", "--what", "metrics", status=2).err
    # the other label may come in another file
    write("v.svm", ROWS[:5], np.full(5, 2.0))
    run("learn", "t.svm", "v.svm", "-o", "o.fsk")
    assert fs.load("o.fsk").classes.tolist() == [1.0, 2.0]


def test_bad_rows_are_named(run):
    rows = ROWS.copy()
    rows[123, 4] = np.inf
    write("t.svm", rows, TRUTH)
    Path("t.svm").write_text("# a comment\n\n" + Path("t.svm").read_text())
    for command in (("learn", "t.svm"), ("learn", "t.svm", "--every", 10), ("sketch", "t.svm")):
        assert "t.svm: line 126: the value is not a finite" in run(*command, "-o", "o.fsk", status=2).err
    np.save("bad.npy", rows)
    assert "bad.npy: rows must be finite: row 123 " in run("sketch", "rows.npy", "bad.npy", "-o", "o.fsk", status=2).err
    fs.SketchHash(4).update(ROWS).save("h.fsk")
    assert "bad.npy: rows must be finite: row 123 " in run("transform", "h.fsk", "bad.npy", "-o", "c.npy", status=2).err
    write("t.svm", ROWS, np.where(np.arange(400) == 60, np.nan, TRUTH))
    for switches in ((), ("--regression",)):
        assert "t.svm: line 61: the label is not" in run("learn", "t.svm", *switches, "-o", "o.fsk", status=2).err


# -- one job an output ---------------------------------------------------------------------------------------------
def test_a_second_job_is_refused_while_the_first_lives(run, monkeypatch, tmp_path):
    update, second = FrequentDirections.update, []

    def nested(self, rows, sample_weight=None):
        if not second:
            second.append(1)
            for other in (SKETCH, ("merge", "a.fsk", "-o", "o.fsk"), (*SKETCH[:-1], "link.fsk")):
                assert "is being written by another job" in run(*other, status=2).err
        return update(self, rows, sample_weight)

    if os.name == "posix":
        Path("link.fsk").symlink_to("o.fsk")
    monkeypatch.setattr(FrequentDirections, "update", nested)
    run(*SKETCH)
    assert second and not list(tmp_path.glob("*.lock"))


def test_the_lock_of_a_dead_job_is_taken_over(run, tmp_path):
    lock_name(tmp_path / "o.fsk").write_text(f"fastsketch lock of process 1 on {platform.node()}\n")
    run(*SKETCH)
    lock_name(tmp_path / "o.fsk").write_text("fastsketch lock of process 1 on far\n")
    assert "process" in (error := run(*SKETCH, status=2).err) and "on far" in error and "o.fsk.lock" in error


# -- interrupts ----------------------------------------------------------------------------------------------------
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_a_partial_result(run, monkeypatch, tmp_path, by):
    run(*SKETCH)
    whole = fs.load("o.fsk").to_bytes()
    Path("o.fsk").unlink()
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    undo = interrupt(monkeypatch, FrequentDirections, 6, by)
    out = run(*SKETCH, status=128 + by)
    undo()
    assert (
        "o.fsk.partial" in out.err
        and "the same job with resume continues from it" in out.err
        and out.err.count("\n") == 1
    )
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert not list(tmp_path.glob("*.lock")) and not (tmp_path / "o.fsk").exists()
    run(*SKETCH, "--resume")
    assert fs.load("o.fsk").to_bytes() == whole
    assert not (tmp_path / "o.fsk.partial").exists()


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_more_signals_while_a_result_is_written_change_nothing(run, monkeypatch):
    from fastsketch.data.files import _replacing

    fsync = os.fsync

    def impatient(handle):
        os.kill(os.getpid(), signal.SIGINT)
        fsync(handle)

    monkeypatch.setattr(_replacing.os, "fsync", impatient)
    with monkeypatch.context() as patch:
        patch.setattr(_run, "PART_BYTES", 1 << 30)  # no checkpoint
        out = run(*SKETCH, status=130)  # it came when the result was being written
    assert "the result is in o.fsk" in out.err
    assert fs.load("o.fsk").n_rows == 800
    run(*SKETCH, status=130)  # it came when the first part was being written
    monkeypatch.setattr(_replacing.os, "fsync", fsync)
    if Path("o.fsk.partial").exists():
        run(*SKETCH, "--resume")


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_signal_while_arguments_are_read(run, monkeypatch):
    def parsed(argv):
        os.kill(os.getpid(), signal.SIGTERM)
        return parse(argv)

    parse = _parser.parse
    monkeypatch.setattr(_parser, "parse", parsed)
    assert "interrupted" in run(*SKETCH, status=143).err and not Path("o.fsk").exists()


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_signal_while_modules_are_imported(run, monkeypatch):
    """Where a class is made, Python 3.11 puts another error in the place of an interrupt."""

    class Named:
        def __set_name__(self, owner, name):
            os.kill(os.getpid(), signal.SIGINT)

    def imported(name):
        type("Anything", (), {"named": Named()})
        return import_module(name)

    monkeypatch.setattr(_parser, "import_module", imported)
    assert "interrupted" in run(*SKETCH, status=130).err


@pytest.mark.parametrize("verb", ["sketch", "learn"])
def test_a_job_that_left_nothing_is_begun_by_a_resume(run, monkeypatch, verb):
    write("train.svm", ROWS, TRUTH)
    command = [verb, "train.svm", "-l", 5, "-o", "out.fsk"]
    undo = interrupt(monkeypatch, FrequentDirections if verb == "sketch" else fs.SketchedNewton, 1)
    assert "nothing has been saved: no part was complete" in run(*command, status=130).err
    undo()
    said = run(*command, "--resume").err
    assert "nothing to resume in " in said and "out.fsk.partial: the job begins" in said
    assert fs.load("out.fsk").n_rows == len(ROWS)


# A command of each verb that takes --resume.
RESUMED = {
    "sketch": ("sketch", "rows.npy", "-l", 5),
    "learn": ("learn", "rows.svm", "-l", 5),
    "transform": ("transform", "hash.fsk", "rows.npy"),
    "predict": ("predict", "model.fsk", "rows.svm"),
}


@pytest.mark.parametrize(
    "verb", [name for name in SUBCOMMANDS if "--resume" in _parser.create_parser(name).format_help()]
)
def test_a_resume_does_not_replace_a_finished_output(run, verb):
    """A finished output, of the same inputs or of others, is not replaced by one that knows the new inputs alone."""
    for path, rows in (("rows", ROWS), ("others", ROWS[:50])):
        np.save(f"{path}.npy", rows)
        write(f"{path}.svm", rows, TRUTH[: len(rows)])
    fs.SketchHash(8).update(ROWS).save("hash.fsk")
    fs.SketchedNewton().update(ROWS, TRUTH).save("model.fsk")
    command = [str(word) for word in RESUMED[verb]]
    output = ["-o", "out.csv" if verb in ("transform", "predict") else "out.fsk"]
    run(*command, *output)
    before = Path(output[1]).read_bytes()
    others = [word.replace("rows", "others") for word in command]
    for again in (command, others):
        message = run(*again, *output, "--resume", status=2).err
        assert f"{output[1]} is finished" in message and "choose another output" in message
        assert Path(output[1]).read_bytes() == before and not Path(f"{output[1]}.partial").exists()
    run(*others, *output)
    assert Path(output[1]).read_bytes() != before


def test_an_interrupted_job_without_a_file(run, monkeypatch):
    out = stopped(run, monkeypatch, *SKETCH[:-1], "-")
    assert out.out == "" and "nothing has been saved: there is no output that is a file" in out.err
    assert "--resume needs an output" in run(*SKETCH[:-1], "-", "--resume", status=2).err
    write("t.svm", ROWS, TRUTH)
    assert "nothing has been saved: there is no" in stopped(run, monkeypatch, *LEARN[:-2], cls=fs.SketchedNewton).err


def test_flags_are_not_abbreviated(run):
    assert "unrecognized arguments: --check" in run(*SKETCH, "--check", 5, status=2).err
    assert "unrecognized arguments: --vers" in run(*SKETCH, "--vers", status=2).err


def test_a_process_that_is_interrupted_ends_as_a_shell_expects(tmp_path):
    if os.name != "posix":
        pytest.skip("signals")
    np.save(tmp_path / "big.npy", np.random.default_rng(0).standard_normal((20_000, 200)))
    command = [*IN_SMALL_PARTS, "sketch", "big.npy", "-l", "64", "--set", "solver=svd", "-o", "o.fsk"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while not list((tmp_path / "o.fsk.partial").glob("node-*")):  # a part that is complete
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    assert "partial result" in process.communicate(timeout=60)[1] and process.returncode == 130
    assert sorted(file.name for file in tmp_path.glob("[bo.]*")) == ["big.npy", "o.fsk.partial"]
