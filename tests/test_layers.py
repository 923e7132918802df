"""Imports go down only, and importing the package is cheap."""

import ast
import subprocess
import sys
from pathlib import Path

import fastsketch

ROOT = Path(fastsketch.__file__).parent
# A module may import rooms of its own floor or below.
FLOORS = [
    {"_kernels", "reference"},
    {"_validation", "_threads", "io", "merging"},
    {"sketching", "hashing", "online", "lowrank"},
    {"_persistence", "_show_config", "sklearn", "torch", "dask", "cli", "__main__", ""},
]
FLOOR = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}


def imported_rooms(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "fastsketch"
                else [node.module]
            )
        for name in names:
            parts = name.split(".")
            if parts[0] == "fastsketch":
                yield parts[1] if len(parts) > 1 else ""


def test_imports_go_down_only():
    checked = 0
    for path in ROOT.rglob("*.py"):
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        room = "" if room == "__init__" else room
        for target in imported_rooms(path):
            target = target if target in FLOOR else ""
            if target == "" and FLOOR[room] == len(FLOORS) - 1:
                continue  # faces use the public names
            assert FLOOR[target] <= FLOOR[room], f"{path.relative_to(ROOT)} imports {target or 'fastsketch'}"
            checked += 1
    assert checked > 30


def test_kernels_import_nothing_above():
    for path in (ROOT / "_kernels").glob("*.p[yx]*"):
        if path.suffix not in (".pyx", ".pxd"):
            continue
        for line in path.read_text().splitlines():
            if line.startswith(("from fastsketch", "import fastsketch", "cimport fastsketch")):
                assert line.startswith("from fastsketch._kernels"), f"{path.name}: {line}"


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
