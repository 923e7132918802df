"""Fits over partitions of rows: the model of one machine, whatever the partitions, by sums alone."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch._core.losses import LOSSES
from fastsketch._kernels.linalg.block import leading_of_block
from fastsketch.lowrank import _leading, _pursuit
from fastsketch.lowrank._biases import smoothing_from
from fastsketch.lowrank._data import observed
from fastsketch.lowrank._fitting import FitHistory, fit
from fastsketch.lowrank._loading import Matrices, load
from fastsketch.lowrank._partitions import Each, First, Here, Largest, Moments, Partition, Partitions, added, moments
from fastsketch.lowrank._quantile import keys, least_reaching, value_of
from fastsketch.lowrank._setting import LossSetting, SideSetting
from fastsketch.lowrank._sweeps import ColumnFit, Side, fit_side
from tests.helpers import same_state
from tests.lowrank.problems import PARAMETER, problem, stored

CUTS = (20, 20, 45)


def cut(x, cuts=CUTS):
    edges = [0, *cuts, x.shape[0]]
    return [x[a:b] for a, b in zip(edges, edges[1:], strict=False)]


def fitted_over(model, matrices, *, share=None, callback=None, patience=None):
    """A copy of the model, fitted to matrices in this process."""
    setting = model._setting()
    watch = FitHistory(held=share is not None or matrices.held is not None, patience=patience, callback=callback)
    out = model.copy()
    entries, apart = load(Here(), matrices, setting, share=share)
    out._fitted = fit(entries, setting, watch, apart)[0]
    return out


def spread(model, x, *, weights=None, validation=None, cuts=CUTS, callback=None, patience=None):
    """A copy of the model, fitted to partitions of x in this process."""
    share = validation if isinstance(validation, float) else None
    held = None if share or validation is None else cut(validation, cuts)
    matrices = Matrices(cut(x, cuts), None if weights is None else cut(weights, cuts), held)
    return fitted_over(model, matrices, share=share, callback=callback, patience=patience)


def close(one, two, tolerance=1e-7):
    a, b = one.facts(), two.facts()
    assert a["selected_rank"] == b["selected_rank"]
    assert a["n_observations"] == b["n_observations"]
    for name in ("objective", "penalty", "bias_penalty", "validation", "standard_error"):
        assert (a[name] is None) == (b[name] is None)
        if a[name] is not None:
            assert b[name] == pytest.approx(a[name], rel=tolerance, abs=1e-12), name
    return True


@pytest.mark.covering(1)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    "options",
    [
        {"sweeps": 2},
        {"sweeps": 0, "refine": "full", "max_refine_steps": None},
        {"sweeps": 0, "refine": "none", "step_rule": "inverse_sqrt", "inner_criterion": "previous"},
        {"sweeps": 1, "biases": False, "scaling": False, "refine": "full"},
    ],
)
def test_the_objective_of_one_machine(loss, options):
    x = stored(*problem(loss, m=60, n=40, seed=3))
    model = fs.LowRankModel(3, loss=loss, **options)
    found = spread(model, x)
    assert close(model.copy().fit(x), found)
    assert found.shape == (60, 40)


@pytest.mark.parametrize("loss", ["square", "logistic", "huber", "absolute"])
@pytest.mark.parametrize("weighted", [False, True])
def test_validation_holds_out_the_entries_that_one_machine_does(loss, weighted):
    o, seen = problem(loss, m=60, n=40, seed=2)
    x = stored(o, seen)
    weights = stored(np.random.default_rng(0).integers(0, 3, o.shape).astype(float), seen) if weighted else None
    model = fs.LowRankModel(3, loss=loss)
    one, two = (
        model.copy().fit(x, validation=0.2, sample_weight=weights),
        spread(model, x, validation=0.2, weights=weights),
    )
    assert close(one, two)
    assert [line["ridge"] for line in one.selection] == [line["ridge"] for line in two.selection]


def test_validation_in_partitions_of_its_own():
    o, seen = problem(m=60, n=40, seed=2)
    apart = seen & (np.random.default_rng(1).random(seen.shape) < 0.2)
    x, held = stored(o, seen & ~apart), stored(o, apart)
    held.resize((60, 40))
    model = fs.LowRankModel(3)
    assert close(model.copy().fit(x, validation=held), spread(model, x, validation=held))


@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_float32(loss):
    x = stored(*problem(loss, m=60, n=40, seed=1)).astype(np.float32)
    model = fs.LowRankModel(3, loss=loss)
    found = spread(model, x)
    assert found.factors()[0].dtype == np.float32
    assert close(model.copy().fit(x), found, 2e-6)


def test_empty_partitions_few_rows_and_a_tree_of_sums():
    x = stored(*problem(m=60, n=40, seed=5))
    model = fs.LowRankModel(3)
    one = model.copy().fit(x)
    for cuts in ((), (0, 0, 60), tuple(range(5, 60, 5)), tuple(range(1, 60))):
        assert close(one, spread(model, x, cuts=cuts)), cuts
    wide = stored(*problem(m=7, n=40, seed=5))
    assert close(model.copy().fit(wide), spread(model, wide, cuts=(3,)))


def test_a_callback_and_patience():
    x = stored(*problem(m=60, n=40, seed=5))
    lines = []
    found = spread(fs.LowRankModel(5, sweeps=0), x, callback=lambda line: lines.append(line) or len(lines) == 3)
    assert [line["rank"] for line in lines] == [0, 1, 2]
    assert found.selected_rank == 2
    one = fs.LowRankModel(9).fit(x, validation=0.3, patience=1)
    assert close(one, spread(fs.LowRankModel(9), x, validation=0.3, patience=1))


def test_saved_and_predicting_as_any_other(tmp_path):
    x = stored(*problem(m=60, n=40, seed=5))
    found = spread(fs.LowRankModel(3), x)
    found.save(tmp_path / "model.fsk")
    assert same_state(fs.load(tmp_path / "model.fsk"), found)
    one = fs.LowRankModel(3).fit(x)
    assert np.allclose(found.predict_block(np.arange(60)), one.predict_block(np.arange(60)), atol=1e-8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: [x[:20], x[20:, :30]], "partition 1 has 30 columns, partition 0 has 40"),
        (lambda x: [x[:20], x[20:] * np.nan], "partition 1: X must be finite"),
        (lambda x: [x[:20] * 0, x[20:] * 0 - 0.0], None),
        (lambda x: [sparse.csr_array((3, 40)), sparse.csr_array((2, 40))], "at least one observation"),
        (lambda x: [sparse.csr_array(np.ones((1, 40)))], "rank must be at most"),
    ],
)
def test_what_is_refused(make, message):
    parts = make(stored(*problem(m=60, n=40, seed=5)))
    model = fs.LowRankModel(3)

    def call():
        return fitted_over(model, Matrices(parts, None, None))

    if message is None:
        call()
    else:
        with pytest.raises(ValueError, match=message):
            call()


def test_labels_of_two_kinds_are_refused():
    rng = np.random.default_rng(0)
    zeros, minus = rng.integers(0, 2, (9, 8)).astype(float), rng.choice([-1.0, 1.0], (9, 8))
    model = fs.LowRankModel(2, loss="logistic")
    with pytest.raises(ValueError, match="partition 0 holds labels 0 and 1, partition 1 labels -1 and"):
        spread(model, np.vstack([zeros, minus]), cuts=(9,))
    one = spread(model, np.vstack([zeros, zeros[::-1]]), cuts=(9,))
    assert close(model.copy().fit(np.vstack([zeros, zeros[::-1]])), one)


# -- parts -------------------------------------------------------------------------------------------------------------
def test_order_statistics_are_exact():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.standard_normal(300) * 10.0 ** rng.integers(-300, 300, 300), [0.0, -0.0, 5e-324, 1.0]])
    assert all(value_of(int(key)) == value for key, value in zip(keys(values), values, strict=True))
    assert np.array_equal(np.argsort(keys(values), kind="stable"), np.argsort(values, kind="stable"))
    weights = rng.random(len(values))
    parts = Partitions(Here(), [None, None, None])
    for numbers, target in ((weights, None), (None, 17.0), (weights, 0.3 * weights.sum())):
        each = Each((part, None if numbers is None else w) for part, w in zip(
            np.array_split(values, 3), np.array_split(weights, 3), strict=True))  # fmt: skip
        order, own = np.argsort(values), np.ones(len(values)) if numbers is None else weights
        reached = np.cumsum(own[order])
        wanted = 0.5 * reached[-1] if target is None else target
        assert least_reaching(parts, each, target) == values[order][np.searchsorted(reached, wanted)]
        together = Each([(values.copy(), None if numbers is None else numbers.copy())])
        assert least_reaching(Partitions(Here(), [None]), together, target) == least_reaching(parts, each, target)
    nothing = Each([(np.empty(0), None)] * 3)
    assert np.isnan(least_reaching(parts, nothing, None))
    assert np.isnan(least_reaching(Partitions(Here(), [None]), Each(nothing[:1]), None))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("biased", [False, True])
def test_columns_by_sums_are_fitted_as_rows_are(loss, biased):
    x = stored(*problem(loss, m=60, n=25, seed=1))
    data, rng = observed(x, loss=loss), np.random.default_rng(0)
    rows = Side(rng.standard_normal((60, 3)), 0.1 * rng.standard_normal(60))
    columns = Side(0.1 * rng.standard_normal((25, 3)), 0.1 * rng.standard_normal(25))
    setting = SideSetting(LossSetting(loss, PARAMETER.get(loss, 0.0)), 0.2, 1.5, 0.5, biased)
    smooth = smoothing_from(data.spread, float(np.abs(data.o).max()))
    one = fit_side(data.transposed(), setting, columns, rows, smooth)
    edges = [0, 20, 20, 60]
    places = [
        Partition(observed(x[a:b], loss=loss), None, np.ones(b - a), a) for a, b in zip(edges, edges[1:], strict=False)
    ]
    sides = Each(Side(rows.factors[p.first_row :][: p.data.m], rows.biases[p.first_row :][: p.data.m]) for p in places)
    parts = Partitions(Here(), places)
    flipped = parts.each(lambda place: place.data.transposed(), parts.places)
    two = ColumnFit(parts, flipped, sides, setting, smooth).fit(columns, 60)
    for a, b in zip(one, two, strict=True):
        assert np.allclose(a, b, atol=1e-6 if LOSSES[loss].smooth else 1e-3)


def test_steps_of_a_search_are_those_of_one_call():
    x = stored(*problem(m=60, n=40, seed=5))
    data = observed(x, loss="square")
    start = np.random.default_rng(0).standard_normal((40, 8))
    block, left, right = start.copy(), np.empty(60), np.empty(40)
    s = leading_of_block(*data.where, data.o, block, 4, 1e-3, left, right)
    at = Partition(data, None, np.ones(60), 0)
    state, nodes = _pursuit.State(data.o, data.o, (0.0, Largest(0.0))), []
    for k in range(4):
        search = None if k else _leading._began(start)
        nodes = [_leading._products(at, state, nodes, search, _leading.TURNED)]
    found = _leading._searched(nodes, _leading.TURNED, last=True)
    assert found.done
    assert np.sqrt(found.top) == pytest.approx(s, rel=1e-12)
    assert np.allclose(found.right, right, atol=1e-12)
    assert np.allclose(found.v @ found.v.T, block @ block.T, atol=1e-10)


def test_sums_do_not_change_what_they_add():
    sums = [np.ones(6), np.ones(6), np.ones(6)]
    assert added(sums).tolist() == [3.0] * 6
    assert all(own.tolist() == [1.0] * 6 for own in sums)
    lengths = [(1.0, Largest((2.0, 0, True))), (2.0, Largest((2.0, -1, False)))]
    assert added(lengths) == (3.0, Largest((2.0, 0, True)))
    assert added([First("a"), First("b")]) == First("a")
    values = np.random.default_rng(0).standard_normal(90)
    whole, parts = moments(values), added([moments(part) for part in np.split(values, [0, 30, 31])])
    assert (parts.size, parts.mean, parts.squares) == pytest.approx((whole.size, whole.mean, whole.squares))
    assert added([Moments(0, 0.0, 0.0), whole]) == whole
