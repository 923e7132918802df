"""Every estimator begins from a model, is saved and loaded, merges and takes part in jobs where its model does."""

import io
import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.base import clone  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402

import fastsketch as fs  # noqa: E402
import fastsketch.sklearn as estimators  # noqa: E402
from fastsketch.data.sources import Source, _source  # noqa: E402
from fastsketch.data.sources._arrays import ArraySource  # noqa: E402
from fastsketch.sklearn import (  # noqa: E402
    AdaptiveSubgradientClassifier,
    EASERecommender,
    LowRankCompleter,
    LowRankFactors,
    SketchCoder,
    SketchedCovariance,
    SketchedNewtonClassifier,
    SketchedNewtonRegressor,
    SketchedPCA,
    SketchHasher,
)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 12)) * np.linspace(3.0, 0.5, 12) + np.linspace(0.0, 2.0, 12)
Y = X[:, 0] - X[:, 1]
ALL = [getattr(estimators, name) for name in estimators.__all__]
MERGING = [SketchedPCA, SketchedCovariance, SketchHasher, SketchCoder, EASERecommender]
PARAMETERS = {
    SketchedPCA: {"n_components": 3},
    SketchedCovariance: {"sketch_size": 8},
    SketchHasher: {"n_bits": 5, "output": "values"},
    SketchCoder: {"n_bytes": 5},
    EASERecommender: {"sketch_size": 8},
    LowRankCompleter: {"rank": 2, "sweeps": 1},
    LowRankFactors: {"rank": 2, "sweeps": 1},
    SketchedNewtonClassifier: {"class_weight": {-1: 2.0, 1: 1.0}},
}


def rows_of(cls):
    return np.abs(X) if cls is EASERecommender else X


def made(cls, **more):
    return cls(**{**PARAMETERS.get(cls, {}), **more})


def targets_of(cls):
    return np.where(Y > 0, 1, -1) if "Classifier" in cls.__name__ else Y


def fitted(cls, rows=None, **more):
    return made(cls, **more).fit(rows_of(cls) if rows is None else rows, targets_of(cls))


def model_of(estimator):
    return getattr(estimator, estimator._MODEL)


def answers(estimator, rows):
    """Return what an estimator says of rows, as numbers."""
    asks = ("mahalanobis", "decision_function", "predict", "transform")
    ask = getattr(estimator, next(name for name in asks if hasattr(estimator, name)))
    return np.asarray(ask(rows), np.float64)


def begun_from(estimator, **more):
    cls = type(estimator)
    own = {SketchedPCA: {"n_components": 3}, SketchHasher: {"output": "values"}}.get(cls, {})
    return cls.from_model(model_of(estimator), **own, **more)


def frame(cls, rows=None):
    pd = pytest.importorskip("pandas")
    rows = rows_of(cls) if rows is None else rows
    return pd.DataFrame(rows, columns=[f"c{column}" for column in range(rows.shape[1])])


def named_source(rows, names):
    source = ArraySource(rows)
    source.feature_names = tuple(names)
    return source


NAMES = tuple(f"c{column}" for column in range(12))


@pytest.fixture
def short_chunks(monkeypatch):
    """Set chunks of sources to about twenty rows."""
    monkeypatch.setattr(_source, "CHUNK_BYTES", 20 * 12 * 8)


class Failing(Source):
    """Rows that cannot be read to their end."""

    def __init__(self, rows):
        self.name, self.n_rows, self.n_features, self._rows = "the failing rows", len(rows), rows.shape[1], rows
        self.dtype = rows.dtype

    def read(self, start_row=0):
        yield self._rows[:50], 50
        yield self._rows[50:100], 100
        raise OSError("the disk is gone")


# -- files and models --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cls", ALL)
def test_an_estimator_begins_from_what_a_model_has_learned(cls):
    whole = fitted(cls)
    before = model_of(whole).to_bytes()
    other = begun_from(whole)
    rows = rows_of(cls)
    # a low-rank model does not know what its columns were divided by
    given = (rows - whole.mean_) / whole.scale_ if cls is LowRankFactors else rows
    assert np.allclose(answers(other, given), answers(whole, rows), rtol=1e-12, atol=0)
    assert other.n_features_in_ == 12 and model_of(other) is not model_of(whole)
    assert model_of(whole).to_bytes() == before
    if hasattr(other, "partial_fit"):
        other.partial_fit(rows_of(cls)[:50], targets_of(cls)[:50])
        assert model_of(other).n_rows == model_of(whole).n_rows + 50 and model_of(whole).to_bytes() == before
    kind = type(model_of(whole))
    with pytest.raises(ValueError, match="model must have seen rows"):
        cls.from_model(kind(**model_of(whole).parameters))
    with pytest.raises(TypeError, match=f"model must be a fastsketch.{kind.__name__}, got ndarray"):
        cls.from_model(X)


def test_parameters_that_do_not_fit_the_model_are_named():
    with pytest.raises(ValueError, match="n_bits=6 does not fit the model, which has n_bits=5"):
        SketchHasher.from_model(fitted(SketchHasher).hash_, n_bits=6)
    assert SketchHasher.from_model(fs.SketchHash(4, seed=3).update(X)).random_state == 3
    real = fs.SketchedNewton(4, loss="square").update(X, Y)
    with pytest.raises(ValueError, match="model must have a loss of labels, it has loss='square'"):
        SketchedNewtonClassifier.from_model(real)
    with pytest.raises(ValueError, match="model must have a loss of real targets"):
        SketchedNewtonRegressor.from_model(fitted(SketchedNewtonClassifier).model_)
    named = fs.SketchedNewton(4).update([{"a": 1.0}, {"b": 2.0}], [1, -1])
    with pytest.raises(ValueError, match="rows of one width"):
        SketchedNewtonClassifier.from_model(named)


@pytest.mark.parametrize("cls", ALL)
def test_a_file_has_all_that_was_learned(cls, tmp_path):
    with pytest.raises(NotFittedError):
        made(cls).save(tmp_path / "none")
    whole = fitted(cls, frame(cls))
    whole.save(tmp_path / "e.fsk")
    other = cls.load(tmp_path / "e.fsk")
    assert other.get_params() == whole.get_params()
    assert list(other.feature_names_in_) == list(NAMES)
    assert model_of(other).feature_names == tuple(other.feature_names_in_)
    again = pickle.loads(pickle.dumps(whole))
    for one in (other, again):
        assert np.array_equal(answers(one, frame(cls)), answers(whole, frame(cls)))
        if hasattr(whole, "partial_fit"):
            more = frame(cls)[:40], targets_of(cls)[:40]
            expected = pickle.loads(pickle.dumps(whole)).partial_fit(*more)
            one.partial_fit(*more)
            assert model_of(one).to_bytes() == model_of(expected).to_bytes()
    with pytest.raises(fs.StateError, match="holds a"):
        next(kind for kind in ALL if kind is not cls).load(tmp_path / "e.fsk")
    with pytest.raises(fs.StateError, match="estimator"):
        fs.load(tmp_path / "e.fsk")
    about, arrays = fs.data.files._state.read(tmp_path / "e.fsk")
    wrong = fs.FrequentDirections(4) if cls is not SketchedPCA else fs.SketchHash(2)
    arrays["sketch"] = np.frombuffer(wrong.to_bytes(), np.uint8)
    with pytest.raises(fs.StateError, match="not consistent"):
        cls.load(io.BytesIO(fs.data.files._state.pack(about, arrays)))


def test_a_random_state_is_saved_as_the_seed_that_it_gave(tmp_path):
    whole = fitted(SketchHasher, random_state=np.random.RandomState(5))
    whole.save(tmp_path / "h.fsk")
    assert SketchHasher.load(tmp_path / "h.fsk").partial_fit(X).random_state == whole.hash_.seed


# -- merging -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cls", MERGING)
def test_estimators_merge(cls):
    rows = rows_of(cls)
    one, two = (made(cls).partial_fit(part) for part in (rows[:140], rows[140:]))
    before = model_of(two).to_bytes()
    third = made(cls).merge(two)
    assert model_of(third).n_rows == 160
    one.merge(two)
    assert model_of(one).n_rows == one.n_samples_seen_ == 300 and model_of(two).to_bytes() == before
    whole = made(cls).partial_fit(rows)
    if hasattr(whole, "mean_"):
        assert np.allclose(one.mean_, whole.mean_)
    if cls in (SketchedPCA, SketchedCovariance):  # exact sums
        assert np.allclose(answers(one, rows), answers(whole, rows))
    with pytest.raises(ValueError, match="other has"):
        one.merge(made(cls).partial_fit(rows[:, :9]))
    with pytest.raises(TypeError, match=f"other must be a {cls.__name__}"):
        one.merge(object())
    with pytest.raises(NotFittedError):
        one.merge(made(cls))
    one.merge(one)
    assert model_of(one).n_rows == 600
    one.partial_fit(rows)
    assert model_of(one).n_rows == 900


@pytest.mark.parametrize("cls", [SketchHasher, SketchCoder])
def test_codes_of_parts_that_are_told_apart_merge_as_their_models_do(cls):
    kind = cls._KIND
    models = [kind(5, part=part).update(half) for part, half in enumerate((X[:140], X[140:]))]
    merged = cls.from_model(models[0]).merge(cls.from_model(models[1]))
    assert model_of(merged).to_bytes() == models[0].copy().merge(models[1]).to_bytes()
    same = [cls(5).partial_fit(X[:140]), cls(5).partial_fit(X[140:]), cls(5).partial_fit(X[:99])]
    out = same[0].merge(same[1]).merge(same[2])
    assert out.n_samples_seen_ == 399
    assert np.allclose(out.mean_, (X.sum(axis=0) + X[:99].sum(axis=0)) / 399)
    assert fs.from_bytes(model_of(out).to_bytes()).n_rows == 399  # a state that passes its checks


def test_names_of_columns_merge(tmp_path):
    one, two = (SketchedPCA(3).partial_fit(part) for part in (X[:100], frame(SketchedPCA, X[100:])))
    one.merge(two)
    assert list(one.feature_names_in_) == list(two.feature_names_in_)
    other = SketchedPCA(3).partial_fit(frame(SketchedPCA)[list(NAMES[::-1])])
    with pytest.raises(ValueError, match="other feature names"):
        one.merge(other)


# -- names of columns --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cls", ALL)
def test_names_go_from_models_to_estimators_and_back(cls):
    whole = fitted(cls, frame(cls))
    assert model_of(whole).feature_names == tuple(whole.feature_names_in_)
    other = begun_from(whole)
    assert list(other.feature_names_in_) == list(whole.feature_names_in_)
    if hasattr(other, "get_feature_names_out"):
        names = other.get_feature_names_out()
        assert len(names) == len(set(names)) == answers(other, frame(cls)).shape[1]
        assert names[0].startswith(NAMES[0] if cls is LowRankCompleter else cls.__name__.lower())
    with pytest.raises(ValueError, match="feature names should match"):
        answers(other, frame(cls)[list(NAMES[::-1])])


# -- sources and jobs --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cls", MERGING)
def test_a_source_is_learned_from_as_its_rows_are(cls, tmp_path, short_chunks):
    rows = rows_of(cls)
    np.save(tmp_path / "rows.npy", rows)
    source = fs.open_rows(tmp_path / "rows.npy")
    whole, stream = made(cls).fit(rows), made(cls).fit(source)
    pieces = made(cls).partial_fit(rows[:10]).partial_fit(fs.open_rows(rows[10:]))
    for other in (stream, pieces):
        assert other.n_samples_seen_ == 300 and other.n_features_in_ == 12
        if cls in (SketchHasher, SketchCoder, EASERecommender):
            assert model_of(other).to_bytes() == model_of(whole).to_bytes()
        assert np.allclose(answers(other, rows), answers(whole, rows), rtol=1e-6, atol=1e-9)
    if cls is SketchedPCA:
        assert np.allclose(stream.var_, rows.var(axis=0)) and np.allclose(pieces.var_, rows.var(axis=0))


@pytest.mark.parametrize("cls", MERGING)
def test_a_source_is_learned_from_whole_or_not_at_all(cls):
    rows = rows_of(cls)
    estimator = made(cls).partial_fit(rows)
    before, names = model_of(estimator).to_bytes(), set(vars(estimator))
    for learn in (estimator.fit, estimator.partial_fit):
        with pytest.raises(OSError, match="the disk is gone"):
            learn(Failing(rows))
        assert model_of(estimator).to_bytes() == before and set(vars(estimator)) == names
    with pytest.raises(ValueError, match="X has 9 features, but learning began with 12"):
        estimator.partial_fit(fs.open_rows(rows[:, :9]))
    assert model_of(estimator).to_bytes() == before


def test_names_of_a_source_reach_the_estimator(short_chunks):
    source = named_source(X, NAMES)
    assert list(SketchedPCA(3).fit(source).feature_names_in_) == list(source.feature_names)
    estimator = SketchedPCA(3).partial_fit(source)
    assert list(estimator.feature_names_in_) == list(estimator.sketch_.feature_names) == list(source.feature_names)
    other = named_source(X, NAMES[::-1])
    with pytest.raises(ValueError, match="X must have the columns that came before, in their order: column 0 is 'c11'"):
        estimator.partial_fit(other)
    assert estimator.n_samples_seen_ == 300


@pytest.mark.parametrize("cls", MERGING)
def test_a_job_gives_a_fitted_estimator(cls, short_chunks):
    rows = rows_of(cls)
    template = made(cls)
    source = named_source(rows, NAMES)
    found = fs.run(template, source, workers=1, engine="threads", progress=False)
    assert type(found) is cls and found.get_params() == template.get_params()
    with pytest.raises(NotFittedError):
        template.save("nowhere")
    assert found.n_samples_seen_ == 300 and list(found.feature_names_in_) == list(source.feature_names)
    whole = clone(template).fit(rows)
    assert np.allclose(answers(found, frame(cls)), answers(whole, rows), rtol=1e-6, atol=1e-9)
    if hasattr(found, "mean_"):
        assert np.allclose(found.mean_, whole.mean_)
    found.partial_fit(frame(cls))
    assert found.n_samples_seen_ == 600


def test_a_share_of_the_variance_and_sketches_of_jobs(short_chunks):
    wide = RNG.standard_normal((200, 400)) @ np.diag(0.9 ** np.arange(400))
    kwargs = {"solver": "gram", "sketch_size": 20}
    found = fs.run(SketchedPCA(0.5, **kwargs), wide, workers=1, engine="threads", progress=False, passes=2)
    whole = SketchedPCA(0.5, solver="exact").fit(wide)
    assert found.n_components_ == whole.n_components_
    assert np.allclose(found.explained_variance_, whole.explained_variance_, rtol=1e-3)
    refined = SketchedPCA(4).fit(fs.open_rows(wide))
    assert np.allclose(refined.explained_variance_, whole.explained_variance_[:4], rtol=0.01)
    with pytest.raises(ValueError, match="needs fourth moments"):
        fs.run(SketchedCovariance(4, shrinkage="ledoit-wolf"), wide)
    moments = [
        SketchedCovariance(4, shrinkage="ledoit-wolf").fit(rows).shrinkage_ for rows in (wide, fs.open_rows(wide))
    ]
    assert np.isclose(*moments)


def test_an_h5py_data_set_is_not_loaded_whole(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["rows"] = X
    with h5py.File(tmp_path / "rows.h5") as file:
        found = SketchedPCA(3).fit(file["rows"])
        refined = SketchedPCA(3, solver="gram", sketch_size=5).fit(file["rows"]).refine(file["rows"])
    assert np.allclose(found.explained_variance_, SketchedPCA(3).fit(X).explained_variance_)
    assert refined.n_passes_ == 2
    with pytest.raises(ValueError, match="kneighbors finds rows of fit"):
        SketchHasher(4).fit(fs.open_rows(X)).kneighbors(X[:2])
    assert AdaptiveSubgradientClassifier().fit(X, Y > 0).score(X, Y > 0) > 0.8
