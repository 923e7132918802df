"""Requests for memory that are refused, one place after the other: an error, a model as it was, and no crash.

A small library of C (failing.c) takes the place of malloc in a child; it refuses the n-th request of some size.
"""

import ctypes
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import pytest

import fastsketch as fs
from tests.reliability.figures import report
from tests.reliability.zoo import SPECIMENS

ROWS = 40
# Bytes from which a request is counted: arrays, but hardly any object of Python's. Not the workspace of a LAPACK call
# within Numba either (less than this for the small matrices here), whose refusal Numba answers by ending the process.
FROM = 2048
ERRORS = (MemoryError, fs.StateError)


def of_numpy(error):
    """Whether it is NumPy's answer, outside our kernels: some of its loops fail without saying of what."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return isinstance(error, SystemError) and "without" in str(error) and not last.filename.endswith(".pyx")


def calls(specimen, model, folder):
    """(name, call) of what asks for memory; a call returns what it has made."""
    rows, path = specimen.rows(3, ROWS) * (0.1 if specimen.name.startswith("online") else 1), Path(folder, "state")
    content = model.to_bytes()
    if specimen.name == "hash-sgh":  # learns once
        empty = specimen.make()
        yield "update", lambda: specimen.learn(empty, specimen.rows(3, ROWS))
    else:
        yield "update", lambda: specimen.learn(model, rows)
    if hasattr(model, "merge"):
        place = {"part": 1} if "part" in model.parameters else {}
        other = specimen.learn(type(model)(**{**model.parameters, **place}), rows)
        yield "merge", lambda: model.merge(other)
    yield "read", lambda: specimen.read(model)
    yield "save", lambda: model.save(path)
    yield "load", lambda: fs.from_bytes(content)


def count(library, call):
    """Requests of a call that is left alone."""
    library.failing_arm(1 << 40, FROM)
    try:
        call()
    finally:
        found = library.failing_end()
    return found


def tried(library, specimen, places, seed, folder):
    """Counts of what came of one specimen."""
    chosen, out = (
        random.Random(seed),
        {"name": specimen.name, "tried": 0, "refused": 0, "of_numpy": 0, "changed": 0, "other": []},
    )
    start = specimen.learned(ROWS)
    with tempfile.TemporaryDirectory(dir=folder) as own:
        names = [name for name, _ in calls(specimen, start.copy(), own)]
        for number, name in enumerate(names):
            count(library, dict(calls(specimen, start.copy(), own))[name])  # what is made once, in the first call
            requests = count(library, dict(calls(specimen, start.copy(), own))[name])
            share = places // len(names) + (number < places % len(names))
            for place in sorted(chosen.sample(range(1, requests + 1), min(share, requests))):
                model = start.copy()
                call, before, error = dict(calls(specimen, model, own))[name], model.to_bytes(), None
                library.failing_arm(place, FROM)
                try:
                    call()
                except BaseException as caught:
                    error = caught
                finally:
                    library.failing_end()
                out["tried"] += 1
                out["refused"] += error is not None
                out["of_numpy"] += error is not None and of_numpy(error)
                if error is not None and not isinstance(error, ERRORS) and not of_numpy(error):
                    last = traceback.extract_tb(error.__traceback__)[-1]
                    out["other"].append(f"{name} at {place}: {error!r} in {last.filename}:{last.lineno}: {last.line}")
                if error is not None and model.to_bytes() != before:
                    out["changed"] += 1
                    print(f"{specimen.name}: {name} at {place} changed the model", file=sys.stderr)
    return out


def child(names, places, folder):
    """Runs in a process of its own: one line for each specimen."""
    library = ctypes.CDLL(None)
    library.failing_arm.argtypes = ctypes.c_long, ctypes.c_size_t
    library.failing_end.restype = ctypes.c_long
    for seed, specimen in enumerate(SPECIMENS):
        if specimen.name in names:
            print(json.dumps(tried(library, specimen, places[specimen.name], seed, folder)), flush=True)


@pytest.mark.skipif(not sys.platform.startswith("linux") or not shutil.which("cc"), reason="needs glibc and cc")
def test_requests_for_memory_that_are_refused(tmp_path, amount):
    total = amount(50, 400)
    library = tmp_path / "failing.so"
    source = Path(__file__).with_name("failing.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    left = [specimen.name for specimen in SPECIMENS]
    places = {name: total // len(left) + (k < total % len(left)) for k, name in enumerate(left)}
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        "LD_PRELOAD": " ".join([str(library), *os.environ.get("LD_PRELOAD", "").split()]),
        "OPENBLAS_NUM_THREADS": "1",
    }
    found, crashed, hung = [], [], []
    while left:
        code = f"from tests.reliability.test_memory import child; child({left!r}, {places!r}, {str(tmp_path)!r})"
        process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=-1, stderr=-1, text=True)
        try:
            text, errors = process.communicate(timeout=60 + 5 * len(left))
            ended = crashed
        except subprocess.TimeoutExpired:
            process.kill()
            text, errors = process.communicate()
            ended = hung
        print(errors[-3000:])
        lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
        found += lines
        left = [name for name in left if name not in {line["name"] for line in lines}]
        if left:
            ended.append(left.pop(0))
    other = [f"{line['name']}: {text}" for line in found for text in line["other"]]
    print("\n".join(other), "crashed:", crashed, "hung:", hung)
    report(
        "refused requests for memory",
        f"{sum(line['tried'] for line in found)} places in update, merge, read, save, load of {len(SPECIMENS)} models",
        crashes=len(crashed),
        hangs=len(hung),
        other_errors=len(other),
        changed_models=sum(line["changed"] for line in found),
        also={
            "ended in an error": sum(line["refused"] for line in found),
            "of these a SystemError from NumPy": sum(line["of_numpy"] for line in found),
        },
    )
    assert sum(line["refused"] for line in found) > total // 4  # or nothing was refused
