"""Changes one place of a room at a time and tells which changes its tests let pass: mutants.py ROOM [N] [SEED].

N places of a room of fastsketch/ (or of a wing like data/files) and of its kernels are drawn by the seed: operators,
comparisons, `and` and `or`, `not`, min and max, constants, statements that are left out. Every change is made in a copy
of the package in a temporary folder, with its module compiled anew where it is Cython, and the tests of the room run
until one fails: first the files that name the changed module or what it defines. A change that no test minds has
survived: a test is missing, or nobody can see it. One that makes tests run without end is killed; one that does not
compile is undecided.
"""

import ast
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
# What holds a room beside the tests of its name. A wing is a room, too.
BESIDE = {
    "_core": ["test_sparse.py", "test_losses.py", "test_threads.py", "test_pool.py"],
    "_frame": ["test_model.py", "test_guards.py", "test_defaults.py"],
    "neighbours/codes": [
        "neighbours/hashing",
        "neighbours/quantizing/test_books.py",
        "neighbours/quantizing/test_one_length.py",
        "kernels/test_quantize.py",
    ],
    "data/files": [
        "data/sources/test_table.py",
        "cli/test_outputs.py",
        "cli/test_recommend_cli.py",
        "cli/test_tables_cli.py",
    ],
    "data/sources": ["data/files/test_sources.py", "data/files/test_damaged.py"],
    "jobs": ["cli/test_map_jobs_cli.py", "cli/test_jobs.py"],
    "_kernels/linalg": ["kernels"],
    "recommending": ["kernels/test_items.py", "sklearn/test_recommender.py", "cli/test_recommend_cli.py"],
    "sketching": ["reliability/test_certificate.py"],
}
# A run of tests may take this many times as long as with nothing changed, and these seconds more.
SLOWER, MORE = 4, 60
PAIRS = "+ -|* /|<< >>|< <=|> >=|== !=|is is not|in not in|and or|True False|min max|minimum maximum"
PAIRS = [re.fullmatch(r"(is|in|\S+) (.+)", pair).groups() for pair in PAIRS.split("|")]
INSTEAD = {"//": "*", "%": "*", "**": "*", "&": "|", "|": "&", "^": "&", "not": ""}
INSTEAD |= dict(PAIRS) | {second: first for first, second in PAIRS}
OPERATOR = re.compile(r"is\s+not|not\s+in|is|in|and|or|//|\*\*|<<|>>|[<>=!]=|[-+*/%&|^<>]")
# In Cython a binary operator stands between blanks; stars, ampersands and brackets of C do not.
CYTHON = re.compile(
    r"(?<= )(?:<<|>>|//|[<>=!]=|[-+*/%&|<>]|is not|is|not in|and|or)(?==? )|\bnot |\b(?:True|False)\b"
    r"|\bf?(?:min|max)(?=\()|(?<![\w.])\d+(?:\.\d+)?(?![\w.])|(?m:(?<=    )[\w.\[\]]+(?: [-+*/]= .*|\(.*\))$)"
)
DECLARATION = re.compile(r"\s*(?:from|c?import|include|c?p?def|cdef(?!.* = )|ctypedef|@)\b|.*\bnoexcept\b")
# Compiles in place the modules that are made of a file, and no others.
COMPILE = """
import runpy, sys, setuptools
from pathlib import Path
changed, whole, made_of = Path(sys.argv[1]), setuptools.setup, runpy.run_path("setup.py")["made_of"]
def setup(ext_modules, **how):
    whole(ext_modules=[ext for ext in ext_modules if ext.pyx and changed in made_of(Path(ext.pyx))], **how)
setuptools.setup, sys.argv = setup, ["setup.py", "-q", "build_ext", "--inplace"]
runpy.run_path("setup.py", run_name="__main__")
"""


# -- places: (start, stop, what stands there instead) ------------------------------------------------------------------
def of_python(text):
    """Those of a module, by its syntax tree."""
    begins = [0, *(match.end() for match in re.finditer("\n", text))]

    def at(line, column):  # columns are counted in bytes
        begin = begins[line - 1]
        return begin + len(text[begin : begin + column].encode()[:column].decode())

    def ends(node):
        return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)

    def between(nodes):
        for left, right in zip(nodes[:-1], nodes[1:], strict=True):
            start, stop = ends(left)[1], ends(right)[0]
            gap = re.sub("#.*", lambda comment: " " * len(comment[0]), text[start:stop])
            found = OPERATOR.search(gap)
            if found and (instead := INSTEAD.get(" ".join(found[0].split()))) is not None:
                yield start + found.start(), start + found.end(), instead

    def visit(node):
        match node:
            case ast.BinOp(left=left, right=right) | ast.AugAssign(target=left, value=right):
                yield from between([left, right])
            case ast.Compare(left=left, comparators=others):
                yield from between([left, *others])
            case ast.BoolOp(values=values):
                yield from between(values)
            case ast.UnaryOp(op=ast.Not() | ast.USub() as sign):
                yield ends(node)[0], ends(node)[0] + (3 if isinstance(sign, ast.Not) else 1), ""
            case ast.Constant(value=bool() | int() | float()):
                yield *ends(node), other(text[slice(*ends(node))])
            case ast.Name(id="min" | "max" as name) | ast.Attribute(attr="minimum" | "maximum" as name):
                yield ends(node)[1] - len(name), ends(node)[1], INSTEAD[name]
        match node:  # what may be left out: without a name that is assigned to, every run would miss it
            case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
                yield *ends(node), "pass"
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield *ends(node), "pass"
        # annotations do nothing, and before Python 3.12 nobody knows places within an f-string
        quiet = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        for child in ast.iter_child_nodes(node):
            if child not in quiet and not isinstance(child, ast.JoinedStr):
                yield from visit(child)

    return visit(ast.parse(text))


def of_cython(text):
    """Those of a .pyx or .pxd file, by its words, line by line, without declarations."""
    text = re.sub(r'(?s)""".*?"""|"[^"\n]*"|#[^\n]*', lambda found: re.sub(r"\S", "~", found[0]), text)
    for line in re.finditer(".*\n", text):
        for found in [] if DECLARATION.match(line[0]) else CYTHON.finditer(line[0]):
            old = found[0].strip()
            start, stop = line.start() + found.start(), line.start() + found.end()
            if old[-1] == ")" or "= " in old:
                yield start, stop, "pass"
            elif old in ("fmin", "fmax"):
                yield start + 1, stop, INSTEAD[old[1:]]
            else:
                yield start, stop, other(old)


def other(word):
    """Another constant, or word."""
    if word in INSTEAD:
        return INSTEAD[word]
    value = ast.literal_eval(word)
    return repr(value + 1 if isinstance(value, int) or not value else 2 * value)


# -- a copy of the package, and tests on it ----------------------------------------------------------------------------
def copy_package(folder):
    """The tree's package, with the modules that were compiled for the installed one."""
    for name in ("fastsketch", "csrc", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    installed = Path(find_spec("fastsketch").origin).parent
    for path in installed.rglob("*.so"):
        shutil.copy(path, folder / "fastsketch" / path.relative_to(installed))
    # by their digests: a change of the same second and length is seen
    run(folder, sys.executable, "-m", "compileall", "-qf", "--invalidation-mode", "checked-hash", "fastsketch")


def run(folder, *command, limit=600.0):
    """(exit status, output) of a command that may take so many seconds, with all that it starts."""
    temporary = folder / "tmp"
    temporary.mkdir()
    own = {"PYTHONPATH": str(folder), "TMPDIR": str(temporary), "FASTSKETCH_BUILD": str(folder / "kernels")}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **own}, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(limit)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
    shutil.rmtree(temporary, ignore_errors=True)
    return status, (folder / "log").read_text(errors="replace")


def write(folder, path, text):
    """Put a file into the copy; return whether the modules that it is in compile."""
    target = folder / path
    target.write_text(text)
    for cached in target.parent.glob("__pycache__/*.nb[ic]"):  # Numba's: of what a function calls they know nothing
        cached.unlink()
    if target.suffix == ".py":
        return True
    return run(folder, sys.executable, "-c", COMPILE, str(path))[0] == 0


def test(folder, files, *options, limit):
    """(whether these pass, output)."""
    paths = [str(TESTS / file) for file in files]
    status, output = run(folder, sys.executable, str(TESTS / "run.py"), *paths, "-x", *options, limit=limit)
    return status == 0, output


def verdict(folder, path, changed, times):
    """What becomes of a change: "killed", "survived" or "undecided"."""
    if not write(folder, path, changed):
        return "undecided"
    defined = re.findall(r"(?m)^(?:class|c?p?def|cdef [\w ]+) (\w+)", changed)
    name = re.compile(rf"\b(?:{'|'.join([Path(path).stem, *defined])})\b")
    files = sorted(times, key=times.__getitem__)
    first = [file for file in files if name.search((TESTS / file).read_text())]
    for some in first, [file for file in files if file not in first]:
        limit = SLOWER * sum(times[file] for file in some) + MORE
        if some and not test(folder, some, "-q", limit=limit)[0]:
            return "killed"
    return "survived"


# -- a room ------------------------------------------------------------------------------------------------------------
def places_of(room):
    """All places of a room: (file, start, stop, what stands there instead)."""
    wings = (room, f"_kernels/{Path(room).name}")
    files = [file for wing in wings for file in (ROOT / "fastsketch" / wing).rglob("*.p[yx]*")]
    for file in sorted(file for file in files if file.suffix in (".py", ".pyx", ".pxd")):
        text = file.read_text()
        for place in sorted(set(of_python(text) if file.suffix == ".py" else of_cython(text))):
            yield str(file.relative_to(ROOT)), *place


def tests_of(room):
    """Test files of a room, from tests/."""
    held = [TESTS / name for name in [room, *BESIDE.get(room, [])]]
    files = {file for path in held for file in ([path] if path.suffix else path.rglob("test_*.py"))}
    return sorted(str(file.relative_to(TESTS)) for file in files)


def times_of(folder, files):
    """Seconds of each test file with nothing changed."""
    passed, output = test(folder, files, "-vv", "--durations=0", limit=7200.0)
    if not passed:
        sys.exit(f"{output}\ntests fail with nothing changed")
    times = dict.fromkeys(files, 0.0)
    for seconds, file in re.findall(r"(?m)^([\d.]+)s \w+ +[^:\s]*\btests/([^:\s]+)::", output):
        times[file] += float(seconds)
    return times


def main(room, number="20", seed="0"):
    """Print what became of every change, with the line before and after."""
    places, files = list(places_of(room)), tests_of(room)
    if not places or not files:
        sys.exit(f"{room!r} is no room of fastsketch/ with tests: take the name of a folder")
    drawn = random.Random(int(seed)).sample(places, min(int(number), len(places)))
    count = Counter()
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        copy_package(folder)
        times = times_of(folder, files)
        for path, start, stop, instead in drawn:
            text = (ROOT / path).read_text()
            changed, began = text[:start] + instead + text[stop:], time.monotonic()
            found = verdict(folder, path, changed, times)
            seconds = time.monotonic() - began
            write(folder, path, text)
            count[found] += 1
            line = text.count("\n", 0, start)
            before, after = (one.split("\n")[line].strip() for one in (text, changed))
            print(f"{found} ({seconds:.0f} s) {path}:{line + 1}\n    - {before}\n    + {after}", flush=True)
    print(f"{room}, seed {seed}: {len(drawn)} of {len(places)} places,", dict(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
