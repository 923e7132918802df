"""Parts made by the BLAS kernels of different processors: other bits, and a merge that is as valid."""

import itertools
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs
from tests.helpers import error_interval
from tests.reliability.figures import report

# OpenBLAS chooses its kernels by the processor, or by this variable; all of these run where the tests' wheels do.
PROCESSORS = ("Sandybridge", "Haswell", "SkylakeX")
N, D, PARTS = 1200, 60, 3

MAKE = """
import sys
import numpy as np
import fastsketch as fs
folder, name = sys.argv[1:]
rows = np.load(f"{folder}/rows.npy")
for part, block in enumerate(np.split(rows, 3)):
    fs.RobustFrequentDirections(10, 0.5, solver="gram").update(block).save(f"{folder}/sketch-{part}-{name}.fsk")
    fs.SketchHash(8, part=part, block_rows=100).update(block).save(f"{folder}/hash-{part}-{name}.fsk")
"""


def has_avx512():
    """Whether this processor runs the newest of the kernels."""
    flags = Path("/proc/cpuinfo")
    return flags.exists() and "avx512f" in flags.read_text(encoding="utf-8")


@pytest.fixture
def parts(tmp_path):
    """{(kind, part, processor): model}, and the rows."""
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("OpenBLAS has these kernels on x86-64 only")
    rows = np.random.default_rng(0).standard_normal((N, D)) * np.linspace(2.0, 0.1, D)
    np.save(tmp_path / "rows.npy", rows)
    names = [name for name in PROCESSORS if name != "SkylakeX" or has_avx512()]
    for name in names:
        environment = {**os.environ, "OPENBLAS_CORETYPE": name}
        subprocess.run([sys.executable, "-c", MAKE, str(tmp_path), name], check=True, env=environment, timeout=120)
    found = {
        (kind, part, name): fs.load(tmp_path / f"{kind}-{part}-{name}.fsk")
        for kind, part, name in itertools.product(("sketch", "hash"), range(PARTS), names)
    }
    return found, rows, names


def test_parts_of_different_processors_merge(parts):
    models, rows, names = parts
    tried = false_certificates = 0
    for chosen in itertools.product(names, repeat=PARTS):
        merged = fs.merge([models["sketch", part, name] for part, name in enumerate(chosen)])
        low, high = error_interval(rows, merged)
        tried += 1
        false_certificates += max(high, -low) > merged.error_bound or merged.n_rows != N
    hashes = [
        fs.merge([models["hash", part, name] for part, name in enumerate(chosen)])
        for chosen in itertools.product(names, repeat=PARTS)
    ]
    whole = hashes[0].encode(rows)
    other_bits = max(int(np.unpackbits(model.encode(rows) ^ whole).sum()) for model in hashes)
    differing = len({models["sketch", 0, name].to_bytes() for name in names})
    report(
        "parts from different processors, merged",
        f"{tried} merges of sketches and of hashes",
        false_certificates=false_certificates,
        bits_of_codes_that_differ=other_bits,
        also={"different states of one part": differing},
    )
