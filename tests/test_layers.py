"""Imports go down only and never in a circle, and importing the package is cheap."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import fastsketch

# The tree beside the tests, not the installed package: a wheel holds no .pyx.
ROOT = Path(__file__).parents[1] / "fastsketch"
# A module may import rooms of its own floor or below.
FLOORS = [
    {"_kernels"},
    {
        "_batches",
        "_keywords",
        "_loading",
        "_losses",
        "_model",
        "_parameters",
        "_random",
        "_sparse",
        "_threads",
        "_validation",
    }
    | {"features", "io", "sources", "merging", "jobs"},
    {"codes", "sketching", "summaries", "hashing", "quantizing", "online", "lowrank", "ranking", "recommending"}
    | {"indexing"},
    {"_plot", "_show_config", "sklearn", "torch", "dask", "cli", "demo", "reference", "__main__", ""},
]
FLOOR = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}


def imported_names(node, where):
    """Absolute names that an import statement of the package asks for."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        assert node.level == 0, f"{where}: relative import"
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in names if name.split(".")[0] == "fastsketch"]


def imports(tree, annotations):
    """Import statements of a syntax tree, those inside functions too; under TYPE_CHECKING only if `annotations`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not annotations:
            for other in node.orelse:
                yield from imports(other, annotations)
        else:
            yield from imports(node, annotations)


def imported_rooms(path):
    for node in imports(ast.parse(path.read_text(encoding="utf-8")), annotations=True):
        for name in imported_names(node, path):
            parts = name.split(".")
            yield parts[1] if len(parts) > 1 else ""


def test_imports_go_down_only():
    checked = 0
    for path in ROOT.rglob("*.py"):
        room = room_of(module_of(path, ROOT))
        for target in imported_rooms(path):
            target = target if target in FLOOR else ""
            if target == "" and FLOOR[room] == len(FLOORS) - 1:
                continue  # faces use the public names
            assert FLOOR[target] <= FLOOR[room], f"{path.relative_to(ROOT)} imports {target or 'fastsketch'}"
            checked += 1
    assert checked > 30


def test_kernels_import_nothing_above():
    checked = 0
    for path in (ROOT / "_kernels").rglob("*.p[yx]*"):
        if path.suffix not in (".pyx", ".pxd"):
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith(("from fastsketch", "import fastsketch", "cimport fastsketch")):
                assert line.startswith("from fastsketch._kernels"), f"{path.name}: {line}"
                checked += 1
    assert checked > 5


def circle(graph):
    """Nodes of one circle of {node: nodes it points to}, the first again at the end; [] if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1][::-1]  # graphlib walks from what is needed to who needs it
    return []


def module_of(path, root):
    """fastsketch.io._state for fastsketch/io/_state.py, fastsketch.io for fastsketch/io/__init__.py."""
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module):
    return module.split(".")[1] if "." in module else ""


def module_graph(root):
    """{module: modules that it imports, anywhere in its text}; imports for annotations alone never run."""
    files = [path for path in root.rglob("*") if path.suffix in (".py", ".pyx", ".pxd")]
    modules = {module_of(path, root) for path in files}
    graph = defaultdict(set)
    for path in files:
        text, module = path.read_text(encoding="utf-8"), module_of(path, root)
        if path.suffix == ".py":
            names = [n for node in imports(ast.parse(text), annotations=False) for n in imported_names(node, path)]
        else:
            found = re.findall(r"^\s*from ([\w.]+) c?import (\w+)", text, re.MULTILINE)
            names = [f"{home}.{name}" for home, name in found]
        for name in names:
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules and (target != module or path.suffix == ".py"):  # a .pyx may name its own .pxd
                graph[module].add(target)
    return graph


def room_graph(modules):
    graph = defaultdict(set)
    for module, targets in modules.items():
        graph[room_of(module)] |= {room_of(target) for target in targets} - {room_of(module)}
    return graph


def test_a_circle_is_found():
    chain = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert circle(chain) == []
    assert circle(chain | {"c": {"d"}, "d": {"b"}}) in (list("bcdb"), list("cdbc"), list("dbcd"))
    assert circle(chain | {"c": {"c"}}) == ["c", "c"]


def test_a_circle_of_files_is_found(tmp_path):
    """Imports inside functions count, those for annotations do not; two rooms can form one without their modules."""
    files = {
        "__init__.py": "",
        "one/__init__.py": "from fastsketch.one._a import f",
        "one/_a.py": "def f():\n    from fastsketch.one._b import g",
        "one/_b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from fastsketch.one._a import f",
        "two/__init__.py": "",
        "two/_c.py": "import fastsketch.one._b",
    }
    root = tmp_path / "fastsketch"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    graph = module_graph(root)
    assert graph["fastsketch.one._a"] == {"fastsketch.one._b"}
    assert circle(graph) == circle(room_graph(graph)) == []
    (root / "one/_b.py").write_text("class B:\n    def f(self):\n        from fastsketch.one import f")
    assert len(circle(module_graph(root))) == 4
    (root / "one/_b.py").write_text("import fastsketch.two")
    graph = module_graph(root)
    assert circle(graph) == []
    assert set(circle(room_graph(graph))) == {"one", "two"}


@pytest.mark.parametrize("level", ["modules", "rooms"])
def test_no_import_circles(level):
    graph = module_graph(ROOT)
    assert len(graph) > 30
    found = circle(graph if level == "modules" else room_graph(graph))
    assert not found, " -> ".join(found)


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_is_light():
    heavy = ("numba", "sklearn", "torch", "dask", "matplotlib", "scipy.linalg")
    out = run(f"import sys, fastsketch; print([m for m in {heavy} if m in sys.modules])")
    assert out.strip() == "[]"


def test_using_a_sketch_loads_no_extra():
    heavy = ("numba", "sklearn", "torch", "dask", "matplotlib")
    out = run(
        "import sys, fastsketch as fs; s = fs.FrequentDirections(4).update([[1., 2.]]); s.sketch();"
        "fs.from_bytes(s.to_bytes()); fs.SketchHash(1).update([[1., 2.]]).encode([[1., 2.]]);"
        "fs.SketchQuantizer(2).update([[1., 2.]]).encode([[1., 2.]]);"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    assert out.strip() == "[]"


def test_public_names():
    for name in fastsketch.__all__:
        assert getattr(fastsketch, name) is not None
    assert set(fastsketch.__all__) <= set(dir(fastsketch))


def test_unknown_name_is_an_attribute_error():
    try:
        fastsketch.no_such_name  # noqa: B018
    except AttributeError as error:
        assert "no_such_name" in str(error)
    else:
        raise AssertionError("an unknown name was found")
