"""The forms of the tests, their limit of time and their signals (conftest.py), and the parts of a run (run.py)."""

import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = """
import pytest
from hypothesis import given, strategies as st
from tests.helpers import some

def test_plain(): pass
def test_grows(amount): assert amount(1, 2) in (1, 2)
@pytest.mark.long
def test_never_short(): pass
@pytest.mark.parametrize("case", some(range(5), 2))
def test_some(case): pass
@given(st.integers())
def test_drawn(n): pass
@pytest.mark.covering(1)
@pytest.mark.parametrize(("a", "b"), [(1, 1), (1, 2), (2, 1)])
@pytest.mark.parametrize("c", "xyz")
def test_each(a, b, c): pass
@pytest.mark.covering(2)
@pytest.mark.parametrize("a", range(3))
@pytest.mark.parametrize("b", range(3))
@pytest.mark.parametrize("c", range(3))
def test_pairs(a, b, c): pass
"""


def run(folder, text, *options, before=""):
    """What pytest says of a file with these tests."""
    (folder / "test_it.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-c", os.devnull]
    line = [*command, "--rootdir", str(folder), *options, "test_it.py"]
    if before:
        line = ["sh", "-c", f'{before}; exec "$@"', "sh", *line]
    # the root last: its own fastsketch has no compiled kernels unless it was installed in place
    path = {"PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(ROOT)])}
    done = subprocess.run(line, cwd=folder, env={**os.environ, **path}, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    """A function that gives the tests which options choose: of all that are asked for below, by one process."""
    folder = tmp_path_factory.mktemp("forms")
    (folder / "test_it.py").write_text(TESTS, encoding="utf-8")
    code = (
        "import sys; sys.path.append(sys.argv[1]); import pytest\n"
        "for form in sys.argv[2:]:\n    print('form', form)\n"
        "    line = ['-p', 'tests.conftest', '-p', 'no:cacheprovider', '-c', '/dev/null', '--rootdir', '.']\n"
        "    pytest.main([*line, '--collect-only', '-q', *form.split(), 'test_it.py'])\n"
    )
    forms = "", "--long", *(f"--turn {k}/3" for k in range(3))
    line = [sys.executable, "-c", code, str(ROOT), *forms]
    said = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=True).stdout
    by_form = dict(zip(forms, said.split("form ")[1:], strict=True))
    return lambda form: set(re.findall(r"::(.*)", by_form[form]))


def test_the_short_form(chosen):
    found = chosen("")
    assert {"test_plain", "test_grows[short]", "test_some[0]", "test_some[1]", "test_drawn"} <= found
    assert not {"test_never_short", "test_grows[long]", "test_some[2]"} & found
    each = [name[10:-1].split("-") for name in found if name.startswith("test_each")]
    assert len(each) == 3 and {c for c, *_ in each} == {*"xyz"}
    assert {(a, b) for _, a, b in each} == {("1", "1"), ("1", "2"), ("2", "1")}  # given together, taken together
    pairs = [name[11:-1].split("-") for name in found if name.startswith("test_pairs")]
    assert len(pairs) < 15
    for one, two in ((0, 1), (0, 2), (1, 2)):
        assert len({(case[one], case[two]) for case in pairs}) == 9


def test_the_long_form_and_its_turns(chosen):
    short, both = chosen(""), chosen("--long")
    assert len(both) == 10 + 9 + 27 and short < both
    turns = [chosen(f"--turn {k}/3") for k in range(3)]
    assert turns[0] | turns[1] | turns[2] == (both - short) | {"test_drawn"}
    assert sum(map(len, turns)) == len(both - short) + 1


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="no alarm")
def test_a_test_that_takes_too_long_fails_and_the_others_go_on(tmp_path):
    text = "import time, tests.conftest as c\nc.LIMITS = 1, 1\ndef test_a(): time.sleep(60)\ndef test_b(): pass\n"
    said = run(tmp_path, text)
    assert "took more than 1 s" in said and "1 failed, 1 passed" in said


@pytest.mark.skipif(not Path("/bin/sh").exists(), reason="a shell")
def test_children_have_the_signals_of_a_shell_whoever_starts_the_tests(tmp_path):
    child = "import signal; print([signal.getsignal(n) is signal.SIG_IGN for n in (1, 2, 15)])"
    text = f"import subprocess, sys\ndef test_it(): subprocess.run([sys.executable, '-c', {child!r}])\n"
    assert "[False, False, False]" in run(tmp_path, text, "-s", before="trap '' HUP INT TERM")


def test_parts_hold_every_file_once_and_none_is_much_larger():
    runner = runpy.run_path(str(ROOT / "tests" / "run.py"))
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    seconds = {path.relative_to(ROOT).as_posix(): 1 + len(path.read_text()) / 1000 for path in files}
    found = runner["parts"](seconds)
    assert sorted(path for part in found.values() for path in part) == files
    taken = [sum(seconds[path.relative_to(ROOT).as_posix()] for path in part) for part in found.values()]
    assert taken == sorted(taken, reverse=True) and taken[0] < 0.15 * sum(taken)


@pytest.mark.parametrize("ends", ["os._exit(0)", "pytest.exit('at once', returncode=0)", "no test"])
def test_a_run_that_ends_in_the_middle_has_failed(tmp_path, ends):
    room = tmp_path / "tests/room"
    room.mkdir(parents=True)
    shutil.copy(ROOT / "tests/run.py", room.parent)
    (tmp_path / "pyproject.toml").touch()
    name = "nothing" if ends == "no test" else "test"
    text = f"import os, pytest\ndef {name}_bad(): assert False\ndef {name}_end(): {ends}\n"
    (room / "test_it.py").write_text(text.replace("(): no test", "(): pass"))
    command = [sys.executable, str(room.parent / "run.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert ("room: FAILED" in done.stdout) == (ends != "no test")


@pytest.mark.skipif(not hasattr(os, "killpg") or not (ROOT / ".ci").exists(), reason="groups of processes; .ci")
def test_a_step_that_is_stopped_ends_the_parts_of_its_tests(tmp_path, monkeypatch):
    """Their sessions are their own: no signal to the step's group reaches them."""
    room = tmp_path / "tests/room"
    room.mkdir(parents=True)
    shutil.copy(ROOT / "tests/run.py", room.parent)
    (tmp_path / "pyproject.toml").touch()
    pid = tmp_path / "pid"
    text = f"import os, pathlib, time\ndef test_it():\n pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\n"
    (room / "test_it.py").write_text(text + " time.sleep(60)\n")
    steps = runpy.run_path(str(ROOT / ".ci/steps.py"))
    for name in ("LOGS", "ROOT"):
        monkeypatch.setitem(steps["Running"].stop.__globals__, name, tmp_path)
    command = f"true; {sys.executable} {room.parent / 'run.py'}; true"
    step = steps["Running"](steps["Step"]("tests", 1, (), command), {})
    until = time.monotonic() + 60
    while not (pid.exists() and pid.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    step.stop()
    assert step.process.poll() is not None
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.skipif(not (ROOT / ".ci").exists(), reason="an sdist has no .ci")
def test_a_test_that_was_skipped_and_need_not_be_fails_the_checks(tmp_path, capsys):
    steps = runpy.run_path(str(ROOT / ".ci/steps.py"))
    check = steps["without_what_it_needs"]
    check.__globals__["LOGS"] = tmp_path
    missing = ["could not import 'zarr'", "needs glibc and cc", "data set absent: a9a", "no git"]
    fine = ["no float32", "SCIPY_ARRAY_API is not set: not checking array_api input"]
    lines = [f"SKIPPED [1] tests/test_it.py:1: {reason}" for reason in missing + fine]
    (tmp_path / "tests.log").write_text("\n".join([*lines, "SKIPPED [1] tests/bench/test_commands.py:38: none\n"]))
    (step,) = (step for step in steps["STEPS"] if step.name == "tests")
    assert check([steps["Ended"](step, 0, 1.0)]) == lines[: len(missing)]
    assert capsys.readouterr().out.splitlines()[2:] == lines[: len(missing)]
