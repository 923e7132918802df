"""The examples, and the README's, do what they say."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import fastsketch as fs

ROOT = Path(__file__).parents[1]


def test_preconditioning_saves_iterations(amount):
    counts = runpy.run_path(str(ROOT / "examples" / "precondition.py"))["main"](*amount((1500, 300), (3000, 600)))
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


@pytest.mark.long
def test_hashing_on_dask():
    pytest.importorskip("distributed")
    out = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "hash_on_dask.py")], capture_output=True, text=True, check=True
    ).stdout
    assert "as in one pass: True" in out
    assert "nearest to row 0: [0," in out


@pytest.mark.long
def test_the_joblib_recipe():
    pytest.importorskip("joblib")
    folder = ROOT / "examples" / "recipes"
    out = subprocess.run([sys.executable, "with_joblib.py"], cwd=folder, capture_output=True, text=True, check=True)
    assert "24000 rows of 200" in out.stdout


def test_contributing_example(tmp_path):
    """The family of models on the page about adding one has what it is said to have."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "project" / "adding.md").read_text(), re.DOTALL)
    scope = {"__name__": "contributing"}
    exec(compile(code, "adding.md", "exec"), scope)
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
