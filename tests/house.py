"""Count what a newcomer has to hold: ``python tests/house.py`` prints a line for each figure.

Code is what is neither blank nor comment nor docstring, in Python, Cython and C alike. Rooms are the folders and files
directly below fastsketch/; an arrow is one room that names another one, in an import or in a string.
"""

import ast
import importlib
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

TREE = Path(__file__).parents[1]
PACKAGE = TREE / "fastsketch"
PYTHON, C = {".py", ".pyx", ".pxd", ".pyi"}, {".c", ".h"}
LAYOUT = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING}
IGNORED = {tokenize.COMMENT, tokenize.NL}
C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
CIMPORT = re.compile(r"^\s*from ([\w.]+) c?import (\w+)", re.MULTILINE)
FEW = (0, 1, 2, 0.5)  # -1 is 1 with a sign
MODULE_IN_STRING = re.compile(r"fastsketch(\.\w+)+")


# -- lines -------------------------------------------------------------------------------------------------------------
def count_python(text):
    """Return (lines of code, lines of docstrings) of Python or Cython text."""
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in IGNORED]
    code, docstrings = set(), set()
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        if token.type in LAYOUT:
            continue
        alone = (before is None or before.type in LAYOUT) and after is not None and after.type == tokenize.NEWLINE
        lines = range(token.start[0], token.end[0] + 1)
        (docstrings if token.type == tokenize.STRING and alone else code).update(lines)
    return len(code), len(docstrings - code)


def count_c(text):
    """Return (lines of code, 0) of C text."""
    text = C_COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
    return sum(bool(line.strip()) for line in text.splitlines()), 0


def sources(tree):
    """Return the files that are written by hand: no C that Cython made."""
    written = [path for path in (tree / "fastsketch").rglob("*") if path.suffix in PYTHON]
    return [*written, *(path for path in (tree / "csrc").rglob("*") if path.suffix in PYTHON | C), tree / "setup.py"]


# -- who imports whom --------------------------------------------------------------------------------------------------
def imported_names(node, where):
    """Return the absolute names that an import statement of the package asks for."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        assert node.level == 0, f"{where}: relative import"
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in names if name.split(".")[0] == "fastsketch"]


def imports(tree, annotations):
    """Yield the imports of a syntax tree, those inside functions too; under TYPE_CHECKING only if `annotations`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not annotations:
            for other in node.orelse:
                yield from imports(other, annotations)
        else:
            yield from imports(node, annotations)


def names_in_strings(tree):
    """Return the modules that strings of a syntax tree name, as import_module and registries take them."""
    strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return sorted(string for string in strings if MODULE_IN_STRING.fullmatch(string))


def module_of(path, root):
    """Return fastsketch.data.files for fastsketch/data/files/__init__.py, and so on."""
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module):
    """Return the room of a module, "" of the package itself."""
    return module.split(".")[1] if "." in module else ""


def module_graph(root, *, strings=False):
    """Return {module: modules that it names}; imports for annotations alone never run, and do not count."""
    files = [path for path in root.rglob("*") if path.suffix in (".py", ".pyx", ".pxd")]
    modules = {module_of(path, root) for path in files}
    graph = defaultdict(set)
    for path in files:
        text, module = path.read_text(encoding="utf-8"), module_of(path, root)
        if path.suffix == ".py":
            tree = ast.parse(text)
            names = [name for node in imports(tree, annotations=False) for name in imported_names(node, path)]
            named = names_in_strings(tree) if strings else []
            names += [name for name in named if not module.startswith(f"{name}.")]  # a home is no import
        else:
            names = [f"{home}.{name}" for home, name in CIMPORT.findall(text)]
        for name in names:
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules and (target != module or path.suffix == ".py"):  # a .pyx may name its own .pxd
                graph[module].add(target)
    return graph


def room_graph(modules):
    """Return {room: other rooms that its modules name}."""
    graph = defaultdict(set)
    for module, targets in modules.items():
        graph[room_of(module)] |= {room_of(target) for target in targets} - {room_of(module)}
    return graph


def circle(graph):
    """Return the nodes of one circle of {node: nodes it points to}, the first again at the end; [] if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1][::-1]  # graphlib walks from what is needed to who needs it
    return []


def floors(graph):
    """Return how many rooms stand above each other at most; graph without circles."""
    height = {}
    for room in TopologicalSorter(graph).static_order():
        height[room] = 1 + max((height[below] for below in graph.get(room, ())), default=0)
    return max(height.values())


# -- figures -----------------------------------------------------------------------------------------------------------
def functions(path):
    """Yield (lines, arguments, name) of the functions of a Python file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            listed = node.args
            n = len(listed.posonlyargs) + len(listed.args) + len(listed.kwonlyargs)
            yield node.end_lineno - node.lineno + 1, n, f"{path.stem}.{node.name}"


def literals(text):
    """Count the numbers in Python code that may decide something: all but 0, 1, 2, -1 and a half, docstrings apart."""
    found = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    return sum(isinstance(value, int | float) and not isinstance(value, bool) and value not in FEW for value in found)


def flags():
    """Return {verb: (flags, lines of its --help)} of the command line."""
    cli = importlib.import_module("fastsketch.cli._parser")
    parsers = {verb: cli.create_parser(verb) for verb in cli.SUBCOMMANDS}
    return {
        verb: (sum(bool(action.option_strings) for action in parser._actions), parser.format_help().count("\n"))
        for verb, parser in parsers.items()
    }


def main():
    """Print the figures of this tree."""
    code, docstrings, files = Counter(), Counter(), sources(TREE)
    for path in files:
        kind = "C" if path.suffix in C else "Python" if path.suffix in (".py", ".pyi") else "Cython"
        text = path.read_text(encoding="utf-8")
        lines, said = (count_c if kind == "C" else count_python)(text)
        code[kind], docstrings[kind] = code[kind] + lines, docstrings[kind] + said
    print("lines of code", sum(code.values()), dict(code))
    print("lines of docstrings", sum(docstrings.values()))
    lengths = sorted((path.read_text(encoding="utf-8").count("\n"), str(path.relative_to(TREE))) for path in files)
    print("files", len(files), "longest", lengths[-3:])
    every = sorted(one for path in PACKAGE.rglob("*.py") for one in functions(path))
    print("functions", len(every), "longest", every[-1], "most arguments", max((n, name) for _, n, name in every))
    decided = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "_kernels"]
    print("numbers in code", sum(literals(path.read_text(encoding="utf-8")) for path in decided))
    rooms = room_graph(module_graph(PACKAGE, strings=True))
    rooms.pop("", None)  # the package itself names what it offers
    rooms = {room: below - {""} for room, below in rooms.items()}
    found = circle(rooms)
    everything = set(rooms) | {room for below in rooms.values() for room in below}
    print("rooms", len(everything), "arrows", sum(map(len, rooms.values())), "circle", found or None, end=" ")
    print("floors", None if found else floors(rooms))
    import fastsketch

    submodules = [name for name in fastsketch.__all__ if (PACKAGE / name).is_dir()]
    print("public names", len(fastsketch.__all__) - len(submodules) - 1, "submodules", len(submodules))
    verbs = flags()
    print("verbs", len(verbs), "flags", sum(n for n, _ in verbs.values()), "help", sum(n for _, n in verbs.values()))


if __name__ == "__main__":
    sys.path.insert(0, str(TREE))  # the figures are of this tree, whatever is installed
    main()
