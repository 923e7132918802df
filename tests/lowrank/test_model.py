"""What a low-rank model answers, and the promises of every model."""

import copy
import gzip
import inspect
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from scipy.io import loadmat
from scipy.special import expit

import fastsketch as fs
from tests.helpers import some, tol
from tests.lowrank.problems import greedy, problem, stored


def test_new_rows_are_predicted_and_recommended():
    o, seen = problem(m=80, n=30, noise=0.05)
    model = greedy(3, sweeps=10, ridge=0.1, bias_ridge=0.1, scaling=False).fit(stored(o[:60], seen[:60]))
    new = model.fold_in(stored(o[60:], seen[60:]))
    error = np.abs(new.predict_block() - o[60:])[~seen[60:]].mean()
    assert error < 0.5 * np.abs(o[60:])[~seen[60:]].mean()
    columns, scores = new.recommend(4, exclude=stored(o[60:], seen[60:]))
    for k in range(20):
        allowed = np.flatnonzero(~seen[60 + k])
        block = new.predict_block()[k]
        assert set(columns[k]) <= set(allowed)
        assert np.allclose(scores[k], np.sort(block[allowed])[::-1][:4])
    assert np.allclose(new.predict([0, 1], [3, 4]), new.predict_block()[[0, 1], [3, 4]])
    assert np.allclose(new.predict([0], [-1]), model.bias_terms()[0] + new.biases[0])
    # another fit of the model leaves what was folded in as it was
    before = new.predict_block()
    model.fit(stored(5 - o[:60], seen[:60]))
    assert np.array_equal(new.predict_block(), before)
    assert np.array_equal(new.recommend(4, exclude=stored(o[60:], seen[60:]))[0], columns)


def test_recommend_and_similar():
    o, seen = problem()
    x = stored(o, seen)
    model = greedy(3, clip=(-2, 2)).fit(x)
    columns, scores = model.recommend([4, -1, 7], 5, exclude=sparse.csr_array(x[[4, 0, 7]]))
    block = np.clip(model.predict_block([4, -1, 7]), -2, 2)
    for k, i in enumerate((4, -1, 7)):
        allowed = np.flatnonzero(~seen[0 if i < 0 else i])
        assert np.allclose(scores[k], np.sort(block[k][allowed])[::-1][:5])
        assert (np.diff(scores[k]) <= 0).all()
    # the whole of X names rows by their own number
    whole, _ = model.recommend([4, 7], 5, exclude=x)
    assert np.array_equal(whole, columns[[0, 2]])
    few, values = model.recommend([0], 25, exclude=x)
    assert (few[0] == -1).sum() == seen[0].sum()
    assert np.isnan(values[0][few[0] == -1]).all()
    near, cosines = model.similar(3, 4, axis=1)
    assert 3 not in near
    assert (np.diff(cosines) <= 0).all()
    b = model.factors()[1]
    b = b / np.linalg.norm(b, axis=1, keepdims=True)
    assert np.allclose(cosines, np.sort(np.delete(b @ b[3], 3))[::-1][:4])


@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_only_what_is_allowed_is_recommended(loss):
    o, seen = problem()
    x = stored(np.sign(o) if loss == "logistic" else o, seen)
    model = greedy(3, loss=loss).fit(x)
    folded = model.fold_in(x[:4])
    allow = [20, 3, 3, 11, 7]
    for recommend, block, mine in (
        (lambda **more: model.recommend([4, -1, 7], 6, **more), model.decision_block([4, -1, 7]), x[[4, 0, 7]]),
        (lambda **more: folded.recommend(6, **more), folded.decision_block(), x[:4]),
    ):
        every, predictions = recommend(exclude=None)
        columns, values = recommend(allow=np.arange(25))
        assert np.array_equal(columns, every)
        assert np.allclose(values, predictions)
        columns, values = recommend(allow=allow, exclude=mine)
        for k, z in enumerate(block):
            left = sorted({*allow} - {*mine[[k]].indices.tolist()}, key=lambda j: (-z[j], j))
            assert columns[k].tolist() == left + [-1] * (6 - len(left))
            assert np.isnan(values[k]).tolist() == [j < 0 for j in columns[k]]
        columns, values = recommend(allow=[])
        assert (columns == -1).all()
        assert np.isnan(values).all()
    whole = model.recommend([4, 7], 6, allow=allow, exclude=x)[0]  # the whole of X names rows by their own number
    assert np.array_equal(whole, model.recommend([4, 7], 6, allow=allow, exclude=x[[4, 7]])[0])


def test_what_has_not_been_seen_is_answered_by_biases():
    o, seen = problem()
    seen[5], seen[:, 7] = False, False
    model = greedy(3).fit(stored(o, seen))
    level, row, column = model.bias_terms()
    assert row[5] == column[7] == 0
    assert np.allclose(
        model.predict([5, -1, 3, 3, -1], [2, 2, 7, -1, -1]), level + np.array([column[2], column[2], row[3], row[3], 0])
    )
    labels = greedy(2, "hinge").fit(stored(np.where(o > -1, 1.0, -1.0), seen))
    assert set(labels.predict(np.arange(30), np.zeros(30, int))) <= {-1.0, 1.0}


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_what_has_not_been_seen_has_the_more_frequent_label(loss, sign):
    o, seen = problem()
    model = greedy(2, loss).fit(stored(sign * np.where(o > -1, 1.0, -1.0), seen))
    assert model.predict([-1], [-1]).tolist() == [sign] and model.decision_function([-1], [-1])[0] * sign > 0


def test_scales_of_predictions():
    o, seen = problem("logistic")
    x, rows, columns = stored(o, seen), *np.nonzero(seen)
    model = greedy(3, "logistic").fit(x)
    z, p, labels = (ask(rows, columns) for ask in (model.decision_function, model.predict_proba, model.predict))
    assert ((p > 0) & (p < 1)).all()
    assert np.allclose(p, 1 / (1 + np.exp(-z)), rtol=1e-12)
    assert np.array_equal(labels, np.where(p > 0.5, 1.0, -1.0))
    assert np.mean(labels == o[seen]) > 0.8
    assert np.array_equal(model.predict_block([0, 3]), np.sign(model.decision_block([0, 3])))
    zero_one = greedy(3, "logistic").fit(stored((o > 0).astype(float), seen))
    assert np.array_equal(zero_one.predict_proba(rows, columns), p)
    assert np.array_equal(zero_one.predict(rows, columns), labels)
    new = model.fold_in(x[:4])
    z, block = new.decision_function([0, 1], [2, 3]), new.decision_block()[[0, 1], [2, 3]]
    assert np.array_equal(new.predict_proba([0, 1], [2, 3]), expit(z))
    # a block sums in an order of its own, over terms that are together no larger than this
    size = abs(model.bias_terms()[0]) + np.abs(new.biases).max() + np.abs(model.bias_terms()[2]).max()
    size += np.abs(new.factors).max() * np.abs(model.factors()[1]).max() * 3
    assert np.abs(z - block).max() <= tol(np.float64, size)
    assert np.array_equal(new.predict([0, 1], [2, 3]), np.sign(new.decision_function([0, 1], [2, 3])))
    # recommendations say how probable they are
    found, chances = model.recommend([0, 1], 3)
    assert np.allclose(chances[0], model.predict_proba([0, 0, 0], found[0]), rtol=1e-12)
    counts, seen = problem("poisson")
    rates = greedy(2, "poisson").fit(stored(counts, seen))
    rows, columns = np.nonzero(seen)
    assert (rates.predict(rows, columns) > 0).all()
    assert np.allclose(rates.predict(rows, columns), np.exp(rates.decision_function(rows, columns)))
    for loss in ("square", "hinge", "squared_hinge", "poisson"):
        other = greedy(1, loss).fit(stored(*problem(loss)))
        with pytest.raises(ValueError, match=f"loss='logistic' alone, got loss='{loss}'"):
            other.predict_proba([0], [0])
        if "hinge" in loss:
            assert set(other.predict_block(np.arange(30)).ravel()) == {-1.0, 1.0}


def test_intervals_from_quantiles():
    o, seen = problem(m=80, n=60, noise=1.0)
    low, high = (greedy(2, "quantile", loss_parameter=p).fit(stored(o, seen)) for p in (0.1, 0.9))
    inside = (low.predict(*np.nonzero(seen)) <= o[seen]) & (o[seen] <= high.predict(*np.nonzero(seen)))
    assert 0.7 < inside.mean() < 0.9


def test_zeros_are_observations_and_nan_is_missing():
    o, seen = problem()
    o[:, 3] = 0.0
    x = stored(o, seen)
    assert x.nnz == seen.sum()
    dense = np.where(seen, o, np.nan)
    one, two = greedy(3).fit(x), greedy(3).fit(dense)
    assert np.array_equal(one.predict_block(np.arange(30)), two.predict_block(np.arange(30)))
    without = x.copy()
    without.eliminate_zeros()
    assert not np.allclose(greedy(3).fit(without).predict_block([0]), one.predict_block([0]))


def test_weights():
    o, seen = problem()
    x = stored(o, seen)
    twice = x.copy()
    twice.data = np.full_like(x.data, 2.0)
    # ridges count observations of mean weight: twice the loss is the same problem
    one = greedy(3, bias_ridge=1.0).fit(x)
    two = greedy(3, bias_ridge=1.0).fit(x, sample_weight=twice)
    assert np.allclose(one.predict_block([0, 1]), two.predict_block([0, 1]), rtol=1e-5)
    some = x.copy()
    some.data = (np.arange(x.nnz) % 3 > 0).astype(float)
    kept = stored(o, np.asarray(some.toarray() > 0))
    ours = greedy(2, scaling=False).fit(x, sample_weight=some)
    assert np.allclose(
        ours.predict_block([0]), greedy(2, scaling=False).fit(kept).predict_block([0]), rtol=1e-4, atol=1e-6
    )
    with pytest.raises(ValueError, match="not negative"):
        greedy(2).fit(x, sample_weight=-some)
    with pytest.raises(ValueError, match="stored where X is"):
        greedy(2).fit(x, sample_weight=kept)


def test_validation_chooses_a_rank_and_stops():
    o, seen = problem(m=80, n=60, noise=1.0, share=0.3)
    x = stored(o, seen)
    model = greedy(15, scaling=False).fit(x, validation=0.2)
    scores = [line["validation"] for line in model.history]
    assert model.selected_rank == int(np.argmin(scores)) < 15
    short = greedy(15, scaling=False).fit(x, validation=0.2, patience=2)
    stop = next(k for k in range(16) if k - int(np.argmin(scores[: k + 1])) >= 2)
    assert [line["validation"] for line in short.history] == scores[: stop + 1]
    assert short.selected_rank == stop - 2 < 13
    lines = []
    stopped = greedy(15).fit(x, callback=lambda line: lines.append(line) or line["rank"] == 4)
    assert stopped.selected_rank == 4 == lines[-1]["rank"]
    held = stored(o, ~seen)
    assert greedy(3).fit(x, validation=held).history[0]["validation"] > 0


def test_interrupted_fits_leave_the_model_as_it_was():
    o, seen = problem()
    model = greedy(3).fit(stored(o, seen))
    before = model.to_bytes()

    def stop(line):
        if line["rank"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(stored(2 * o, seen), callback=stop)
    assert model.to_bytes() == before
    with pytest.raises(ValueError, match="finite"):
        model.fit(stored(np.where(o > 1, np.inf, o), seen))
    assert model.to_bytes() == before
    with pytest.raises(KeyboardInterrupt):
        greedy(1).fit(stored(o, seen)).add_ranks(3, callback=stop)


@pytest.mark.parametrize("sweeps", [0, 2])
def test_saved_and_loaded(tmp_path, sweeps):
    o, seen = problem("huber")
    model = greedy(4, "huber", sweeps=sweeps, clip=(-3, 3)).fit(stored(o, seen), validation=0.1)
    model.notes["what"] = "test"
    model.save(tmp_path / "m.fsk")
    for other in (fs.load(tmp_path / "m.fsk"), pickle.loads(pickle.dumps(model)), fs.from_bytes(model.to_bytes())):
        assert np.array_equal(other.predict_block([0, 3]), model.predict_block([0, 3]))
        assert other.history == model.history
        assert other.notes == {"what": "test"}
        assert other.to_bytes() == model.to_bytes()
        with pytest.raises(ValueError, match="cannot follow sweeps" if sweeps else "do not hold the data"):
            other.add_ranks(1)
    code = "import fastsketch as fs; print(repr(fs.load('m.fsk').predict([1], [2])[0].item()))"
    out = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert float(out) == model.predict([1], [2])[0]
    empty = greedy(2)
    assert fs.from_bytes(empty.to_bytes()).to_bytes() == empty.to_bytes()


@pytest.mark.parametrize("loss", ["square", "logistic", "absolute"])
def test_float32_is_near_float64(loss):
    o, seen = problem(loss)
    x = stored(o, seen)
    one, two = greedy(3, loss).fit(x), greedy(3, loss).fit(x.astype(np.float32))
    assert two.factors()[0].dtype == np.float32
    assert np.isclose(one.history[-1]["objective"], two.history[-1]["objective"], rtol=1e-2)
    assert greedy(3, loss, dtype="float32").fit(x).factors()[0].dtype == np.float32


def test_a_hundred_thousand_rows_folded_in_seconds():
    import time

    rng = np.random.default_rng(0)
    o, seen = problem(m=400, n=300, rank=5)
    model = greedy(5, sweeps=1).fit(stored(o, seen))
    n, each = 100_000, 20
    new = sparse.csr_array(
        (rng.standard_normal(n * each), rng.integers(0, 300, n * each), np.arange(0, n * each + 1, each)),
        shape=(n, 300),
    )
    new.sum_duplicates()
    model.fold_in(new[:10])
    start = time.perf_counter()
    folded = model.fold_in(new)
    assert time.perf_counter() - start < 10
    assert folded.factors.shape == (100_000, 5)


@pytest.mark.parametrize(
    "twin", [lambda model: model.copy(), copy.copy, copy.deepcopy], ids=["method", "copy", "deepcopy"]
)
@pytest.mark.parametrize("loss", ["square", "huber", "absolute"])
def test_copies_go_on_where_the_fit_ended(loss, twin):
    o, seen = problem(loss)
    x = stored(o, seen)
    whole = greedy(7, loss).fit(x, validation=0.2)
    model = greedy(3, loss).fit(x, validation=0.2)
    other = twin(model)
    assert other.to_bytes() == model.to_bytes()
    before = model.to_bytes()
    grown = twin(other.add_ranks(2)).add_ranks(2)
    assert model.to_bytes() == before and other.rank == 5
    model.add_ranks(4)
    for one in (grown, model):
        assert np.array_equal(one.decision_block(np.arange(30)), whole.decision_block(np.arange(30)))
        assert [{**line, "seconds": 0} for line in one.history] == [{**line, "seconds": 0} for line in whole.history]
        assert one.selected_rank == whole.selected_rank
        # the parameters are those of a model that finds as many at once
        assert one.parameters == whole.parameters
        again = type(one)(**one.parameters).fit(x, validation=0.2)
        assert np.array_equal(again.decision_block([0]), one.decision_block([0]))
    with pytest.raises(ValueError, match="patience must be at least 1"):
        model.add_ranks(1, patience=0)
    with pytest.raises(ValueError, match="patience needs a validation set"):
        greedy(3, loss).fit(x).add_ranks(1, patience=1)


def test_more_ranks_need_a_fit_without_sweeps():
    x = stored(*problem())
    for model in (fs.LowRankModel(2), fs.LowRankModel(2).fit(x), fs.LowRankModel(0).fit(x)):
        with pytest.raises(ValueError, match="cannot follow sweeps: fit with sweeps=0"):
            model.add_ranks(1)
    with pytest.raises(ValueError, match="call fit first"):
        fs.LowRankModel(2, sweeps=0).add_ranks(1)


def test_parameters_and_facts(tmp_path):
    model = fs.LowRankModel(loss="huber", clip=[-3, 3])
    assert (model.rank, model.sweeps, model.learning_rate, model.ridge, model.bias_ridge) == (10, None, 0.7, None, None)
    assert model.loss_parameter is None and model.resolved["loss_parameter"] is None
    assert (model.n_rows, model.n_features, model.selected_rank, model.history) == (0, None, None, [])
    assert repr(model) == "<LowRankModel(loss='huber', clip=[-3.0, 3.0]): not fitted>"
    assert "selected_rank" not in model.facts()
    model.fit(stored(*problem("huber")).astype(np.float32), validation=0.2)
    assert (model.n_rows, model.n_features, model.shape) == (30, 25, (30, 25))
    assert model.dtype is None and model.resolved["dtype"] == np.float32
    facts = json.loads(json.dumps(model.facts()))
    wanted = {
        "kind": "LowRankModel",
        "n_rows": 30,
        "n_features": 25,
        "rank": 10,
        "selected_rank": model.selected_rank,
        "loss_parameter": model.resolved["loss_parameter"],
        "dtype": "float32",
        "swept": True,
    }
    assert {name: facts[name] for name in wanted} == wanted
    assert facts["n_observations"] == stored(*problem("huber")).nnz
    model.history.clear()
    assert len(model.history) == model.selected_rank + 1


def candidate(**changes):
    return lambda state: {"selection": [{**state["selection"][0], **changes}]}


@pytest.mark.parametrize(
    ("sweeps", "changes"),
    [
        (0, {"left": lambda array: array[:, :2]}),
        (0, {"left": lambda array: array.astype(complex)}),
        (0, {"right": lambda array: array[1:]}),
        (0, {"row": lambda array: array[:, None]}),
        (0, {"column": lambda array: array.astype(np.float32)}),
        (0, {"path": lambda array: array[:2]}),
        (0, lambda state: {"selected_rank": 9}),
        (0, lambda state: {"selected_rank": -1}),
        (0, lambda state: {"history": []}),
        (10, lambda state: {"selected_rank": 2}),
        (10, lambda state: {"ridge": 1.0}),
        (10, lambda state: {"ridge": "much"}),
        (10, lambda state: {"ridge_unit": -1.0}),
        (10, lambda state: {"bias_ridge_unit": np.nan}),
        (10, lambda state: {"standard_error": "much"}),
        (10, lambda state: {"loss_parameter": 2.0}),
        (10, candidate(rank=-1)),
        (10, candidate(bias_ridge=-1.0)),
        (10, candidate(gain="much")),
        (10, {"learned": lambda array: -1.0 - array}),
        (10, {"learned": lambda array: np.nan * array}),
        (10, {"learned": lambda array: array[:, :, 1:]}),
        (10, {"learned": None}),
    ],
)
def test_states_whose_parts_do_not_belong_together_are_refused(sweeps, changes):
    """Changes of an array by its name (None: without it), or of the state."""
    model = fs.LowRankModel(3, sweeps=sweeps).fit(stored(*problem()), validation=0.2)
    state, arrays = model._state()
    model._validate(state, arrays)
    if callable(changes):
        state |= changes(state)
    else:
        ((name, change),) = changes.items()
        arrays = {key: array for key, array in arrays.items() if change is not None or key != name}
        if change is not None:
            arrays[name] = change(arrays[name])
    with pytest.raises((TypeError, ValueError)):
        model._validate(state, arrays)


@pytest.mark.parametrize("sweeps", [0, 4])
def test_facts_are_of_the_model_in_use(sweeps):
    """Also after sweeps, which the history ends before."""
    o, seen = problem("huber")
    held = np.zeros_like(seen)
    held[seen] = np.random.default_rng(0).random(int(seen.sum())) < 0.3
    fitted, rest = stored(o, seen & ~held), stored(o, held)
    model = fs.LowRankModel(5, loss="huber", loss_parameter=1.0, sweeps=sweeps).fit(fitted, validation=rest)
    for twin in (model, model.copy(), fs.from_bytes(model.to_bytes())):
        facts = twin.facts()
        for name, x, divisor in (("objective", fitted, 1), ("validation", rest, rest.nnz)):
            rows, columns = x.nonzero() if x.nnz == len(x.nonzero()[0]) else x.tocoo().coords
            z = model.decision_function(rows, columns)
            gap = np.abs(z - np.asarray(x[rows, columns]).ravel())
            loss = np.where(gap <= 1.0, 0.5 * gap * gap, gap - 0.5).sum()
            assert facts[name] == pytest.approx(loss / divisor, rel=1e-6)
        assert facts["n_observations"] == fitted.nnz


@pytest.mark.parametrize("name", some(["ML-100K", "ML-1M"], 1))
def test_ratings_with_the_defaults(dataset, name):
    """RMSE of the model as it comes on the other half of the ratings: without sweeps it is 1.02 and 0.896."""
    if name == "ML-100K":
        with gzip.open(dataset("ml-100k/u.data.gz"), "rt") as file:
            lines = np.loadtxt(file, dtype=np.int64)
        rows, columns, stars = lines[:, 0] - 1, lines[:, 1] - 1, lines[:, 2].astype(np.float32)
    else:
        # newer versions of scipy warn where nothing is said of this argument, older ones do not know it
        chosen = {"spmatrix": False} if "spmatrix" in inspect.signature(loadmat).parameters else {}
        found = loadmat(dataset("ml-1m/movielens1m.mat"), **chosen)["data"].tocoo()
        rows, columns, stars = found.row, found.col, found.data.astype(np.float32)
    order = np.random.default_rng(0).permutation(len(stars))
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    shape = rows.max() + 1, columns.max() + 1
    x = sparse.csr_array(sparse.coo_array((stars[train], (rows[train], columns[train])), shape=shape))
    model = fs.LowRankModel(10, loss="huber").fit(x)
    error = model.predict(rows[test], columns[test]) - stars[test]
    assert np.sqrt(np.mean(error**2)) < {"ML-100K": 0.945, "ML-1M": 0.88}[name]
