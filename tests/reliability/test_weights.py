"""A row of weight 0 has the effect of no row, bit for bit; a row of weight k that of k rows, in models of moments.

Over every model of the zoo and every estimator that takes sample_weight. What a weight means for a learner of single
rows is a matter of tests/online.
"""

import inspect

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.sketching import SecondPass
from tests.helpers import tol
from tests.reliability.zoo import N_FEATURES, SPECIMENS, dense_rows, event_rows, numbers_of, signs


def takes_weights(specimen):
    """Whether rows, or entries, of this model have weights."""
    model = specimen.make()
    if isinstance(model, fs.Window):
        model = model.model
    learn = getattr(model, "fit" if specimen.name.startswith("completion") else "update", None)
    return learn is not None and "sample_weight" in inspect.signature(learn).parameters


WEIGHTED = [s for s in SPECIMENS if takes_weights(s) and not s.name.startswith("online")]
STREAMS = [s for s in WEIGHTED if not s.name.startswith("completion")]
# Where rows of weight 0 are among 40 others: (their positions, ends of the batches).
PLACES = {
    "scattered": (np.array([3, 4, 11, 20, 21, 22, 37, 47]), [13, 30]),
    "first": (np.arange(5), [17]),
    "last": (np.arange(40, 49), [17]),
    "around the ends of blocks": (np.array([15, 16, 17, 32, 33, 34, 35]), []),
    "a batch of them": (np.arange(12, 20), [12, 20]),
    "the first batch": (np.arange(6), [6, 25]),
    "single rows": (np.array([0, 7, 8, 24, 41]), list(range(1, 45))),
}


def stacked(rows, others):
    """Rows and others in one array or CSR matrix."""
    return sparse.csr_array(sparse.vstack([rows, others])) if sparse.issparse(rows) else np.vstack([rows, others])


def with_absent(make_rows, positions, scale=1e6):
    """Rows, some of which are wild and have weight 0: (rows, weights)."""
    n = 40 + len(positions)
    order = np.argsort(np.concatenate([np.setdiff1d(np.arange(n), positions), positions]))
    weights = np.random.default_rng(5).choice([0.5, 1.0, 2.0, 3.0], n)
    weights[positions] = 0.0
    return stacked(make_rows(0, 40), make_rows(1, len(positions)) * scale)[order], weights


def learned(specimen, rows, weights, ends, kept=None):
    """A model of the rows in batches; `kept`: without the others, which it does not see at all."""
    model = specimen.make()
    for batch in np.split(np.arange(rows.shape[0]), ends):
        part = batch if kept is None else batch[kept[batch]]
        if len(part):
            specimen.learn(model, rows[part], sample_weight=weights[part])
    return model


def fit_state(model):
    """The state of a fitted low-rank model as bytes, without the seconds that it took."""
    state, arrays = model._state()
    for entry in (*state["history"], state["after"] or {}):
        entry.pop("seconds", None)
    return repr(state), {name: array.tobytes() for name, array in arrays.items()}


def test_all_kinds_of_models_that_take_weights_are_here():
    assert {type(s.make()) for s in WEIGHTED} >= {
        *(fs.FrequentDirections, fs.SketchedRidge, fs.SketchedEASE, fs.Window, SecondPass, fs.LowRankModel)
    }


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("specimen", STREAMS, ids=lambda s: s.name)
def test_a_row_of_weight_zero_has_the_effect_of_no_row(specimen, place):
    positions, ends = PLACES[place]
    rows, weights = with_absent(specimen.rows, positions)
    known = weights > 0
    same = learned(specimen, rows, weights, ends)
    assert same.n_rows == 40
    assert same.to_bytes() == learned(specimen, rows, weights, ends, known).to_bytes()
    ones = known.astype(float)
    plain = specimen.make()
    for batch in np.split(np.arange(len(ones)), ends):
        if known[batch].any():
            specimen.learn(plain, rows[batch[known[batch]]])
    assert learned(specimen, rows, ones, ends).to_bytes() == plain.to_bytes()
    state = same.to_bytes()
    specimen.learn(same, rows[~known], sample_weight=0.0)
    assert same.to_bytes() == state


@pytest.mark.parametrize("specimen", STREAMS, ids=lambda s: s.name)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_row_of_weight_zero_is_refused_as_any_other(specimen, value):
    rows = specimen.rows(0, 40)
    rows = sparse.csr_array(rows.astype(float)) if sparse.issparse(rows) else rows
    if sparse.issparse(rows):
        rows.data[np.flatnonzero(rows.indptr[1:] > rows.indptr[:-1])[0]] = value
        rows.data[rows.indptr[7] : rows.indptr[8]] = value
        rows.data[: rows.indptr[7]] = 1.0
        assert not np.isfinite(rows.data).all()
    else:
        rows[7, 3] = value
    weights = np.ones(40)
    weights[7] = 0.0
    model = specimen.learned()
    state = model.to_bytes()
    for given in (np.ones(40), weights):
        with np.errstate(invalid="ignore"), pytest.raises(ValueError, match=r"finite: row 7 "):
            specimen.learn(model, rows, sample_weight=given)
    assert model.to_bytes() == state


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("specimen", [s for s in WEIGHTED if s not in STREAMS], ids=lambda s: s.name)
def test_an_entry_of_weight_zero_has_the_effect_of_none(specimen, seed):
    rng = np.random.default_rng(seed)
    rows = sparse.csr_array(specimen.rows(seed))
    known = rng.random(rows.nnz) < 0.8
    values, weights = np.where(known, rows.data, 1e6), np.where(known, rng.choice([1.0, 2.0], rows.nnz), 0.0)
    places = np.repeat(np.arange(40), np.diff(rows.indptr))

    def stored(data, mask=slice(None)):
        return sparse.csr_array((data[mask], (places[mask], rows.indices[mask])), shape=rows.shape)

    for given in (weights, known.astype(float)):
        model = specimen.make().fit(stored(values), sample_weight=stored(given))
        without = specimen.make().fit(stored(values, known), sample_weight=stored(given, known))
        assert fit_state(model) == fit_state(without)
        new = model.fold_in(stored(values)[:5], sample_weight=stored(given)[:5])
        other = without.fold_in(stored(values, known)[:5], sample_weight=stored(given, known)[:5])
        assert np.array_equal(new.factors, other.factors) and np.array_equal(new.biases, other.biases)
    assert fit_state(model) == fit_state(specimen.make().fit(stored(values, known)))


def test_a_line_of_weight_zero_has_the_effect_of_none_in_a_table():
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 30, 300), rng.integers(0, 20, 300)
    _, first = np.unique(users * 100 + items, return_index=True)
    users, items, values = users[first], items[first], rng.random(len(first))
    weights = np.where(rng.random(len(first)) < 0.8, 1.0, 0.0)
    weights[(users == 7) | (items == 3)] = 0.0  # ids that no other line has
    kept = weights > 0
    model = fs.LowRankModel(2).fit(fs.data.Triples(users, items, values=values), sample_weight=weights)
    without = fs.LowRankModel(2).fit(fs.data.Triples(users[kept], items[kept], values=values[kept]))
    assert fit_state(model) == fit_state(without)


def test_a_user_of_weight_zero_has_the_effect_of_none_in_a_table():
    rng = np.random.default_rng(0)
    people = {f"user {k}": [f"item {j}" for j in rng.permutation(20)[: rng.integers(1, 8)]] for k in range(60)}
    people["user 5"].append("an item of nobody else")
    weights = np.where(np.arange(60) % 5 == 0, 0.0, 2.0)
    rest = {name: items for (name, items), w in zip(people.items(), weights, strict=True) if w}
    for parameters in ({}, {"ridge": 1.0}, {"decay": 0.9}):
        model = fs.SketchedEASE(8, **parameters).update(people, sample_weight=weights)
        without = fs.SketchedEASE(8, **parameters).update(rest, sample_weight=weights[weights > 0])
        assert model.to_bytes() == without.to_bytes() and "an item of nobody else" not in model.item_ids
    with pytest.raises(ValueError, match="values must not be negative"):
        fs.SketchedEASE(8).update({**rest, "bad": {"item 1": -1.0}}, sample_weight=np.append(weights[weights > 0], 0.0))


def test_the_ridge_of_users_is_chosen_without_those_of_weight_zero():
    rng = np.random.default_rng(0)
    people, bots = ((rng.random((150, 20)) < share).astype(float) for share in (0.2, 0.9))
    rows, weights = np.vstack([bots, people]), np.repeat([0.0, 1.0], 150)
    for parameters in ({}, {"dropout": 0.0, "activity_power": 0.0}, {"ridge": 10.0}):
        one = fs.SketchedEASE(20, **parameters).update(rows, sample_weight=weights)
        other = fs.SketchedEASE(20, **parameters).update(people)
        assert one.to_bytes() == other.to_bytes()
        assert np.array_equal(one.recommend(people, 5).scores, other.recommend(people, 5).scores)
        assert one.resolved["ridge"] == other.resolved["ridge"]


# -- second reads, windows of time, sources ----------------------------------------------------------------------------
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_rows_of_weight_zero_are_left_out_of_second_reads(form):
    rows, weights = with_absent(dense_rows, PLACES["scattered"][0])
    rows, known, y = form(rows), weights > 0, signs(rows)
    one, other = (fs.FrequentDirections(4, solver="gram", center=True) for _ in range(2))
    one.update(rows, weights), other.update(rows[known], weights[known])
    measured, expected = one.audit(rows, weights), other.audit(rows[known], weights[known])
    assert measured == expected
    one.refine(rows, weights), other.refine(rows[known], weights[known])
    assert one.to_bytes() == other.to_bytes()
    refined = one.spectrum()
    one.update(rows[~known], 0.0)  # which is no reason to forget what the second read has given
    assert np.array_equal(one.spectrum().high, refined.high)
    one, other = (fs.SketchedRidge(4, ridge=1.0, max_memory=500) for _ in range(2))
    one.update(rows, y, sample_weight=weights), other.update(rows[known], y[known], sample_weight=weights[known])
    one.refine(rows, sample_weight=weights), other.refine(rows[known], sample_weight=weights[known])
    assert one.to_bytes() == other.to_bytes()
    coef = one.coef()
    assert np.array_equal(one.update(rows[~known], y[~known], sample_weight=0.0).coef(), coef)


def test_the_time_of_a_row_of_weight_zero_begins_no_block():
    rows, weights = with_absent(dense_rows, np.array([0, 1, 9, 10, 20, 45]))
    known, times = weights > 0, np.arange(46) * 900.0
    times[~known] = 1e9  # from a clock that is wrong
    windows = [fs.Window(fs.FrequentDirections(4), 4, every="1h") for _ in range(2)]
    for part in (slice(0, 2), slice(2, 30), slice(30, 46)):
        windows[0].update(rows[part], sample_weight=weights[part], by=times[part])
        kept = np.arange(46)[part][known[part]]
        if len(kept):
            windows[1].update(rows[kept], sample_weight=weights[kept], by=times[kept])
    assert windows[0].to_bytes() == windows[1].to_bytes()


WITHOUT_CUTS = [s for s in STREAMS if s.name.startswith(("sketch", "ease-fixed"))]  # bits do not depend on chunks


@pytest.mark.parametrize("specimen", WITHOUT_CUTS, ids=lambda s: s.name)
def test_rows_of_weight_zero_are_left_out_of_a_source(specimen, tmp_path):
    rows, weights = with_absent(specimen.rows, PLACES["scattered"][0])
    known = weights > 0
    dense = rows.toarray() if sparse.issparse(rows) else rows
    np.save(tmp_path / "rows.npy", dense)
    model = specimen.make().update(fs.open_rows(tmp_path / "rows.npy"), sample_weight=weights)
    other = specimen.make().update(dense[known], sample_weight=weights[known])
    assert model.to_bytes() == other.to_bytes()


# -- a row of weight k -------------------------------------------------------------------------------------------------
COUNTS = numbers_of(dense_rows(3), 4)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("center", [False, True])
def test_a_row_of_weight_k_is_k_rows_in_an_exact_sum(center, form):
    rows = dense_rows(3) + 2.0
    weighted = fs.FrequentDirections(5, solver="exact", center=center).update(form(rows), COUNTS)
    repeated = fs.FrequentDirections(5, solver="exact", center=center).update(form(np.repeat(rows, COUNTS, axis=0)))
    size = repeated.squared_norm
    assert np.abs(weighted.gram() - repeated.gram()).max() <= tol(np.float64, size)
    assert weighted.total_weight == repeated.total_weight == COUNTS.sum()
    assert abs(weighted.squared_norm - size) <= tol(np.float64, size)
    if center:
        assert np.abs(weighted.mean - repeated.mean).max() <= tol(np.float64, 3.0)


@pytest.mark.parametrize("solver", ["gram", "svd"])
@pytest.mark.parametrize("method", ["fd", "rfd", "pfd", "cfd", "isvd", "tfd"])
def test_a_row_of_weight_k_is_k_rows_within_both_certificates(method, solver):
    rows = dense_rows(3)
    every = np.repeat(rows, COUNTS, axis=0)
    exact = every.T @ every
    for sketch in (
        fs.FrequentDirections(5, method=method, solver=solver).update(rows, COUNTS),
        fs.FrequentDirections(5, method=method, solver=solver).update(every),
    ):
        error = exact - sketch.sketch().T @ sketch.sketch() - sketch.alpha * np.eye(N_FEATURES)
        assert np.linalg.norm(error, 2) <= sketch.error_bound * (1 + 1e-9)
        spectrum = sketch.spectrum()
        values = np.linalg.eigvalsh(exact)[::-1][: len(spectrum.low)]
        slack = tol(np.float64, values[0])
        assert (spectrum.low <= values + slack).all() and (values <= spectrum.high + slack).all()


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("scale", [False, True])
def test_a_row_of_weight_k_is_k_rows_in_an_exact_ridge_regression(form, scale):
    rows = dense_rows(3) * np.arange(1, 13) + 1.0
    y = rows[:, :2] @ [[1.0, 2.0], [3.0, -1.0]] + dense_rows(4)[:, :2]
    many, targets = np.repeat(rows, COUNTS, axis=0), np.repeat(y, COUNTS, axis=0)
    weighted = fs.SketchedRidge(ridge=2.0, scale=scale).update(form(rows), y, sample_weight=COUNTS)
    repeated = fs.SketchedRidge(ridge=2.0, scale=scale).update(form(many), targets)
    assert weighted.is_exact
    assert np.allclose(weighted.coef(), repeated.coef(), rtol=0, atol=1e-10)
    assert np.allclose(weighted.intercept(), repeated.intercept(), rtol=0, atol=1e-10)


def test_a_user_of_weight_k_is_k_users_at_a_ridge_that_is_given():
    rows = event_rows(0)
    many = sparse.csr_array(rows.toarray().repeat(COUNTS, axis=0))
    weighted = fs.SketchedEASE(16, ridge=3.0, dtype="float64").update(rows, sample_weight=COUNTS)
    repeated = fs.SketchedEASE(16, ridge=3.0, dtype="float64").update(many)
    assert np.allclose(weighted.popularity, repeated.popularity, rtol=1e-12)
    scores = [model.decision_block(event_rows(9, 5)) for model in (weighted, repeated)]
    assert np.allclose(*scores, atol=1e-9)
