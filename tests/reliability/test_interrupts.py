"""KeyboardInterrupt at any line of the library: an operation is done or not begun, and what comes after it is right."""

import linecache
import re
import shutil
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs
from fastsketch._core import threads as _threads
from fastsketch._frame.model import MergeableModel
from fastsketch.cli import main
from fastsketch.data.sources import _source
from fastsketch.jobs import _run
from tests.reliability.figures import report
from tests.reliability.zoo import SPECIMENS

# A file that is open when the interrupt comes, and has no owner yet, is closed when it is collected.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

HOME = str(Path(fs.__file__).parent)


@pytest.fixture(autouse=True)
def nobody_holds_the_lock():
    """An interrupt that left the lock of the thread limits would stop other threads, in some later test."""
    yield
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(_threads._lock.acquire, timeout=5).result(), "an interrupt has left the lock"
        pool.submit(_threads._lock.release)


class Interrupter:
    """Counts the lines of the library that run, and raises KeyboardInterrupt at one of them."""

    def __init__(self, at=None):
        self.at = at
        self.lines = 0

    def __enter__(self):
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def _trace(self, frame, event, _):
        if not frame.f_code.co_filename.startswith(HOME):
            return None
        before = 0

        def lines(frame, event, _):
            nonlocal before
            if event == "line":
                leaves = frame.f_lineno < before and is_with(frame)
                before = frame.f_lineno
                if not leaves:
                    self.lines += 1
                    if self.lines == self.at:
                        raise KeyboardInterrupt
            return lines

        return lines


def is_with(frame):
    """Whether the line opens a block that it also closes. Tracing shows the line once more when the block ends; no
    signal is looked for there, between the last call of the block and the exit, which would then never be run."""
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")


def lines_of(operation):
    """How many lines of the library an operation runs."""
    with Interrupter() as counted:
        operation()
    return counted.lines


def interrupted(operation, at):
    """Whether an operation that is interrupted at this line did not end."""
    try:
        with Interrupter(at):
            operation()
    except KeyboardInterrupt:
        return True
    return False


def without_times(model):
    """The state of a model but for the times that completions note."""
    state, arrays = model._state()
    text = re.sub(r"'seconds': [^,}]+", "", repr(state))
    return text, {name: array.tobytes() for name, array in arrays.items()}, repr(model.parameters)


def moments(n, how_many, rng):
    """Some of the lines 1..n."""
    return sorted(rng.choice(np.arange(1, n + 1), min(n, how_many), replace=False).tolist())


def check(counts, make, operation, rng, how_many, *, after):
    """Interrupt an operation on a model at several lines: before or after, and the next one as if nothing had been."""
    model = make()
    operation(model)  # whatever is imported or compiled, is now
    expected = without_times(model)
    fresh = make()
    n = lines_of(lambda: operation(fresh))
    for at in moments(n, how_many, rng):
        model = make()
        before = without_times(model)
        counts["interrupts"] += interrupted(lambda model=model: operation(model), at)
        found = without_times(model)
        counts["half_done"] += found not in (before, expected)
        if found == before:
            operation(model)
            counts["wrong_afterwards"] += without_times(model) != expected
        after(counts, model)


def test_updates_and_fits(amount):
    rng, counts = np.random.default_rng(0), Counter()

    def after(counts, model):
        try:
            specimen.read(model)
        except Exception:
            counts["unreadable"] += 1

    for specimen in SPECIMENS:
        for n in (1, 25):
            more = specimen.rows(7, 40 if "completion" in specimen.name else n)
            try:
                specimen.learn(specimen.learned(), more)
            except ValueError:  # learns once
                start, more = specimen.make, specimen.rows(7)
            else:
                start = specimen.learned
            check(
                counts,
                start,
                lambda model, specimen=specimen, more=more: specimen.learn(model, more),
                rng,
                amount(2, 25),
                after=after,
            )
    report(
        "interrupts of update and fit",
        f"{counts['interrupts']} at lines of {len(SPECIMENS)} models",
        **{name: counts[name] for name in ("half_done", "wrong_afterwards", "unreadable")},
    )


def test_merges(amount):
    rng, counts, kinds = np.random.default_rng(1), Counter(), 0
    for specimen in SPECIMENS:
        if not isinstance(specimen.make(), MergeableModel):
            continue
        other = specimen.make()
        if hasattr(other, "_for_part"):
            other = other._for_part(1)
        other = specimen.learn(other, specimen.rows(5))
        try:
            specimen.learned().merge(other)
        except ValueError:
            continue  # completed parts alone merge
        kinds += 1
        untouched = without_times(other)

        def after(counts, model, other=other, untouched=untouched):
            counts["other_changed"] += without_times(other) != untouched

        check(counts, specimen.learned, lambda model, other=other: model.merge(other), rng, amount(3, 40), after=after)
    report(
        "interrupts of merge",
        f"{counts['interrupts']} at lines of {kinds} models",
        **{name: counts[name] for name in ("half_done", "wrong_afterwards", "other_changed")},
    )
    assert kinds > 10


def test_second_passes(amount):
    rng, counts, kinds = np.random.default_rng(5), Counter(), 0
    for specimen in SPECIMENS:
        if not isinstance(specimen.make(), fs.FrequentDirections):
            continue
        rows = specimen.rows(0)
        try:
            specimen.learned().refine(rows)
        except ValueError:
            continue  # with decay, or a compressor
        kinds += 1
        check(
            counts,
            specimen.learned,
            lambda model, rows=rows: model.refine(rows),
            rng,
            amount(3, 40),
            after=lambda counts, model: model.spectrum(),
        )
        check(
            counts,
            lambda specimen=specimen, rows=rows: specimen.learned().refine(rows),
            lambda model, specimen=specimen: model.update(specimen.rows(7, 25)),
            rng,
            amount(0, 40),
            after=lambda counts, model: model.spectrum(),
        )
    report(
        "interrupts of refine",
        f"{counts['interrupts']} at lines of {kinds} models",
        **{name: counts[name] for name in ("half_done", "wrong_afterwards")},
    )
    assert kinds > 5


def test_saves(tmp_path, amount):
    rng, counts = np.random.default_rng(2), Counter()
    path = tmp_path / "m.fsk"
    for specimen in SPECIMENS[:: amount(6, 1)]:
        old, new = specimen.learned(), specimen.learned(30, seed=3)
        n = lines_of(lambda new=new: new.save(path))
        for at in moments(n, amount(6, 30), rng):
            old.save(path)
            counts["interrupts"] += interrupted(lambda new=new: new.save(path), at)
            try:
                found = fs.load(path).to_bytes()
                counts["half_done"] += found not in (old.to_bytes(), new.to_bytes())
            except fs.data.StateError:
                counts["half_done"] += 1
            # a file without its name may be left between two lines, and goes with the process that made it
            for file in tmp_path.iterdir():
                counts["left_behind"] += file != path and not file.name.endswith(".tmp")
                file.unlink()
    report(
        "interrupts of save",
        f"{counts['interrupts']} at lines",
        half_done=counts["half_done"],
        left_behind=counts["left_behind"],
    )


@pytest.mark.parametrize("command", ["sketch", "sketch twice", "learn"])
def test_jobs(command, tmp_path, monkeypatch, capsys, amount):
    """The command line with an interrupt at any of its lines; resumed where it says so, it gives the same bytes."""
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).standard_normal((60, 8))
    np.save("rows.npy", rows)
    (tmp_path / "t.svm").write_text(
        "".join(
            f"{1 + (i > 25) * (i % 2)} " + " ".join(f"{j + 1}:{v:.5g}" for j, v in enumerate(r)) + "\n"
            for i, r in enumerate(rows)
        )
    )
    monkeypatch.setattr(_source, "CHUNK_BYTES", 10 * 8 * 8)
    monkeypatch.setattr(_run, "PART_BYTES", 10 * 8 * 8)
    monkeypatch.setattr(_run, "STATES_OF_A_PART", 0)
    monkeypatch.setattr(_run, "SECONDS", 0.0)
    monkeypatch.setattr(_run, "SHARE", 0)
    line = {
        "sketch": ["sketch", "rows.npy", "rows.npy", "-l", "4", "--set", "solver=gram"],
        "sketch twice": ["sketch", "rows.npy", "rows.npy", "-l", "4", "--set", "solver=gram", "--passes", "2"],
        "learn": ["learn", "t.svm", "t.svm", "-l", "3", "--every", "7"],
    }[command]
    line = [*line, "-o"]
    assert main([*line, "whole"]) == 0
    whole = Path("whole").read_bytes()
    n = lines_of(lambda: main([*line, "whole"]))
    rng, counts = np.random.default_rng(4), Counter()
    for at in moments(n, amount(6, 120), rng):
        try:
            with Interrupter(at):
                status = main([*line, "o"])
        except KeyboardInterrupt:
            status = None  # before the command had begun, or when it was done
        counts["interrupts"] += status != 0
        counts["wrong_status"] += status not in (0, 130, None)
        resumed = Path("o.partial/manifest.jsonl").exists()
        counts["jobs_resumed"] += resumed
        if resumed or not Path("o").exists():
            # what a line of clean-up that was interrupted has left: this process lives, and so its lock counts
            Path("o.lock").unlink(missing_ok=True)
            Path("o.partial/manifest.jsonl.lock").unlink(missing_ok=True)
            counts["refused"] += main([*line, "o", *(["--resume"] if resumed else [])]) != 0
        counts["other_results"] += not Path("o").exists() or Path("o").read_bytes() != whole
        for path in tmp_path.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in ("rows.npy", "t.svm", "whole"):
                path.unlink()
    capsys.readouterr()
    with capsys.disabled():
        report(
            f"interrupts of the command {command}",
            f"{counts['interrupts']} at lines",
            also={"resumed": counts["jobs_resumed"]},
            **{name: counts[name] for name in ("wrong_status", "refused", "other_results")},
        )
