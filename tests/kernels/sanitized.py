"""Builds the kernels under the address and undefined-behaviour sanitizers and runs on them what exercises memory.

The package is built into a folder of its own, from the C that an ordinary build keeps. First the C drivers beside this
file run, of the same objects; then tests of the extensions, with the sanitizers' libraries loaded before all else.
`sanitized.py 2/3` runs the last third of the test files alone, `sanitized.py damaged` reads the damaged inputs of the
long form of the tests: by bytes, and by structure.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS_AT = ROOT / "tests"
CC = os.environ.get("CC", "cc")
CHECKS = "-fsanitize=address,undefined"
# What reads memory by counts and places that come from outside: kernels, files, crafted states (io/test_untrusted.py),
# every kind of model.
TESTS = (
    "kernels",
    "neighbours/codes",
    "data/files",
    "data/sources/test_table.py",
    "data/names/test_ids.py",
    "sketching/test_groups.py",
    "reliability/test_certificate.py",
    "sketching/test_input.py",
    "sketching/test_tracked.py",
    "test_golden.py",
    "neighbours/summaries/test_summary.py",
    "test_guards.py",
)
AT_A_TIME = 2
# They measure time or bytes, put another malloc in place, or compare with packages that are not installed for this.
# Memory that is reserved and never touched costs nothing, but not under the sanitizer, which shadows all of it.
LEFT_OUT = " and ".join(
    f"not {name}"
    for name in (
        "take_little_memory",
        "costs_less",
        "memory_does_not_grow",
        "memory_is_bounded",
        "a_leak",
        "requests_for_memory",
        "scikit_learn",
    )
)


def run(*command, **environment):
    """Run in the root; end with the status of what failed."""
    together([command], **environment)


def together(commands, **environment):
    """Run at the same time in the root; end with the status of what failed, when all have ended."""
    running = [subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}) for command in commands]
    ended = [process.wait() for process in running]
    for command, status in zip(commands, ended, strict=True):
        if status:
            sys.exit(f"{' '.join(map(str, [*command[:4], '...', *command[-2:]]))} ended with status {status}")


def library(name):
    """Where the compiler keeps a library of the sanitizers."""
    said = subprocess.run([CC, f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
    if not Path(said).is_absolute():
        sys.exit(f"make asan needs gcc with its sanitizers: {CC} has no {name} (Debian: libasan, libubsan)")
    return said


def heaps(paths, n):
    """Return n lists of test files whose lengths add up to about the same."""
    found = [[] for _ in range(n)]
    for path in sorted(paths, key=lambda path: (-path.stat().st_size, path)):
        min(found, key=lambda heap: sum(other.stat().st_size for other in heap)).append(path)
    return found


def files(turn):
    """Return the test files of a turn like "2/3", or all of them, a list for each process."""
    if turn == "damaged":
        test = f"{TESTS_AT}/reliability/test_inputs.py::test_"
        return [[f"{test}{name}", "--long"] for name in ("damaged_inputs", "inputs_wrong_by_structure")]
    paths = [TESTS_AT / name for name in TESTS]
    paths = [file for path in paths for file in (path.rglob("test_*.py") if path.is_dir() else [path])]
    if turn:
        part, parts = map(int, turn.split("/"))
        paths = heaps(paths, parts)[part]
    return heaps(paths, AT_A_TIME)


def main(turn=""):
    """Run the drivers and the tests; the first failure ends it."""
    if not shutil.which(CC):
        sys.exit(f"make asan needs a C compiler: there is no {CC}")
    preload = " ".join(library(name) for name in ("libasan.so", "libubsan.so"))
    with tempfile.TemporaryDirectory() as folder:
        built, objects = Path(folder, "lib"), Path(folder, "objects")
        objects.mkdir()
        build = [sys.executable, "setup.py", "-q", "build", "--build-lib", built]
        run(*build, FASTSKETCH_SANITIZE="1", FASTSKETCH_OBJECTS=str(objects), CC=CC)
        parts = sorted(objects.iterdir())
        if {path.stem for path in parts} != {path.stem for path in (ROOT / "csrc").glob("*.c")}:
            sys.exit("a file of csrc/ is in no kernel")
        drivers = [Path(folder, name) for name in ("asan", "pool")]
        flags = ["-std=c11", "-g", "-O1", CHECKS, "-fno-sanitize-recover=all", "-Icsrc"]
        for driver in drivers:
            source = ROOT / "tests" / "kernels" / f"{driver.name}.c"
            run(CC, *flags, source, *parts, "-lm", "-lpthread", "-o", driver)
        together([[driver] for driver in drivers])
        # --capture=sys: what a sanitizer writes before it ends the process is to be seen
        options = ["-c", ROOT / "pyproject.toml", "--rootdir", ROOT, "-p", "no:cacheprovider", "--capture=sys"]
        # from another folder, so that neither these tests nor what they start find the tree's own package
        code = f"import os, sys, pytest; os.chdir({folder!r}); sys.exit(pytest.main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, "-q", *options, "-k", LEFT_OUT]
        together(
            [[*command, *paths] for paths in files(turn)],
            LD_PRELOAD=preload,
            # Python and NumPy keep memory to the end on purpose; malloc for every object, so that each is watched
            ASAN_OPTIONS="detect_leaks=0",
            UBSAN_OPTIONS="print_stacktrace=1",
            PYTHONMALLOC="malloc",
            PYTHONPATH=os.pathsep.join([str(built), str(ROOT)]),
            FASTSKETCH_DATA=os.environ.get("FASTSKETCH_DATA", str(ROOT.parent / "shared" / "data")),
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
