"""What is compiled at run time: where it is kept, and that nothing depends on it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fastsketch
from fastsketch.online._adaptive_subgradient import COMPENSATED, METHODS
from tests.helpers import some

pytest.importorskip("numba")

NEWTON = "papers.SketchedNewton(4).update(np.eye(8), np.array([1.0, -1.0] * 4))"
LOW_RANK = "fs.LowRankModel(2, sweeps=1).fit(np.arange(30.0).reshape(6, 5))"
BEGIN = """import functools, json, sys, types, numpy as np, fastsketch as fs
OF_PAPERS = {"fit_intercept": False, "scale": None, "calibrate": False, "loss": "squared_hinge"}
papers = types.SimpleNamespace(
    SketchedNewton=functools.partial(fs.SketchedNewton, **OF_PAPERS, constraint="current"),
    AdaptiveSubgradient=functools.partial(fs.AdaptiveSubgradient, **OF_PAPERS),
)
"""
COUNTS = "\nfrom fastsketch._kernels import jit; print(json.dumps(jit.counts))"


def child(code, env=None, cwd=None):
    """What a new process prints."""
    done = subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True, env=env, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path):
    """A copy of the package that has compiled nothing, with a home of its own: (environment, home)."""
    source = Path(fastsketch.__file__).parent
    shutil.copytree(source, tmp_path / "lib/fastsketch", ignore=shutil.ignore_patterns("__pycache__", "*.c", "*.pyx"))
    (tmp_path / "home").mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
    env |= dict.fromkeys(("HOME", "LOCALAPPDATA"), str(tmp_path / "home"))
    env |= {"PYTHONPATH": str(tmp_path / "lib"), "PYTHONDONTWRITEBYTECODE": "1"}
    return env, tmp_path / "home"


def test_nothing_is_kept_beside_the_package(package):
    """An uninstall removes what an install brought: the user's folder of caches has the rest."""
    env, home = package
    installed = set((home.parent / "lib").rglob("*"))
    counts = eval(child(NEWTON + ";" + LOW_RANK + COUNTS, env))
    assert counts["kept"] > 0 and list(home.rglob("*.nbi"))
    assert set((home.parent / "lib").rglob("*")) == installed


@pytest.mark.parametrize("code", some([NEWTON, LOW_RANK], 1))
def test_no_writable_folder_is_no_error(package, code):
    """A home that is a file: permissions would not stop root."""
    env, home = package
    home.rmdir()
    home.write_text("not a folder")
    counts = eval(child(code + COUNTS, env))
    assert counts["compiled"] > 0 and counts["kept"] == counts["read"] == 0


def test_a_full_disk_is_no_error(package):
    """What numba's cache raises while it writes comes to nobody."""
    env, _ = package
    full = (
        "import errno\nfrom numba.core.caching import FunctionCache\n"
        "def save(*_): raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "FunctionCache.save_overload = save\n"
    )
    counts = eval(child(full + NEWTON + ";" + LOW_RANK + COUNTS, env))
    assert counts["compiled"] > 0 and counts["kept"] == 0


def test_what_a_warm_up_kept_is_read_where_nothing_can_be_written(package):
    env, home = package
    command = [sys.executable, "-m", "fastsketch.warm_up"]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, env=env, check=True).stdout)
    assert set(said["folders"]) == {str(path.parent) for path in home.rglob("*.nbi")} and said["kept"] > 0
    # numba makes a file in a folder to see whether it can be written to: here it cannot
    no_files = "import tempfile\ndef none(*_, **__): raise OSError('read-only')\ntempfile.TemporaryFile = none\n"
    counts = eval(child(no_files + NEWTON + ";" + LOW_RANK + COUNTS, env))
    assert counts["read"] > 0 and counts["compiled"] == 0, counts


@pytest.mark.long
def test_a_damaged_cache_is_passed_over(package):
    env, home = package
    child(NEWTON, env)
    kept = list(home.rglob("*.nb*"))
    assert kept
    for path in kept:
        path.write_bytes(b"damaged")
    counts = eval(child(NEWTON + COUNTS, env))
    assert counts["compiled"] > 0


# Each in one process: commands that learn nothing by Numba.
COMMANDS = """
import contextlib, io
from fastsketch.cli import main
np.save('a.npy', np.eye(8) + 0.5)
lines = 'sketch a.npy -l 4 -o a.fsk', 'info a.fsk', 'merge a.fsk a.fsk -o b.fsk'
for line in lines:
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(line.split()) == 0, line
    assert 'numba' not in sys.modules, line
"""


WITHOUT_NUMBA = [
    "fs.FrequentDirections(4).update(np.eye(8)).sketch()",
    "fs.SketchHash(4).update(np.eye(8)).encode(np.eye(8))",
    "from scipy import sparse; fs.FrequentDirections(4).update(sparse.eye_array(8).tocsr()).sketch()",
    "fs.FrequentDirections(4, tolerance=0.1).update(np.eye(8)).sketch()",
    *[
        f"papers.AdaptiveSubgradient(4, method={method!r}, form={form!r}).update(np.eye(8), np.array([1.0, -1.0] * 4))"
        for method in METHODS
        for form in ("dual_averaging" if method in COMPENSATED else "mirror_descent",)
    ],
    "from scipy import sparse; papers.AdaptiveSubgradient(4).update(sparse.eye_array(8).tocsr(), np.ones(8))",
    "import fastsketch.reference.baselines as b; b.LSH(2).update(np.eye(8)); b.PCAHash(2).update(np.eye(8))",
    "fs.load(fs.FrequentDirections(4).update(np.eye(8)).save('s.fsk') or 's.fsk')",
    COMMANDS,
    "from fastsketch.cli._parser import top_parser; top_parser()",
    "from fastsketch.cli import _learn, _models, _predict, _recommend, _sketch, _transform, _watch",
]


def test_only_what_needs_numba_imports_it(tmp_path):
    """All in one process."""
    lines = (f"{code}\nassert 'numba' not in sys.modules, {code!r}" for code in WITHOUT_NUMBA)
    assert child("\n".join([*lines, "print('done')"]), cwd=tmp_path) == "done"


def test_answers_of_a_low_rank_model_need_no_numba(tmp_path):
    path = tmp_path / "model.fsk"
    fastsketch.LowRankModel(2, sweeps=1).fit([[1.0, 2.0, 3.0], [2.0, 4.0, 6.5], [0.5, 1.0, 1.0]]).save(path)
    code = f"m = fs.load({str(path)!r}); m.fold_in(np.ones((2, 3)))\nprint('numba' in sys.modules)"
    assert child(code) == "False"


@pytest.mark.covering(1)
@pytest.mark.parametrize("code", [NEWTON, NEWTON.replace("np.eye(8)", "scipy.sparse.eye(8, format='csr')")])
@pytest.mark.parametrize("broken", [False, True])
def test_without_numba_an_error_says_what_needs_it(tmp_path, code, broken):
    """Absent, or there and not to be imported: numba refuses releases of numpy that it does not know."""
    hide = "sys.modules['numba'] = None\n"
    if broken:
        (tmp_path / "numba.py").write_text("raise ImportError('Numba needs NumPy 1 or less')")
        hide = f"sys.path.insert(0, {str(tmp_path)!r})\n"
    made, call = code.split(").", 1)
    code = (
        f"import scipy.sparse\n{hide}model = {made})\n"
        f"try: model.{call}\nexcept ImportError as error: print(error)\nelse: print('no error')\n"
        "print(model)"
    )
    said = child(code)
    assert "updates of SketchedNewton need numba, which cannot be imported" in said
    assert "pip install numba" in said and ("Numba needs NumPy" in said) == broken


def test_a_model_that_numba_was_not_there_for_goes_on(tmp_path):
    """The refused batch is as if it had never come."""
    code = (
        "rows, targets = np.eye(8), np.array([1.0, -1.0] * 4)\n"
        "model, other = papers.SketchedNewton(4), papers.SketchedNewton(4).update(rows, targets)\n"
        "kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split('.')[0] == 'numba'}\n"
        "for name in ('jit', 'online.projection'): kept['fastsketch._kernels.' + name] = "
        "sys.modules.pop('fastsketch._kernels.' + name)\n"
        "sys.modules['numba'] = None\n"
        "try: model.update(rows, targets)\nexcept ImportError: print('refused', model.n_rows)\n"
        "sys.modules.update(kept)\n"
        "print(np.array_equal(model.update(rows, targets).coef, other.coef))"
    )
    assert child(code) == "refused 0\nTrue"


def test_what_needs_no_numba_works_without():
    """Models, their saved states, the estimators and the command line: all but what the error names."""
    code = (
        "sys.modules['numba'] = None\nfrom fastsketch.sklearn import SketchedPCA\n"
        "fs.FrequentDirections(4).update(np.eye(8)).sketch(); SketchedPCA(2, sketch_size=4).fit(np.eye(8))\n"
        "papers.AdaptiveSubgradient(4).update(np.eye(8), np.array([1.0, -1.0] * 4)).predict(np.eye(8))\n"
        "one = fs.LowRankModel(2, sweeps=1).fit(np.arange(30.0).reshape(6, 5))\n"
        "fs.show_config()\nwith fs.thread_limit(1): fs.SketchHash(4).update(np.eye(8)).encode(np.eye(8))\n"
        "print('done')"
    )
    assert child(code).endswith("done")
