"""A change of a compiled module is compiled, alone, and the tests that come to a line see it fail: mutants.py."""

import os
import shutil

import pytest

for tool in ("Cython", "setuptools"):
    pytest.importorskip(tool, reason=f"{tool}, with which the kernels are built, is not installed")
mutants = pytest.importorskip("tests.mutants")  # which needs a system with limits on processes
pytestmark = pytest.mark.skipif(os.name != "posix", reason="ends a group of processes by a signal")
LEVEL = "fastsketch/_kernels/level.pyx"
MODEL, CHECKS = "fastsketch/_frame/model.py", "fastsketch/_core/validation.py"
TESTS = """
import subprocess, sys
import pytest
import fastsketch as fs
from fastsketch._kernels import level

def test_level(): assert level.current() in level.supported()
def test_model(): fs.FrequentDirections(4)
def test_refused():
    with pytest.raises(TypeError): fs.FrequentDirections("many")
def test_process(): subprocess.run([sys.executable, "-c", "pass"])
def test_wrong(): fs.FrequentDirections(4), 1 / 0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A copy of the package, and tests."""
    folder = tmp_path_factory.mktemp("changed")
    mutants.copy_package(folder)
    (folder / "test_it.py").write_text(TESTS)
    return folder


@pytest.fixture(scope="module")
def recorded(folder, tmp_path_factory):
    """Blocks of the package, and what the tests enter."""
    noting = tmp_path_factory.mktemp("noting")
    shutil.copytree(folder, noting, dirs_exist_ok=True)
    return mutants.record_tests(noting, [folder / "test_it.py"])


def names(tests):
    return [name.rpartition("test_")[2] for name in tests]


def line_of(path, text):
    before, _, rest = (mutants.ROOT / path).read_text().partition(text)
    assert rest
    return before.count("\n") + 1


def test_tests_that_come_to_a_line(recorded):
    blocks, record = recorded
    assert sorted(names(record)) == ["level", "model", "process", "refused"]
    for path, text, expected in (
        (CHECKS, "must be an integer", ["refused"]),
        (CHECKS, "    value = int(value)", ["model", "refused"]),
        (LEVEL, "def current", ["level", "model", "process", "refused"]),  # of the file whose tests import it
    ):
        tests = names(mutants.coming_to(path, line_of(path, text), blocks, record))
        assert sorted(tests[: len(expected)]) == expected and len(tests) == 4, path


@pytest.mark.long
def test_a_change_of_cython_is_compiled_alone_and_killed(folder, recorded):
    text = (mutants.ROOT / LEVEL).read_text()
    before = {path: path.read_bytes() for path in folder.rglob("*.so")}
    outcomes = []
    for start, stop, instead in mutants.places_of_cython(text):
        if text[start:stop] in ("+", "not in"):  # a level too few; another rule of what `use` takes
            changed = text[:start] + instead + text[stop:]
            outcomes.append(mutants.verdict(folder, LEVEL, changed, {name: 1.0 for name in recorded[1]})[0])
    other = {path for path, content in before.items() if path.read_bytes() != content}
    assert outcomes == ["killed", "survived"] and [path.name.split(".")[0] for path in other] == ["level"]
    assert not mutants.write(folder, LEVEL, text + "\nno Cython at all\n")


def test_what_takes_too_long_is_undecided(folder, recorded, monkeypatch):
    monkeypatch.setattr(mutants, "MORE", -19)
    text = (mutants.ROOT / MODEL).read_text() + "\nwhile True:\n    pass\n"
    tests = {name: 5.0 for name in recorded[1] if "model" in name}
    assert mutants.verdict(folder, MODEL, text, tests) == ("undecided", "it takes too long")
    mutants.write(folder, MODEL, (mutants.ROOT / MODEL).read_text())
