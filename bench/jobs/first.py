"""The first update or fit of every model in a fresh process, where nothing compiled is kept."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import fastsketch
from bench_tools import few, table

SETUP = (
    "import json, sys, time\n"
    "wall, cpu = time.perf_counter(), time.process_time()\n"
    "import numpy as np, fastsketch as fs\n"
    "from fastsketch.reference import baselines\n"
    "rng = np.random.default_rng(0); X = rng.standard_normal((40, 30)); y = np.where(X[:, 0] > 0, 1.0, -1.0)\n"
)
CSR = "from scipy import sparse; X = sparse.csr_array(X * (X > 1.2))\n"
SOME = "X = np.where(X > 0, np.abs(X), np.nan)\n"
SIGNS = "X = np.where(X > 0.5, 1.0, np.where(X < -0.5, -1.0, np.nan))\n"
COUNTS = "X = np.where(X > 0, np.round(X), np.nan)\n"
REPORT = (
    "\nprint(json.dumps([time.perf_counter() - wall, time.process_time() - cpu, 'numba' in sys.modules,"
    " sys.modules['fastsketch._kernels.jit'].counts if 'numba' in sys.modules else None]))"
)
NEWTON = {"rfd": "", "fd": ", alpha0=1.0", "pfd": ", alpha0=1.0"}
MODELS = {
    "FrequentDirections": "fs.FrequentDirections(8).update(X).sketch()",
    "FrequentDirections, CSR": CSR + "fs.FrequentDirections(8).update(X).sketch()",
    "SketchHash": "fs.SketchHash(4).update(X).encode(X)",
    "LSH": "baselines.LSH(4).update(X).encode(X)",
    "PCAHash": "baselines.PCAHash(4).update(X).encode(X)",
    "ITQ": "baselines.ITQ(4).update(X).encode(X)",
    "SGH": "baselines.SGH(4, n_bases=30).update(X).encode(X)",
    **{f"SketchedNewton {m}": f"fs.SketchedNewton(8, method={m!r}{a}).update(X, y)" for m, a in NEWTON.items()},
    **{
        f"SketchedNewton {m}, CSR": CSR + f"fs.SketchedNewton(8, method={m!r}{a}).update(X, y)"
        for m, a in NEWTON.items()
    },
    "SketchedNewton rfd, alpha0=0": "fs.SketchedNewton(8, alpha0=0.0).update(X, y)",
    **{
        f"AdaptiveSubgradient {m}": f"fs.AdaptiveSubgradient(8, method={m!r}).update(X, y)"
        for m in ("ada_ffd", "ada_fd", "ada_full", "ada_diag", "fd_son", "ogd", "adam")
    },
    "AdaptiveSubgradient ada_ffd, CSR": CSR + "fs.AdaptiveSubgradient(8).update(X, y)",
    **{
        f"LowRankModel {loss}": SOME + f"fs.LowRankModel(3, loss={loss!r}).fit(X)"
        for loss in ("square", "huber", "absolute", "quantile", "epsilon_insensitive")
    },
    **{
        f"LowRankModel {loss}": SIGNS + f"fs.LowRankModel(3, loss={loss!r}).fit(X)"
        for loss in ("logistic", "squared_hinge", "hinge")
    },
    "LowRankModel poisson": COUNTS + "fs.LowRankModel(3, loss='poisson').fit(X)",
    "LowRankModel, float32": SOME + "fs.LowRankModel(3).fit(X.astype(np.float32))",
    "LowRankModel, sweeps=3": SOME + "fs.LowRankModel(3, sweeps=3, loss='huber').fit(X)",
    "LowRankModel, refine='full'": SOME + "fs.LowRankModel(3, refine='full').fit(X)",
    **{
        f"baselines.{name}": SOME + f"baselines.{name}(3).fit(X)"
        for name in ("AISImpute", "AltMin", "ADMML1", "WibergL1")
    },
}
QUICK = ("FrequentDirections", "SketchedNewton rfd", "SketchedNewton rfd, alpha0=0", "LowRankModel huber")


def _package(folder, blocked):
    """A copy of the package that has compiled nothing; blocked: where nothing can be kept either (not even by root)."""
    source = Path(fastsketch.__file__).parent
    shutil.copytree(source, folder / "fastsketch", ignore=shutil.ignore_patterns("__pycache__", "*.c", "*.pyx"))
    (folder / "home").mkdir()
    if blocked:
        (folder / "home/.cache").write_text("not a folder")
    return folder


def _environment(folder):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
    return env | {"PYTHONPATH": str(folder), "HOME": str(folder / "home"), "PYTHONDONTWRITEBYTECODE": "1"}


def _begin(code, folder):
    return subprocess.Popen(
        [sys.executable, "-c", SETUP + code + REPORT],
        stdout=subprocess.PIPE,
        env=_environment(folder),
        cwd=folder,
        text=True,
    )


def _end(process):
    out, _ = process.communicate()
    assert process.returncode == 0
    return json.loads(out)


def _forget(folder):
    for path in folder.rglob("*.nb[ic]"):
        path.unlink()


def first(args):
    """Seconds of a first update or fit with its imports: a fresh home, the next process, no writable folder, four."""
    out = []
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        fresh, blocked = Path(scratch, "fresh"), Path(scratch, "blocked")
        fresh.mkdir()
        blocked.mkdir()
        _package(fresh, blocked=False)
        _package(blocked, blocked=True)
        _end(_begin("", fresh))  # files of the disk
        for name in QUICK[: few(9, 1)] if args.quick else MODELS:
            _forget(fresh)
            wall, cpu, numba, counts = _end(_begin(MODELS[name], fresh))
            again = _end(_begin(MODELS[name], fresh))
            alone = _end(_begin(MODELS[name], blocked))
            _forget(fresh)
            four = [_end(process) for process in [_begin(MODELS[name], fresh) for _ in range(4)]]
            assert not numba or alone[3]["kept"] == 0
            out.append(
                {
                    "first update or fit": name,
                    "s": f"{wall:.2f}",
                    "CPU s": f"{cpu:.2f}",
                    "compiled": counts["compiled"] if numba else "",
                    "next process, s": f"{again[0]:.2f}",
                    "read-only, s": f"{alone[0]:.2f}",
                    "four at once, s": f"{max(f[0] for f in four):.2f}",
                    "CPU s, four at once, s": f"{max(f[1] for f in four):.2f}",
                }
            )
            print(*out[-1].values(), flush=True)
    table(out, name="main", runs=1)
