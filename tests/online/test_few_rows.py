"""Batches of a few rows, learned from in place: the bits of single rows, and all of them or none."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.online._errors import Metrics
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


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n", [1, 3])
def test_an_interrupt_when_the_states_have_learned(name, n, monkeypatch):
    """What follows is done once, however often it begins."""
    rows, labels = stream(2, np.asarray)
    whole, model = MODELS[name]().update(rows[:20], labels[:20]), MODELS[name]().update(rows[:20], labels[:20])
    before, add, calls = model.to_bytes(), Metrics.add, []

    def stopped(self, *args, **more):
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return add(self, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Metrics, "add", stopped)
        with pytest.raises(KeyboardInterrupt):
            model.update(rows[20 : 20 + n], labels[20 : 20 + n])
    if model.to_bytes() != before:  # else it has learned by a copy
        whole.update(rows[20 : 20 + n], labels[20 : 20 + n])
    assert model.to_bytes() == whole.to_bytes()
