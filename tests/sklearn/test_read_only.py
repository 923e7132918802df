"""Models and estimators whose arrays are read-only: mapped from a file by joblib, or buffers of pickle protocol 5."""

import copy
import inspect
import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")
from joblib import dump, load  # noqa: E402

from fastsketch import sklearn as estimators  # noqa: E402
from tests.reliability.zoo import SPECIMENS  # noqa: E402

KINDS = [kind for name in estimators.__all__ if inspect.isclass(kind := getattr(estimators, name))]
SETTINGS = {
    "LowRankCompleter": [{"method": "gaussian"}],
    "SketchedPCA": [
        {"solver": solver, "scale": scale} for solver in ("auto", "gram", "svd", "exact") for scale in (False, True)
    ]
    + [{"n_components": 0.5}],
    "SketchedCovariance": [{}, {"solver": "gram", "sketch_size": 5}, {"shrinkage": "ledoit-wolf"}, {"fill": "mean"}],
    "EASERecommender": [{}, {"sketch_size": 4}],
    "SketchedRidge": [{}, {"sketch_size": 4, "solver": "gram"}],
    "SketchedRidgeClassifier": [{}, {"sketch_size": 4, "solver": "gram"}],
    **{kind.__name__: [{}, {"decay": "auto"}] for kind in KINDS if kind.__name__.endswith(("sionClassifier",))},
}
RNG = np.random.default_rng(0)
DENSE = RNG.random((60, 8))
ROWS = {
    "float64": DENSE,
    "float32": DENSE.astype(np.float32),
    "csr": sparse.csr_array(DENSE * (DENSE > 0.8)),
    "wide csr": sparse.random_array((40, 250), density=0.01, rng=1).tocsr(),
}


def mapped(model, folder):
    """Write a model by joblib, and load it with its arrays mapped from the file."""
    path = folder / "model"
    dump(model, path)
    return load(path, mmap_mode="r")


def from_buffers(model, folder):
    """Pickle a model with its arrays out of band, and load it from buffers that nobody may write to."""
    buffers = []
    content = pickle.dumps(model, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(content, buffers=[bytes(buffer.raw()) for buffer in buffers])


def arguments(kind, rows):
    """Return rows, and targets for estimators that learn them."""
    if kind.__name__.endswith("Classifier"):
        return rows, np.arange(rows.shape[0]) % 2
    return (rows, np.arange(float(rows.shape[0]))) if hasattr(kind, "score") and hasattr(kind, "coef_") else (rows,)


def answers(model, rows):
    """Return what a model says of rows."""
    names = ("transform", "predict", "decision_function", "score_samples")
    return [getattr(model, name)(rows) for name in names if hasattr(model, name)]


def same(first, second):
    """Compare two lists of answers bit for bit."""
    assert len(first) == len(second) > 0
    for one, other in zip(first, second, strict=True):
        assert np.array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("way", [mapped, from_buffers])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kind", KINDS)
def test_estimators_go_on_learning(kind, rows, way, tmp_path):
    wide = kind is estimators.LowRankCompleter and rows == "wide csr"  # for the low-rank model
    if not hasattr(kind, "partial_fit") or wide:
        model = kind(rank=2).fit(ROWS[rows])
        same(answers(model, ROWS[rows]), answers(way(model, tmp_path), ROWS[rows]))
        return
    given = arguments(kind, ROWS[rows])
    for setting in SETTINGS.get(kind.__name__, [{}]):
        if kind is estimators.SketchedPCA:
            setting = {"n_components": 3, **setting}
        for method in ("fit", "partial_fit"):
            classes = {"classes": [0, 1]} if "Classifier" in kind.__name__ and method == "partial_fit" else {}
            model = getattr(kind(**setting), method)(*given, **classes)
            again, model = way(model, tmp_path), copy.deepcopy(model)
            seen = model.n_samples_seen_
            bad = ROWS[rows].copy()
            (bad if isinstance(bad, np.ndarray) else bad.data)[-1:] = np.inf
            with pytest.raises(ValueError):
                again.partial_fit(bad, *given[1:])
            assert again.n_samples_seen_ == seen  # a refused batch counts nothing
            model.partial_fit(*given)
            again.partial_fit(*given)
            assert again.n_samples_seen_ == model.n_samples_seen_ == seen + ROWS[rows].shape[0]
            same(answers(model, ROWS[rows]), answers(again, ROWS[rows]))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("way", [mapped, from_buffers])
@pytest.mark.parametrize(
    "specimen",
    [specimen for specimen in SPECIMENS if specimen.name != "hash-sgh"],  # SGH learns from one batch
    ids=lambda specimen: specimen.name,
)
def test_models_go_on_learning(specimen, way, tmp_path):
    model = specimen.learned()
    again = way(model, tmp_path)
    assert again.to_bytes() == model.to_bytes()
    for other in (model, again):
        specimen.learn(other, specimen.rows(5, 30))
    assert again.n_rows == model.n_rows
    if not specimen.name.startswith("completion"):  # fit begins again, and keeps how long it took
        assert again.to_bytes() == model.to_bytes()


def test_sums_of_a_refused_batch_are_not_kept():
    """The sketch of SketchedPCA is changed in place: what lies beside it must be able to take the batch first."""
    model = estimators.SketchedPCA(3).partial_fit(DENSE)
    before = model.var_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for bad in (np.full((3, 8), 1e200), np.full((3, 8), np.nan), np.zeros((3, 5)), [["a"] * 8]):
            with pytest.raises(ValueError):
                model.partial_fit(bad)
    assert model.n_samples_seen_ == len(DENSE)
    assert np.array_equal(model.var_, before)
