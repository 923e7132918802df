"""Every command of the benches runs, on few rows, and keeps tables of the format."""

from pathlib import Path

import pytest

import bench_tools
import fastsketch as fs
import run
import store

NAMES = [key.rpartition(".")[2] for key in run.COMMANDS]
# They compile, start many processes, or take more than some seconds.
SLOW = ("stages", "levels", "processors", "headline", "components", "first", "sources", "jobs")
SLOW += (
    "threads",
    "cold",
    "cnn",
    "signs",
    "biases",
    "catalogues",
    "classes",
    "alarms",
    "anomalies",
    "changes",
    "optimizers",
    "order",
    "profile",
    "windows",
)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long) if n in SLOW else n for n in NAMES])
def test_a_command_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench_tools, "tiny", False)  # what the command sets ends with the test
    args = run.parser().parse_args([name, "--tiny", "--out", str(tmp_path), "--scratch", str(tmp_path)])
    try:
        with fs.thread_limit(1):  # as run.py pins BLAS
            path = run.measure(args)
    except ModuleNotFoundError as error:
        mine = {"fastsketch", *(path.stem for path in Path(run.__file__).parent.iterdir())}
        if error.name is None or error.name.split(".")[0] in mine:
            raise
        pytest.skip(f"{error.name} is not installed")
    if not path.exists():
        assert "absent" in capsys.readouterr().out
        pytest.skip("its data, or all its rivals, are absent")
    assert path.name == f"{name}.quick.json"
    assert store.read(path)["tables"]
