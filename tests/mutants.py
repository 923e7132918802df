"""Changes one place at a time and tells which changes the tests let pass: mutants.py ROOM[,ROOM...] [N] [SEED].

N places of rooms of fastsketch/ (or of wings like data/files) and of their kernels are drawn by the seed, of each room
in turn: operators, comparisons, `and` and `or`, `not`, min and max, constants, statements that are left out. A change
is made in a copy of the package in a temporary folder, with its module compiled anew where it is Cython.

The tests of the rooms are first run on a copy that notes which blocks of functions each test enters. A change is tried
by those that come to its block or, where that is compiled, to a block that names what the module defines: the quickest
first, until one fails. A change that no test minds has survived: a test is missing, or nobody can see it. One that does
not compile, or whose tests a limit ends, is undecided.
"""

import ast
import contextlib
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path

import pytest

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
    "covariance": ["sklearn/test_covariance.py"],
    "recommending": ["kernels/test_items.py", "sklearn/test_recommender.py", "cli/test_recommend_cli.py"],
    "sketching": ["reliability/test_certificate.py"],
}
# Each process of a run of tests may take this many times what all take with nothing changed, and these seconds more.
SLOWER, MORE = 4, 60
# Seconds of tests after which a change has survived: those that come to what every model calls take as long as a room.
ENOUGH = 90
# Variants of a test, of which those after the first come later; those from this one on are alike.
MANY = 4
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
# What a module defines.
DEFINED = r"(?m)^(?:class|c?p?def|cdef (?:class|[\w ]+)) (\w+)"
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
def places_of_python(text):
    """Yield those of a module, by its syntax tree."""
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
            sign = OPERATOR.search(gap)
            if sign and (instead := INSTEAD.get(" ".join(sign[0].split()))) is not None:
                yield start + sign.start(), start + sign.end(), instead

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
                yield *ends(node), another(text[slice(*ends(node))])
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


def places_of_cython(text):
    """Yield those of a .pyx or .pxd file, by its words, line by line, without declarations."""
    text = re.sub(r'(?s)""".*?"""|"[^"\n]*"|#[^\n]*', lambda quiet: re.sub(r"\S", "~", quiet[0]), text)
    for line in re.finditer(".*\n", text):
        for word in [] if DECLARATION.match(line[0]) else CYTHON.finditer(line[0]):
            old = word[0].strip()
            start, stop = line.start() + word.start(), line.start() + word.end()
            if old[-1] == ")" or "= " in old:
                yield start, stop, "pass"
            elif old in ("fmin", "fmax"):
                yield start + 1, stop, INSTEAD[old[1:]]
            else:
                yield start, stop, another(old)


def another(word):
    """Return another constant, or word."""
    if word in INSTEAD:
        return INSTEAD[word]
    value = ast.literal_eval(word)
    return repr(value + 1 if isinstance(value, int) or not value else 2 * value)


# -- a copy of the package, and tests on it ----------------------------------------------------------------------------
def copy_package(folder):
    """Copy the tree's package, with the modules that were compiled for the installed one."""
    for name in ("fastsketch", "csrc", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    installed = Path(find_spec("fastsketch").origin).parent
    for path in installed.rglob("*.so"):
        shutil.copy(path, folder / "fastsketch" / path.relative_to(installed))
    # by their digests: a change of the same second and length is seen
    run(folder, sys.executable, "-m", "compileall", "-qf", "--invalidation-mode", "checked-hash", "fastsketch")


def run(folder, *command, seconds=600.0):
    """Return exit status and output of a command, each of whose processes may take so many seconds of a processor.

    One that takes more, or ten times as long by the clock, is ended by a signal: its status is negative.
    """
    temporary = folder / "tmp"
    temporary.mkdir()
    own = {"PYTHONPATH": str(folder), "TMPDIR": str(temporary), "FASTSKETCH_BUILD": str(folder / "kernels")}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **own, "MUTANTS": str(folder)},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds),) * 2),
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10 * seconds)
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


def test(folder, files, *options, seconds):
    """Return exit status and output of test files; of the tests of `wanted.json` in the folder, where there is one."""
    paths = [str(ROOT / file) for file in files]
    return run(folder, sys.executable, str(TESTS / "run.py"), *paths, "-p", "tests.mutants", *options, seconds=seconds)


def verdict(folder, path, changed, tests):
    """Return "killed", "survived" or "undecided", and why, of a change tried by {test: seconds}, in this order."""
    if not write(folder, path, changed):
        return "undecided", "it does not compile"
    if not tests:
        return "survived", "no test comes there"
    (folder / "wanted.json").write_text(json.dumps(list(tests)))
    files = dict.fromkeys(name.partition("::")[0] for name in tests)
    status, output = test(folder, files, "-q", "-x", seconds=SLOWER * sum(tests.values()) + MORE)
    if status == 0:
        return "survived", f"{len(tests)} tests"
    if status in (-signal.SIGKILL, -signal.SIGXCPU) or "Failed: took more than" in output:
        return "undecided", "it takes too long"
    failed = re.search(r"(?m)^(?:FAILED|ERROR) (?:\S*/tests/)?(.{,150})", output)
    return "killed", failed[1] if failed else f"exit status {status}"


# -- which tests come to a place ---------------------------------------------------------------------------------------
def note_blocks(folder):
    """Have a package note which blocks of functions are entered; return them: (file, first line, last line).

    Kernels cannot note anything.
    """
    blocks = []

    def visit(node, path, inside=False):
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        children = list(ast.iter_child_nodes(node))
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block and (inside or function):
                blocks.append((path, block[0].lineno, block[-1].end_lineno))
                first = int(function and ast.get_docstring(node) is not None)
                block[first:first] = ast.parse(f"_enter({len(blocks) - 1})").body
        for child in children:
            visit(child, path, inside or function)

    (folder / "fastsketch/_entered.py").write_text("entered = set()\nenter = entered.add\n")
    for path in sorted(notable()):
        tree = ast.parse((ROOT / path).read_text())
        visit(tree, path)
        first = 1 + max(
            (k for k, line in enumerate(tree.body) if getattr(line, "module", "") == "__future__"), default=0
        )
        first = first if tree.body and (first > 1 or ast.get_docstring(tree) is not None) else 0
        tree.body[first:first] = ast.parse("from fastsketch._entered import enter as _enter").body
        (folder / path).write_text(ast.unparse(ast.fix_missing_locations(tree)))
    return blocks


def notable():
    """Return the modules that can note what is entered, {path: text}."""
    paths = [path.relative_to(ROOT).as_posix() for path in (ROOT / "fastsketch").rglob("*.py")]
    return {path: (ROOT / path).read_text() for path in paths if "_kernels" not in path}


def record_tests(folder, files):
    """Return the blocks of a package, and what tests that pass do: {test: (seconds, blocks that it enters)}.

    -1 stands for what a process of its own enters.
    """
    blocks = note_blocks(folder)
    status, output = test(folder, files, "-q", seconds=7200.0)
    if not (folder / "record.json").exists():
        sys.exit(f"{output}\nno tests with nothing changed: exit status {status}")
    return blocks, json.loads((folder / "record.json").read_text())


def coming_to(path, line, blocks, record):
    """Return {test: seconds} of those that come to a line, the likeliest and quickest first, up to some seconds."""
    wanted, files = {block_at(path, line, blocks)} - {None}, set()
    if path not in (noted := notable()):
        wanted, files = users_of(path, noted, blocks, {test.partition("::")[0] for test in record})
    elif not wanted:  # what a module does when it is imported
        wanted = {k for k, block in enumerate(blocks) if block[0] == path}
    direct = {test for test in record if wanted & set(record[test][1]) or test.partition("::")[0] in files}
    files |= {test.partition("::")[0] for test in direct}
    variants = Counter()

    def rank(test):
        seconds, file = record[test][0], test.partition("::")[0]
        name = test.partition("[")[0]
        variants[name] += 1
        # what one test of a file learns all may check; in processes of its own a test may go anywhere
        apart = (test not in direct) + (file not in files)
        return apart, seconds > 1, min(variants[name], MANY), file

    total, out = 0.0, {}
    ranks = {test: rank(test) for test in record}
    for test in sorted((test for test in record if ranks[test][0] < 2 or -1 in record[test][1]), key=ranks.__getitem__):
        total += record[test][0]
        if out and total > ENOUGH:
            break
        out[test] = record[test][0]
    return out


def block_at(path, line, blocks):
    """Return the number of the innermost block of functions that a line is in, if it is in any."""
    around = [k for k, (file, first, last) in enumerate(blocks) if file == path and first <= line <= last]
    return min(around, key=lambda k: blocks[k][2] - blocks[k][1], default=None)


def users_of(path, noted, blocks, files):
    """Return the blocks, and which test files, name what a compiled module defines, or what its compiled users do."""
    kernels = [
        path for path in (ROOT / "fastsketch/_kernels").rglob("*.p[yx]*") if path.suffix in (".py", ".pyx", ".pxd")
    ]
    texts = noted | {path.relative_to(ROOT).as_posix(): path.read_text() for path in kernels}
    tests = {file: (ROOT / file).read_text() for file in files}
    wanted, files, done, waiting = set(), set(), set(), [path.partition(".")[0]]
    while waiting:
        module = waiting.pop()
        done.add(module)
        package, _, stem = module.replace("/", ".").rpartition(".")
        imported = re.compile(rf"\b{re.escape(package)}(\.| c?import [\w\s,()]*\b){stem}\b")
        own = "".join(texts.get(module + suffix, "") for suffix in (".py", ".pyx", ".pxd"))
        defined = re.compile(rf"\b(?:{'|'.join(re.findall(DEFINED, own)) or stem})\b")
        files |= {file for file, text in tests.items() if imported.search(text)}
        for user in [file for file, text in texts.items() if imported.search(text)]:
            if user in noted:
                lines = enumerate(noted[user].splitlines(), 1)
                wanted |= {block_at(user, line, blocks) for line, text in lines if defined.search(text)} - {None}
            elif (other := user.partition(".")[0]) not in done:
                waiting.append(other)
    return wanted, files


# -- the same module as a plugin of pytest, in the processes that run tests --------------------------------------------
def name_of(item):
    """Return the name of a test, with its file from the root of the project."""
    return f"{os.path.relpath(item.path, ROOT)}::{item.nodeid.partition('::')[2]}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    wanted = Path(os.environ["MUTANTS"], "wanted.json")
    if wanted.exists():
        place = {name: k for k, name in enumerate(json.loads(wanted.read_text()))}
        items[:] = sorted((item for item in items if name_of(item) in place), key=lambda item: place[name_of(item)])
    else:
        config.stash[RECORD] = {}


RECORD = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    if RECORD not in item.config.stash:
        return (yield)
    from fastsketch._entered import entered

    entered.clear()
    seconds, faults, failed = *spent(), item.session.testsfailed
    try:
        return (yield)
    finally:
        if item.session.testsfailed == failed:
            seconds, faults = spent()[0] - seconds, spent()[1] - faults
            own = [-1] if faults else []
            item.config.stash[RECORD][name_of(item)] = (round(seconds, 3), own + sorted(entered))


def spent():
    """Return seconds of a processor that this process and those that it has ended took, and page faults of those."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used), used[1].ru_minflt


def pytest_sessionfinish(session):
    if RECORD in session.config.stash:
        Path(os.environ["MUTANTS"], "record.json").write_text(json.dumps(session.config.stash[RECORD]))


# -- rooms -------------------------------------------------------------------------------------------------------------
def places_of(room):
    """Yield all places of a room: (file, start, stop, what stands there instead)."""
    wings = (room, f"_kernels/{Path(room).name}")
    files = [file for wing in wings for file in (ROOT / "fastsketch" / wing).rglob("*.p[yx]*")]
    for file in sorted(file for file in files if file.suffix in (".py", ".pyx", ".pxd")):
        text = file.read_text()
        for place in sorted(set(places_of_python(text) if file.suffix == ".py" else places_of_cython(text))):
            yield str(file.relative_to(ROOT)), *place


def tests_of(room):
    """Return the test files of a room, from the root of the project."""
    paths = [TESTS / name for name in [room, *BESIDE.get(room, [])]]
    files = {file for path in paths for file in ([path] if path.suffix else path.rglob("test_*.py"))}
    return {file.relative_to(ROOT).as_posix() for file in files}


def draw(rooms, number, seed):
    """Return so many places, of each room in turn."""
    chance = random.Random(seed)
    places = [list(places_of(room)) for room in rooms]
    drawn = zip_longest(*(chance.sample(some, min(number, len(some))) for some in places))
    return [place for turn in drawn for place in turn if place][:number]


def main(names, number="20", seed="0"):
    """Print what became of every change, with the line before and after."""
    rooms = names.split(",")
    drawn, files = draw(rooms, int(number), int(seed)), sorted(set().union(*map(tests_of, rooms)))
    if not all(any(places_of(room)) and tests_of(room) for room in rooms):
        sys.exit(f"{names!r} are no rooms of fastsketch/ with tests: take names of folders, with commas between")
    count = Counter()
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        noting, folder = Path(name, "noting"), Path(name, "changed")
        for copy in noting, folder:
            copy.mkdir()
            copy_package(copy)
        blocks, record = record_tests(noting, files)
        for path, start, stop, instead in drawn:
            text = (ROOT / path).read_text()
            changed, line = text[:start] + instead + text[stop:], text.count("\n", 0, start) + 1
            outcome, why = verdict(folder, path, changed, coming_to(path, line, blocks, record))
            write(folder, path, text)
            count[outcome] += 1
            before, after = (one.split("\n")[line - 1].strip() for one in (text, changed))
            print(f"{outcome} ({why}) {path}:{line}\n    - {before}\n    + {after}", flush=True)
    print(f"{names}, seed {seed}: {len(drawn)} places,", dict(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
