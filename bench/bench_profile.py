"""Where the time inside a call goes: Python, Cython, C and BLAS together, by samples of the stack (py-spy)."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from bench_tools import few, table

BUILD = Path(__file__).resolve().parents[1] / "build"
# Samples a second; of each stream one run for the table, and one for the picture.
RATE = 500
# What counts is below this function: not the rows themselves, and not what a first call imports and compiles.
SAMPLED = "sampled (stream.py:"
STREAMS = {
    "sketch": """
rows = rng.standard_normal((n, 1024))
def work():
    sketch = fs.FrequentDirections(64, solver="gram")
    for start in range(0, n, 500):
        sketch.update(rows[start : start + 500])
    sketch.sketch()
""",
    "sparse sketch": """
rows = sparse.random_array((n, 20_000), density=1e-3, format="csr", random_state=np.random.RandomState(0))
def work():
    fs.FrequentDirections(32).update(rows).sketch()
""",
    "Newton learner": """
rows = rng.standard_normal((n, 200))
labels = (rows[:, 0] + rng.standard_normal(n) > 0).astype(int)
def work():
    fs.SketchedNewton().update(rows, labels)
""",
    "low-rank model": """
cells = sparse.random_array((n, 1000), density=0.02, format="csr", random_state=np.random.RandomState(0))
def work():
    fs.LowRankModel(5).fit(cells)
""",
}
SCRIPT = """import numpy as np, fastsketch as fs
from scipy import sparse
rng, n = np.random.default_rng(0), {n}
{stream}
def sampled():
    work()

work()
sampled()
"""


def profile(args):
    """Sample each stream, print what its time is spent in, and draw its flame graph."""
    spy = Path(sys.executable).with_name("py-spy")
    spy = str(spy) if spy.exists() else shutil.which("py-spy")
    if spy is None:
        raise ModuleNotFoundError("py-spy is not installed", name="py-spy")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, stream in STREAMS.items():
            script, raw = Path(folder, "stream.py"), Path(folder, "raw")
            script.write_text(SCRIPT.format(n=few(20_000, 2000), stream=stream), encoding="utf-8")
            record(spy, script, raw, "raw")
            stacks = stacks_of(raw.read_text(encoding="utf-8"))
            whole = sum(stacks.values())
            last = Counter()
            for frames, n in stacks.items():
                last[frames[-1]] += n
            rows += [[name, *frame, f"{n / whole:.1%}"] for frame, n in last.most_common(10)]
            if not args.quick:
                BUILD.mkdir(exist_ok=True)
                picture = BUILD / f"profile-{name.replace(' ', '-')}.svg"
                record(spy, script, picture, "flamegraph")
                print(f"flame graph: {picture}")
    note = f"Share of the samples in a call, {RATE} a second, by the function that was at work."
    table(rows, ["stream", "function", "of", "share"], "main", runs=1, note=note)


def record(spy, script, path, form):
    """Run a script under the sampler, which writes stacks or a picture."""
    # modules as the bench has them, one thread: what a core does
    lookup = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"}
    line = [spy, "record", "--native", "--rate", str(RATE), "--format", form, "--output", str(path), "--"]
    done = subprocess.run([*line, sys.executable, str(script)], env=os.environ | lookup, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"py-spy: {done.stderr.strip()}")


def stacks_of(text):
    """Return {frames below what is sampled, each (function, module): samples}."""
    found = Counter()
    for line in text.splitlines():
        stack, _, n = line.rpartition(" ")
        frames = stack.split(";")
        call = next((place for place, frame in enumerate(frames) if frame.startswith(SAMPLED)), None)
        if call is not None:
            found[tuple(map(frame_of, frames[call:]))] += int(n)
    return found


def frame_of(text):
    """Return (function, module) of a frame as the sampler writes it."""
    name, _, place = text.rpartition(" (")
    place = place.rstrip(")").partition(":")[0]
    if re.fullmatch(r"0x[0-9a-f]+", name):  # a library without names, or Numba's machine code
        name = "(no name)"
    name = re.sub(r"__pyx_(?:pw|pf|fuse_\d+)_?\w*?_kernels_", "", name)
    module = ".pyx" if "_kernels" in place else ""
    return name, re.sub(r"\.(?:cpython-[\w-]+\.)?so[.\d]*$", module, Path(place).name)
