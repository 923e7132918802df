"""The command line as a person meets it."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch._frame.model import Model
from fastsketch._frame.parameters import parameter
from fastsketch.cli import main
from fastsketch.cli._parser import SUBCOMMANDS, create_parser, parse
from tests.broken import BROKEN
from tests.helpers import IN_SMALL_PARTS

ROWS = np.random.default_rng(0).standard_normal((400, 30))


def run(capsys, *args, status=0):
    try:
        got = main([str(arg) for arg in args])
    except SystemExit as stop:  # argparse
        got = stop.code
    out = capsys.readouterr()
    assert got == status, out.err
    return out


@pytest.fixture
def npy(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    return tmp_path / "rows.npy"


def test_sketch_and_info(capsys, tmp_path, npy):
    out = run(capsys, "sketch", npy, "-l", 8, "--method", "rfd", "--set", "solver=gram", "-o", tmp_path / "out.fsk")
    assert "400" in out.out
    assert "error bound" in out.out
    expected = fs.RobustFrequentDirections(8, solver="gram").update(ROWS)
    got = fs.load(tmp_path / "out.fsk")
    assert np.array_equal(got.sketch(), expected.sketch())
    assert got.notes == {"inputs": ["rows.npy"]}
    facts = json.loads(run(capsys, "info", tmp_path / "out.fsk", "--json").out)
    assert facts["error_bound"] == expected.error_bound
    assert facts["singular_values"] == expected.singular_values.tolist()
    spectrum = facts.pop("spectrum")
    assert list(spectrum) == ["values", "low", "high"]
    assert spectrum["values"] == np.sqrt(expected.spectrum().values).tolist()
    assert np.column_stack([spectrum["low"], spectrum["high"]]).tolist() == expected.singular_value_interval.tolist()
    assert facts == {**got.facts(), "notes": got.notes}
    text = run(capsys, "info", tmp_path / "out.fsk", "--top", 3).out
    assert "lengths of the rows of B (3 of 7)" in text
    assert "singular values of the rows: estimate, low and high end (3 of 7):\n" in text
    triple = [float(number) for number in text.split("end (3 of 7):\n")[1].splitlines()[2].split()]
    assert np.allclose(triple, [spectrum[name][2] for name in ("values", "low", "high")], rtol=1e-5)
    assert "[" not in text  # lists have lines of their own
    assert not list(tmp_path.glob("*.partial"))


def test_options_reach_the_sketch(capsys, tmp_path, npy):
    run(
        capsys,
        "sketch",
        npy,
        npy,
        "-l",
        8,
        "--method",
        "pfd",
        "--set",
        "beta=0.5",
        "--set",
        "solver=svd",
        "--center",
        "--set",
        "decay=0.999",
        "--set",
        "dtype=float32",
        "--set",
        "buffer_size=12",
        "--threads",
        1,
        "-o",
        tmp_path / "o.fsk",
    )
    expected = (
        fs.FrequentDirections(
            8, method="pfd", beta=0.5, solver="svd", center=True, decay=0.999, dtype="float32", buffer_size=12
        )
        .update(ROWS)
        .update(ROWS)
    )
    assert np.array_equal(fs.load(tmp_path / "o.fsk").sketch(), expected.sketch())


def test_sparse_inputs_take_the_widest(capsys, tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1 3:2\n")
    (tmp_path / "b.svm").write_text("1 9:1\n")
    sparse.save_npz(tmp_path / "c.npz", sparse.csr_array(np.ones((2, 9))))
    run(capsys, "sketch", tmp_path / "a.svm", tmp_path / "b.svm", tmp_path / "c.npz", "-o", tmp_path / "o.fsk")
    assert (fs.load(tmp_path / "o.fsk").n_rows, fs.load(tmp_path / "o.fsk").n_features) == (4, 9)
    sparse.save_npz(tmp_path / "broken.npz", BROKEN["csr32 indptr backwards"]())
    assert "broken.npz" in run(capsys, "sketch", tmp_path / "broken.npz", "-o", tmp_path / "q.fsk", status=2).err
    np.save(tmp_path / "d.npy", np.ones((2, 4)))
    out = run(
        capsys, "sketch", tmp_path / "a.svm", tmp_path / "b.svm", tmp_path / "d.npy", "-o", tmp_path / "p.fsk", status=2
    )
    assert "d.npy has 4" in out.err


def test_merge(capsys, tmp_path, npy):
    np.save(tmp_path / "more.npy", ROWS[:50])
    run(capsys, "sketch", npy, "-l", 8, "-o", tmp_path / "a.fsk")
    run(capsys, "sketch", tmp_path / "more.npy", "-l", 8, "-o", tmp_path / "b.fsk")
    parts = [tmp_path / "a.fsk", tmp_path / "b.fsk"]
    out = json.loads(run(capsys, "merge", *parts, "-o", tmp_path / "c.fsk", "--json").out)
    assert (out["kind"], out["n_rows"]) == ("FrequentDirections", 450)
    expected = fs.merge([fs.load(tmp_path / "a.fsk"), fs.load(tmp_path / "b.fsk")])
    assert np.array_equal(fs.load(tmp_path / "c.fsk").sketch(), expected.sketch())
    run(capsys, "sketch", npy, "-l", 9, "--method", "fd", "-o", tmp_path / "d.fsk")
    out = run(capsys, "merge", tmp_path / "a.fsk", tmp_path / "d.fsk", "-o", tmp_path / "e.fsk", status=2)
    assert "d.fsk: other has method='fd'" in out.err
    assert not (tmp_path / "e.fsk").exists()


class Spectrum(Model):
    """A kind of model that the library does not know."""

    values: tuple = parameter(lambda value, name: tuple(map(float, value)), default=(3.0, 1.0))

    def _begin(self):
        pass

    def _state(self):
        return {}, {}

    def _restore(self, state, arrays):
        pass

    def _facts(self):
        return {"singular_values": list(self.values), "largest": max(self.values)}

    n_rows = property(lambda self: 2)
    n_features = property(lambda self: 5)


def test_a_kind_defined_elsewhere(capsys, tmp_path):
    """It has info, from the frame alone; merge says that it does not merge."""
    model = Spectrum()
    model.notes = {"rows": ["a"], "from": "here"}
    model.save(tmp_path / "m.fsk")
    out = json.loads(run(capsys, "info", tmp_path / "m.fsk", "--json").out)
    assert out == {**model.facts(), "notes": model.notes}
    text = run(capsys, "info", tmp_path / "m.fsk").out
    assert "singular values (2 of 2)" in text
    assert "largest" in text
    out = run(capsys, "merge", tmp_path / "m.fsk", tmp_path / "m.fsk", "-o", tmp_path / "o.fsk", status=2)
    assert "m.fsk holds a Spectrum, which does not merge" in out.err
    Spectrum(values=[0.0]).save(tmp_path / "zero.fsk")
    assert "singular values (1 of 1)" in run(capsys, "info", tmp_path / "zero.fsk").out


@pytest.mark.parametrize(
    "args, message",
    [
        (["sketch", "missing.npy", "-o", "o.fsk"], "missing.npy"),
        (["sketch", "rows.npy", "-l", "1", "-o", "o.fsk"], "sketch_size must be at least 2, got 1"),
        (["sketch", "rows.npy", "--set", "beta=0.5", "-o", "o.fsk"], "beta"),
        (["sketch", "rows.npy", "--threads", "0", "-o", "o.fsk"], "--threads must be at least 1"),
        (["sketch", "rows.npy", "-o", "nowhere/o.fsk"], "nowhere"),
        (["sketch", "rows.npy", "-o", "."], "directory"),
        (["sketch", "nan.npy", "-o", "o.fsk"], "row 3 "),
        (["sketch", "none.npy", "-o", "o.fsk"], "no rows"),
        (["sketch", "bad.svm", "-o", "o.fsk"], "bad.svm: line 2"),
        (["info", "rows.npy"], "not a fastsketch state"),
        (["info", "rows.npy", "--top", "-1"], "--top"),
        (["merge", "rows.npy", "-o", "o.fsk"], "not a fastsketch state"),
        (["sketch", "rows.npy"], "-o/--output"),
        (["sketch", "rows.npy", "--method", "x", "-o", "o.fsk"], "method must be one of 'fd', 'pfd'"),
        (["frobnicate"], "invalid choice"),
        ([], "required"),
    ],
)
def test_errors_are_one_clear_line_and_status_2(capsys, tmp_path, npy, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    bad = ROWS.copy()
    bad[3, 4] = np.nan
    np.save("nan.npy", bad)
    np.save("none.npy", ROWS[:0])
    (tmp_path / "bad.svm").write_text("1 1:1\nhello\n")
    out = run(capsys, *args, status=2)
    assert message in out.err
    assert "Traceback" not in out.err
    assert not (tmp_path / "o.fsk").exists()


def test_resume_gives_the_same_bits(capsys, tmp_path, npy, monkeypatch):
    """Stopped at several parts, then resumed."""
    from fastsketch.jobs import _run
    from fastsketch.sketching import FrequentDirections

    monkeypatch.setattr(_run, "PART_BYTES", 50 * 30 * 8)
    monkeypatch.setattr(_run, "STATES_OF_A_PART", 0)
    sparse_path = tmp_path / "b.svm"
    sparse_path.write_text("".join(f"1 {k % 30 + 1}:1.5\n" for k in range(300)))
    command = ["sketch", npy, sparse_path, "--set", "n_features=30", "-l", 8, "--set", "solver=gram", "-o"]
    run(capsys, *command, tmp_path / "whole.fsk")
    whole = (tmp_path / "whole.fsk").read_bytes()
    original = FrequentDirections.update
    for stop in (2, 5, 9):
        calls = []

        def update(self, rows, sample_weight=None, calls=calls, stop=stop):
            calls.append(1)
            if len(calls) == stop:
                raise KeyboardInterrupt
            return original(self, rows, sample_weight)

        target = tmp_path / f"{stop}.fsk"
        monkeypatch.setattr(FrequentDirections, "update", update)
        out = run(capsys, *command, target, status=130)
        assert "interrupted" in out.err and f"{stop}.fsk.partial" in out.err
        monkeypatch.setattr(FrequentDirections, "update", original)
        run(capsys, *command, target, "-l", 9, "--resume", status=2)  # another command's partial result
        run(capsys, *command, target, "--resume")
        assert target.read_bytes() == whole
        assert not (tmp_path / f"{stop}.fsk.partial").exists()


@pytest.mark.parametrize("verb", ["sketch", "learn"])
def test_a_killed_run_resumes(tmp_path, verb):
    """It ends with the file of a run that was never killed."""
    rows = np.random.default_rng(0).standard_normal((10_000, 300))
    np.save(tmp_path / "rows.npy", rows)
    lines = (
        f"{int(row[0] > row[1])} " + " ".join(f"{j + 1}:{v:.6g}" for j, v in enumerate(row[:9])) for row in rows[:3000]
    )
    (tmp_path / "rows.svm").write_text("".join(f"{line}\n" for line in lines))
    arguments = {"sketch": ["rows.npy", "-l", "16", "--set", "solver=svd"], "learn": ["rows.svm", "--every", "200"]}
    command = [*IN_SMALL_PARTS, verb, *arguments[verb], "-o"]
    subprocess.run([*command, "whole.fsk"], cwd=tmp_path, check=True, capture_output=True)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*command, "cut.fsk"], cwd=tmp_path, **quiet)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("cut.fsk.partial/node-*.fsk")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "cut.fsk").exists()
    subprocess.run([*command, "cut.fsk", "--resume"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "cut.fsk").read_bytes() == (tmp_path / "whole.fsk").read_bytes()


def test_progress_when_asked_for(capsys, tmp_path, npy):
    out = run(capsys, "sketch", npy, "--progress", "line", "-o", tmp_path / "a.fsk")
    assert "100%" in out.err
    out = run(capsys, "sketch", npy, "-o", tmp_path / "a.fsk")
    assert out.err == ""


def test_version_and_help():
    for flag, expected in (("--version", f"fastsketch {fs.__version__}"), ("--help", "sketch")):
        out = subprocess.run([sys.executable, "-m", "fastsketch", flag], capture_output=True, text=True, check=True)
        assert expected in out.stdout


def test_the_list_of_verbs_imports_neither_numpy_nor_kernels():
    """A verb imports its own module, and so do its arguments and its help."""
    code = (
        "import sys\nfrom fastsketch.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = [name for name in sys.modules if name.split('.')[0] in ('numpy', 'scipy', 'numba', 'logging')]\n"
        "heavy += [name for name in sys.modules if name.startswith(('fastsketch._kernels', 'fastsketch.data'))]\n"
        "assert not heavy, heavy\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    assert len(SUBCOMMANDS) <= 10 and all(f"\n    {verb}" in out.stdout for verb in SUBCOMMANDS)


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_helps_of_parameters_say_choices_and_defaults_of_the_models(name):
    parser = create_parser(name)
    for flag, action in parser.actions.items():
        if (name, flag) == ("learn", "method"):
            continue  # it says which model is made
        all_declared = [getattr(fs, model)._declared.get(flag) for model in parser.models]
        (first, _), *others = [(one, cls) for one, cls in zip(all_declared, parser.models, strict=True) if one]
        other = [f"{one.default} of {cls}" for one, cls in others if one.default != first.default]
        if first.default not in (None, False):
            assert action.help.endswith(f" (default {', '.join([str(first.default), *other])})"), flag
        if first.choices:
            assert action.metavar == f"{{{','.join(first.choices)}}}"


def test_command_lines_of_the_pages_are_understood():
    root = Path(__file__).parents[2]
    found = 0
    jobs = [path.relative_to(root) for folder in ("jobs", "choices") for path in (root / "docs" / folder).glob("*.md")]
    for page in ("README.md", *jobs, "docs/threads.md", "bench/README.md", "CONTRIBUTING.md"):
        shell = re.findall(r"^```sh\n(.*?)^```", (root / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        for line in re.findall(r"^fastsketch (.*)$", "\n".join(shell), re.MULTILINE):
            parse(shlex.split(line, comments=True))
            found += 1
    assert found >= 10
