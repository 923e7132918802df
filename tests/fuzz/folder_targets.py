"""Manifests of jobs, and states within states, from any bytes."""

import atexit
import functools
import shutil
import tempfile
import tracemalloc
import warnings
from pathlib import Path

import numpy as np

import fastsketch as fs
from fastsketch.data.files._state import pack
from fastsketch.data.sources._arrays import ArraySource
from fastsketch.jobs._manifest import MANIFEST
from fastsketch.sketching._frequent_directions import SecondPass
from tests.reliability import job_folders
from tests.reliability.states import read

MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
# Bytes of memory for a byte of a file, and beside them, that reading a state may take.
GROWTH, FREE_BYTES = 40, 1 << 22


# -- jobs --------------------------------------------------------------------------------------------------------------
MAPS = [job for job in job_folders.JOBS if job.name.startswith("map") and job.name != "map-parquet"]
RUNS = [job for job in job_folders.JOBS if job.name.startswith("run")]


@functools.cache
def inputs():
    """A folder with the rows of all jobs."""
    folder = Path(tempfile.mkdtemp(dir=MEMORY))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    job_folders.make_inputs(folder)
    return folder


@functools.cache
def finished(job):
    """(result, folder of a job that was stopped when its last rows were in): all that a manifest may claim is there."""
    work, first = (inputs() / f"{job.name}-{name}" for name in ("stopped", "first"))
    work.mkdir()
    first.mkdir()
    result = job_folders.result_of(job, inputs(), first, resume=False)
    job_folders.leave_unfinished(job, inputs(), work, 1.0)
    return result, work


def resumed(jobs, data):
    """Any manifest is refused in one line, or the job gives what it gives; the first byte says which job."""
    job = jobs[data[0] % len(jobs)] if data else jobs[0]
    result, stopped = finished(job)
    work = inputs() / "work"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(stopped, work)
    (work / job.folder / MANIFEST).write_bytes(data[1:])
    try:
        found = job_folders.result_of(job, inputs(), work, resume=True)
    except job_folders.REFUSALS as error:
        assert str(error) and "\n" not in str(error) and "\x1b" not in str(error), str(error)
        return
    assert found == result, found


def manifest(data):
    """Of a job that learns, or of a map job."""
    resumed([*RUNS, *MAPS], data)


def manifests():
    """The genuine manifests, as seeds."""
    return [
        bytes([k]) + (finished(job)[1] / job.folder / MANIFEST).read_bytes() for k, job in enumerate([*RUNS, *MAPS])
    ]


# -- states within states ----------------------------------------------------------------------------------------------
def genuine_holders():
    """States that hold others, estimators among them."""
    from fastsketch.sklearn import SketchedCovariance, SketchedPCA

    rows = np.random.default_rng(0).standard_normal((20, 3))
    window = fs.Window(fs.FrequentDirections(2), 3, every=8).update(rows)
    monitor = fs.DriftMonitor(every=2, reference=10, run_length=10).update(rows[:6])
    again = SecondPass.of(fs.FrequentDirections(2, solver="gram").update(rows)).update(ArraySource(rows))
    out = [model.to_bytes() for model in (window, monitor, again)]
    for estimator in (SketchedCovariance(2), SketchedPCA(2)):
        path = inputs() / "estimator.fsk"
        estimator.fit(rows).save(path)
        out.append(path.read_bytes())
    return out


def holders():
    """The seeds: these, and each within each."""
    out = genuine_holders()
    return [*out, *(nested(one, other) for one in out for other in out)]


def inner_arrays(arrays):
    """The names of arrays that hold states."""
    return [name for name, array in arrays.items() if array.dtype == np.uint8 and array[:2].tobytes() == b"PK"]


def nested(outer, inner):
    """The state `outer` with the state `inner` in the place of the first that it holds."""
    about, arrays = read(outer)
    return pack(about, {**arrays, inner_arrays(arrays)[0]: np.frombuffer(inner, np.uint8)})


def states_within(data):
    """A state that holds others is refused in one line, or good; and takes no more memory than a few times its size.

    Returns whether it was good.
    """
    from fastsketch import sklearn

    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = inputs() / "within.fsk"
            path.write_bytes(data)
            kind = fs.data.read_header(path)["kind"]
            estimator = getattr(sklearn, kind, None) if isinstance(kind, str) else None
            model = (estimator.load if hasattr(estimator, "load") else fs.load)(path)
    except fs.StateError as error:
        assert "\n" not in str(error)
        model = None
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak <= GROWTH * len(data) + FREE_BYTES, (peak, len(data))
    if model is not None and estimator is None:
        model.facts()
        assert fs.from_bytes(model.to_bytes()).n_rows == model.n_rows
    return model is not None


FOLDER_TARGETS = {"manifest": manifest, "nested": states_within}
SEEDS = {"manifest": manifests, "nested": holders}
