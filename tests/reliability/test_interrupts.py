"""KeyboardInterrupt at any place of the library: an operation is done or not begun, and the next one is right."""

import dis
import re
import shutil
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
import fastsketch.sklearn as S
from fastsketch._core import threads as _threads
from fastsketch._frame.model import MergeableModel, Model
from fastsketch.cli import main
from fastsketch.covariance._column_scales import ColumnScales
from fastsketch.covariance._kept_rows import KeptRows
from fastsketch.covariance._moments import FeatureVariance
from fastsketch.data.sources import _source
from fastsketch.jobs import _run
from tests.reliability.figures import report
from tests.reliability.zoo import SPECIMENS, dense_rows, event_rows, gap_rows

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
    """Counts the places of the library that run where CPython looks for signals, and interrupts at one of them.

    CPython looks when a function begins, after a call has returned, and before a loop goes on.
    """

    def __init__(self, at=None):
        self.at = at
        self.places = 0

    def __enter__(self):
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def _trace(self, frame, event, _):
        if not frame.f_code.co_filename.startswith(HOME):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        names, before = opcodes_of(frame.f_code), "RESUME"

        def opcodes(frame, event, _):
            nonlocal before
            if event == "opcode":
                looks = before.startswith("CALL") or before in ("RESUME", "JUMP_BACKWARD")
                before = names[frame.f_lasti]
                if looks:
                    self.places += 1
                    if self.places == self.at:
                        raise KeyboardInterrupt
            return opcodes

        return opcodes


@cache
def opcodes_of(code):
    """The names of the instructions of a code object by their places."""
    return {instruction.offset: instruction.opname for instruction in dis.get_instructions(code)}


def places_of(operation):
    """How many places of the library an operation runs at which it may be interrupted."""
    with Interrupter() as counted:
        operation()
    return counted.places


def interrupted(operation, at):
    """Whether an operation that is interrupted at this place did not end."""
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
    """Some of the places 1..n."""
    return sorted(rng.choice(np.arange(1, n + 1), min(n, how_many), replace=False).tolist())


def check(counts, make, operation, rng, how_many, *, after, state=without_times):
    """Interrupt an operation on a model at several places: before or after, and the next one as if nothing had been."""
    model = make()
    operation(model)  # whatever is imported or compiled, is now
    expected = state(model)
    fresh = make()
    n = places_of(lambda: operation(fresh))
    for at in moments(n, how_many, rng):
        model = make()
        before = state(model)
        counts["interrupts"] += interrupted(lambda model=model: operation(model), at)
        found = state(model)
        counts["half_done"] += found not in (before, expected)
        if found == before:
            operation(model)
            counts["wrong_afterwards"] += state(model) != expected
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
        f"{counts['interrupts']} at places of {len(SPECIMENS)} models",
        **{name: counts[name] for name in ("half_done", "wrong_afterwards", "unreadable")},
    )


# -- estimators --------------------------------------------------------------------------------------------------------
def rows_and_labels(seed, n=40):
    rows = dense_rows(seed, n)
    return rows, np.where(rows[:, 0] > 0, "yes", "no")


def rows_and_targets(seed, n=40):
    rows = dense_rows(seed, n)
    return rows, rows[:, 0]


def rows_some_with_gaps(seed, n=40):
    rows = dense_rows(seed, n)
    rows[1::3, 2] = np.nan
    return rows


def table_of_events(seed, n=40):
    """A table whose users and items are others from one seed to the next."""
    rows = event_rows(seed, n)
    return {f"user {seed}.{i}": [f"item {seed % 3 + j}" for j in np.flatnonzero(rows[[i]].toarray())] for i in range(n)}


CLASSES = {"classes": ["no", "yes"]}
# {name: (estimator, what it learns by seed and number of rows, what the first call of partial_fit needs)}
ESTIMATORS = {
    "pca": (lambda: S.SketchedPCA(3), dense_rows, {}),
    "pca of a sketch": (lambda: S.SketchedPCA(3, solver="gram", sketch_size=5), dense_rows, {}),
    "pca with rows": (lambda: S.SketchedPCA(3, sketch_size=4, max_memory=2000), dense_rows, {}),
    "pca of scaled columns": (lambda: S.SketchedPCA(3, solver="gram", scale=True, scale_rows=30), dense_rows, {}),
    "covariance": (S.SketchedCovariance, dense_rows, {}),
    "covariance of a sketch": (
        lambda: S.SketchedCovariance(sketch_size=5, solver="gram", scale_rows=50),
        dense_rows,
        {},
    ),
    "covariance with gaps": (lambda: S.SketchedCovariance(fill="mean", shrinkage="ledoit-wolf"), gap_rows, {}),
    "covariance without gaps": (lambda: S.SketchedCovariance(fill="drop"), rows_some_with_gaps, {}),
    "hasher": (lambda: S.SketchHasher(4, block_rows=16), dense_rows, {}),
    "coder": (lambda: S.SketchCoder(4, block_rows=16, sketch_size=12), dense_rows, {}),
    "recommender": (lambda: S.EASERecommender(5), event_rows, {}),
    "recommender by ids": (lambda: S.EASERecommender(5), table_of_events, {}),
    "completer": (lambda: S.LowRankCompleter(method="gaussian"), gap_rows, {}),
    "ridge": (lambda: S.SketchedRidge(5), rows_and_targets, {}),
    "ridge of classes": (lambda: S.SketchedRidgeClassifier(5), rows_and_labels, CLASSES),
    "newton": (lambda: S.SketchedNewtonRegressor(3), rows_and_targets, {}),
    "newton of classes": (lambda: S.SketchedNewtonClassifier(3), rows_and_labels, CLASSES),
    "subgradient": (lambda: S.AdaptiveSubgradientRegressor(3), rows_and_targets, {}),
    "subgradient of classes": (lambda: S.AdaptiveSubgradientClassifier(3), rows_and_labels, CLASSES),
}


def bits(value):
    """What an attribute holds, in a form that can be compared bit for bit."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tolist() if value.dtype == object else value.tobytes()
    if sparse.issparse(value):
        return bits(value.toarray())
    if isinstance(value, Model):
        return without_times(value)
    if isinstance(value, KeptRows):
        return bits(value.arrays())
    if isinstance(value, dict):
        return {name: bits(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [bits(one) for one in value]
    return bits(vars(value)) if isinstance(value, ColumnScales | FeatureVariance) else repr(value)


def state_of_estimator(estimator):
    """All attributes of an estimator, but what it has only read."""
    return bits({name: value for name, value in vars(estimator).items() if name not in ("_entered", "_read_out")})


def test_every_estimator_that_learns_in_parts_is_interrupted():
    kinds = {getattr(S, name) for name in S.__all__ if hasattr(getattr(S, name), "partial_fit")}
    assert kinds == {type(make()) for make, _, _ in ESTIMATORS.values()}


def test_estimators(amount):
    """Estimators hold a model and what belongs to it: rows for a threshold, variances, classes, counts."""
    rng, counts = np.random.default_rng(6), Counter()
    for make, rows_of, first in ESTIMATORS.values():

        def batch(seed, n=40, rows_of=rows_of):
            rows = rows_of(seed, n)
            return rows if isinstance(rows, tuple) else (rows,)

        def learned(make=make, batch=batch, first=first):
            return make().partial_fit(*batch(0), **first)

        def fitted(make=make, batch=batch):
            return make().fit(*batch(0))

        def other(learned=learned, batch=batch):
            return learned().partial_fit(*batch(9))

        operations = {
            "first batch": (make, lambda one, batch=batch, first=first: one.partial_fit(*batch(1), **first)),
            "one row": (learned, lambda one, batch=batch: one.partial_fit(*batch(2, 1))),
            "batch": (learned, lambda one, batch=batch: one.partial_fit(*batch(3))),
            "batch after fit": (fitted, lambda one, batch=batch: one.partial_fit(*batch(4))),
            "fit": (learned, lambda one, batch=batch: one.fit(*batch(5))),
        }
        if hasattr(make(), "merge"):
            operations["merge"] = learned, lambda one, other=other: one.merge(other())
        for start, operation in operations.values():
            check(
                counts,
                start,
                operation,
                rng,
                amount(2, 25),
                after=lambda counts, one: None,
                state=state_of_estimator,
            )
    report(
        "interrupts of estimators: partial_fit, fit, merge",
        f"{counts['interrupts']} at places of {len(ESTIMATORS)} estimators",
        **{name: counts[name] for name in ("half_done", "wrong_afterwards")},
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
        f"{counts['interrupts']} at places of {kinds} models",
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
        f"{counts['interrupts']} at places of {kinds} models",
        **{name: counts[name] for name in ("half_done", "wrong_afterwards")},
    )
    assert kinds > 5


def test_saves(tmp_path, amount):
    rng, counts = np.random.default_rng(2), Counter()
    path = tmp_path / "m.fsk"
    for specimen in SPECIMENS[:: amount(6, 1)]:
        old, new = specimen.learned(), specimen.learned(30, seed=3)
        n = places_of(lambda new=new: new.save(path))
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
        f"{counts['interrupts']} at places",
        half_done=counts["half_done"],
        left_behind=counts["left_behind"],
    )


@pytest.mark.parametrize("command", ["sketch", "sketch twice", "learn"])
def test_jobs(command, tmp_path, monkeypatch, capsys, amount):
    """The command line with an interrupt at any of its places; resumed where it says so, it gives the same bytes."""
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
    n = places_of(lambda: main([*line, "whole"]))
    rng, counts = np.random.default_rng(4), Counter()
    for at in moments(n, amount(6, 120), rng):
        try:
            with Interrupter(at):
                status = main([*line, "o"])
        except KeyboardInterrupt:
            status = None  # before the command had begun, or when it was done
        counts["interrupts"] += status != 0
        counts["wrong_status"] += status not in (0, 130, None)
        resumed = Path("o.partial/manifest.json").exists()
        counts["jobs_resumed"] += resumed
        if resumed or not Path("o").exists():
            # what a line of clean-up that was interrupted has left: this process lives, and so its lock counts
            Path("o.lock").unlink(missing_ok=True)
            Path("o.partial/manifest.json.lock").unlink(missing_ok=True)
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
            f"{counts['interrupts']} at places",
            also={"resumed": counts["jobs_resumed"]},
            **{name: counts[name] for name in ("wrong_status", "refused", "other_results")},
        )
