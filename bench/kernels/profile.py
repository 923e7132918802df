"""Where the time inside a call goes: Python, Cython, C and BLAS together, by samples of the stack (py-spy)."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

from bench_tools import few, table

BUILD = Path(__file__).resolve().parents[2] / "build"
RATE = 500  # samples a second
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
    "sketch, gesdd": """
rows = rng.standard_normal((n // 4, 1024))
def work():
    sketch = fs.FrequentDirections(64, solver="svd")
    for start in range(0, n // 4, 500):
        sketch.update(rows[start : start + 500])
    sketch.sketch()
""",
    "Faster Frequent Directions": """
rows = rng.standard_normal((n, 1024))
def work():
    for _ in range(10):
        papers.faster_frequent_directions(64, solver="gram").update(rows).sketch()
""",
    "Walsh-Hadamard transform": """
rows = rng.standard_normal((4096, 784))
def work():
    for _ in range(50):
        fs.sketching.fwht(rows)
        rows[...] /= 64  # as long as before
""",
    "hash": """
rows = rng.standard_normal((n, 1024))
def work():
    for _ in range(10):
        fs.SketchHash(32).update(rows).encode(rows)
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
    "ADA-FFD": """
rows = rng.standard_normal((n, 200))
labels = (rows[:, 0] + rng.standard_normal(n) > 0).astype(int)
def work():
    fs.AdaptiveSubgradient(method="ada_ffd").update(rows, labels)
""",
    "low-rank model": """
cells = sparse.random_array((n, 1000), density=0.02, format="csr", random_state=np.random.RandomState(0))
def work():
    fs.LowRankModel(5).fit(cells)
""",
    "GLRL": """
cells = sparse.random_array((n, 1000), density=0.02, format="csr", random_state=np.random.RandomState(0))
def work():
    papers.glrl(5, loss="square").fit(cells)
""",
}
SCRIPT = """import numpy as np, fastsketch as fs
from fastsketch import papers
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
        raise ModuleNotFoundError("py-spy is not installed: `make profile` does that, or pip", name="py-spy")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, stream in STREAMS.items():
            script, raw = Path(folder, "stream.py"), Path(folder, "raw")
            script.write_text(SCRIPT.format(n=few(20_000, 2000), stream=stream), encoding="utf-8")
            record(spy, script, raw)
            stacks = stacks_of(raw.read_text(encoding="utf-8"))
            whole = sum(stacks.values())
            last = Counter()
            for frames, n in stacks.items():
                last[frames[-1]] += n
            rows += [[name, *frame, f"{n / whole:.1%}"] for frame, n in last.most_common(10)]
            if not args.quick:
                BUILD.mkdir(exist_ok=True)
                picture = BUILD / f"profile-{name.replace(' ', '-')}.svg"
                picture.write_text(flame_graph(stacks, name), encoding="utf-8")
                print(f"flame graph: {picture}")
    note = f"The table shows the share of samples of a call ({RATE} a second) in which a function was running."
    table(rows, ["stream", "function", "of", "share"], "main", runs=1, note=note)


def record(spy, script, path):
    """Run a script under the sampler, which writes stacks."""
    # modules as the bench has them, one thread: what a core does
    lookup = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"}
    line = [spy, "record", "--native", "--rate", str(RATE), "--format", "raw", "--output", str(path), "--"]
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


WIDTH, HEIGHT = 1200, 17  # of the picture and of a frame, in pixels
FILLS = {"Python": "#f2b65c", "Cython": "#8fb8de", "C": "#5b93c9", "BLAS, LAPACK": "#b9a3d0", "others": "#c8cdd2"}


def flame_graph(stacks, name):
    """Return SVG: callers above what they call, as wide as their share of the samples of a call."""
    whole, drawn, deepest = sum(stacks.values()), [], 0
    waiting = [(0, 0.0, sorted(stacks.items()))]
    while waiting:
        depth, left, some = waiting.pop()
        for frame, group in groupby([pair for pair in some if len(pair[0]) > depth], key=lambda pair: pair[0][depth]):
            group = list(group)
            width = WIDTH * sum(n for _, n in group) / whole
            if width >= 1:
                deepest = max(deepest, depth)
                drawn.append(box(frame, left, depth, width))
                # samples that end in this frame leave its right end without a frame below it
                waiting.append((depth + 1, left, group))
            left += width
    key = ""
    for k, (kind, fill) in enumerate(FILLS.items()):
        x = 210 + 130 * k
        key += f'<rect x="{x}" y="5" width="12" height="12" fill="{fill}"/><text x="{x + 16}" y="15">{kind}</text>'
    size = f'width="{WIDTH}" height="{HEIGHT * (deepest + 3)}" font-family="monospace" font-size="11"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><rect width="100%" height="100%" fill="white"/>'
    return f'{head}<text x="4" y="15" font-weight="bold">{escape(name)}</text>{key}{"".join(drawn)}</svg>\n'


def box(frame, left, depth, width):
    """Return a frame of the picture; the whole text is to be seen where the pointer is."""
    text = escape(f"{frame[0]} ({frame[1]}), {width / WIDTH:.1%}")
    short = escape(frame[0][: int(width / 6.7)]) if width > 20 else ""
    y = HEIGHT * (depth + 2)
    place = f'x="{left:.1f}" y="{y - 13}" width="{width:.1f}" height="{HEIGHT - 1}" fill="{FILLS[kind_of(*frame)]}"'
    return f'<g><title>{text}</title><rect {place}/><text x="{left + 2:.1f}" y="{y}">{short}</text></g>'


def kind_of(function, module):
    """Return what a frame is: a loop of csrc/ has its level of instructions, or its prefix, in its name."""
    if module.endswith(".pyx"):
        return "C" if re.search(r"_(?:plain|sse2|avx\w+|neon)$|^fs_", function) else "Cython"
    if "blas" in module:
        return "BLAS, LAPACK"
    return "Python" if module.endswith(".py") else "others"
