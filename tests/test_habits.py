"""What the files about the project say of each other: versions, targets and names in two places are the same."""

import ast
import json
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fastsketch

ROOT = Path(__file__).parents[1]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def read_yaml(name):
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(text(name))


@pytest.fixture(scope="module")
def pyproject():
    return tomllib.loads(text("pyproject.toml"))


def targets():
    return set(re.findall(r"^([\w-]+):", text("Makefile"), re.MULTILINE))


def test_one_list_of_tools(pyproject):
    tools = pyproject["dependency-groups"]["lint"]
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", tool) for tool in tools), tools
    hooks = [hook for repo in read_yaml(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert len(hooks) >= 4
    for hook in hooks:
        wanted = hook["additional_dependencies"]
        assert wanted and set(wanted) <= set(tools), f"{hook['id']} wants {wanted}, pyproject.toml has {tools}"
        assert hook["entry"].split()[0] == wanted[0].split("==")[0]
    for tool in tools:
        assert f"install -q {tool.split('==')[0]}" not in text("Makefile")


def test_tests_of_the_build_run_where_tests_are_run(pyproject):
    builders = re.search(r"^BUILDERS := (.*)$", text("Makefile"), re.MULTILINE)[1].replace('"', "").split()
    assert {re.split("[>=]", tool)[0] for tool in builders} == {"setuptools", "Cython"}
    assert set(builders) <= set(pyproject["build-system"]["requires"])
    runs = [line for line in text("Makefile").splitlines() if "install -q" in line and "tests/run.py" in line]
    assert len(runs) == 3 and all("$(BUILDERS)" in line for line in runs)


WORKFLOWS = sorted(path.name for path in (ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("name", [name for name in WORKFLOWS if name != "wheels.yml"])
def test_workflows_call_the_makefile(name, pyproject):
    for title, job in read_yaml(f".github/workflows/{name}")["jobs"].items():
        matrix = job.get("strategy", {}).get("matrix", {})
        commands = [step["run"] for step in job["steps"] if "run" in step and "packages" not in step.get("if", "")]
        for case in matrix.get("include", [{}]):
            for command in commands:
                words = command.replace("${{ matrix.target }}", case.get("target", "")).split()
                assert words[0] == "make" and words[1] in targets(), command
        assert commands or title == "publish"
        if "python" in matrix:
            classifiers = re.findall(r":: (3\.\d+)$", "\n".join(pyproject["project"]["classifiers"]), re.MULTILINE)
            assert matrix["python"] == classifiers
            assert pyproject["project"]["requires-python"] == f">={classifiers[0]}"


def test_actions_are_pinned_by_their_commits():
    """A tag can be moved. One action is of one commit everywhere, with the release beside it."""
    used = {found for name in WORKFLOWS for found in re.findall("uses: (.*)", text(f".github/workflows/{name}"))}
    assert len(used) == len({line.partition("@")[0] for line in used}) >= 7, used
    assert not [line for line in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)]


def test_a_change_of_what_is_compiled_builds_wheels():
    workflow = read_yaml(".github/workflows/wheels.yml")
    paths = workflow[True]["pull_request"]["paths"]  # "on" is true in YAML
    assert {"setup.py", "pyproject.toml", "csrc/**", "fastsketch/_kernels/**"} <= set(paths)


def test_only_a_tag_is_uploaded():
    """And only what was built and tested of it, without a password."""
    workflow = read_yaml(".github/workflows/wheels.yml")
    assert workflow[True]["push"] == {"tags": ["v*"]}
    job = workflow["jobs"].pop("publish")
    assert job["if"] == "github.event_name == 'push'" and set(job["needs"]) == set(workflow["jobs"])
    assert job["permissions"] == {"id-token": "write"} and "environment" in job
    assert workflow["permissions"] == {"contents": "read"} and "secrets" not in text(".github/workflows/wheels.yml")


def test_the_oldest_packages_are_the_lower_bounds(pyproject):
    """`make test-oldest` tests what is promised: no bound moves without it, and it holds back nothing else.

    The extra docs is not of them: who builds the site takes what is new.
    """
    extras = {name: of for name, of in pyproject["project"]["optional-dependencies"].items() if name != "docs"}
    wanted = [*pyproject["project"]["dependencies"], *(one for name in extras for one in extras[name])]
    bounds = dict(re.findall(r"^([\w-]+)(?:\[\w+\])?>=([\d.]+)", "\n".join(wanted), re.MULTILINE))
    names = {one.split("[")[0].split(">")[0] for one in wanted} - {"fastsketch"}
    assert set(bounds) >= names, "a bound of another form"
    lines = [line for line in text("tests/oldest.txt").splitlines() if not line.startswith("#")]
    assert lines == [f"{name}=={bounds[name]}" for name in sorted(bounds) if name not in ("asv", "py-spy", "torch")]
    workflow = read_yaml(".github/workflows/tests.yml")["jobs"]["oldest"]["steps"]
    python = pyproject["project"]["requires-python"].removeprefix(">=")
    assert [step["with"]["python-version"] for step in workflow if "python-version" in step.get("with", {})] == [python]
    assert f"OLDEST_PYTHON ?= python{python}" in text("Makefile")


def test_one_version(pyproject):
    version = pyproject["project"]["version"]
    assert fastsketch.__version__ == version
    assert read_yaml("CITATION.cff")["version"] == version
    assert re.search(r"^## \[?([\d.]+)", text("CHANGELOG.md"), re.MULTILINE)[1] == version


def test_citations():
    citation = read_yaml("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    readme = " ".join(text("README.md").split())
    years = []
    for paper in citation["references"]:
        assert paper["title"] in readme
        assert all({"family-names", "given-names"} == set(author) for author in paper["authors"])
        for name in re.findall(r"fastsketch\.(\w+)", paper["notes"]):
            assert name == "torch" or hasattr(fastsketch, name), name
        years.append(paper["year"])
    assert years == [2021, 2019, 2022, 2016]


def test_asv_finds_the_benches():
    config = json.loads(text("asv.conf.json"))
    folder = ROOT / config["benchmark_dir"]
    assert {"dense.py", "reading.py", "sparse.py"} <= {path.name for path in folder.glob("*.py")}
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):  # asv puts nothing else of bench/ where it can be found
                home = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
                mine = folder.parent / home.split(".")[0]
                found = mine != folder and (mine.is_dir() or mine.with_suffix(".py").exists())
                assert not found, f"{path.name} imports {home}"
            if isinstance(node, ast.Attribute):
                private = node.attr.startswith("_") and not node.attr.startswith("__")
                assert not private, f"{path.name}:{node.lineno} uses {node.attr}"


def test_every_bench_runs():
    """Once, with its first parameters."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'bench')!r}); import types; from kernels import classes;"
        "classes.classes(types.SimpleNamespace(quick=True))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    results = re.findall(r"^\| (\w+)\.(time|peakmem|track)_\w+ \| .*\| (-?[\d.e-]+)(?: ms| MB)? \|$", out.stdout, re.M)
    assert len(results) == out.stdout.count("\n|") - 2  # all but the two lines of the head
    assert {"DenseUpdate", "OneRow", "SparseUpdate", "ReadAndMerge"} <= {name for name, _, _ in results}


def test_blocks_of_a_page():
    modules = runpy.run_path(str(ROOT / "tests" / "types" / "check_documents.py"))["modules"]
    page = "# A\n```python\nimport a\n```\n```\nno python\n```\n\n```python\na.b\n```\n```python\nfrom c import d\n```"
    first, second = modules(page)
    assert first == "\n\nimport a\n" + "\n" * 6 + "a.b\n"
    assert first.splitlines().index("a.b") == page.splitlines().index("a.b")
    assert second.splitlines().index("from c import d") == page.splitlines().index("from c import d")
    assert modules("no code") == []
