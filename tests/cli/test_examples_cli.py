"""The examples that --help shows, run as they are in a shell."""

import gzip
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.cli import main
from fastsketch.cli._parser import SUBCOMMANDS, create_parser
from tests.helpers import command as run_here


def examples_of(verb):
    return [line.strip() for line in create_parser(verb).epilog.splitlines()[1:]]


@pytest.mark.parametrize("verb", SUBCOMMANDS)
def test_every_verb_has_one(verb, capsys):
    examples = examples_of(verb)
    assert examples and all(f"fastsketch {verb}" in example for example in examples)
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    assert capsys.readouterr().out.rstrip().endswith("\n  ".join(["examples:", *examples]))


def write_inputs():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 20)) * np.linspace(3, 0.1, 20)
    np.save("rows.npy", rows.astype(np.float32))
    np.save("more.npy", rows[:40].astype(np.float32) + 0.01)
    lines = [" ".join(["0", *(f"{k}:{x:g}" for k, x in enumerate(row, 1))]) for row in rows]
    Path("rows.svm.gz").write_bytes(gzip.compress("\n".join(lines).encode() + b"\n"))
    Path("customers.csv").write_text(
        "age,town,bought\n"
        + "".join(f"{20 + k % 50},{'ab'[k % 2]},{'yes' if k % 50 > 20 else 'no'}\n" for k in range(200))
    )
    names = ["alice", "bob", *(f"user{k}" for k in range(28))]
    some = [(name, f"item{k}", 1 + (k + j) % 5) for j, name in enumerate(names) for k in range(12) if (k * 7 + j) % 3]
    houses = "\n".join(f"{rooms},{age},{100 * rooms - age}" for rooms, age in rng.integers(1, 40, (60, 2)))
    Path("houses.csv").write_text(f"rooms,age,price\n{houses}\n")
    Path("ratings.csv").write_text("user,item,rating\n" + "".join(f"{u},{i},{r}\n" for u, i, r in some))


@pytest.mark.skipif(os.name == "nt" or not shutil.which("zcat"), reason="the examples are for a shell of unix")
def test_they_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_inputs()
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "fastsketch"
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fastsketch "$@"\n')
    tool.chmod(0o755)
    package = str(Path(fs.__file__).parents[1])
    paths = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PATH": f"{tool.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": paths}
    for example in (example for verb in SUBCOMMANDS for example in examples_of(verb)):
        if set(example) & set("|<>;&$"):  # for a shell
            done = subprocess.run(["sh", "-c", example], env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{example}: {done.stderr}"
        else:
            run_here(*shlex.split(example)[1:], cwd=tmp_path)
    assert fs.load("all.fsk").n_rows == 340
    twice = fs.run(fs.FrequentDirections(), "rows.npy", passes=2)
    assert np.array_equal(fs.load("refined.fsk").sketch(), twice.sketch())
