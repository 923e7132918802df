"""Map jobs: the answers of one call, whoever gives them and wherever they are written; done once, also after kills."""

import errno
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from functools import partial

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.data.files._lock import LockHeld, locked
from fastsketch.jobs import WorkerLost, _mapping
from fastsketch.jobs import _outputs as outputs
from fastsketch.jobs._manifest import MANIFEST
from fastsketch.jobs._partial_output import PartialOutput
from tests.jobs import answers
from tests.jobs.answers import Watching
from tests.jobs.mapped import PART, PARTS, job
from tests.reliability.figures import environment

D = 4
ROWS = np.arange(PART * PARTS * D, dtype=float).reshape(-1, D) % 4801 / 4
ROWS[:, 0] = np.arange(len(ROWS))
STREAM = np.random.default_rng(0).standard_normal((900, 30))
ENGINES = [("processes", 1), ("processes", 3), ("threads", 2)]


@pytest.fixture
def folder(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    return tmp_path


def in_parts(method, source, output, **options):
    return fs.map_rows(method, source, output=output, **{"part_bytes": PART * D * 8, "workers": 1, **options})


def calls(folder):
    return [int(text) for text in Watching(folder).read("calls")]


def table(path):
    return pytest.importorskip("pyarrow.parquet").read_table(path)


def test_a_function_that_workers_cannot_find_says_where_to_define_it(folder):
    (folder / "script.py").write_text(
        "import fastsketch as fs\n"
        "if __name__ == '__main__':\n"
        "    def sums(rows): return rows.sum(1)\n"
        "    fs.map_rows(sums, 'rows.npy', output='out.npy', workers=2, part_bytes=3200)\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert "TypeError: a worker does not find what it was sent" in done.stderr
    assert "define it in a module, or in a script before  if __name__ == '__main__'" in done.stderr


def test_names_that_were_checked_are_no_warning_of_scikit_learn(folder):
    pandas, sklearn = pytest.importorskip("pandas"), pytest.importorskip("fastsketch.sklearn")
    frame = pandas.DataFrame(STREAM, columns=[f"c{k}" for k in range(STREAM.shape[1])])
    pca = sklearn.SketchedPCA(3).fit(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fs.map_rows(pca.transform, frame, output=folder / "out.npy", workers=1)
    with pytest.raises(ValueError, match="column 0 is 'c29'"):
        fs.map_rows(pca.transform, frame.iloc[:, ::-1], output=folder / "out.npy", workers=1)


def test_rows_without_names_are_taken_as_the_model_has_learned_them(folder):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(STREAM, columns=[f"c{k}" for k in range(STREAM.shape[1])])
    learner = fs.SketchedNewton(3).update(frame, STREAM[:, 0] > 0)
    assert learner.feature_names is not None
    fs.map_rows(learner.predict, STREAM, output=folder / "out.npy", workers=1)
    assert np.array_equal(np.load(folder / "out.npy"), learner.predict(STREAM))


def test_names_that_were_checked_are_no_warning_in_another_process(tmp_path):
    """There nobody has silenced it: answer_part is what a worker calls."""
    pandas, sklearn = pytest.importorskip("pandas"), pytest.importorskip("fastsketch.sklearn")
    frame = pandas.DataFrame(STREAM, columns=[f"c{k}" for k in range(STREAM.shape[1])])
    pca = sklearn.SketchedPCA(3).fit(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer = partial(outputs.csv_part, str(tmp_path / "part"))
        assert _mapping.map_part(pca.transform, "transform", fs.open_rows(frame), writer)[0] == len(STREAM)


def test_rows_of_the_part_under_way_are_reported(folder, monkeypatch):
    monkeypatch.setattr("fastsketch.jobs._progress.PAUSE", 0.0)
    monkeypatch.setattr(_mapping, "FIRST_ROWS", 10)
    reports = []
    in_parts(
        partial(np.sum, axis=1),
        folder / "rows.npy",
        folder / "out.npy",
        progress=reports.append,
        part_bytes=10 * ROWS.nbytes,
    )
    assert len(reports) > 2 and reports[0]["rows"] < len(ROWS) and reports[0]["parts"] == 0
    assert all(report["fraction"] == report["rows"] / len(ROWS) for report in reports)


# -- the same as one call ----------------------------------------------------------------------------------------------
def sums(rows):
    return rows.sum(axis=1)


def test_ids_stand_beside_answers(tmp_path):
    lines = [f"row {k},{a},{b}\n" for k, (a, b) in enumerate(STREAM[:, :2].tolist())]
    (tmp_path / "r.csv").write_text("name,a,b\n" + "".join(lines))
    source = fs.open_rows(tmp_path / "r.csv", beside="name")
    assert len(source.parts(4000)) > 3
    fs.map_rows(sums, source, output=tmp_path / "o.parquet", part_bytes=4000, workers=1)
    found = table(tmp_path / "o.parquet").to_pydict()
    assert found["name"] == [f"row {k}" for k in range(len(STREAM))]
    assert np.allclose(found["sums"], STREAM[:, :2].sum(1))
    numbered = fs.open_rows(np.column_stack([np.arange(900), STREAM]), beside=0)
    fs.map_rows(sums, numbered, output=tmp_path / "n.parquet")
    assert table(tmp_path / "n.parquet")["0"].to_pylist() == list(range(900))
    with pytest.raises(ValueError, match=r"holds one array, and there are 2 for each row \(name, \): write .parquet"):
        fs.map_rows(sums, source, output=tmp_path / "o.npy")


@pytest.mark.parametrize(("engine", "workers"), ENGINES)
def test_codes_are_those_of_one_call(tmp_path, engine, workers):
    np.save(tmp_path / "rows.npy", STREAM)
    for model in (fs.SketchHash(11).update(STREAM), fs.SketchQuantizer(4).update(STREAM)):
        found = fs.map_rows(
            model.encode,
            tmp_path / "rows.npy",
            output=tmp_path / "codes.npy",
            engine=engine,
            workers=workers,
            part_bytes=20_000,
        )
        assert (found.n_rows, found.n_parts, found.n_kept) == (900, 11, 0)
        codes = np.load(tmp_path / "codes.npy")
        assert codes.dtype == np.uint8
        assert np.array_equal(codes, model.encode(STREAM))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["codes.npy", "rows.npy"]


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_any_source_and_any_number_of_workers_give_the_same_bytes(tmp_path, suffix):
    """Dense and sparse files, text whose rows are not counted before, arrays: in the order of rows."""
    model = fs.SketchHash(8).update(STREAM)
    csr = sparse.csr_array(np.where(np.abs(STREAM) > 1.0, STREAM, 0.0))
    np.save(tmp_path / "rows.npy", STREAM)
    sparse.save_npz(tmp_path / "rows.npz", csr)
    with (tmp_path / "rows.svm").open("w") as file:
        for row in range(900):
            cells = zip(csr.indices[csr.indptr[row] : csr.indptr[row + 1]], csr[[row]].data, strict=True)
            file.write("0 " + " ".join(f"{column + 1}:{float(value)!r}" for column, value in cells) + "\n")
    for source in (
        tmp_path / "rows.npy",
        tmp_path / "rows.npz",
        tmp_path / "rows.svm",
        STREAM,
        [tmp_path / "rows.npy"] * 2,
    ):
        rows = STREAM if isinstance(source, list | np.ndarray) or source.suffix == ".npy" else csr
        whole = model.encode(rows)
        whole = np.vstack([whole, whole]) if isinstance(source, list) else whole
        seen = []
        for engine, workers in [("processes", 1), ("threads", 3)]:
            out = tmp_path / f"codes{suffix}"
            found = fs.map_rows(model.encode, source, output=out, engine=engine, workers=workers, part_bytes=20_000)
            assert found.n_parts > 3
            if suffix == ".npy":
                codes = np.load(out)
            else:
                codes = np.frombuffer(b"".join(table(out)["code"].to_pylist()), np.uint8).reshape(len(whole), -1)
            assert np.array_equal(codes, whole)
            files = [out] if suffix == ".npy" else sorted(out.iterdir())
            seen.append([(path.name, path.read_bytes()) for path in files])
        assert seen[0] == seen[1]


def test_answers_of_estimators_and_learners(tmp_path, amount):
    skl = pytest.importorskip("fastsketch.sklearn")
    labels = np.where(STREAM[:, 0] > 0, "yes", "no")
    pca = skl.SketchedPCA(3).fit(STREAM)
    covariance = skl.SketchedCovariance(5).fit(STREAM)
    learner = fs.SketchedNewton(3).update(STREAM, labels)
    out, options = tmp_path / "out.npy", {"part_bytes": 20_000, "workers": 2}
    for method in (pca.transform, covariance.score_samples, learner.decision_function, learner.predict_proba):
        engine = "processes" if method == pca.transform else amount("threads", "processes")
        fs.map_rows(method, STREAM, output=out, engine=engine, **options)
        assert np.allclose(np.load(out), method(STREAM), rtol=1e-9, atol=1e-12)
    fs.map_rows(learner.predict, STREAM, output=out, engine=amount("threads", "processes"), **options)
    assert np.array_equal(np.load(out), learner.predict(STREAM))


def test_missing_numbers_reach_the_estimators_that_take_them(tmp_path):
    skl = pytest.importorskip("fastsketch.sklearn")
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((300, 4)) + rng.standard_normal((300, 1))
    rows[rng.random(rows.shape) < 0.1] = np.nan
    path, out = tmp_path / "gaps.csv", tmp_path / "out.npy"
    np.savetxt(path, rows, delimiter=",", fmt="%.17g")
    path.write_text(path.read_text().replace("nan", ""))
    source = fs.open_rows(path, header=False)
    by_distance = skl.SketchedCovariance(fill="mean").fit(source)
    completer = skl.LowRankCompleter().fit(source)
    by_em = skl.SketchedPCA(2, missing="em").fit(source)
    for method in (by_distance.predict, by_distance.score_samples, completer.transform, by_em.transform):
        fs.map_rows(method, source, output=out, workers=1)
        assert np.allclose(np.load(out), method(rows), rtol=1e-9, atol=1e-12)
    plain = skl.SketchedPCA(2).fit(np.nan_to_num(rows))
    with pytest.raises(ValueError, match="NaN"):
        fs.map_rows(plain.transform, source, output=out, workers=1)


def test_what_columns_are_called(tmp_path):
    skl = pytest.importorskip("fastsketch.sklearn")
    pytest.importorskip("pyarrow")
    labels = np.where(STREAM[:, 0] > 0, "yes", "no")
    learner = fs.SketchedNewton(3).update(STREAM, labels)
    pca = skl.SketchedPCA(2).fit(STREAM)
    near = skl.SketchedNearestNeighbors(n_neighbors=2).fit(STREAM) if hasattr(skl, "SketchedNearestNeighbors") else None
    out = tmp_path / "out.parquet"
    wanted = [
        (learner.predict, ["prediction"]),
        (learner.decision_function, ["score"]),
        (learner.predict_proba, ["probability_no", "probability_yes"]),
        (pca.transform, list(pca.get_feature_names_out())),
        (answers.two_answers, ["low", "all_0", "all_1"]),
        (answers.words, ["words"]),
        (fs.SketchHash(9).update(STREAM).encode, ["code"]),
    ]
    if near is not None:
        wanted.append((near.kneighbors, ["distance_0", "distance_1", "index_0", "index_1"]))
    for method, names in wanted:
        in_parts(method, STREAM, out)
        assert table(out).column_names == names
        assert table(out).num_rows == 900
    assert table(out).schema.field(0).nullable is False


def test_more_arguments_by_partial(tmp_path):
    model = fs.SketchHash(8).update(STREAM)
    in_parts(partial(model.encode, factors=True), STREAM, tmp_path / "codes.npy", workers=2)
    assert np.array_equal(np.load(tmp_path / "codes.npy"), model.encode(STREAM, factors=True))


def test_long_answers_are_formed_some_at_a_time(folder, monkeypatch):
    monkeypatch.setattr("fastsketch.jobs._mapping.ANSWER_BYTES", 70 * 8)
    monkeypatch.setattr("fastsketch.jobs._mapping.FIRST_ROWS", 10)
    found = in_parts(Watching(folder).sums, folder / "rows.npy", folder / "out.npy", part_bytes=400 * D * 8)
    assert calls(folder)[:8] == [0, 10, 80, 150, 220, 290, 360, 400]
    assert found.n_parts == 3
    assert np.array_equal(np.load(folder / "out.npy"), ROWS.sum(axis=1))


def test_rows_that_come_once(tmp_path):
    batches = [STREAM[:10], STREAM[10:10], STREAM[10:500], STREAM[500:]]
    model = fs.SketchHash(8).update(STREAM)
    for suffix in (".npy", ".parquet"):
        out = tmp_path / f"codes{suffix}"
        assert fs.map_rows(model.encode, iter(batches), output=out).n_rows == 900
        if suffix == ".npy":
            assert np.array_equal(np.load(out), model.encode(STREAM))
    with pytest.raises(ValueError, match="workers must be 1: these rows can be read only once"):
        fs.map_rows(model.encode, iter(batches), output=tmp_path / "codes.npy", workers=2)
    with pytest.raises(ValueError, match="resume: these rows can be read only once"):
        fs.map_rows(model.encode, iter(batches), output=tmp_path / "codes.npy", resume=True)

    def broken():
        yield STREAM[:100]
        raise KeyError("gone")

    with pytest.raises(KeyError):
        fs.map_rows(model.encode, broken(), output=tmp_path / "other.npy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["codes.npy", "codes.parquet"]  # nothing to go on with


def test_no_rows(tmp_path):
    model = fs.SketchHash(9).update(STREAM)
    fs.map_rows(model.encode, np.empty((0, 30)), output=tmp_path / "codes.npy")
    assert np.load(tmp_path / "codes.npy").shape == (0, 2)
    with pytest.raises(ValueError, match="holds no rows, and one_number does not say what it would give"):
        fs.map_rows(answers.one_number, np.empty((0, 30)), output=tmp_path / "codes.npy")


# -- once, and to each worker once -------------------------------------------------------------------------------------
def test_a_model_is_sent_to_each_worker_once(folder):
    in_parts(Watching(folder, pause=0.02).sums, folder / "rows.npy", folder / "out.npy", workers=2)
    arrived = Watching(folder).read("arrived")
    assert len(arrived) == len(set(arrived)) == 2
    assert len(calls(folder)) == PARTS


def test_a_lost_worker_costs_its_part(folder):
    found = in_parts(Watching(folder, kills=2).sums, folder / "rows.npy", folder / "out.npy", workers=2)
    assert found.n_parts == PARTS
    assert sorted(calls(folder)) == sorted([*range(0, PARTS * PART, PART), 300, 300])
    assert np.array_equal(np.load(folder / "out.npy"), ROWS.sum(axis=1))
    with pytest.raises(WorkerLost, match="part 3 lost its process 2 times"):
        in_parts(Watching(folder, kills=9).sums, folder / "rows.npy", folder / "out.npy", workers=2, retries=1)


def interrupted(folder, after, suffix=".npy"):
    """Leave a job of which about so many parts are done."""

    class Stop(Exception):
        pass

    def stop(report):
        if report["parts"] >= after:
            raise Stop

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stop):
        patch.setattr("fastsketch.jobs._progress.PAUSE", 0.0)
        in_parts(Watching(folder).sums, folder / "rows.npy", folder / f"out{suffix}", progress=stop)


@pytest.mark.covering(1)
@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
@pytest.mark.parametrize(("engine", "workers"), ENGINES)
def test_only_what_is_missing_is_done(folder, suffix, engine, workers):
    (folder / f"out{suffix}").mkdir() if suffix == ".parquet" else (folder / f"out{suffix}").write_text("old")
    interrupted(folder, 5, suffix)
    if suffix == ".npy":
        assert (folder / "out.npy").read_text() == "old"
    done = calls(folder)
    assert done == [0, 100, 200, 300, 400]
    found = job(folder, engine, workers, resume=True, suffix=suffix)
    assert found.n_kept == 5
    assert sorted(calls(folder)) == [0, *range(0, PARTS * PART, PART)]  # the first rows tell what answers are
    if suffix == ".npy":
        assert np.array_equal(np.load(folder / "out.npy"), ROWS.sum(axis=1))
    else:
        assert np.array_equal(table(folder / "out.parquet")["sums"], ROWS.sum(axis=1))
    assert not (folder / f"out{suffix}.partial").exists()


def test_another_job_is_not_gone_on_with(folder):
    interrupted(folder, 3)
    options = {"part_bytes": PART * D * 8, "resume": True, "workers": 1}
    with pytest.raises(ValueError, match=r"belongs to another job: method is first_column now and was sums"):
        fs.map_rows(answers.first_column, folder / "rows.npy", output=folder / "out.npy", **options)
    with pytest.raises(ValueError, match=r"belongs to another job: digest of the model is"):
        fs.map_rows(Watching(folder, rows=3).sums, folder / "rows.npy", output=folder / "out.npy", **options)
    with pytest.raises(ValueError, match=r"belongs to another job: part_bytes is 6400 now and was 3200; parts"):
        fs.map_rows(
            Watching(folder).sums, folder / "rows.npy", output=folder / "out.npy", **{**options, "part_bytes": 6400}
        )
    changed = ROWS.copy()
    changed[5, 2] += 1
    np.save(folder / "rows.npy", changed)
    with pytest.raises(ValueError, match=r"belongs to another job: .*rows.npy is not what it was \((digest|modified)"):
        fs.map_rows(Watching(folder).sums, folder / "rows.npy", output=folder / "out.npy", **options)
    assert len(calls(folder)) == 3
    fs.map_rows(answers.first_column, folder / "rows.npy", output=folder / "out.npy", workers=1)
    assert np.array_equal(np.load(folder / "out.npy"), changed[:, 0])
    with pytest.warns(UserWarning, match=r"nothing to resume in .*new\.npy\.partial: the job begins"):
        fs.map_rows(answers.first_column, folder / "rows.npy", output=folder / "new.npy", **options)
    assert np.array_equal(np.load(folder / "new.npy"), changed[:, 0])


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_a_resume_does_not_replace_a_finished_output(folder, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    output = folder / f"out{suffix}"
    fs.map_rows(answers.first_column, folder / "rows.npy", output=output, workers=1)
    files = [output] if suffix == ".npy" else sorted(output.iterdir())
    before = [path.read_bytes() for path in files]
    np.save(folder / "others.npy", ROWS[:5])
    with pytest.raises(ValueError, match=rf"holds no unfinished job, and .*out\{suffix} is finished"):
        fs.map_rows(answers.first_column, folder / "others.npy", output=output, workers=1, resume=True)
    assert [path.read_bytes() for path in files] == before and not (folder / f"out{suffix}.partial").exists()


def test_one_job_at_a_time(folder):
    with locked(folder / "out.npy"), pytest.raises(LockHeld, match="is being written by another job"):
        in_parts(answers.first_column, folder / "rows.npy", folder / "out.npy")


def test_a_source_that_changes_meanwhile(folder):
    def grows(rows):
        np.save(folder / "rows.npy", np.vstack([ROWS, ROWS]))
        return rows[:, 0]

    with pytest.raises(fs.data.SourceError, match="has changed"):
        in_parts(grows, folder / "rows.npy", folder / "out.npy", engine="threads")
    assert not (folder / "out.npy").exists()


def test_one_killed_before_its_journal_had_a_name_is_in_nobodys_way(folder):
    place = folder / "out.npy.partial"
    place.mkdir()
    left = "import sys; from pathlib import Path; from fastsketch.data.files._replacing import temporary_name as name\n"
    left += f"name(Path(sys.argv[1]) / {MANIFEST!r}).touch()"
    subprocess.run([sys.executable, "-P", "-c", left, str(place)], env=environment(), check=True)
    assert list(place.iterdir())
    fs.map_rows(answers.first_column, ROWS, output=folder / "out.npy", workers=1)
    assert np.array_equal(np.load(folder / "out.npy"), ROWS[:, 0]) and not place.exists()


@pytest.mark.parametrize(
    ("engine", "workers"),
    [
        ("processes", 2),
        pytest.param("threads", 2, marks=pytest.mark.long),
        pytest.param("processes", 1, marks=pytest.mark.long),
    ],
)
def test_killed_at_random_moments(folder, engine, workers, amount):
    """Every kill costs at most the parts that were under way."""
    chosen = random.Random(f"{engine} {workers}")
    command = [sys.executable, "-m", "tests.jobs.mapped", str(folder), engine, str(workers)]
    kills = whole = 0
    for _ in range(40):
        with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, start_new_session=True) as process:
            process.stdout.readline()
            if kills < amount(3, 7):
                time.sleep(chosen.uniform(0.0, 0.6))
                if process.poll() is None:
                    os.kill(process.pid, signal.SIGKILL)
                    kills += 1
            try:
                ended = process.wait(timeout=60) == 0
            finally:
                process.kill()
        if (folder / "out.npy").exists():
            assert np.array_equal(np.load(folder / "out.npy"), ROWS.sum(axis=1))
            if ended:
                break
            (folder / "out.npy").unlink()  # the kill came after the work: all of it is done once more
            whole += 1
    done = calls(folder)
    assert set(done) == set(range(0, PARTS * PART, PART))
    assert len(done) <= PARTS * (1 + whole) + kills * 2 * workers
    assert not (folder / "out.npy.partial").exists()
    assert not [path for path in folder.iterdir() if path.name.endswith(".lock") or path.name.startswith(".")]


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_killed_between_the_name_of_the_output_and_the_end(folder, suffix, monkeypatch):
    """What has gone to the output is done again: parts that are not there any more would be zeros."""
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")

    class Kill(BaseException):
        pass

    def kill(*_):
        raise Kill

    with monkeypatch.context() as patch, pytest.raises(Kill):
        patch.setattr(PartialOutput, "remove", kill)
        job(folder, "threads", 1, resume=False, suffix=suffix)
    assert (folder / f"out{suffix}").exists() and (folder / f"out{suffix}.partial").exists()
    with monkeypatch.context() as patch, pytest.raises(Kill):  # and once more, when it has just gone on
        patch.setattr("fastsketch.jobs._mapping.run_tasks", kill)
        patch.setattr(PartialOutput, "describe_finished", lambda _: "all is as it was")
        job(folder, "threads", 1, resume=True, suffix=suffix)
    job(folder, "threads", 1, resume=True, suffix=suffix)
    found = np.load(folder / "out.npy") if suffix == ".npy" else table(folder / "out.parquet").column(0).to_numpy()
    assert np.array_equal(found, ROWS.sum(axis=1))
    assert not (folder / f"out{suffix}.partial").exists()


# -- outputs -----------------------------------------------------------------------------------------------------------
def test_no_space(folder, monkeypatch):
    """What is done stays, and the message says how to go on; the old output is as it was."""
    (folder / "out.npy").write_text("old")
    header = outputs.npy_header

    def full(spec, n):
        if len(calls(folder)) > 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "out.npy")
        return header(spec, n)

    monkeypatch.setattr(outputs, "npy_header", full)
    with pytest.raises(OSError, match="No space left") as caught:
        in_parts(Watching(folder).sums, folder / "rows.npy", folder / "out.npy")
    assert caught.value.__notes__ == [
        f"4 parts are in {folder / 'out.npy.partial'}: the same job with resume continues from there"
    ]
    assert (folder / "out.npy").read_text() == "old"
    monkeypatch.undo()
    assert job(folder, "threads", 1, resume=True).n_kept == 4
    assert np.array_equal(np.load(folder / "out.npy"), ROWS.sum(axis=1))


def test_a_link_is_followed_and_stays(folder):
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "real.npy").write_text("old")
    (folder / "out.npy").symlink_to(folder / "elsewhere" / "real.npy")
    in_parts(answers.first_column, folder / "rows.npy", folder / "out.npy")
    assert (folder / "out.npy").is_symlink()
    assert np.array_equal(np.load(folder / "elsewhere" / "real.npy"), ROWS[:, 0])


def test_an_older_table_is_replaced_and_nothing_else(folder):
    out = folder / "out.parquet"
    pytest.importorskip("pyarrow")
    in_parts(answers.first_column, folder / "rows.npy", out)
    assert len(list(out.iterdir())) == PARTS
    in_parts(answers.first_column, folder / "rows.npy", out, part_bytes=1 << 20)
    assert [path.name for path in out.iterdir()] == ["part-000000.parquet"]
    (out / "precious.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"is a folder with other things in it \(precious.txt\)"):
        in_parts(answers.first_column, folder / "rows.npy", out)
    (folder / "file.parquet").write_text("mine")
    with pytest.raises(ValueError, match="is a file, and a folder is written"):
        in_parts(answers.first_column, folder / "rows.npy", folder / "file.parquet")


def test_what_is_in_the_way_of_the_unfinished_folder_stays(folder):
    (folder / "out.npy.partial").write_text("mine")
    with pytest.raises(OSError, match="is in the way, and no folder"):
        in_parts(answers.first_column, folder / "rows.npy", folder / "out.npy")
    (folder / "out.npy.partial").unlink()
    (folder / "out.npy.partial").mkdir()
    (folder / "out.npy.partial" / "mine").touch()
    with pytest.raises(OSError, match="is in the way, and holds no job"):
        in_parts(answers.first_column, folder / "rows.npy", folder / "out.npy")
    assert (folder / "out.npy.partial" / "mine").exists()


@pytest.mark.parametrize(
    ("method", "output", "error", "match"),
    [
        (3, "out.npy", TypeError, "function must be callable"),
        (answers.first_column, "out.txt", ValueError, r"output must end in .npy or .parquet"),
        (answers.first_column, "none/out.npy", ValueError, "the folder of the output does not exist"),
        (answers.sparse_rows, "out.npy", TypeError, "sparse_rows gives sparse rows"),
        (answers.objects, "out.npy", TypeError, "must give numbers or text, got dtype object"),
        (answers.fewer, "out.npy", ValueError, "fewer must give one answer for each row: got 99 for 100 rows"),
        (answers.one_number, "out.npy", ValueError, "one answer for each row: got a single value for 100 rows"),
        (
            answers.widening,
            "out.npy",
            ValueError,
            r"those of part 4 are float64 \(n, 2\), those of part 0 float64 \(n, 1\)",
        ),
        (answers.two_answers, "out.npy", ValueError, r"an .npy holds one array, and there are 2 .* \(low, all\)"),
    ],
)
def test_bad_input(folder, method, output, error, match):
    with pytest.raises(error, match=match):
        in_parts(method, folder / "rows.npy", folder / output)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"workers": 0}, ValueError, "workers must be at least 1"),
        ({"workers": 1.5}, TypeError, "workers must be an integer"),
        ({"engine": "spark"}, ValueError, "engine must be one of"),
        ({"retries": -1}, ValueError, "retries"),
        ({"part_bytes": 0}, ValueError, "part_bytes"),
        ({"resume": 1}, TypeError, "resume must be"),
        ({"progress": 1}, TypeError, "progress must be"),
    ],
)
def test_bad_options(folder, options, error, match):
    with pytest.raises(error, match=match):
        in_parts(answers.first_column, folder / "rows.npy", folder / "out.npy", **options)
    assert not (folder / "out.npy.partial").exists()


def test_a_function_that_cannot_be_sent(folder):
    with pytest.raises(TypeError, match=r"<lambda> cannot be sent to workers: .* or take engine='threads'"):
        in_parts(lambda rows: rows[:, 0], folder / "rows.npy", folder / "out.npy", workers=2)
    in_parts(lambda rows: rows[:, 0], folder / "rows.npy", folder / "out.npy", workers=2, engine="threads")
    assert np.array_equal(np.load(folder / "out.npy"), ROWS[:, 0])


def test_an_error_names_the_file_and_the_row(folder):
    model = fs.SketchHash(2).update(ROWS)
    rows = ROWS.copy()
    rows[777, 1] = np.nan
    np.save(folder / "rows.npy", rows)
    with pytest.raises(ValueError, match=r"rows.npy.*row 777") as caught:
        in_parts(model.encode, folder / "rows.npy", folder / "out.npy")
    assert "parts are in" in caught.value.__notes__[0]
    with pytest.raises(ValueError, match=r"rows.npy.* 30 columns"):
        in_parts(fs.SketchHash(2).update(STREAM).encode, folder / "rows.npy", folder / "other.npy")
