"""The manifest: after any kill only parts without a node are learned again, and what is no checkpoint is refused."""

import functools
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.data.files._lock import LockHeld, locked
from fastsketch.data.files._replacing import temporary_name
from fastsketch.jobs import _checkpoint, _run
from fastsketch.jobs._checkpoint import list_entries
from fastsketch.jobs._manifest import MANIFEST, OLD_MANIFEST
from fastsketch.jobs._tree import Tree
from tests.helpers import same_state
from tests.jobs.killed import PART, ROWS, D, job
from tests.jobs.tasks import Watched, rows_of, runs
from tests.reliability.figures import environment


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(_run, "PART_BYTES", PART * D * 8)
    monkeypatch.setattr(_run, "STATES_OF_A_PART", 0)


@pytest.fixture(scope="module")
def whole():
    before = _run.PART_BYTES, _run.STATES_OF_A_PART
    _run.PART_BYTES, _run.STATES_OF_A_PART = PART * D * 8, 0
    yield fs.run(fs.FrequentDirections(5, solver="gram"), rows_of(0, ROWS, D), workers=1)
    _run.PART_BYTES, _run.STATES_OF_A_PART = before


class Stop(Exception):
    pass


def stopped_after(folder, n_parts, model=None, source=None, **options):
    """Leave the checkpoint of a job that was interrupted after about so many parts."""

    def stop(report):
        if report["parts"] >= n_parts:
            raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastsketch.jobs._progress.PAUSE", 0.0)
        with pytest.raises(Stop):
            fs.run(
                model or fs.FrequentDirections(5, solver="gram"),
                source if source is not None else Watched(folder, ROWS, D),
                checkpoint=folder / "checkpoint",
                progress=stop,
                **options,
            )


def entries(folder):
    """What the names of files say, by the first part: (entry, parts that it covers)."""
    tree = Tree(ROWS // PART)
    found = [(entry, tree.span(entry.level, entry.position)) for entry in list_entries(folder / "checkpoint")]
    return [(entry, set(range(place.first, place.last + 1))) for entry, place in found]


def nodes(folder):
    return sorted(path.name for path in (folder / "checkpoint").glob("node-*"))


@pytest.mark.parametrize(("workers", "engine"), [(1, "processes"), (2, "threads"), (2, "processes")])
def test_only_parts_without_a_node_are_learned_again(tmp_path, whole, workers, engine):
    stopped_after(tmp_path, 7, workers=workers, engine=engine)
    there = covered(tmp_path)
    assert 7 <= len(there) < 20
    assert sum(len(parts) for _, parts in entries(tmp_path)) == len(there)  # what is covered has gone
    (tmp_path / "runs").unlink()
    told = []
    found = fs.run(
        fs.FrequentDirections(5, solver="gram"),
        Watched(tmp_path, ROWS, D),
        workers=workers,
        engine=engine,
        checkpoint=tmp_path / "checkpoint",
        resume=True,
        progress=told.append,
    )
    assert same_state(found, whole)
    assert sorted(runs(tmp_path)) == [part * PART for part in range(20) if part not in there]
    assert told[-1]["parts_before"] == len(there) and told[-1]["rows"] == ROWS
    # the model itself is what is left, and is given back at once
    assert len(nodes(tmp_path)) == 1
    (tmp_path / "runs").unlink()
    assert same_state(job(tmp_path, engine, workers, resume=True), whole)
    assert runs(tmp_path) == []


def test_another_number_of_workers_and_another_engine_go_on(tmp_path, whole):
    stopped_after(tmp_path, 5, workers=1)
    assert same_state(job(tmp_path, "threads", 3, resume=True), whole)


def interrupted(folder, model, source, updates, **options):
    """Leave the checkpoint of a job that learns in order, interrupted before its update number `updates`."""
    update, calls = type(model).update, []

    @functools.wraps(update)
    def stop(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == updates:
            raise KeyboardInterrupt
        return update(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model), "update", stop)
        with pytest.raises(KeyboardInterrupt):
            fs.run(model, source, checkpoint=folder / "checkpoint", **options)


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_models_in_order_go_on(tmp_path, monkeypatch, seconds):
    """From the row that they are at, in the middle of a source, after an interrupt or a kill."""
    monkeypatch.setattr(_run, "SECONDS", seconds)
    monkeypatch.setattr(_run, "SHARE", 0)
    monkeypatch.setattr("fastsketch.data.sources._source.CHUNK_BYTES", PART * D * 8)
    model, rows = fs.FrequentDirections(5, solver="gram", decay=0.999), rows_of(0, ROWS, D)
    monkeypatch.setattr("fastsketch.jobs._progress.PAUSE", 0.0)
    reports = []
    interrupted(tmp_path, model, rows, 8, progress=reports.append)
    assert [report["rows"] for report in reports] == [PART * k for k in range(1, 8)]
    assert reports[-1]["fraction"] == 7 * PART / ROWS and reports[-1]["certificate"]["error_bound"] > 0
    assert len(nodes(tmp_path)) == 1
    found = fs.run(model, rows, checkpoint=tmp_path / "checkpoint", resume=True)
    whole = model.copy().update(rows)
    assert same_state(found, whole)
    # the result is left, and is given back at once; it is replaced without a word
    told = []
    again = fs.run(model, rows, checkpoint=tmp_path / "checkpoint", resume=True, progress=told.append)
    assert same_state(again, whole) and told[-1]["rows_before"] == told[-1]["rows"] == ROWS
    assert same_state(fs.run(model, rows, checkpoint=tmp_path / "checkpoint"), whole)


def examples(folder, form):
    """(source, target, what `update` takes) of labelled rows of one form."""
    rows = rows_of(0, ROWS, 5)
    labels = np.where(rows[:, 0] > rows[:, 3], "yes", "no")
    if form == "array":
        return np.column_stack([labels == "yes", rows]), 0, (rows, (labels == "yes").astype(float))
    if form == "csv":
        lines = (",".join([*(f"{v:.17g}" for v in row), label]) for row, label in zip(rows, labels, strict=True))
        (folder / "t.csv").write_text("\n".join(["a,b,c,d,e,buys", *lines]) + "\n")
        return folder / "t.csv", "buys", (rows, labels)
    for part in (0, 1):
        lines = (
            f"{int(labels[i] == 'yes')} " + " ".join(f"{j + 1}:{v:.17g}" for j, v in enumerate(rows[i]))
            for i in range(part, ROWS, 2)
        )
        (folder / f"{part}.svm").write_text("\n".join(lines) + "\n")
    order = [*range(0, ROWS, 2), *range(1, ROWS, 2)]
    return [folder / "0.svm", folder / "1.svm"], None, (rows[order], (labels[order] == "yes").astype(float))


@pytest.mark.parametrize("form", ["array", "csv", "svmlight"])
@pytest.mark.parametrize("updates", [3, 17])
def test_learners_go_on_in_the_middle_of_a_file(tmp_path, monkeypatch, form, updates):
    monkeypatch.setattr(_run, "EXAMPLES_AT_A_TIME", 100)
    source, target, (rows, labels) = examples(tmp_path, form)
    model = fs.SketchedNewton(3)
    interrupted(tmp_path, model, source, updates, target=target)
    assert [entry.rows for entry in list_entries(tmp_path / "checkpoint")] == [100 * (updates - 1)]
    found = fs.run(model, source, target=target, checkpoint=tmp_path / "checkpoint", resume=True)
    whole = model.copy()
    whole.update(sparse.csr_array(rows) if form == "svmlight" else rows, labels)
    assert np.array_equal(found.coef, whole.coef) and found.classes.tolist() == whole.classes.tolist()
    assert found.n_rows == ROWS and found.progress == whole.progress
    with pytest.raises(ValueError, match="sketch_size is 4 now and was 3"):
        fs.run(fs.SketchedNewton(4), source, target=target, checkpoint=tmp_path / "checkpoint", resume=True)


def test_words_of_targets_are_numbers_if_the_first_ones_are(tmp_path, monkeypatch):
    monkeypatch.setattr("fastsketch.data.sources._source.CHUNK_BYTES", 2000)
    path = tmp_path / "t.csv"
    lines = [f"{i % 7},{i % 3},{i % 2}" for i in range(400)]
    path.write_text("\n".join(["a,b,y", *lines]) + "\n")
    found = fs.run(fs.SketchedNewton(), path, target="y")
    assert found.classes.tolist() == [0.0, 1.0] and found.feature_names == ("a", "b")
    for cell, match in [
        ("yes", r"line 352, row 350: the target is 'yes', the first ones are numbers"),
        ("", "missing"),
    ]:
        path.write_text("\n".join(["a,b,y", *lines[:350], f"1,2,{cell}", *lines[350:]]) + "\n")
        with pytest.raises(fs.data.SourceError, match=match):
            fs.run(fs.SketchedNewton(), path, target="y")


def test_an_error_before_anything_is_kept_leaves_no_folder(tmp_path):
    rows = rows_of(0, ROWS, D)
    rows[7, 2] = np.nan
    for model in (fs.FrequentDirections(5), fs.FrequentDirections(5, decay=0.9)):
        with pytest.raises(ValueError, match="row 7"):
            fs.run(model, rows, workers=1, checkpoint=tmp_path / "checkpoint")
        assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("after", [5, 20, 27])
def test_two_passes_go_on(tmp_path, after):
    model, source = fs.FrequentDirections(5, method="pfd", solver="gram"), rows_of(0, ROWS, D)
    seen = []

    def stop(report):
        seen.append(report)
        if len(seen) >= after:
            raise Stop

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stop):
        patch.setattr("fastsketch.jobs._progress.PAUSE", 0.0)
        fs.run(model, source, passes=2, checkpoint=tmp_path / "c", progress=stop, workers=2, engine="threads")
    found = fs.run(model, source, passes=2, checkpoint=tmp_path / "c", resume=True)
    assert same_state(found, fs.run(model, source, passes=2, workers=1))


# -- damage ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[1]", b'{"schema": 1, "job": 3}', b'{"schema": 0, "job": {}}', b"\0" * 90, b"[" * 90_000]
)
def test_a_manifest_that_is_damaged_or_of_an_earlier_build_is_refused(tmp_path, content):
    stopped_after(tmp_path, 5, workers=1)
    path = tmp_path / "checkpoint" / MANIFEST
    path.write_bytes(content)
    with pytest.raises(fs.StateError, match=r"manifest.json is damaged, or of another version.*start without resume"):
        job(tmp_path, "threads", 1, resume=True)
    path.rename(path.with_name(OLD_MANIFEST))
    with pytest.raises(fs.StateError, match=r"was begun by another version of fastsketch: remove that folder"):
        job(tmp_path, "threads", 1, resume=True)


def test_a_node_that_is_missing_or_damaged_is_learned_again(tmp_path, whole):
    stopped_after(tmp_path, 7, workers=1)
    first, second, *_ = nodes(tmp_path)
    (tmp_path / "checkpoint" / first).unlink()
    content = bytearray((tmp_path / "checkpoint" / second).read_bytes())
    content[-100] ^= 1
    (tmp_path / "checkpoint" / second).write_bytes(content)
    with pytest.warns(UserWarning, match="learned again"):
        found = job(tmp_path, "threads", 1, resume=True)
    assert same_state(found, whole)


def test_nodes_that_others_cover_and_temporary_files_are_removed(tmp_path, whole):
    stopped_after(tmp_path, 3, workers=1)
    unfinished = temporary_name(tmp_path / "checkpoint" / "node-1-7-1-800-0000abcd.fsk")  # of a writer that was killed
    unfinished.write_bytes(b"x")
    covered_by_others = tmp_path / "checkpoint" / "node-1-0-0-100-0000abcd.fsk"
    covered_by_others.write_bytes(b"x")
    (tmp_path / "checkpoint" / "mine.txt").write_bytes(b"x")
    assert same_state(job(tmp_path, "threads", 1, resume=True), whole)
    assert not covered_by_others.exists() and not unfinished.exists()
    assert (tmp_path / "checkpoint" / "mine.txt").exists()


# -- another job -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"model": fs.FrequentDirections(6, solver="gram")}, "sketch_size is 6 now and was 5"),
        ({"model": fs.SketchHash(4)}, "kind is"),
        ({"source": rows_of(0, 1900, D)}, "parts is 19 now and was 20"),
        ({"source": rows_of(1, ROWS, D)}, "digest is"),
        ({"passes": 2}, "passes is 2 now and was 1"),
    ],
)
def test_another_job_is_refused(tmp_path, change, match):
    given = {"model": fs.FrequentDirections(5, solver="gram"), "source": rows_of(0, ROWS, D)}
    stopped_after(tmp_path, 5, **given, workers=1)
    wanted = {**given, **change}
    with pytest.raises(ValueError, match=match):
        fs.run(wanted.pop("model"), wanted.pop("source"), checkpoint=tmp_path / "checkpoint", resume=True, **wanted)


def test_a_file_that_was_written_to_since_is_refused(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, rows_of(0, ROWS, D))
    stopped_after(tmp_path, 5, source=path)
    np.save(path, rows_of(1, ROWS, D))
    with pytest.raises(ValueError, match="belongs to another job"):
        fs.run(fs.FrequentDirections(5, solver="gram"), path, checkpoint=tmp_path / "checkpoint", resume=True)


def test_where_nothing_is_there_a_resume_begins(tmp_path, whole):
    with pytest.warns(UserWarning, match=r"nothing to resume in .*checkpoint: the job begins"):
        assert same_state(job(tmp_path, "threads", 1, resume=True), whole)


def test_without_resume_a_checkpoint_is_replaced(tmp_path, whole):
    stopped_after(tmp_path, 5, workers=1)
    assert same_state(job(tmp_path, "threads", 1, resume=False), whole)
    assert same_state(job(tmp_path, "threads", 1, resume=False), whole)
    assert len(nodes(tmp_path)) == 1


def test_two_jobs_in_one_folder(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    with locked(tmp_path / "checkpoint" / MANIFEST), pytest.raises(LockHeld):
        job(tmp_path, "threads", 1, resume=False)


def test_rows_that_come_once_have_no_checkpoint(tmp_path):
    class Once(Watched):
        repeatable = False

    source = Once(tmp_path, ROWS, D)
    with pytest.raises(ValueError, match="checkpoint: the rows of watched rows can be read only once"):
        fs.run(fs.FrequentDirections(5), source, checkpoint=tmp_path / "c")
    with pytest.raises(ValueError, match="resume: the rows of watched rows can be read only once"):
        fs.run(fs.FrequentDirections(5), source, checkpoint=tmp_path / "c", resume=True)
    assert fs.run(fs.FrequentDirections(5), source).n_rows == ROWS


def test_a_folder_that_cannot_be_made(tmp_path):
    with pytest.raises(FileNotFoundError):
        fs.run(fs.FrequentDirections(5), rows_of(0, ROWS, D), checkpoint=tmp_path / "no" / "such")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        fs.run(fs.FrequentDirections(5), rows_of(0, ROWS, D), checkpoint=tmp_path / "file")


def test_a_full_disk_ends_the_job_and_leaves_what_was_there(tmp_path, whole, monkeypatch):
    from fastsketch.data.files._replacing import replacing

    calls = []

    def full(path, **options):
        calls.append(path)
        if len(calls) == 5:
            raise OSError(28, "No space left on device")
        return replacing(path, **options)

    with monkeypatch.context() as patch, pytest.raises(OSError, match=r"No space left .* stays: .*checkpoint"):
        patch.setattr(_checkpoint, "replacing", full)
        job(tmp_path, "threads", 1, resume=False)
    had = covered(tmp_path)
    assert len(had) > 2
    (tmp_path / "runs").unlink()
    assert same_state(job(tmp_path, "threads", 1, resume=True), whole)
    assert not {first // PART for first in runs(tmp_path)} & had


# -- kills -------------------------------------------------------------------------------------------------------------
def children(pid):
    begun = [int(one) for task in Path(f"/proc/{pid}/task").glob("*/children") for one in task.read_text().split()]
    return [one for one in begun if alive(one) and b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def killed(folder, engine, workers, seconds, how):
    """Begin or go on with a job, and kill it (or a worker of it) after so many seconds; whether it was done before."""
    command = [sys.executable, "-m", "tests.jobs.killed", str(folder), engine, str(workers)]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    time.sleep(seconds)
    workers_then = children(process.pid)
    if how == "worker":
        if workers_then:
            os.kill(random.choice(workers_then), signal.SIGKILL)
    else:
        process.send_signal(how)
    error = process.communicate(timeout=120)[1]
    deadline = time.monotonic() + 10
    while any(map(alive, workers_then)):
        assert time.monotonic() < deadline, "workers outlive their job"
        time.sleep(0.05)
    assert process.returncode in (0, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, 1), error
    if process.returncode == 1:
        assert b"KeyboardInterrupt" in error, error
    return process.returncode == 0


def kill_often(folder, engine, workers, kills, whole, seed=0):
    """So many kills at random moments, and the rest; the model is the same, and no part that had a node is read."""
    rng, hits, begun = random.Random(seed), 0, 0
    manifest = folder / "checkpoint" / MANIFEST
    while hits < kills:
        (folder / "done.fsk").unlink(missing_ok=True)
        if manifest.exists() and len(covered(folder)) == ROWS // PART:
            _checkpoint.Checkpoint(folder / "checkpoint").remove()  # once more from the beginning
        had = covered(folder)
        (folder / "runs").unlink(missing_ok=True)
        how = "worker" if engine == "processes" and rng.random() < 0.5 else rng.choice([signal.SIGKILL, signal.SIGTERM])
        killed(folder, engine, workers, rng.uniform(0.0, 2.0), how)
        hits += 1
        read = runs(folder)
        begun += len(read)
        # what had a node is not learned again; what had none is learned once, and a part that a worker lost once more
        assert not {first // PART for first in read} & had
        assert len(read) <= len(set(read)) + (how == "worker")
        if (folder / "done.fsk").exists():
            assert same_state(fs.load(folder / "done.fsk"), whole)
    if manifest.exists() and len(covered(folder)) < ROWS // PART:
        assert same_state(job(folder, engine, workers, resume=True), whole)
    return begun


def covered(folder):
    """The parts that have a node."""
    return {part for _, parts in entries(folder) for part in parts}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc who lives")
@pytest.mark.parametrize(
    ("engine", "workers"), [("processes", 2), *(pytest.param("threads", n, marks=pytest.mark.long) for n in (2, 1))]
)
def test_kills_at_random_moments(tmp_path, whole, engine, workers, amount):
    kill_often(tmp_path, engine, workers, amount(2, 20), whole)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc who lives")
def test_ctrl_c_leaves_a_checkpoint_and_no_orphans(tmp_path, whole):
    killed(tmp_path, "processes", 2, 1.2, signal.SIGINT)
    if not (tmp_path / "done.fsk").exists():
        resume = (tmp_path / "checkpoint" / MANIFEST).exists()
        assert same_state(job(tmp_path, "processes", 2, resume=resume), whole)


@pytest.mark.parametrize(
    "other", [fs.FrequentDirections(5, solver="gram"), fs.FrequentDirections(8, solver="gram"), fs.SketchHash(8)]
)
def test_a_node_of_another_job_is_learned_again(tmp_path, whole, other):
    stopped_after(tmp_path, 9, workers=1)
    entry = list_entries(tmp_path / "checkpoint")[0]
    other.copy().update(rows_of(0, entry.rows, D) + 1.0).save(tmp_path / "checkpoint" / entry.file)
    with pytest.warns(UserWarning, match="cannot be used, its parts are learned again: it is not the one"):
        resumed = fs.run(
            fs.FrequentDirections(5, solver="gram"),
            Watched(tmp_path, ROWS, D),
            workers=1,
            checkpoint=tmp_path / "checkpoint",
            resume=True,
        )
    same_state(resumed, whole)


@pytest.mark.parametrize(
    "changes",
    [
        {"level": 40},
        {"position": 10**6},
        {"rows": 7},
        {"pass_number": 3},
        {"crc32": 7},
        {"level": 9999, "position": 10**18 - 1},
    ],
)
def test_names_that_say_what_cannot_be_are_not_believed(tmp_path, whole, changes):
    """The node in the file is genuine, and is learned again."""
    stopped_after(tmp_path, 9, workers=1)
    entry = list_entries(tmp_path / "checkpoint")[0]
    path = tmp_path / "checkpoint" / entry.file
    path.rename(path.with_name(entry._replace(**changes).file))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert same_state(job(tmp_path, "threads", 1, resume=True), whole)
    said = [str(warning.message) for warning in caught]
    assert "pass_number" in changes or any("cannot be used, its parts are learned again" in text for text in said)


def test_a_folder_of_other_things_keeps_them(tmp_path, whole):
    (tmp_path / "node-of-mine.fsk").write_bytes(b"mine")
    (tmp_path / MANIFEST).write_bytes(b'{"mine": 1}\n')
    with pytest.raises(FileExistsError, match="no manifest of a checkpoint: name another folder"):
        fs.run(fs.FrequentDirections(5), rows_of(0, ROWS, D), workers=1, checkpoint=tmp_path)
    assert (tmp_path / MANIFEST).read_bytes() == b'{"mine": 1}\n'
    (tmp_path / MANIFEST).unlink()
    made = fs.run(fs.FrequentDirections(5, solver="gram"), rows_of(0, ROWS, D), workers=1, checkpoint=tmp_path)
    same_state(made, whole)
    assert (tmp_path / "node-of-mine.fsk").read_bytes() == b"mine"
