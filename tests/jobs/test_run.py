"""fs.run: the same bits for every number of workers and every engine, and what it refuses."""

import json
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.jobs import WorkerLost, _progress, _run
from fastsketch.jobs._tree import Tree
from tests.helpers import same_state, some
from tests.jobs.tasks import Watched, rows_of, runs

D = 24
ROWS = rows_of(0, 1000, D)
ENGINES = [(1, "processes"), (2, "threads"), (3, "threads"), (7, "threads"), (2, "processes"), (3, "processes")]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Parts of 100 rows."""
    monkeypatch.setattr(_run, "PART_BYTES", 100 * D * 8)
    monkeypatch.setattr(_run, "STATES_OF_A_PART", 0)


def by_hand(template, rows, step):
    """The tree as it is described: neighbours in pairs, level by level, the last of an odd level waits."""
    level = [template._for_part(i).update(rows[at : at + step]) for i, at in enumerate(range(0, len(rows), step))]
    for model in level:
        model._complete_part()
    while len(level) > 1:
        pairs = [level[at : at + 2] for at in range(0, len(level), 2)]
        level = [pair[0].merge(pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
    return level[0]


MODELS = [
    fs.FrequentDirections(5, solver="gram", center=True),
    fs.FrequentDirections(5, solver="exact"),
    fs.FrequentDirections(6, method="pfd", tolerance=0.02),
    fs.FrequentDirections(5, solver="gram", compressor="srht"),
    fs.SketchHash(6, block_rows=64),
    fs.SketchQuantizer(6, block_rows=64, method="srht"),
]


@pytest.mark.parametrize("model", some(MODELS[::-1], 3), ids=repr)
def test_the_same_bits_for_any_workers_and_engine(model, amount):
    found = [fs.run(model, ROWS, workers=n, engine=engine) for n, engine in amount(ENGINES[::2], ENGINES)]
    assert all(same_state(other, found[0]) for other in found[1:])
    assert found[0].n_rows == len(ROWS) and model.n_rows == 0
    assert found[0].parameters == model.parameters


def test_the_tree_is_that_of_the_description():
    model = fs.FrequentDirections(5, solver="gram")
    assert same_state(fs.run(model, ROWS, workers=1), by_hand(model, ROWS, 100))


@pytest.mark.parametrize("fan_in", [2, 3])
@pytest.mark.parametrize("n", [1, 2, 9, 10])
def test_the_nodes_of_a_level_stand_for_all_parts(n, fan_in):
    tree, level, width = Tree(n, fan_in), 0, n
    while True:
        spans = [tree.span(level, at) for at in range(width)]
        assert [part for span in spans for part in range(span.first, span.last + 1)] == list(range(n))
        for beyond in (-1, width):
            with pytest.raises(ValueError, match=f"no node {beyond} on level {level} of a tree over {n} parts"):
                tree.span(level, beyond)
        if width == 1:
            break
        level, width = level + 1, -(-width // fan_in)
    with pytest.raises(ValueError, match=f"no node 0 on level {level + 1}"):
        tree.span(level + 1, 0)


@pytest.mark.parametrize("cls", [fs.SketchHash, fs.SketchQuantizer])
def test_parts_of_whole_blocks_have_the_bits_of_one_pass(cls):
    model = cls(6, block_rows=64, method="srht")
    whole = model.copy().merge(model.copy().update(ROWS))  # its last block closed, as in a merge
    for n, engine in ENGINES[:5]:
        assert same_state(fs.run(model, ROWS, workers=n, engine=engine), whole)


def test_item_models():
    users = sparse.csr_array((np.random.default_rng(0).random((500, 40)) < 0.2).astype(float))
    model = fs.SketchedEASE(8)
    found = [fs.run(model, users, workers=n, engine=engine) for n, engine in ENGINES[:5]]
    assert all(same_state(other, found[0]) for other in found[1:])
    assert np.allclose(found[0].popularity, model.copy().update(users).popularity, rtol=1e-5)


def test_a_job_of_one_part_is_one_pass():
    model = fs.FrequentDirections(5, solver="gram")
    assert same_state(fs.run(model, ROWS[:90]), model.copy().update(ROWS[:90]))


def test_notes_come_from_the_template():
    model = fs.FrequentDirections(5)
    model.notes = {"of": "mine"}
    assert fs.run(model, ROWS).notes == {"of": "mine"}


def test_models_that_need_their_order_are_one_pass(tmp_path):
    model = fs.FrequentDirections(5, solver="gram", decay=0.999)
    whole = model.copy().update(ROWS)
    assert same_state(fs.run(model, ROWS), whole)
    assert same_state(fs.run(model, ROWS, checkpoint=tmp_path / "c"), whole)
    with pytest.raises(ValueError, match=r"workers must be 1: with decay=0.999 .* in their order"):
        fs.run(model, ROWS, workers=2)


def test_two_passes():
    model = fs.FrequentDirections(5, method="pfd", solver="gram")
    found = [fs.run(model, ROWS, workers=n, engine=engine, passes=2) for n, engine in ENGINES[:5]]
    assert all(same_state(other, found[0]) for other in found[1:])
    one = fs.run(model, ROWS)
    truth = np.linalg.svd(ROWS, compute_uv=False)[:3]
    assert np.abs(found[0].singular_values[:3] - truth).max() < np.abs(one.singular_values[:3] - truth).max()
    exact = fs.FrequentDirections(5, solver="exact")  # nothing is to be gained
    assert same_state(fs.run(exact, ROWS, passes=2), fs.run(exact, ROWS))


def test_an_estimator_takes_part_by_its_job():
    class Norm:
        def _job(self, source):
            assert source.n_features == D
            return fs.FrequentDirections(5), lambda model: model.squared_norm

    assert np.isclose(fs.run(Norm(), ROWS), (ROWS**2).sum())


# -- workers that are lost, errors -----------------------------------------------------------------------------------
def test_a_killed_worker_costs_its_part_alone(tmp_path):
    source = Watched(tmp_path, 1000, D, act="kill 300 2")
    found = fs.run(fs.FrequentDirections(5, solver="gram"), source, workers=2)
    assert same_state(found, by_hand(fs.FrequentDirections(5, solver="gram"), ROWS, 100))
    read = runs(tmp_path)
    assert {first: read.count(first) for first in read} == {
        first: 3 if first == 300 else 1 for first in range(0, 1000, 100)
    }


def test_a_part_that_always_kills_ends_the_job(tmp_path):
    with pytest.raises(WorkerLost, match="part 3 lost its process 2 times"):
        fs.run(fs.FrequentDirections(5), Watched(tmp_path, 1000, D, act="kill 300 9"), workers=2, retries=1)
    assert runs(tmp_path).count(300) == 2


def test_a_script_without_its_guard_is_told(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(
        "import numpy as np, fastsketch as fs\nfrom fastsketch.jobs import _run\n_run.PART_BYTES = 2000\n"
        "fs.run(fs.FrequentDirections(5), np.ones((1000, 24)), workers=2)\n"
    )
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)
    assert "ended with status 1: in a script, jobs must be started under" in found.stderr


@pytest.mark.parametrize(("workers", "engine"), ENGINES[:5])
def test_an_error_in_a_part_ends_the_job(tmp_path, workers, engine):
    with pytest.raises(KeyError, match="rows are gone"):
        fs.run(fs.FrequentDirections(5), Watched(tmp_path, 1000, D, act="raise 300"), workers=workers, engine=engine)


@pytest.mark.parametrize(("workers", "engine"), ENGINES[:5])
def test_bad_rows_are_named_by_file_and_row(tmp_path, workers, engine):
    rows = ROWS.copy()
    rows[777, 3] = np.nan
    np.save(tmp_path / "bad.npy", rows)
    with pytest.raises(ValueError, match=r"bad\.npy.*row 777\b"):
        fs.run(fs.FrequentDirections(5), tmp_path / "bad.npy", workers=workers, engine=engine)


def test_a_file_that_is_written_to_meanwhile(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, ROWS)

    def meddle(report):
        if not report["final"]:
            np.save(path, ROWS[::-1])

    with pytest.raises(fs.data.SourceError, match=r"a\.npy has changed"):
        fs.run(fs.FrequentDirections(5), path, progress=meddle)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda m: fs.run(m, ROWS, workers=0), ValueError, "workers must be at least 1"),
        (lambda m: fs.run(m, ROWS, workers="all"), TypeError, "workers"),
        (lambda m: fs.run(m, ROWS, engine="fork"), ValueError, "engine"),
        (lambda m: fs.run(m, ROWS, engine="thread"), ValueError, "threads"),
        (lambda m: fs.run(m, ROWS, retries=-1), ValueError, "retries"),
        (lambda m: fs.run(m, ROWS, passes=3), ValueError, "passes"),
        (lambda m: fs.run(m, ROWS, progress="text"), TypeError, "progress"),
        (lambda m: fs.run(m, ROWS, resume=True), ValueError, "resume needs the checkpoint"),
        (lambda m: fs.run(m.copy().update(ROWS), ROWS), ValueError, "seen no rows, it has seen 1000"),
        (lambda m: fs.run("sketch", ROWS), TypeError, "learns by update, got str"),
        (lambda m: fs.run(fs.LowRankModel(), ROWS), TypeError, "learns by update, got LowRankModel"),
        (lambda m: fs.run(fs.SketchedNewton(), ROWS), TypeError, "rows with targets: target names the column"),
        (lambda m: fs.run(fs.SketchedNewton(), ROWS, target=D), ValueError, "24 columns, got position 24"),
        (lambda m: fs.run(fs.SketchedNewton(), ROWS, target=0, workers=2), ValueError, "workers must be 1"),
        (lambda m: fs.run(m, ROWS, target=0), TypeError, "target is of learners: a FrequentDirections"),
        (lambda m: fs.run(fs.SketchHash(4), ROWS, passes=2), ValueError, "passes must be 1 for a SketchHash"),
        (lambda m: fs.run(fs.FrequentDirections(4, decay=0.9), ROWS, passes=2), ValueError, "without decay"),
        (lambda m: fs.run(m, ROWS[:0]), ValueError, "no rows"),
    ],
)
def test_bad_input(call, error, match):
    with pytest.raises(error, match=match):
        call(fs.FrequentDirections(5))


# -- progress --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("workers", "engine"), ENGINES[:5])
def test_progress_is_told(workers, engine, monkeypatch):
    monkeypatch.setattr(_progress, "PAUSE", 0.0)
    told = []
    fs.run(fs.FrequentDirections(5, solver="gram"), ROWS, workers=workers, engine=engine, progress=told.append)
    assert told[-1]["final"] and told[-1]["rows"] == 1000 and told[-1]["parts"] == told[-1]["n_parts"] == 10
    assert all(one["rows"] <= other["rows"] for one, other in zip(told, told[1:], strict=False))
    assert all(one["fraction"] == one["rows"] / 1000 for one in told)
    assert told[-1]["certificate"]["error_bound"] > 0
    assert np.isclose(told[-1]["certificate"]["squared_norm"], (ROWS**2).sum())


def test_progress_is_a_line(monkeypatch, capsys):
    fs.run(fs.FrequentDirections(5), ROWS, progress=True)
    told = capsys.readouterr().err
    assert "1,000 rows" in told and "  0 rows/s" not in told
    fs.run(fs.FrequentDirections(5), ROWS)  # no terminal
    assert capsys.readouterr().err == ""


def test_the_rate_of_a_line_is_that_of_the_rows_since_a_resume(capsys):
    report = {"number": 1, "rows": 1000, "rows_before": 900, "rows_per_second": 50.0, "parts": 8, "parts_before": 7}
    _progress.Printed("x", "json")({**report, "n_parts": 9, "fraction": 0.9, "final": True, "certificate": {}})
    line = json.loads(capsys.readouterr().err)
    assert line["seconds"] == pytest.approx(2.0, abs=0.5) and line["rows_per_second"] == pytest.approx(50, rel=0.3)


def test_progress_as_lines_of_json(capsys):
    fs.run(fs.FrequentDirections(5, solver="gram"), ROWS, progress="json", passes=2)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["number"] for line in lines if line["final"]] == [1, 2]
    assert all(line["rows"] == 1000 and line["n_parts"] == 10 for line in lines if line["final"])
    assert next(line for line in lines if line["final"])["error_bound"] > 0
