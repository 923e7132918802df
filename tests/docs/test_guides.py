"""The guides run, and find what they say they find."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs

ROOT = Path(__file__).parents[2]
# those that a test below runs; test_pages.py runs all other pages
RUN = ("guide", "recommending", "learning", "read-outs", "ranking", "threads", "features", "neighbours")


def page(name):
    assert name in RUN
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def python(text):
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_guide_examples(tmp_path, monkeypatch):
    """All blocks: a tolerance and merges, principal components, a second pass, an index, answers, files."""
    monkeypatch.chdir(tmp_path)
    for day in ("monday", "tuesday"):
        (tmp_path / f"{day}.csv").write_text("age,city,income\n30,1,2.5\n,2,4\n", encoding="ascii")
    scopes = []
    for code in python(page("guide")):
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
    text = page("recommending")
    text, faces = text.split("\n## scikit-learn\n")
    blocks = python(text)
    scope, printed = {}, []
    for code in blocks:
        exec(compile(code, "docs/recommending.md", "exec"), scope)
        printed.append(capsys.readouterr().out)
    (shown,) = re.findall(r"```\n(SketchedEASE.*?)```", text, re.DOTALL)
    stated, found = (np.array(re.findall(r"\d\.\d\d", text), float) for text in (shown, printed[0]))
    assert np.abs(found - stated).max() < 0.011
    assert f"{scope['X'].nnz:,} events" in blocks[0]
    (table,) = re.findall(r"```\n(\[.*?)```", text, re.DOTALL)
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
    for code in python(faces):
        exec(compile(code, "docs/recommending.md", "exec"), scope)
    assert scope["items"].shape == (2, 5)


def test_learning_page(capsys, tmp_path, monkeypatch):
    """Labels of text, rows with names, an estimator: they print what is said of them."""
    monkeypatch.chdir(tmp_path)
    blocks = python(page("learning"))
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
    text = page("read-outs")
    (code,) = python(text)
    (shown,) = re.findall(r"```\n(\d.*?)```", text, re.DOTALL)
    scope = {}
    exec(compile(code, "docs/read-outs.md", "exec"), scope)
    true = np.linalg.eigvalsh(scope["rows"].T @ scope["rows"])[::-1][:3]
    assert [f"{value:,.0f}" for value in true] == ["5,080", "3,092", "2,238"]
    printed, stated = (
        np.array(re.findall(r"[\d,]+", line.replace(",", "")), float) for line in (capsys.readouterr().out, shown)
    )
    assert np.abs(printed - stated).max() <= 1


def test_ranking_example(capsys):
    """It measures the item model far above what is popular."""
    (code,) = python(page("ranking"))
    scope = {}
    exec(compile(code, "docs/ranking.md", "exec"), scope)
    ours, gap = scope["found"].ndcg, float(re.findall(r"mean=([\d.]+)", capsys.readouterr().out)[0])
    assert ours.n_users > 300
    assert gap > 5 * ours.standard_error


def test_examples_of_threads():
    """Each in a fresh process, as a reader's: the second has to load the kernels before it limits their threads."""
    first, second = python(page("threads"))
    ends = {
        first: "    assert fs.show_config('dicts')['threads']['in_force'] == 2\n",
        second: "    assert fs.show_config('dicts')['threads']['in_force'] == 1\n"
        "assert fs.show_config('dicts')['threads']['in_force'] == fs.show_config('dicts')['threads']['usable']\n",
    }
    for code, end in ends.items():
        subprocess.run([sys.executable, "-W", "error", "-c", code + end], check=True)


def test_rows_with_names(tmp_path, monkeypatch, capsys):
    """The page on names prints what it says that it prints."""
    monkeypatch.chdir(tmp_path)
    text = page("features")
    found = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", text, re.DOTALL)
    assert len(found) == 4
    scope = {}
    for code, printed in found:
        exec(compile(code, "docs/features.md", "exec"), scope)
        assert capsys.readouterr().out == printed


def test_neighbours_page(tmp_path, monkeypatch):
    """All blocks, one after the other: estimates, rescoring, ids, generations, files."""
    monkeypatch.chdir(tmp_path)
    text = page("neighbours")
    scope = {}
    for number, code in enumerate(python(text)):
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
