"""Pages whose blocks are run, and whose findings are held against what the page says of them."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.recommending import ranking
from tests.docs.blocks import blocks, run_page

DOCS = Path(__file__).parents[2] / "docs"
# those that a test below runs; test_pages.py runs all other pages
GUIDES = ("components", "learning", "many-cores", "neighbours", "recommending")
RUN = (*(f"{folder}/{name}" for folder in ("jobs", "choices") for name in GUIDES), "read-outs", "threads")


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """A function of the name of a job that runs its two pages: the namespaces of their Python, one for each example."""
    monkeypatch.chdir(tmp_path)

    def run(name):
        scopes, missing = [], set()
        for folder in ("jobs", "choices"):
            more, lacking = run_page(DOCS / folder / f"{name}.md", tmp_path)
            scopes, missing = [*scopes, *more], missing | set(lacking)
        if missing:
            pytest.skip(f"blocks that need {', '.join(sorted(missing))} were not run: could not import")
        return scopes

    return run


def having(scopes, *names):
    """The one namespace with all these names."""
    (scope,) = (scope for scope in scopes if all(name in scope for name in names))
    return scope


def test_components(ran):
    """A tolerance and merges, principal components, a second pass and an audit."""
    scopes = ran("components")
    sizes = having(scopes, "parts", "whole")
    merged = sizes["whole"]
    assert merged.resolved["sketch_size"] == max(part.resolved["sketch_size"] for part in sizes["parts"])
    assert merged.error_bound <= 0.02 * merged.squared_norm
    assert sizes["large"].resolved["sketch_size"] == 40
    assert sizes["large"].n_rows == 5_000
    again = having(scopes, "once", "twice")
    true = np.linalg.norm(again["rows"], 2) ** 2
    for found, within in ((again["once"], 1e-3), (again["twice"], 1e-6)):
        assert found.low[0] <= true <= found.high[0]
        assert abs(found.values[0] / true - 1) < within
    assert 0 < again["audit"].error <= again["audit"].error_bound
    scope = having(scopes, "pca", "total")
    pca, rows = scope["pca"], scope["X"]
    variances = np.linalg.eigvalsh(np.cov(rows.T))[::-1]
    assert np.allclose(pca.explained_variance_, variances[: pca.n_components_])
    assert np.cumsum(variances)[pca.n_components_ - 1] > 0.5 * variances.sum()
    assert scope["total"].n_samples_seen_ == 2_000
    assert np.allclose(scope["total"].explained_variance_, variances[:10], rtol=0.05)


def test_many_cores(ran):
    """Files of which columns are chosen, answers in a file."""
    scopes = ran("many-cores")
    files = having(scopes, "source")
    assert files["sketch"].n_rows == 4 and files["source"].feature_names == ("age", "income")
    assert having(scopes, "done")["done"].n_rows == 10_000


def test_recommending(ran):
    """From events to lists, and how they are measured: SketchedEASE finds what the page says, far above popularity."""
    scopes = ran("recommending")
    scope = having(scopes, "whole", "daily")
    assert scope["X"].nnz == 106_176
    model, why, split = scope["model"], scope["why"], scope["split"]
    one, merged = (
        ranking.mean_of(ranking.ndcg_at(of.recommend(split.shown, 20).items, split.hidden)).mean
        for of in (model, scope["whole"])
    )
    assert abs(one - 0.16) < 0.011 and abs(merged - one) < 0.01
    assert abs(scope["daily"].popularity.sum() / model.popularity.sum() - 0.75) < 0.01
    assert scope["path"]["ridge"] in scope["path"]["ridges"] and len(scope["path"]["ridges"]) >= 3
    assert scope["fixed"].ridge == scope["chosen"].ridge
    assert np.isclose(why.contributions.sum(), scope["found"].scores[0, 0], rtol=1e-4)
    assert (scope["genre"][scope["near"].items[0]] == scope["genre"][scope["best"]]).mean() > 0.5
    few = scope["few"].items
    assert set(few[few >= 0]) <= set(scope["in_stock"])
    assert fs.load("items.fsk").n_rows == model.n_rows == 3_500
    measured = having(scopes, "ours", "popular", "test")
    ours = measured["found"].ndcg
    ahead = ranking.ndcg_at(measured["ours"], measured["test"]) - ranking.ndcg_at(measured["popular"], measured["test"])
    assert ours.n_users > 300
    assert ranking.mean_of(ahead).mean > 5 * ours.standard_error


def test_learning(ran):
    """Labels of text, rows with names, an estimator."""
    scopes = ran("learning")
    scope = having(scopes, "labels", "start")
    model = scope["model"]
    assert model.classes.tolist() == ["ham", "spam"] and model.progress["error_rate"] < 0.05
    saved = fs.load("spam.fsk")
    assert np.array_equal(saved.predict(scope["rows"]), model.predict(scope["rows"]))
    fitted = having(scopes, "estimator")
    assert fitted["estimator"].score(fitted["X"][2000:], fitted["y"][2000:]) > 0.75


def test_neighbours(ran):
    """Estimates, rescoring, ids, a model that learns on, files."""
    scopes = ran("neighbours")
    scope = having(scopes, "codes", "places", "later")
    assert scope["codes"].shape == (20_000, 20)
    assert (np.diff(scope["likeness"]) <= 0).all() and scope["likeness"].max() <= 1
    assert scope["found"].min() >= 10_000 and not (scope["found"] % 7 - 10_000 % 7).any()
    assert len(scope["again"]) == len(scope["index"]) == 20_000 and len(scope["fresh"]) == 40_000
    assert scope["fresh"].search(scope["later"][:5], k=1)[1].min() >= 50_000


def test_read_outs(capsys):
    """It prints the lines that follow it, to the last digit shown or nearly."""
    text = (DOCS / "read-outs.md").read_text(encoding="utf-8")
    (block,) = blocks(text)
    (shown,) = re.findall(r"```\n(\d.*?)```", text, re.DOTALL)
    scope = {}
    exec(compile(block.code, "docs/read-outs.md", "exec"), scope)
    true = np.linalg.eigvalsh(scope["rows"].T @ scope["rows"])[::-1][:3]
    assert [f"{value:,.0f}" for value in true] == ["5,080", "3,092", "2,238"]
    printed, stated = (
        np.array(re.findall(r"[\d,]+", line.replace(",", "")), float) for line in (capsys.readouterr().out, shown)
    )
    assert np.abs(printed - stated).max() <= 1


def test_threads():
    """Each in a fresh process, as a reader's: the second has to load the kernels before it limits their threads."""
    first, second = (block.code for block in blocks((DOCS / "threads.md").read_text(encoding="utf-8")))
    ends = {
        first: "    assert fs.show_config('dicts')['threads']['in_force'] == 2\n",
        second: "    assert fs.show_config('dicts')['threads']['in_force'] == 1\n"
        "assert fs.show_config('dicts')['threads']['in_force'] == fs.show_config('dicts')['threads']['usable']\n",
    }
    for code, end in ends.items():
        subprocess.run([sys.executable, "-W", "error", "-c", code + end], check=True)
