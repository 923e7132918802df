"""The examples, and the README's, do what they say."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs

ROOT = Path(__file__).parents[1]


def test_preconditioning_saves_iterations():
    counts = runpy.run_path(str(ROOT / "examples" / "precondition.py"))["main"]()
    assert counts["preconditioned"] < counts["plain"] / 2


def test_merging_shards():
    out = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "merge_shards.py")], capture_output=True, text=True, check=True
    ).stdout
    error, bound = (float(value.replace(",", "")) for value in re.findall(r"(?:error|certificate) ([\d,]+)", out))
    assert 0 < error <= bound


def test_recommending_from_shards():
    out = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "recommend_from_shards.py")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "3,200 users" in out
    ours, popular = map(float, re.findall(r"NDCG@20 ([\d.]+)", out))
    assert ours > 1.5 * popular > 0


def test_hashing_on_dask():
    pytest.importorskip("distributed")
    out = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "hash_on_dask.py")], capture_output=True, text=True, check=True
    ).stdout
    assert "as in one pass: True" in out
    assert "nearest to row 0: [0," in out


def test_the_joblib_recipe():
    pytest.importorskip("joblib")
    folder = ROOT / "examples" / "recipes"
    out = subprocess.run([sys.executable, "with_joblib.py"], cwd=folder, capture_output=True, text=True, check=True)
    assert "24000 rows of 200" in out.stdout


def test_readme_example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, _, second, third, fourth, fifth = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    scope = {}
    exec(compile(second, "README.md", "exec"), scope)
    assert scope["codes"].shape == (20_000, 8)
    assert scope["indices"][:, 0].tolist() == scope["ids"][:, 0].tolist() == list(range(5))
    assert len(fs.load("places")) == 20_000
    assert scope["fs"].load("hash.fsk").n_rows == 20_000
    scope = {}
    exec(compile(third, "README.md", "exec"), scope)
    assert scope["model"].progress["error_rate"] < 0.05
    assert scope["best"].n_rows == 20_000
    scope = {}
    exec(compile(fourth, "README.md", "exec"), scope)
    error = scope["model"].predict(*np.nonzero(scope["stars"])) - scope["stars"][np.nonzero(scope["stars"])]
    assert np.abs(error).mean() < 0.5 * np.abs(scope["stars"] - 3).mean()
    assert len(scope["new"]) == 3
    scope = {}
    exec(compile(fifth, "README.md", "exec"), scope)
    ranking, users = fs.ranking, scope["users"]
    popular = ranking.top_items(scope["model"].popularity, 20, exclude=users.shown)
    ours, theirs = (ranking.mean_of(ranking.ndcg_at(found, users.hidden)).mean for found in (scope["items"], popular))
    assert abs(ours - 0.16) < 0.01 and abs(theirs - 0.07) < 0.01
    scope = {}
    exec(compile(first, "README.md", "exec"), scope)
    assert scope["B"].shape == (63, 2000)
    assert scope["fs"].load("rows.fsk").n_rows == 50_000


def test_readme_jobs(tmp_path):
    """As a script, which spawns its workers: a sketch, codes, groups."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    (code,) = (block for block in _blocks(ROOT / "README.md") if "fs.run" in block)
    (tmp_path / "days").mkdir()
    rng = np.random.default_rng(0)
    for day in range(3):
        table = {"shop": rng.integers(0, 4, 200), **{f"c{j}": rng.standard_normal(200) for j in range(80)}}
        parquet.write_table(pa.table(table), tmp_path / "days" / f"{day}.parquet")
    (tmp_path / "job.py").write_text(f"{code}    print(sketch.n_rows, codes.n_rows, len(shops))\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    done = subprocess.run([sys.executable, "job.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == "600 600 4\n", done.stderr
    assert np.load(tmp_path / "codes.npy").shape == (600, 8)


def _blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def test_contributing_example(tmp_path):
    """The family of models that CONTRIBUTING shows has what it is said to have."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    scope = {"__name__": "contributing"}
    exec(compile(code, "CONTRIBUTING.md", "exec"), scope)
    model = scope["RowSum"](scale=2.0).update([[1.0, 2.0], [3.0, 4.0]])
    assert (model.n_rows, model.n_features, model.scale) == (2, 2, 2.0)
    model.save(tmp_path / "sum.fsk")
    for other in (model.copy(), fs.from_bytes(model.to_bytes()), fs.load(tmp_path / "sum.fsk")):
        assert other.to_bytes() == model.to_bytes()
    assert fs.merge([model, model])._sum.tolist() == [16.0, 24.0]
    with pytest.raises(TypeError, match="did you mean 'scale'"):
        scope["RowSum"](scael=1.0)


def test_makefile_targets_are_one_line_each():
    text = (ROOT / "Makefile").read_text()
    for target in ("demo", "test", "build", "lint", "style", "types", "asan", "bench", "asv", "profile"):
        (recipe,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
        assert recipe.count("\n") == 1
