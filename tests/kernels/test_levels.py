"""Levels of instructions: the rule of bits, the choice of one for the whole process, and refusals."""

import importlib
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs
from fastsketch._kernels import level
from fastsketch._kernels.linalg.dots import row_products
from fastsketch._kernels.sketching.shrink import top_eigh
from tests.helpers import error_interval, papers, sparse_rows

ROOT = Path(__file__).parents[2]
WITHOUT_FMA = ("plain", "sse2")


def rows(n, d, dtype=np.float64):
    return (np.random.default_rng(n + d).standard_normal((n, d)) * np.linspace(2, 0.1, d)).astype(dtype)


def csr(n, d):
    return sparse_rows(np.random.default_rng(n), n, d, 0.05)


def dots():
    out = np.empty((13, 11))
    row_products(rows(13, 203), rows(11, 203), out, 0)
    return out.tobytes()


def eigenpairs(dtype):
    x = rows(150, 90, dtype)
    return b"".join(part.tobytes() for part in top_eigh(np.ascontiguousarray(x.T @ x), 20))


def sketch(dtype, **more):
    return fs.FrequentDirections(20, solver="gram", dtype=dtype, **more).update(rows(200, 301)).to_bytes()


QUANTIZER = fs.SketchQuantizer(9, block_rows=100).update(rows(300, 40))


def quantized():
    """What a quantizer learns, the codes of one of all levels, and what they stand for."""
    codes = QUANTIZER.encode(rows(300, 40))
    learned = fs.SketchQuantizer(9, block_rows=100).update(rows(300, 40)).to_bytes()
    return learned + codes.tobytes() + QUANTIZER.decode(codes).tobytes()


def found(metric):
    return QUANTIZER.search(rows(7, 40), QUANTIZER.encode(rows(300, 40)), metric=metric)


CASES = {
    "row products": dots,
    # panels pay at every level that has FMA on x86-64, so that BLAS does the same for all of them
    "eigenpairs": lambda: eigenpairs(np.float64) + eigenpairs(np.float32),
    "sketch": lambda: sketch("float64") + sketch("float32"),
    "centred sketch": lambda: sketch("float64", center=True, decay=0.99),
    "sparse sketch": lambda: fs.FrequentDirections(10, solver="gram").update(csr(300, 400)).to_bytes(),
    "mapped sketch": lambda: sketch("float32", compressor="srht"),
    "scattered sketch": lambda: sketch("float64", compressor="countsketch"),
    "transform": lambda: fs.sketching.fwht(rows(512, 37)).tobytes() + fs.sketching.fwht(rows(3, 512), axis=1).tobytes(),
    "hash": lambda: fs.SketchHash(16).update(rows(300, 40)).to_bytes(),
    "quantizer": lambda: quantized(),
    "cosines": lambda: b"".join(part.tobytes() for part in found("cosine")),
    "Newton": lambda: papers.SketchedNewton(5).update(rows(60, 30), np.sign(rows(60, 30)[:, 0])).to_bytes(),
    "adaptive": lambda: papers.AdaptiveSubgradient(5).update(rows(60, 30), np.sign(rows(60, 30)[:, 0])).to_bytes(),
    "distances": lambda: fs.hamming_distances(rows(9, 21).view(np.uint8), rows(70, 21).view(np.uint8)).tobytes(),
}


@pytest.fixture
def every_level():
    """A function: what another returns, by name of the level."""
    before = level.current()

    def collect(function):
        found = {}
        for name in level.supported():
            level.use(name)
            found[name] = function()
        return found

    yield collect
    level.use(before)


@pytest.mark.parametrize("case", CASES)
def test_levels_that_round_alike_return_the_same_bits(case, every_level):
    found = every_level(CASES[case])
    for group in (WITHOUT_FMA, set(found) - set(WITHOUT_FMA)):
        assert len({found[name] for name in group if name in found}) <= 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("size", "d"), [(20, 301), (64, 700), (70, 333)])
def test_the_bound_holds_at_every_level(size, d, dtype, every_level):
    x = rows(5 * size, d, dtype)
    models = every_level(lambda: fs.FrequentDirections(size, solver="gram", method="fd").update(x))
    for name, model in models.items():
        low, high = error_interval(x, model)
        assert max(high, -low) <= model.error_bound * (1 + 1e-4), name
    values = [model.singular_values for model in models.values()]
    assert np.ptp(values, axis=0).max() <= 1e-4 * np.max(values)


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("name", level.supported())
def test_the_environment_chooses_the_level(name):
    done = run("from fastsketch._kernels import level; print(level.current())", FASTSKETCH_LEVEL=name)
    assert done.stdout.strip() == name, done.stderr


@pytest.mark.parametrize("name", ["neon" if "sse2" in level.supported() else "avx512", "AVX2", "best", " "])
@pytest.mark.parametrize(
    "code",
    [
        "fastsketch.FrequentDirections",
        "fastsketch.data.files",
        "import fastsketch.neighbours.hashing",
        "fastsketch.show_config",
    ],
)
def test_a_level_that_this_cpu_lacks_is_refused_at_first_use(name, code):
    done = run(f"import fastsketch; {code}", FASTSKETCH_LEVEL=name)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ValueError: the environment variable FASTSKETCH_LEVEL: {name!r} is no level of this CPU")
    assert ", ".join(level.supported()) in last


def test_a_level_that_this_cpu_lacks_is_one_line_of_the_command(tmp_path):
    command = [sys.executable, "-m", "fastsketch", "info", str(tmp_path / "none.fsk")]
    environment = {**os.environ, "FASTSKETCH_LEVEL": "mmx"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("fastsketch: error: the environment variable FASTSKETCH_LEVEL: 'mmx' is no level of")
    assert done.stderr.count("\n") == 1 and not done.stdout


def test_the_level_is_read_once():
    code = """
import os, fastsketch
from fastsketch._kernels import level
first = level.current()
os.environ["FASTSKETCH_LEVEL"] = "nothing"
import fastsketch._kernels.linalg.dots, fastsketch._kernels.hashing.hamming
assert level.current() == first
"""
    done = run(code, FASTSKETCH_LEVEL="plain")
    assert done.returncode == 0, done.stderr


def test_an_unknown_level_changes_nothing():
    before = level.current()
    with pytest.raises(ValueError, match="'mmx' is no level of this CPU"):
        level.use("mmx")
    assert level.current() == before


def test_every_module_with_loops_follows_the_level(monkeypatch):
    """Each extension module has a copy of the loops it needs: all are told of the one level."""
    pytest.importorskip("setuptools")
    monkeypatch.chdir(ROOT)
    build = runpy.run_path("setup.py")
    looping = [
        kernel
        for kernel in build["KERNELS"].rglob("*.pyx")
        if any(
            "fs_each_level.inc.h" in part.read_text("utf-8") for part in build["made_of"](kernel) if part.suffix == ".c"
        )
    ]
    assert len(looping) > 10
    for kernel in looping:
        assert "\nfollow()\n" in kernel.read_text("utf-8"), f"{kernel} does not call follow()"
        importlib.import_module(kernel.with_suffix("").as_posix().replace("/", "."))
