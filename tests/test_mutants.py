"""A change of a compiled module is compiled, alone, and the tests that see it fail: mutants.py."""

import os

import pytest

from tests import mutants

pytest.importorskip("Cython")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="ends a group of processes by a signal")
LEVEL = "fastsketch/_kernels/level.pyx"
SEES = "from fastsketch._kernels import level\ndef test_level(): assert level.current() in level.supported()\n"


def test_a_change_of_cython_is_compiled_alone_and_killed(tmp_path):
    mutants.copy_package(tmp_path)
    (tmp_path / "test_it.py").write_text(SEES)
    text = (mutants.ROOT / LEVEL).read_text()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.so")}
    outcomes = []
    for start, stop, instead in mutants.of_cython(text):
        if text[start:stop] in ("+", "not in"):  # a level too few; another rule of what `use` takes
            changed = text[:start] + instead + text[stop:]
            outcomes.append(mutants.verdict(tmp_path, LEVEL, changed, {str(tmp_path / "test_it.py"): 1.0}))
    other = {path for path, content in before.items() if path.read_bytes() != content}
    assert outcomes == ["killed", "survived"] and [path.name.split(".")[0] for path in other] == ["level"]
    assert not mutants.write(tmp_path, LEVEL, text + "\nno Cython at all\n")
