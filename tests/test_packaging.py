"""What goes into the sdist, and what a build says that has nothing to compile with."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WHOLE = ("csrc", "docs", "examples", "tests", "bench", ".github")
FILES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CITATION.cff", "Makefile", "asv.conf.json", "MANIFEST.in")
MADE = ("docs/_build/", "docs/gallery/", "docs/api/generated/")
LEFTOVERS = ("__pycache__", ".pytest_cache", ".ruff_cache")


@pytest.fixture
def listed(monkeypatch):
    """The files that MANIFEST.in names."""
    monkeypatch.chdir(ROOT)
    why = "setuptools, which reads MANIFEST.in, is not installed"
    files = pytest.importorskip("setuptools.command.egg_info", reason=why).FileList()
    files.findall()
    for line in (ROOT / "MANIFEST.in").read_text().splitlines():
        if line and not line.startswith("#"):
            files.process_template_line(line)
    return {Path(path).as_posix() for path in files.files}


def test_the_sdist_has_all_that_was_written(listed):
    wanted = {
        path.relative_to(ROOT).as_posix()
        for folder in WHOLE
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and not any(part in LEFTOVERS for part in path.parts) and path.suffix != ".so"
    }
    wanted = {name for name in wanted if not name.startswith(MADE)}
    for suffix in (".pyx", ".pxd", ".pyi"):
        wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "fastsketch").rglob("*" + suffix)}
    wanted |= {name for name in FILES if name != "MANIFEST.in"}  # setuptools adds that
    assert len(wanted) > 200 and not sorted(wanted - listed)


def test_the_sdist_has_nothing_that_was_generated(listed):
    made = (".so", ".pyc", ".nbi", ".nbc")
    written = [name for name in listed if name.endswith(made) or (name.endswith(".c") and name[:10] == "fastsketch")]
    assert not written


def test_numba_is_asked_for_where_it_has_wheels():
    requirements = pytest.importorskip("packaging.requirements")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [requirements.Requirement(line) for line in settings["project"]["dependencies"]]
    marker = next(item.marker for item in asked if item.name == "numba")
    assert marker is not None

    def wanted(system, machine, version="3.13", implementation="CPython"):
        return marker.evaluate(
            {
                "sys_platform": system,
                "platform_machine": machine,
                "python_version": version,
                "platform_python_implementation": implementation,
            }
        )

    assert wanted("linux", "x86_64") and wanted("linux", "aarch64", "3.14") and wanted("win32", "AMD64")
    assert wanted("darwin", "arm64", "3.14") and wanted("darwin", "x86_64") and wanted("win32", "ARM64")
    assert not wanted("darwin", "x86_64", "3.14") and not wanted("linux", "ppc64le")
    assert not wanted("linux", "x86_64", "3.11", "PyPy")
    # what takes it out of the wheels for musl, where no marker can
    musl = next(item for item in settings["tool"]["cibuildwheel"]["overrides"] if "musllinux" in item["select"])
    pattern = musl["before-build"].split("/")[1]
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    assert [line.strip()[:6] for line in lines if line.strip().startswith(pattern)] == ['"numba']


def test_one_module_imports_numba():
    """It says what needs numba, where that is absent: every other takes what it needs from there."""
    sources = [path for suffix in ("*.py", "*.pyx") for path in (ROOT / "fastsketch").rglob(suffix)]
    importing = [path.name for path in sources if re.search(r"^\s*(from|import) numba", path.read_text("utf-8"), re.M)]
    assert importing == ["jit.py"]


@pytest.mark.skipif(not shutil.which("git"), reason="no git")
def test_what_stands_in_the_way_of_a_release(tmp_path):
    unready = runpy.run_path(str(ROOT / "tests" / "release.py"))["unready"]
    settings = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=no"]

    def git(*words):
        subprocess.run(["git", *settings, *words], cwd=tmp_path, check=True)

    git("init", "-q", "-b", "work")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 (unreleased)\n")
    (tmp_path / "README.md").write_text("pip install .\n")
    found = list(unready(tmp_path, "1.2.0"))
    assert len(found) == 4 and "not committed" in found[0] and "branch" in found[1] and "1.2.0 (YEAR" in found[2]
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 (2030-01-02)\n")
    (tmp_path / "README.md").write_text('pip install "fastsketch[sklearn]"\n')
    git("checkout", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-q", "-m", "ready")
    assert list(unready(tmp_path, "1.2.0")) == []
    git("tag", "v1.2.0")
    assert [fault[:22] for fault in unready(tmp_path, "1.2.0")] == ["v1.2.0 has been tagged"]


@pytest.mark.parametrize("command", ["import fastsketch", "from fastsketch.sklearn import SketchedPCA"])
def test_the_source_tree_says_what_to_do_where_no_kernels_are_compiled(tmp_path, command):
    """Python finds the tree in the current folder before the installed package."""
    shutil.copytree(ROOT / "fastsketch", tmp_path / "fastsketch", ignore=shutil.ignore_patterns("*.so", "*.pyd", "*.c"))
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    message = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and message.startswith("ImportError: fastsketch was imported from ")
    assert str(tmp_path / "fastsketch") in message and "cd .." in message and "pip install -e ." in message
