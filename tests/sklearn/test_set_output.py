"""Every transformer obeys set_output and the global option: scikit-learn's checks, pipelines, column transformers."""

import inspect
import warnings

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn")
pandas = pytest.importorskip("pandas")
from sklearn.compose import ColumnTransformer  # noqa: E402
from sklearn.linear_model import LinearRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils import estimator_checks  # noqa: E402

from fastsketch import sklearn as estimators  # noqa: E402

KINDS = [kind for name in estimators.__all__ if inspect.isclass(kind := getattr(estimators, name))]
TRANSFORMERS = [kind for kind in KINDS if hasattr(kind, "transform")]
CHECKS = [
    name
    for name in dir(estimator_checks)
    if name.startswith("check_")
    and any(part in name for part in ("set_output", "output_transform", "feature_names_out", "column_names"))
]
COLUMNS = ["width", "height", "depth", "weight", "price", "age"]
FRAME = pandas.DataFrame(
    np.random.default_rng(0).standard_normal((60, 6)), columns=COLUMNS, index=[f"row {i}" for i in range(60)]
)


def test_the_transformers_and_the_checks_are_found():
    names = {kind.__name__ for kind in TRANSFORMERS}
    assert names == {"LowRankCompleter", "LowRankFactors", "SketchCoder", "SketchHasher", "SketchedPCA"}
    assert len(CHECKS) >= 9


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_a_check_of_scikit_learn(kind, check):
    if check.endswith("polars"):
        pytest.importorskip("polars")
    getattr(estimator_checks, check)(kind.__name__, kind())


def outputs(kind, frame):
    """Yield what each way to transform returns, each by an estimator of its own."""
    yield kind().set_output(transform="pandas").fit_transform(frame)
    yield kind().set_output(transform="pandas").fit(frame).transform(frame)
    with sklearn.config_context(transform_output="pandas"):
        yield kind().fit_transform(frame)
        yield kind().fit(frame).transform(frame)
        yield make_pipeline(StandardScaler(), kind()).fit(frame).transform(frame)
    yield make_pipeline(StandardScaler(), kind()).set_output(transform="pandas").fit(frame).transform(frame)


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_frames_have_the_names_and_the_index_of_the_rows(kind):
    for out in outputs(kind, FRAME):
        assert isinstance(out, pandas.DataFrame)
        assert list(out.index) == list(FRAME.index)
        model = kind().fit(FRAME)
        assert list(out.columns) == list(model.get_feature_names_out())
        if kind is estimators.LowRankCompleter:
            assert list(out.columns) == COLUMNS
        else:
            assert list(out.columns) == [f"{kind.__name__.lower()}{j}" for j in range(out.shape[1])]


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_partial_fit_and_arrays_after_frames(kind):
    if not hasattr(kind, "partial_fit"):
        assert isinstance(kind().fit(FRAME).transform(FRAME), np.ndarray)  # nothing was asked for
        return
    model = kind().set_output(transform="pandas")
    for start in (0, 30):
        model.partial_fit(FRAME[start : start + 30])
    out = model.transform(FRAME[:7])
    assert isinstance(out, pandas.DataFrame)
    assert list(out.index) == list(FRAME.index[:7])
    assert isinstance(model.set_output(transform="default").transform(FRAME), np.ndarray)


@pytest.mark.parametrize("output", ["pandas", "polars"])
@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_column_transformers(kind, output):
    package = pytest.importorskip(output)
    parts = [("small", kind(), COLUMNS[:3]), ("large", kind(), COLUMNS[3:])]
    model = ColumnTransformer(parts).set_output(transform=output)
    for out in (model.fit_transform(FRAME), model.fit(FRAME).transform(FRAME)):
        assert isinstance(out, package.DataFrame)
        assert list(out.columns) == list(model.get_feature_names_out())
        assert all(name.startswith(("small__", "large__")) for name in out.columns)


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_the_next_step_of_a_pipeline_does_not_warn(kind):
    model = make_pipeline(kind(), LinearRegression()).set_output(transform="pandas")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(FRAME, FRAME["age"]).predict(FRAME)
