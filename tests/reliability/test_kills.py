"""Processes that are killed: commands, while saving, and the workers of a merge."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs
from tests.helpers import same_state
from tests.jobs import merge_tasks as tasks
from tests.reliability.figures import report

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")

NEVER = ("damaged", "other_results", "left_behind", "refused", "wrong_status", "hangs", "failed")
ROWS = np.random.default_rng(0).standard_normal((600, 24))


def forks(folder, **task):
    """What tests/reliability/forks.py counted in a folder."""
    root = Path(__file__).parents[2]
    path = [str(Path(fs.__file__).parents[1]), str(root), os.environ.get("PYTHONPATH", "")]
    # one thread of BLAS: a fork has no others
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(root / "tests" / "reliability" / "forks.py")],
        input=json.dumps({"folder": str(folder), **task}),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return Counter(json.loads(done.stdout))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Files that every command finds in its folder."""
    folder = tmp_path_factory.mktemp("inputs")
    np.save(folder / "rows.npy", ROWS)
    np.save(folder / "more.npy", ROWS[::-1])
    labels = np.where(ROWS[:, 0] > 0, 2, 1)
    labels[:200] = 1  # which label it is shows late
    lines = (
        f"{label} " + " ".join(f"{j + 1}:{v:.6g}" for j, v in enumerate(row))
        for label, row in zip(labels, ROWS, strict=True)
    )
    (folder / "t.svm").write_text("\n".join(lines) + "\n")
    (folder / "r.csv").write_text("".join(f"u{i % 37},v{i % 29},{i % 5}\n" for i in range(900)))
    header = ",".join(f"c{j}" for j in range(ROWS.shape[1]))
    table = (",".join([*(f"{v:.6g}" for v in row), str(label)]) for label, row in zip(labels, ROWS, strict=True))
    (folder / "t.csv").write_text("\n".join([f"{header},y", *table]) + "\n")
    fs.FrequentDirections(8).update(ROWS).save(folder / "a.fsk")
    fs.FrequentDirections(8).update(ROWS[::-1]).save(folder / "b.fsk")
    fs.SketchHash(8).update(ROWS).save(folder / "h.fsk")
    from fastsketch.cli import main

    assert (
        main(["transform", str(folder / "h.fsk"), str(folder / "rows.npy"), "-o", str(folder / "c.npy"), "--json"]) == 0
    )
    assert main(["learn", str(folder / "t.svm"), "-l", "3", "-o", str(folder / "s.fsk"), "--json"]) == 0
    return folder


COMMANDS = {
    "sketch": ["sketch", "rows.npy", "more.npy", "-l", "12", "--set", "solver=svd"],
    "learn": ["learn", "t.svm", "-l", "5", "--every", "20"],
    "learn --method ada_fd": ["learn", "t.svm", "-l", "5", "--method", "ada_fd", "--every", "20"],
    "learn from a table": ["learn", "t.csv", "--target", "y", "-l", "5", "--every", "20"],
    "recommend": ["recommend", "r.csv", "-l", "4"],
    "encode": ["transform", "h.fsk", "rows.npy", "more.npy"],
    "predict rows": ["predict", "s.fsk", "t.svm", "--what", "scores"],
    "merge": ["merge", "a.fsk", "b.fsk"],
}
RESUMABLE = ("sketch", "learn")


def test_killed_commands(inputs, tmp_path, amount):
    counts = Counter()
    tried = amount(["sketch", "learn", "merge"], list(COMMANDS))  # one of each way of working
    for name in tried:
        folder = tmp_path / name.replace(" ", "")
        folder.mkdir()
        for file in inputs.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        task = {
            "name": "cut",
            "line": COMMANDS[name],
            "resumable": COMMANDS[name][0] in RESUMABLE,
        }
        found = forks(folder, what="command", seed=1, kills=amount(3, 20), **task)
        print(f"{name}: {dict(found)}")
        counts += found
    never = {name: counts[name] for name in NEVER}
    what = f"{counts['killed']} kills, {counts['interrupted']} interrupts of {len(tried)} commands"
    report("killed and interrupted commands", what, also={"resumed": counts["resumed"]}, **never)
    resumable = sum(COMMANDS[name][0] in RESUMABLE for name in tried)
    assert counts["resumed"] >= resumable, "the first kill of each comes when there is something to resume"


def test_kills_while_saving(tmp_path, amount):
    found = forks(tmp_path, what="saving", seed=2, kills=amount(12, 50))
    never = {name: found[name] for name in ("damaged", "left_behind")}
    also = {"temporary_files_left_by_kills": found["files_found"]}
    report("kills while a state is saved", f"{found['runs_killed']} kills", also=also, **never)
    assert found["runs_killed"] == amount(12, 50) and found["files_found"] >= amount(4, 17)


def slow_part(item, index):
    """A task of a merge that takes long enough to be killed in."""
    time.sleep(0.05)
    return tasks.hash_of_block(item, index)


def test_killed_workers_of_a_merge(amount):
    """A killer in a thread shoots at the processes of a pool; a task that loses too many of them says so."""
    import multiprocessing

    whole = fs.SketchHash(6, block_rows=tasks.BLOCK).update(tasks.all_rows())
    rng, counts, shots, merges = random.Random(3), Counter(), 0, 0
    while shots < amount(1, 8):  # some are over before
        merges += 1
        done = threading.Event()
        fired = []

        def kill(done=done, fired=fired):
            while not done.wait(rng.uniform(0.2, 0.8)) and len(fired) < 3:
                children = [child for child in multiprocessing.active_children() if child.pid]
                if children:
                    os.kill(rng.choice(children).pid, signal.SIGKILL)
                    fired.append(1)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            found = fs.map_merge(slow_part, range(tasks.BLOCKS), engine="processes", workers=2)
            counts["other_results"] += not same_state(found, whole)
        except fs.jobs.WorkerLost:
            counts["jobs_lost"] += 1  # three kills are fewer than a task may lose
        finally:
            done.set()
            killer.join()
        shots += len(fired)
        counts["workers_left"] += len(multiprocessing.active_children())
    never = {name: counts[name] for name in ("other_results", "jobs_lost", "workers_left")}
    report("killed workers of a merge", f"{shots} kills in {merges} merges", **never)


@pytest.mark.long  # tests/jobs/dask kills workers, too
def test_killed_workers_of_dask():
    distributed = pytest.importorskip("distributed")
    import dask.array as da
    from dask import delayed

    rows = np.random.default_rng(0).standard_normal((960, 10))
    template = fs.SketchHash(4, block_rows=80)
    whole = template.copy().update(rows)
    rng, counts = random.Random(4), Counter()

    def piece(number):
        import time

        time.sleep(0.1)
        return rows[number * 80 : (number + 1) * 80]

    kills, fits = [], 0
    while len(kills) < 4:  # those that come before the end of a fit
        fits += 1
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            victim = sorted(client.run(os.getpid).values())[0]
            delay = rng.uniform(0.0, 0.7)
            timer = threading.Timer(delay, lambda pid=victim: kills.append(os.kill(pid, signal.SIGKILL)))
            timer.start()
            parts = [da.from_delayed(delayed(piece)(i), (80, 10), rows.dtype) for i in range(12)]
            counts["other_results"] += not same_state(fs.run(template, da.concatenate(parts), engine="dask"), whole)
            timer.cancel()
            timer.join()
    report("killed workers of Dask", f"{len(kills)} kills in {fits} fits", other_results=counts["other_results"])
