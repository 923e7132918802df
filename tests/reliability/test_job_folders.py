"""Folders of jobs that somebody else made: links lead nowhere, manifests are believed as far as they can be true."""

import contextlib
import json
import shutil
import signal

import numpy as np
import pytest

from fastsketch.data.files._lock import LockHeld
from fastsketch.jobs._manifest import MANIFEST
from tests.reliability.figures import report
from tests.reliability.job_folders import (
    JOBS,
    LINKS,
    REFUSALS,
    crafted_manifest,
    leave_unfinished,
    make_inputs,
    make_surroundings,
    names_in,
    put_link,
    rename_one,
    result_of,
    surroundings,
)

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def inputs(tmp_path):
    (tmp_path / "inputs").mkdir()
    make_inputs(tmp_path / "inputs")
    return tmp_path / "inputs"


@contextlib.contextmanager
def at_most(seconds):
    """A job that waits for a pipe, or reads what never ends, is a hang."""

    def ring(*_):
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Tried:
    """Unfinished folders of a kind of job, and what came of the copies that were changed."""

    def __init__(self, job, inputs, tmp_path, share):
        self.job, self.inputs, self.tmp_path = job, inputs, tmp_path
        (tmp_path / "first").mkdir()
        self.whole = result_of(job, inputs, tmp_path / "first", resume=False)
        (tmp_path / "kept").mkdir()
        leave_unfinished(job, inputs, tmp_path / "kept", share)
        work = self.copied()  # the untouched original is not refused, and goes on
        assert result_of(job, inputs, work, resume=True) == self.whole

    def copied(self):
        shutil.rmtree(self.tmp_path / "work", ignore_errors=True)
        shutil.copytree(self.tmp_path / "kept", self.tmp_path / "work", symlinks=True)
        return self.tmp_path / "work"

    def outcome(self, work, *, resume):
        """Return what came of a job: "right", "refused", or what must not be."""
        try:
            with at_most(60):
                found = result_of(self.job, self.inputs, work, resume=resume)
        except TimeoutError:
            return "hang"
        except REFUSALS as error:
            message = str(error)
            good = message and "\n" not in message and "\x1b" not in message
            return "refused" if good else f"bad message: {message!r}"
        except Exception as error:
            return f"raw {type(error).__name__}: {error}"
        return "right" if found == self.whole else "wrong result"


def counted(found):
    """Return the counts of the table."""
    strange = {what: n for what, n in found.items() if what not in ("right", "refused", "hang", "wrong result")}
    assert not strange, strange
    return {"hangs": found.get("hang", 0), "wrong_results": found.get("wrong result", 0), "raw_errors": 0}


def test_links_in_folders_of_jobs(inputs, tmp_path, amount):
    pytest.importorskip("pyarrow")
    found, n, touched = {}, 0, []
    around = tmp_path / "around"
    rng = np.random.default_rng(0)
    for job in JOBS:
        (tmp_path / job.name).mkdir()
        tried = Tried(job, inputs, tmp_path / job.name, share=0.6)
        cases = [
            (name, make, resume)
            for name in names_in(tmp_path / job.name / "kept" / job.folder, job)
            for make in LINKS
            for resume in (True, False)
        ]
        for at in rng.permutation(len(cases))[: amount(12, len(cases))]:
            name, make, resume = cases[at]
            work = tried.copied()
            make_surroundings(around)
            before = surroundings(around)
            put_link(work / job.folder, name, make, around)
            what = tried.outcome(work, resume=resume)
            found[what] = found.get(what, 0) + 1
            n += 1
            if surroundings(around) != before:
                touched.append((job.name, name, make.__name__, resume))
            if what not in ("right", "refused"):
                print(job.name, name, make.__name__, resume, what)
    print(touched[:10])
    assert found["right"] > n // 3
    report(
        "links, pipes and devices in folders of jobs (fs.run, fs.map_rows)",
        f"{n:,} folders of {len(JOBS)} kinds of jobs",
        other_files_touched=len(touched),
        **counted(found),
        also={"refused": found.get("refused", 0), "right": found["right"]},
    )


def test_crafted_manifests(inputs, tmp_path, amount):
    """A manifest whose values were changed, or files of parts under other names."""
    pytest.importorskip("pyarrow")
    found, n = {}, amount(25, 200)
    for job in JOBS:
        (tmp_path / job.name).mkdir()
        tried = Tried(job, inputs, tmp_path / job.name, share=1.0)
        manifest = json.loads((tmp_path / job.name / "kept" / job.folder / MANIFEST).read_bytes())
        for seed in range(n):
            work, rng = tried.copied(), np.random.default_rng(seed)
            crafted = crafted_manifest(manifest, rng)
            if seed % 3:
                (work / job.folder / MANIFEST).write_text(json.dumps(crafted))
            else:
                rename_one(work / job.folder, rng)
            what = tried.outcome(work, resume=True)
            found[what] = found.get(what, 0) + 1
            if what not in ("right", "refused"):
                print(job.name, seed, what, crafted)
    assert found["right"] > n and found["refused"] > n
    report(
        "crafted manifests and names of files; resumed (fs.run, fs.map_rows)",
        f"{n * len(JOBS):,} folders of {len(JOBS)} kinds of jobs",
        **counted(found),
        also={"refused": found["refused"], "right": found["right"]},
    )


@pytest.mark.parametrize("job", [job for job in JOBS if job.name.startswith("map")], ids=lambda job: job.name)
@pytest.mark.parametrize("make", LINKS, ids=lambda make: make.__name__)
def test_links_in_the_place_of_the_lock_of_an_output(inputs, tmp_path, job, make):
    """The job is refused, and what the link leads to is as it was: nothing is written to it or created."""
    around, work = tmp_path / "around", tmp_path / "work"
    make_surroundings(around)
    work.mkdir()
    before, lock = surroundings(around), work / job.folder.replace(".partial", ".lock")
    make(lock, around)
    with at_most(60), pytest.raises(LockHeld, match=r"the lock .*\.lock cannot be read; .* remove that file"):
        result_of(job, inputs, work, resume=False)
    assert surroundings(around) == before
    lock.unlink()
    assert result_of(job, inputs, work, resume=False)
