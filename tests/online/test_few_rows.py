"""Batches of a few rows, learned from in place: the bits of single rows, and all of them or none."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.online._linear import OnlineLinear
from fastsketch.online._metrics import Metrics
from tests.helpers import papers

MODELS = {
    "rfd": lambda: fs.SketchedNewton(9),
    "rfd-papers": lambda: papers.SketchedNewton(9),
    "rfd0": lambda: papers.SketchedNewton(9, alpha0=0.0, constraint="both"),
    "fd-decayed": lambda: fs.SketchedNewton(9, method="fd", alpha0=3.0, decay=0.9),
    "ada-ffd": lambda: fs.AdaptiveSubgradient(9),
    "ada-fd-l2": lambda: fs.AdaptiveSubgradient(9, method="ada_fd", penalty="l2", penalty_strength=1e-3),
    "ada-full": lambda: fs.AdaptiveSubgradient(method="ada_full"),
    "ada-diag": lambda: papers.AdaptiveSubgradient(method="ada_diag", penalty="l1", penalty_strength=1e-3),
    "adam": lambda: fs.AdaptiveSubgradient(method="adam"),
}


def stream(k, form, n=70):
    rng = np.random.default_rng(k)
    rows = rng.integers(-2, 3, (n, 30)) * (rng.random((n, 30)) < 0.2) * 1.0
    return form(rows), np.concatenate([np.arange(k), rng.integers(0, k, n - k)])


@pytest.mark.covering(2)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("k", [2, 3])
def test_a_few_rows_are_single_rows(name, form, k):
    rows, labels = stream(k, form)
    few, single = MODELS[name]().update(rows[:10], labels[:10]), MODELS[name]().update(rows[:10], labels[:10])
    for first, stop in ((10, 12), (12, 17), (17, 20), (20, 29), (29, 31), (31, 40), (40, 41), (41, 50)):
        few.update(rows[first:stop], labels[first:stop])
        scores = [single.update(rows[[i]], labels[[i]]).last_scores for i in range(first, stop)]
        assert np.array_equal(few.last_scores, np.concatenate(scores))
    assert few.to_bytes() == single.to_bytes()


@pytest.mark.parametrize("options", [{}, {"scale": None}, {"scale": None, "calibrate": False}], ids=str)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_a_row_that_is_refused_is_so_wherever_it_stands(form, options):
    rows, labels = stream(2, np.asarray)
    for model in (fs.SketchedNewton(6, blend=False, **options), fs.AdaptiveSubgradient(6, blend=False, **options)):
        model.update(form(rows[:40]), labels[:40])
        for n in (2, 3, 9):
            for at in range(n):
                some = rows[40 : 40 + n].copy()
                some[at, :4] = 1e200
                before = model.to_bytes()
                with pytest.raises(FloatingPointError, match=f"in row {model.n_rows + at + 1}"):
                    model.update(form(some), labels[40 : 40 + n])
                assert model.to_bytes() == before
            model.update(form(rows[40 : 40 + n]), labels[40 : 40 + n])  # whose scores stay behind


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("k", [2, 3])
def test_a_row_that_is_refused_takes_the_others_with_it(name, form, k):
    rows, labels = stream(k, form)
    model = MODELS[name]()
    for first in range(0, 60, 6):
        model.update(rows[first : first + 6], labels[first : first + 6])
        before = model.to_bytes()
        for n in (1, 2, 4):
            some = rows[60 : 60 + n].toarray() if sparse.issparse(rows) else rows[60 : 60 + n].copy()
            some[-1, :4] = 1e200
            with pytest.raises(FloatingPointError, match=f"in row {first + 6 + n}"):
                model.update(form(some), labels[60 : 60 + n])
            assert model.to_bytes() == before


@pytest.mark.covering(2)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n", [17, 30])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_an_interrupt_when_all_has_been_learned(name, n, k, form, monkeypatch):
    """The batch is taken back, and learned again as if nothing had been. (Up to 16 rows run no Python in between.)"""
    rows, labels = stream(k, form)
    whole, model = MODELS[name]().update(rows[:20], labels[:20]), MODELS[name]().update(rows[:20], labels[:20])
    before, add = model.to_bytes(), Metrics.add

    def stopped(*args, **more):
        add(*args, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Metrics, "add", stopped)
        with pytest.raises(KeyboardInterrupt):
            model.update(rows[20 : 20 + n], labels[20 : 20 + n])
    assert model.to_bytes() == before
    whole.update(rows[20 : 20 + n], labels[20 : 20 + n])
    assert model.update(rows[20 : 20 + n], labels[20 : 20 + n]).to_bytes() == whole.to_bytes()


@pytest.mark.covering(2)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("scale", ["moments", None])
@pytest.mark.parametrize("n", [2, 12, 30])
def test_slots_of_a_refused_batch_are_empty_again(name, scale, n):
    """Columns that it was the first to have leave nothing in their slots, which other columns get."""
    rng = np.random.default_rng(0)
    first, refused, after = np.zeros((3, 40, 90))
    for part, columns in ((first, 0), (refused, 30), (after, 60)):
        part[:, columns : columns + 30] = rng.standard_normal((40, 30)) * (rng.random((40, 30)) < 0.2)
    refused[n - 1, 30:34] = 1e200
    labels = np.arange(40) % 2
    models = [MODELS[name]().update(sparse.csr_array(first[:1]), [0]) for _ in range(2)]
    if scale is None and "scale" in models[0].parameters:
        models = [type(m)(**{**m.parameters, "scale": None}) for m in models]
    models = [m.update(sparse.csr_array(first), labels) for m in models]
    with pytest.raises(FloatingPointError):
        models[1].update(sparse.csr_array(refused[:n]), labels[:n])
    models = [m.update(sparse.csr_array(after), labels) for m in models]
    assert models[0].to_bytes() == models[1].to_bytes()


# -- up to 16 rows in one call -----------------------------------------------------------------------------------------
PLAIN = {
    **{f"newton-{loss}": (fs.SketchedNewton, {"loss": loss}) for loss in ("logistic", "square", "absolute")},
    "newton-next": (fs.SketchedNewton, {"constraint": "next", "decay": 0.9, "scale": None}),
    "newton-plain": (fs.SketchedNewton, {"calibrate": False, "fit_intercept": False, "scale": None}),
    "ada-square": (fs.AdaptiveSubgradient, {"loss": "square", "loss_scale": 2.0}),
    "ada-fd-l1": (
        fs.AdaptiveSubgradient,
        {"method": "ada_fd", "form": "dual_averaging", "penalty": "l1", "penalty_strength": 1e-3},
    ),
    "ada-diag": (fs.AdaptiveSubgradient, {"method": "ada_diag", "fit_intercept": False}),
}


@pytest.mark.covering(2)
@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.csr_matrix], ids=["dense", "csr", "matrix"])
def test_one_call_has_the_bits_of_the_long_way(name, form, monkeypatch):
    kind, settings = PLAIN[name]
    rows, labels = stream(2, form)
    targets = labels * 1.5 if settings.get("loss") in ("square", "absolute") else labels
    few, long = kind(5, **settings), kind(5, **settings)
    taken = []
    learn_few = OnlineLinear._learn_by_fast_path
    for first, stop in ((0, 5), (5, 6), (6, 8), (8, 24), (24, 25), (25, 63), (63, 64), (64, 70)):
        with monkeypatch.context() as patch:
            patch.setattr(OnlineLinear, "_learn_by_fast_path", lambda *_: False)
            long.update(rows[first:stop], targets[first:stop])
        with monkeypatch.context() as patch:
            patch.setattr(OnlineLinear, "_learn_by_fast_path", lambda *a: taken.append(learn_few(*a)) or taken[-1])
            few.update(rows[first:stop], targets[first:stop])
        assert np.array_equal(few.last_scores, long.last_scores)
        assert few.to_bytes() == long.to_bytes()
    assert few.progress == long.progress
    if few._takes_sparse() or not sparse.issparse(rows):  # else sparse rows are made dense first
        assert sum(taken) >= 3


def with_fault(fault):
    """Return a CSR row of 30 columns with a fault that a look at its arrays finds."""
    arrays = np.array([1.0, 2.0, 3.0]), np.array([1, 4, 7], np.int32), np.array([0, 3], np.int32)
    out = sparse.csr_array(arrays, shape=(1, 30))
    fault(out)
    return out


ROWS = {
    "not a number": np.full((1, 30), np.nan),
    "infinite": np.r_[np.ones(29), -np.inf],
    "narrow": np.ones((1, 29)),
    "wide": np.ones((2, 31)),
    "three dimensions": np.ones((1, 1, 30)),
    "no rows": np.ones((0, 30)),
    "float32": np.ones((1, 30), np.float32),
    "integers": np.ones((1, 30), int),
    "big-endian": np.ones((1, 30), ">f8"),
    "strided": np.ones((1, 60))[:, ::2],
    "columns first": np.asfortranarray(np.arange(60.0).reshape(2, 30)),
    "backward": np.arange(60.0).reshape(2, 30)[::-1],
    "masked": np.ma.masked_invalid(np.ones((1, 30))),
    "objects": np.ones((1, 30), object),
    "list": [[1.0] * 30],
    "names": {"a": 1.0},
    "csr": with_fault(lambda row: None),
    "csr, 64-bit indices": with_fault(lambda row: row.__setattr__("indices", row.indices.astype(np.int64))),
    "csr, out of order": with_fault(lambda row: row.indices.__setitem__(0, 9)),
    "csr, twice": with_fault(lambda row: row.indices.__setitem__(0, 4)),
    "csr, beyond the width": with_fault(lambda row: row.indices.__setitem__(2, 30)),
    "csr, below zero": with_fault(lambda row: row.indices.__setitem__(0, -1)),
    "csr, ends beyond its values": with_fault(lambda row: row.indptr.__setitem__(1, 4)),
    "csr, begins late": with_fault(lambda row: row.indptr.__setitem__(0, 1)),
    "csr, values left over": with_fault(lambda row: row.indptr.__setitem__(1, 2)),
    "csr, fewer indices": with_fault(lambda row: row.__setattr__("indices", row.indices[:2])),
    "csr, not a number": with_fault(lambda row: row.data.__setitem__(1, np.nan)),
    "csr, integers": with_fault(lambda row: row.__setattr__("data", np.array([1, 2, 3]))),
    "csr, overflow": with_fault(lambda row: row.data.__setitem__(0, 1e200)),
    "csc": sparse.csc_array(np.ones((1, 30))),
}
TARGETS = (0, 1.0, True, np.int64(1), np.int8(1), np.array(1), [1], (1,), np.array([1.5]), "a", None, [[1]], 1j, 2, 3.5)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_what_is_not_plain_is_as_the_long_way_has_it(form, monkeypatch):
    rows, labels = stream(2, form)
    models = [fs.SketchedNewton(5).update(rows[:20], labels[:20]).update(rows[[20]], 1) for _ in range(2)]
    calls = [
        (some, np.ones(1 if getattr(some, "ndim", 2) == 1 else len(np.atleast_2d(some)), int))
        if not sparse.issparse(some)
        else (some, [1])
        for some in ROWS.values()
    ]
    for some, targets in (*calls, *((rows[[30]], target) for target in TARGETS)):
        outcomes = []
        for model, few in zip(models, (True, False), strict=True):
            with monkeypatch.context() as patch:
                if not few:
                    patch.setattr(OnlineLinear, "_learn_by_fast_path", lambda *_: False)
                try:
                    model.update(some, targets)
                    outcomes.append("")
                except Exception as error:
                    outcomes.append(f"{type(error).__name__}: {error}")
        assert outcomes[0] == outcomes[1]
        assert models[0].to_bytes() == models[1].to_bytes()


@pytest.mark.parametrize("hash_bits", [None, 8])
def test_rows_with_names_pass_in_one_call(hash_bits, monkeypatch):
    rows, labels = stream(2, np.asarray)
    dicts = [{f"c{j}": row[j] for j in np.flatnonzero(row).tolist()} for row in rows]
    few, long = (fs.SketchedNewton(5, hash_bits=hash_bits) for _ in range(2))
    taken = []
    for first, stop in ((0, 3), (3, 4), (4, 20), (20, 21), (21, 70)):
        with monkeypatch.context() as patch:
            patch.setattr(OnlineLinear, "_fast_path", lambda *_: None)
            long.update(dicts[first:stop], labels[first:stop])
        state = few._model_state
        few.update(dicts[first:stop], labels[first:stop])
        taken.append(state is not None and few._model_state is state)
        assert few.to_bytes() == long.to_bytes()
        bad = [*dicts[first:stop], {"c1": 1e200, "new": 1.0}]
        before = few.to_bytes()
        with pytest.raises(FloatingPointError):
            few.update(bad[-2:], [0, 1])
        assert few.to_bytes() == before
    assert sum(taken) >= 2
