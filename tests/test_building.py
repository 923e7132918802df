"""Builds of a small tree: what is compiled again and what is not, and what a build says that cannot be done."""

import os
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KERNELS = ("level", "linalg/csr")  # with C files and without BLAS; three modules with what Cython writes for all

for tool in ("Cython", "setuptools"):
    pytest.importorskip(tool, reason=f"{tool}, with which the kernels are built, is not installed")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there compilers are looked for otherwise")


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A tree of two kernels."""
    tree = tmp_path_factory.mktemp("tree")
    package = tree / "fastsketch/_kernels"
    (package / "linalg").mkdir(parents=True)
    for folder in (package.parent, package, package / "linalg"):
        (folder / "__init__.py").touch()
    kernels = ROOT / "fastsketch/_kernels"
    for path in [
        *kernels.glob("*.pxd"),
        *kernels.glob("linalg/*.pxd"),
        *(ROOT / f"fastsketch/_kernels/{kernel}.pyx" for kernel in KERNELS),
    ]:
        shutil.copy(path, tree / path.relative_to(ROOT))
    shutil.copytree(ROOT / "csrc", tree / "csrc")
    shutil.copy(ROOT / "setup.py", tree)
    (tree / "pyproject.toml").write_text(
        '[project]\nname = "fastsketch"\nversion = "0"\n[tool.setuptools.packages.find]\ninclude = ["fastsketch*"]\n'
    )
    return tree


@pytest.fixture
def tree(sources, tmp_path):
    """A copy of it."""
    return Path(shutil.copytree(sources, tmp_path / "tree"))


@pytest.fixture(scope="module")
def store(sources, tmp_path_factory):
    """What a build of it keeps."""
    kept = tmp_path_factory.mktemp("kept")
    assert compiled(build(sources, "lib", FASTSKETCH_BUILD=str(kept))) == 3
    return kept


@pytest.fixture
def built(tree, store):
    """A copy of it that was built."""
    shutil.copytree(store, tree / "build/kernels")
    return tree


def command(folder):
    return [sys.executable, "setup.py", "-q", "build", "--build-lib", str(folder)]


def build(tree, folder, check=True, **environment):
    """Build into a folder beside the tree's files."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("FASTSKETCH_")} | environment
    done = subprocess.run(command(tree.parent / folder), cwd=tree, env=env, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def compiled(done):
    return int(done.stdout.split(" of 3 kernels compiled")[0].rpartition("\n")[2])


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_what_is_known_of_a_kernel_is_what_cython_knows():
    """Or a change of a declaration would leave a kernel as it was."""
    from Cython.Build.Dependencies import create_dependency_tree
    from Cython.Compiler.Main import Context
    from Cython.Compiler.Options import CompilationOptions

    cwd = Path.cwd()
    os.chdir(ROOT)
    try:
        known = runpy.run_path("setup.py")
        tree = create_dependency_tree(Context.from_options(CompilationOptions(include_path=[".", "csrc/pxd"])))
        for kernel in sorted(known["KERNELS"].rglob("*.pyx")):
            ours = {path.as_posix() for path in known["made_of"](kernel)}
            theirs = {Path(path).as_posix() for path in tree.all_dependencies(str(kernel))}
            assert {path for path in theirs if path.startswith("fastsketch/") and "__init__" not in path} <= ours
            headers = {f"csrc/{name}" for path in ours for name in _externs(Path(path)) if name.startswith("fs_")}
            assert headers <= ours
    finally:
        os.chdir(cwd)


def _externs(path):
    return [
        line.split('"')[1]
        for line in path.read_text().splitlines()
        if line.startswith(('cdef extern from "', '#include "'))
    ]


@pytest.mark.long
def test_a_second_build_compiles_nothing_and_leaves_nothing(built):
    before = {path for path in built.rglob("*") if "kernels" not in path.parts}
    done = build(built, "again")
    assert compiled(done) == 0
    for kernel in KERNELS:
        (made,) = (built.parent / "again/fastsketch/_kernels").glob(f"{kernel}.*so")
        subprocess.run([sys.executable, "-c", _load(made)], check=True)
    assert {path for path in built.rglob("*") if "kernels" not in path.parts} == before


def _load(path):
    return f"import ctypes; ctypes.CDLL({str(path)!r})"


@pytest.mark.long
def test_what_is_changed_is_compiled_again_and_nothing_else(built):
    edit(built / "fastsketch/_kernels/level.pyx", "The level in force.", "The one in force.")
    assert compiled(build(built, "one")) == 1
    edit(built / "csrc/fs_csr.h", "#define FS_CSR_H", "#define FS_CSR_H\n/* of another text */")
    assert compiled(build(built, "header")) == 1
    edit(built / "fastsketch/_kernels/level.pxd", "follow()", "follow( )")
    assert compiled(build(built, "declaration")) == 2
    assert compiled(build(built, "flags", CFLAGS="-DNDEBUG")) == 3
    # and back: what was made of these texts is still there
    assert compiled(build(built, "back")) == 0


@pytest.mark.long
def test_files_that_are_gone_are_not_in_the_next_wheel(built):
    extra = built / "fastsketch/extra.py"
    for there in (True, False):
        extra.touch() if there else extra.unlink()
        subprocess.run([sys.executable, "setup.py", "-q", "bdist_wheel"], cwd=built, check=True, capture_output=True)
        (wheel,) = (built / "dist").glob("*.whl")
        assert ("fastsketch/extra.py" in zipfile.ZipFile(wheel).namelist()) == there
        wheel.unlink()
    assert not list(built.glob("*.egg-info"))


@pytest.mark.long
def test_two_builds_at_once_take_turns(tree):
    runs = [
        subprocess.Popen(command(tree.parent / f"at{i}"), cwd=tree, stdout=subprocess.PIPE, text=True) for i in range(2)
    ]
    said = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert sorted(text.rpartition(" of 3")[0][-1] for text in said) == ["0", "3"]
    assert sum("another build is at work" in text for text in said) == 1


@pytest.mark.long
def test_after_an_interrupt_the_next_build_is_right(tree):
    slow = tree / "cc"  # ends the build at its third call
    slow.write_text(
        '#!/bin/sh\ncase "$*" in *--version*) ;; *) echo x >> calls\n'
        '[ $(wc -l < calls) -gt 2 ] && kill -9 $PPID ;; esac\nexec cc "$@"\n'
    )
    slow.chmod(0o755)
    assert build(tree, "cut", check=False, CC=str(slow)).returncode < 0
    assert compiled(build(tree, "next")) == 3
    assert compiled(build(tree, "last")) == 0


@pytest.mark.long
def test_a_tree_that_cannot_be_written_is_built(tree):
    (tree / "build").write_text("not a folder")  # permissions would not stop root
    done = build(tree, "lib")
    assert compiled(done) == 3 and "none is kept: build/kernels cannot be written" in done.stdout


@pytest.mark.long
def test_a_kept_file_that_was_cut_off_is_made_again(built):
    (kept,) = (built / "build/kernels").glob("fastsketch._kernels.level-*.so")
    for content in (b"", kept.read_bytes()[:-1]):
        kept.write_bytes(content)
        assert compiled(build(built, "mended")) == 1
    (made,) = (built.parent / "mended/fastsketch/_kernels").glob("level.*so")
    subprocess.run([sys.executable, "-c", _load(made)], check=True)


@pytest.mark.long
def test_what_a_killed_build_has_left_is_removed_by_the_next(built):
    left = built / "build/kernels/fastsketch-build-killed"
    left.mkdir()
    build(built, "lib")
    assert not list(left.parent.glob("fastsketch-build-*"))


def test_a_store_that_cannot_be_written_is_refused_by_its_name(tree):
    done = build(tree, "lib", check=False, FASTSKETCH_BUILD=str(tree / "setup.py"))
    assert done.returncode and f"FASTSKETCH_BUILD={tree / 'setup.py'} cannot be used" in done.stderr
    assert "leave FASTSKETCH_BUILD unset" in done.stderr


def test_flags_that_make_nan_a_number_are_refused():
    cc = shutil.which(os.environ.get("CC", "cc")) or pytest.skip("no C compiler")
    for flag in ("-ffast-math", "-Ofast", "-ffinite-math-only", "-O3"):
        line = [cc, flag, "-fsyntax-only", "-x", "c", str(ROOT / "csrc/fs_common.h")]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert ("leave -ffast-math" in done.stderr) == bool(done.returncode) == (flag != "-O3")


@pytest.mark.parametrize("path", sorted((ROOT / "bench").rglob("*.c")), ids=lambda path: path.name)
def test_what_the_benches_compile_calls_the_loops_as_they_are(path):
    cc = shutil.which(os.environ.get("CC", "cc")) or pytest.skip("no C compiler")
    line = [cc, "-std=c11", "-Wall", "-Werror", "-fsyntax-only", f"-I{ROOT / 'csrc'}", str(path)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


def test_a_build_without_a_compiler_says_what_to_do(tree):
    done = build(tree, "lib", check=False, CC="no-such-compiler")
    assert done.returncode and "there is no C compiler: no-such-compiler is not found" in done.stderr
    assert "Wheels need no compiler" in done.stderr and "To compile: " in done.stderr


def test_a_compiler_that_cannot_be_read_is_named(tree):
    done = build(tree, "lib", check=False, CC="gcc 'a")
    assert done.returncode and "CC cannot be read" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.long
def test_a_compiler_with_its_environment_builds(tree):
    build(tree, "lib", CC=f"env A=1 {shutil.which('gcc') or pytest.skip('no gcc')}")


def test_a_compiler_that_fails_is_named_with_what_to_do(tree):
    done = build(tree, "lib", check=False, CFLAGS="-march=no-such-machine")
    assert done.returncode and "no-such-machine" in done.stderr and "CFLAGS=-DFS_NO_LEVELS" in done.stderr


@pytest.mark.long
def test_a_compiler_without_vector_instructions_builds_plain_loops(tree):
    build(tree, "plain", CFLAGS="-DFS_NO_LEVELS")
    code = "import sys; sys.path[:0] = sys.argv[1:]; from fastsketch._kernels import level; print(level.supported())"
    run = [sys.executable, "-P", "-c", code, str(tree.parent / "plain")]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "('plain',)\n"


def test_a_full_disk_is_named(tree):
    code = (
        "import shutil, sys\nfull = shutil.disk_usage('.')._replace(free=2**20)\n"
        "shutil.disk_usage = lambda folder: full\n"
        "sys.argv = ['setup.py', '-q', 'build']\nexec(compile(open('setup.py').read(), 'setup.py', 'exec'))"
    )
    env = os.environ | {"CFLAGS": "-no-such-option"}  # any failure, while the disk is full
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, env=env, capture_output=True, text=True, check=False)
    assert done.returncode and "is full (1 MB are free)" in done.stderr and "make room for " in done.stderr
