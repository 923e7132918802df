"""Jobs of every kind that leave a folder when they are stopped, and what a stranger may have put into that folder."""

import contextlib
import copy
import os
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import fastsketch as fs
from fastsketch.jobs import _mapping, _run
from fastsketch.jobs._manifest import MANIFEST
from fastsketch.jobs._outputs import Csv

ROWS = np.random.default_rng(0).standard_normal((240, 6))
# Of a part of the rows, so that there are some of them.
PART_BYTES = 1 << 11
# What a refusal is. An OSError names the file that is in the way.
REFUSALS = (ValueError, OSError)


class Stopped(Exception):
    """Raised by the report of progress that ends a job."""


def two_columns(rows: Any) -> Any:
    """Answer rows with two columns of whole numbers."""
    return np.floor(8 * rows[:, :2]).astype(np.int32)


class FolderJob(NamedTuple):
    """A kind of job: `run(inputs, work, **options)` returns what it gives; its folder is in `work`."""

    name: str
    folder: str
    run: Callable[..., Any]


def _learned(name: str, model: Any, rows: str, **options: Any) -> FolderJob:
    def run(inputs: Path, work: Path, **more: Any) -> Any:
        source = inputs / rows
        return fs.run(model, source, workers=1, checkpoint=work / "checkpoint", **options, **more).to_bytes()

    return FolderJob(name, "checkpoint", run)


def _mapped(name: str, rows: str, output: str) -> FolderJob:
    def run(inputs: Path, work: Path, **more: Any) -> Any:
        if not output.endswith(".csv"):
            fs.map_rows(two_columns, inputs / rows, output=work / output, workers=1, part_bytes=PART_BYTES, **more)
        else:
            job, sink = _mapping.Job(workers=1, **more), Csv(["a", "b"])
            _mapping.write_results(two_columns, fs.open_rows(inputs / rows), work / output, sink, job, PART_BYTES)
        if output.endswith(".parquet"):
            from pyarrow import parquet

            table = parquet.read_table(work / output)
            return np.column_stack([column.to_numpy() for column in table.columns]).tolist()
        if output.endswith(".npy"):
            assert not (work / output).is_symlink()
            return np.load(work / output).tolist()
        return (work / output).read_text()

    return FolderJob(name, f"{output}.partial", run)


JOBS = (
    _learned("run", fs.FrequentDirections(3, solver="gram"), "rows.npy"),
    _learned("run-two-passes", fs.FrequentDirections(3, solver="gram"), "rows.npy", passes=2),
    _learned("run-in-order", fs.SketchedNewton(3), "labelled.npy", target=-1),
    _mapped("map-npy", "rows.npy", "out.npy"),
    _mapped("map-npy-of-text", "rows.csv", "out.npy"),
    _mapped("map-parquet", "rows.npy", "out.parquet"),
    _mapped("map-csv", "rows.npy", "out.csv"),
)


def make_inputs(inputs: Path) -> None:
    """Write the rows of all jobs."""
    np.save(inputs / "rows.npy", ROWS)
    np.save(inputs / "labelled.npy", np.column_stack([ROWS, ROWS[:, 0] > 0]))
    text = "a,b,c,d,e,f\n" + "".join(",".join(map(repr, row)) + "\n" for row in ROWS.tolist())
    (inputs / "rows.csv").write_text(text)


@contextlib.contextmanager
def many_parts():
    """Cut the rows of ``fs.run`` into parts, keep what was learned after each piece, and report all of them."""
    small = {"PART_BYTES": PART_BYTES, "STATES_OF_A_PART": 0, "SECONDS": 0.0, "SHARE": 0, "EXAMPLES_AT_A_TIME": 40}
    with mock.patch.multiple(_run, **small), mock.patch("fastsketch.jobs._progress.PAUSE", 0.0):
        yield


def result_of(job: FolderJob, inputs: Path, work: Path, **options: Any) -> Any:
    """Return what a job gives."""
    with many_parts(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return job.run(inputs, work, progress=False, **options)


def leave_unfinished(job: FolderJob, inputs: Path, work: Path, share: float) -> Path:
    """Stop a job after a share of its rows in the last pass, and return the folder that it leaves."""
    passes = 2 if job.name == "run-two-passes" else 1

    def stop(report: Any) -> None:
        if report["number"] == passes and report["rows"] >= share * len(ROWS):
            raise Stopped

    with many_parts(), contextlib.suppress(Stopped):
        job.run(inputs, work, progress=stop)
    folder = work / job.folder
    assert files_of_parts(folder), job.name
    return folder


# -- manifests and names -----------------------------------------------------------------------------------------------
def files_of_parts(folder: Path) -> list[Path]:
    """Return the files of what is done."""
    return sorted(path for path in folder.rglob("*") if path.name.startswith(("node-", "part-")))


VALUES = (
    *(0, 1, -1, 3, 17, 2**31, 2**62, 10**30, 0.5, 1e300, float("nan"), float("inf")),
    *(True, None, "", "x", "\x1b[31m\n", [], {}, [[1]], [["code"], ["|u1"], [[2]]], {"a": 1}, "..", "../../victim"),
    *("zz", "|O", "i8,i8", "<f8", [[""], ["|O"], [[]]], [[""], ["zz"], [[2]]], [[""], ["<i4"], [[2**62, 2**62]]]),
    *([[""], ["<i4"], [[-2]]], [[3], ["<i4"], [[2]]], [["a", "b"], ["<i4", "<i4"], [[2], [2]]], [[""], ["<i4"], [[2]]]),
)


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values in a tree of JSON, the tree's own first."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(deeper for key, value in items for deeper in places(value, (*path, key)))]


def crafted_manifest(manifest: Any, rng: np.random.Generator) -> Any:
    """Return what a manifest says after one change, or two: of a value or a name."""
    manifest = copy.deepcopy(manifest)
    for _ in range(int(rng.integers(1, 3))):
        kind, found = rng.integers(4), places(manifest)
        path = found[int(rng.integers(len(found)))]
        value = copy.deepcopy(VALUES[int(rng.integers(len(VALUES)))])
        if not path:
            return value
        holder = manifest
        for key in path[:-1]:
            holder = holder[key]
        if kind == 0 and isinstance(holder, dict):
            del holder[path[-1]]
        elif kind == 1 and isinstance(holder, dict):
            holder["more"] = value
        elif kind == 2 and type(holder[path[-1]]) is int:
            holder[path[-1]] += int(rng.choice([-1, 1]))
        else:
            holder[path[-1]] = value
    return manifest


def rename_one(folder: Path, rng: np.random.Generator) -> None:
    """Give the file of a part another name of the same form: a node other numbers, answers a part that is not there."""
    files = files_of_parts(folder)
    path = files[int(rng.integers(len(files)))]
    numbers = re.findall(r"-([0-9]+)", path.stem)
    at = int(rng.integers(len(numbers)))
    change = 10**5 if path.name.startswith("part") else int(rng.choice([-1, 1, 2, 7, 10**6]))
    numbers[at] = f"{max(0, int(numbers[at]) + change):0{len(numbers[at])}d}"
    rest = path.stem.rpartition("-")[2] if path.name.startswith("node") else ""
    path.rename(path.with_name("-".join([path.name[:4], *numbers[:4], *([rest] if rest else [])]) + path.suffix))


# -- links -------------------------------------------------------------------------------------------------------------
def _symbolic(path: Path, around: Path) -> None:
    path.symlink_to(around / ("folder" if path.name == "rows" else "victim"))


def _dangling(path: Path, around: Path) -> None:
    path.symlink_to(around / "absent")


def _hard(path: Path, around: Path) -> None:
    os.link(around / "victim", path)


def _endless(path: Path, around: Path) -> None:
    path.symlink_to("/dev/zero")


def _pipe(path: Path, around: Path) -> None:
    os.mkfifo(path)


LINKS = (_symbolic, _dangling, _hard, _endless, _pipe)


def names_in(folder: Path, job: FolderJob) -> list[str]:
    """Return the names within the folder of a job that a link may take: of what is there, and of what will be."""
    there = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*"))]
    return list(dict.fromkeys([*there, f"{MANIFEST}.lock", "part-000002.npy", "node-1-0-0-32-0000abcd.fsk"]))


def put_link(folder: Path, name: str, make: Callable[[Path, Path], None], around: Path) -> None:
    """Put a link in the place of a file or folder."""
    path = folder / name
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    make(path, around)


def make_surroundings(around: Path) -> None:
    """Make a file and a folder that no job may touch."""
    shutil.rmtree(around, ignore_errors=True)
    (around / "folder").mkdir(parents=True)
    (around / "victim").write_bytes(b"precious\n" * 1000)
    for name in ("part-000001.parquet", ".x.tmp", "rows"):
        (around / "folder" / name).write_bytes(b"precious")


def surroundings(around: Path) -> list[tuple[str, bytes]]:
    """Return the names and contents of these."""
    return [
        (path.relative_to(around).as_posix(), path.read_bytes()) for path in sorted(around.rglob("*")) if path.is_file()
    ]
