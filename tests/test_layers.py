"""Imports go down only and never in a circle, strings counted, and importing the package is cheap."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fastsketch
from tests.house import circle, imported_names, imports, module_graph, module_of, names_in_strings, room_graph, room_of

# The tree beside the tests, not the installed package: a wheel holds no .pyx.
ROOT = Path(__file__).parents[1] / "fastsketch"
# A module may name rooms of its own floor or below, in imports or in strings.
FLOORS = [
    {"_kernels"},
    {"_core"},
    {"data"},
    {"_frame"},
    {"sketching", "online", "lowrank", "ridge", "torch"},
    {"covariance", "neighbours", "recommending", "streams"},
    {"jobs", "sklearn", "anndata", "reference", "papers"},
    {"cli", "_show_config", "__main__", "warm_up", ""},
]
FLOOR = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}


def named_rooms(path):
    """Yield the rooms that a module names; "" where it names what the package itself offers."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [name for node in imports(tree, annotations=True) for name in imported_names(node, path)]
    for name in names + names_in_strings(tree):
        room = room_of(name)
        yield room if room in FLOOR else ""


def test_rooms_name_those_below_only():
    checked = 0
    for path in ROOT.rglob("*.py"):
        room = room_of(module_of(path, ROOT))
        for target in named_rooms(path):
            if target == "" and FLOOR[room] == len(FLOORS) - 1:
                continue  # faces use the public names
            assert FLOOR[target] <= FLOOR[room], f"{path.relative_to(ROOT)} names {target or 'fastsketch'}"
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
    """Strings count: modules are also imported by their names."""
    graph = module_graph(ROOT, strings=True)
    graph.pop("fastsketch")  # names what it offers, from all rooms
    assert len(graph) > 30
    found = circle(graph if level == "modules" else room_graph(graph))
    assert not found, " -> ".join(found)


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_is_light():
    heavy = ("numba", "sklearn", "torch", "dask", "anndata", "matplotlib", "scipy.linalg")
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
