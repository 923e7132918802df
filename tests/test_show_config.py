"""What show_config says, against those who know."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import scipy

import fastsketch as fs
from fastsketch._kernels import level, pool

CODE = "import json, sys, fastsketch as fs; print(json.dumps(fs.show_config('dicts')))"


def told(code=CODE, **env):
    """The configuration of a new process; None unsets a variable."""
    environment = {name: value for name, value in {**os.environ, **env}.items() if value is not None}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_levels_are_our_own():
    """numpy's list of CPU features says what the CPU has, for numpy, and not what a kernel of ours was built with."""
    kernels = fs.show_config("dicts")["kernels"]
    assert (kernels["level"], kernels["levels"]) == (level.current(), list(level.supported()))
    assert told(FASTSKETCH_LEVEL=None)["kernels"]["chosen"] is None
    assert told(FASTSKETCH_LEVEL="plain")["kernels"] == {
        "level": "plain",
        "levels": kernels["levels"],
        "chosen": "plain",
    }


def test_the_text_says_the_same(capsys):
    config = fs.show_config(mode="dicts")
    assert capsys.readouterr().out == ""
    assert fs.show_config() is None
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"fastsketch {fs.__version__}"
    assert f"numpy {np.__version__}, scipy {scipy.__version__}" in lines[1]
    assert re.match(rf"kernels: {config['kernels']['level']}\b.*this CPU has .*\bplain\b", lines[2])
    assert re.match(rf"threads: {pool.get()} of {config['threads']['usable']} cores.*affinity \d+", lines[3])
    for line, library in zip(lines[4:-1], config["blas"], strict=True):
        assert line.startswith("BLAS: ") and library["version"] in line and library["filepath"] in line
    assert lines[-1].startswith("numba")
    assert "AVX512F" not in "".join(lines)


def test_threads_in_force_and_why():
    with fs.thread_limit(5):
        assert fs.show_config("dicts")["threads"]["in_force"] == 5
    threads = told(OMP_NUM_THREADS="1")["threads"]
    assert (threads["in_force"], threads["usable"], threads["OMP_NUM_THREADS"]) == (1, 1, 1)
    threads = told(OMP_NUM_THREADS=None)["threads"]
    bounds = [threads["affinity"], *([threads["quota"]] if threads["quota"] else [])]
    assert threads["OMP_NUM_THREADS"] is None and threads["usable"] == int(np.ceil(min(bounds)))


def test_each_blas():
    from threadpoolctl import threadpool_info, threadpool_limits

    fs.FrequentDirections(4).update(np.ones((2, 6)))  # both are loaded, and scipy's adopted by the kernels
    with threadpool_limits(1, "blas"):
        blas = fs.show_config("dicts")["blas"]
        known = {library["filepath"]: library for library in threadpool_info()}
    assert blas and all(library == known[library["filepath"]] and library["num_threads"] == 1 for library in blas)
    assert pool.adopted in {library["filepath"] for library in blas}


def test_numba_is_not_loaded_to_tell():
    code = CODE + "; assert 'numba' not in sys.modules"
    numba = told(code)["numba"]
    try:
        from importlib.metadata import version

        assert numba["version"] == version("numba")
    except ImportError:
        assert numba == {"version": None, "loaded": False}
    else:
        assert not numba["loaded"]
        assert told(CODE.replace("fs;", "fs, numba;"))["numba"]["loaded"]


def test_the_command_prints_it():
    """In processes of their own: a test before this one may have loaded another library of BLAS."""
    ways = (["-m", "fastsketch", "--version"], ["-c", "import fastsketch; fastsketch.show_config()"])
    theirs, ours = (
        subprocess.run([sys.executable, *way], capture_output=True, text=True, check=True).stdout.splitlines()
        for way in ways
    )
    assert [line.split(", ")[0] for line in ours[:3]] == [line.split(", ")[0] for line in theirs[:3]]
    assert len(ours) == len(theirs)


@pytest.mark.parametrize("bad", ["dict", None, 1])
def test_bad_mode(bad):
    with pytest.raises((TypeError, ValueError), match="^mode must be"):
        fs.show_config(bad)
