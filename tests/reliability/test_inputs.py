"""Damaged inputs of every format cost an error that names the file, and nothing else: by bytes, and by structure."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.reliability.damaged_structures import ABSENT, NAMES
from tests.reliability.figures import report

ROOT = Path(__file__).parents[2]


def cases(script, folder, first, stop):
    """What the children say of cases first, ..., stop - 1; a child that dies is followed by another one."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([path for path in sys.path if path] + [str(ROOT)])
    while first < stop:
        command = [sys.executable, str(ROOT / "tests" / "reliability" / script), str(folder)]
        child = subprocess.run(
            [*command, str(first), str(stop)], env=environment, capture_output=True, text=True, timeout=1500
        )
        lines = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
        yield from (line for line in lines if "case" in line)
        if child.returncode == 0:
            return
        begun = [line["begin"] for line in lines if "begin" in line]
        assert begun, child.stderr
        kind = "hangs" if child.returncode == -14 else "crashes" if child.returncode < 0 else "raw errors"
        yield {"case": begun[-1], "kind": kind, "text": child.stderr[-500:], "by": "child", "name": ""}
        first = begun[-1] + 1


def try_all(script, folder, number, what):
    """Read so many files, and report what came of them."""
    found = list(cases(script, folder, 0, number))
    counts = Counter(line["kind"] for line in found)
    bad = [line for line in found if line["kind"] not in ("rows", "refused")]
    for line in bad[:20]:
        print(line)
    by_command = sum(line["by"] not in ("library", "child") for line in found)
    assert sum(line["by"] == "library" for line in found) + sum(line["by"] == "child" for line in found) >= number
    report(
        what,
        f"{number:,} files, {by_command:,} of them also by a command",
        crashes=counts["crashes"],
        hangs=counts["hangs"],
        raw_errors=counts["raw errors"],
        silent_wrong=counts["silent wrong"],
        errors_that_name_no_file=counts["an error that names no file"],
        refusals_of_more_than_one_line=counts["said more than one line"],
        out_of_memory=counts["memory"],
        also={"refused": counts["refused"], "read": counts["rows"]},
    )


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited by setrlimit")
def test_damaged_inputs(tmp_path, amount):
    what = "damaged inputs (npy, npz, svmlight, csv, compressed, fsk, codes)"
    try_all("damaged_inputs.py", tmp_path, amount(170, 5100), what)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited by setrlimit")
def test_inputs_wrong_by_structure(tmp_path, amount):
    what = "inputs wrong by structure (Arrow, Parquet, HDF5, AnnData, Zarr, Matrix Market, indexes)"
    try_all("damaged_structures.py", tmp_path, amount(120, 5000), what)
    if ABSENT:
        pytest.skip(f"could not import {', '.join(sorted(ABSENT))}: only files of {', '.join(NAMES)} were tried")
