"""The examples, and the README's, do what they say."""

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


def test_guide_examples(tmp_path, monkeypatch):
    """All blocks: a tolerance and merges, principal components, a second pass, an index, answers, files."""
    monkeypatch.chdir(tmp_path)
    for day in ("monday", "tuesday"):
        (tmp_path / f"{day}.csv").write_text("age,city,income\n30,1,2.5\n,2,4\n", encoding="ascii")
    scopes = []
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "guide.md").read_text(), re.DOTALL):
        scopes.append({})
        exec(compile(code, "docs/guide.md", "exec"), scopes[-1])
    sizes, scope, again = scopes[:3]
    (kept,) = (found for found in scopes if "index" in found)
    (files,) = (found for found in scopes if "source" in found)
    assert files["sketch"].n_rows == 4 and files["source"].feature_names == ("age", "income")
    assert len(kept["index"]) == 4900 and kept["found"].shape == (10, 5) and kept["found"].min() >= 100
    merged = sizes["whole"]
    assert merged.resolved["sketch_size"] == max(part.resolved["sketch_size"] for part in sizes["parts"])
    assert merged.error_bound <= 0.02 * merged.squared_norm
    assert sizes["large"].resolved["sketch_size"] == 40
    assert sizes["large"].n_rows == 5_000
    true = np.linalg.norm(again["rows"], 2) ** 2
    for found, within in ((again["once"], 1e-3), (again["twice"], 1e-6)):
        assert found.low[0] <= true <= found.high[0]
        assert abs(found.values[0] / true - 1) < within
    assert 0 < again["audit"].error <= again["audit"].error_bound
    pca, rows = scope["pca"], scope["X"]
    variances = np.linalg.eigvalsh(np.cov(rows.T))[::-1]
    assert np.allclose(pca.explained_variance_, variances[: pca.n_components_])
    assert np.cumsum(variances)[pca.n_components_ - 1] > 0.5 * variances.sum()
    assert scope["total"].n_samples_seen_ == 2_000
    assert np.allclose(scope["total"].explained_variance_, variances[:10], rtol=0.05)


def test_recommending_page(capsys, tmp_path, monkeypatch):
    """From events to lists: it prints the lines that follow it, and the rest says what it is said to say."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "recommending.md").read_text()
    page, faces = page.split("\n## scikit-learn\n")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    scope, printed = {}, []
    for code in blocks:
        exec(compile(code, "docs/recommending.md", "exec"), scope)
        printed.append(capsys.readouterr().out)
    (shown,) = re.findall(r"```\n(SketchedEASE.*?)```", page, re.DOTALL)
    stated, found = (np.array(re.findall(r"\d\.\d\d", text), float) for text in (shown, printed[0]))
    assert np.abs(found - stated).max() < 0.011
    assert f"{scope['X'].nnz:,} events" in blocks[0]
    (table,) = re.findall(r"```\n(\[.*?)```", page, re.DOTALL)
    assert printed[1] == table
    assert abs(float(printed[2]) - found[0]) < 0.01
    assert abs(float(printed[3]) - 0.75) < 0.01
    model, why = scope["model"], scope["why"]
    assert scope["path"]["ridge"] in scope["path"]["ridges"] and len(printed[4].splitlines()) >= 3
    assert scope["fixed"].ridge == scope["chosen"].ridge
    assert np.isclose(why.contributions.sum(), scope["found"].scores[0, 0], rtol=1e-4)
    assert (scope["genre"][scope["near"].items[0]] == scope["genre"][scope["best"]]).mean() > 0.5
    few = scope["few"].items
    assert set(few[few >= 0]) <= set(scope["in_stock"])
    assert fs.load("items.fsk").n_rows == model.n_rows == 3_500
    pytest.importorskip("sklearn")
    scope = {}
    for code in re.findall(r"```python\n(.*?)```", faces, re.DOTALL):
        exec(compile(code, "docs/recommending.md", "exec"), scope)
    assert scope["items"].shape == (2, 5)


def test_learning_page(capsys, tmp_path, monkeypatch):
    """Labels of text, rows with names, an estimator: they print what is said of them."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "learning.md").read_text(), re.DOTALL)
    scopes, printed = [], []
    for code in blocks:
        if "sklearn" in code:
            pytest.importorskip("sklearn")
        scopes.append({})
        exec(compile(code, "docs/learning.md", "exec"), scopes[-1])
        printed.append(capsys.readouterr().out.splitlines())
    assert printed[0][0] == "['ham' 'spam']" and float(printed[0][1].split()[0]) < 0.05
    saved = fs.load("spam.fsk")
    assert np.array_equal(saved.predict(scopes[0]["rows"]), scopes[0]["model"].predict(scopes[0]["rows"]))
    assert printed[1] == ["['sold']"]
    assert {name for name, _ in scopes[1]["model"].top_features(9)} == {"price", "city=Rome", "city=Oslo"}
    assert float(printed[2][0]) > 0.75


def test_read_outs_example(capsys):
    """It prints the lines that follow it, to the last digit shown or nearly."""
    page = (ROOT / "docs" / "read-outs.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (shown,) = re.findall(r"```\n(\d.*?)```", page, re.DOTALL)
    scope = {}
    exec(compile(code, "docs/read-outs.md", "exec"), scope)
    true = np.linalg.eigvalsh(scope["rows"].T @ scope["rows"])[::-1][:3]
    assert [f"{value:,.0f}" for value in true] == ["5,080", "3,092", "2,238"]
    printed, stated = (
        np.array(re.findall(r"[\d,]+", text.replace(",", "")), float) for text in (capsys.readouterr().out, shown)
    )
    assert np.abs(printed - stated).max() <= 1


def test_ranking_example(capsys):
    """It measures the item model far above what is popular."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "ranking.md").read_text(), re.DOTALL)
    scope = {}
    exec(compile(code, "docs/ranking.md", "exec"), scope)
    ours, gap = scope["found"].ndcg, float(re.findall(r"mean=([\d.]+)", capsys.readouterr().out)[0])
    assert ours.n_users > 300
    assert gap > 5 * ours.standard_error


def test_examples_of_threads():
    """Each in a fresh process, as a reader's: the second has to load the kernels before it limits their threads."""
    first, second = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "threads.md").read_text(), re.DOTALL)
    ends = {
        first: "    assert fs.show_config('dicts')['threads']['in_force'] == 2\n",
        second: "    assert fs.show_config('dicts')['threads']['in_force'] == 1\n"
        "assert fs.show_config('dicts')['threads']['in_force'] == fs.show_config('dicts')['threads']['usable']\n",
    }
    for code, end in ends.items():
        subprocess.run([sys.executable, "-W", "error", "-c", code + end], check=True)


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


def test_no_other_page_has_blocks_that_nothing_runs():
    for page in ("docs/defaults.md", "docs/reliability.md", "examples/README.md", "bench/README.md"):
        assert "```python" not in (ROOT / page).read_text(), page


def test_makefile_targets_are_one_line_each():
    text = (ROOT / "Makefile").read_text()
    for target in ("demo", "test", "build", "lint", "style", "types", "asan", "bench", "asv", "profile"):
        (recipe,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
        assert recipe.count("\n") == 1


def test_rows_with_names(tmp_path, monkeypatch, capsys):
    """The page on names prints what it says that it prints."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "features.md").read_text()
    found = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", page, re.DOTALL)
    assert len(found) == 4
    scope = {}
    for code, printed in found:
        exec(compile(code, "docs/features.md", "exec"), scope)
        assert capsys.readouterr().out == printed


def test_neighbours_page(tmp_path, monkeypatch):
    """All blocks, one after the other: estimates, rescoring, ids, generations, files."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "neighbours.md").read_text(encoding="utf-8")
    scope = {}
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page, re.DOTALL)):
        exec(compile(code, "docs/neighbours.md", "exec"), scope)
        if number == 0:
            assert scope["ids"][:, 0].tolist() == list(range(5))
            assert len(fs.load("places")) == 20_000
        if number == 1:
            assert scope["codes"].shape == (20_000, 20)
            assert scope["places"][:, 0].tolist() == list(range(5)) and not scope["distances"][:, 0].any()
        if number == 2:
            assert (np.diff(scope["likeness"]) <= 0).all() and scope["likeness"].max() <= 1
    assert scope["found"].min() >= 10_000 and not (scope["found"] % 7 - 10_000 % 7).any()
    assert (scope["ids"][:, 0] >= 20_000).all()
    assert len(scope["again"]) == 40_000
    assert [one["n_rows"] for one in scope["again"].generations] == [40_000]
