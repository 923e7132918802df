"""Every scikit-learn estimator check, none expected to fail."""

import pytest

pytest.importorskip("sklearn")
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from fastsketch.sklearn import SketchedCovariance, SketchedPCA  # noqa: E402


@parametrize_with_checks([SketchedPCA(), SketchedPCA(n_components=1, sketch_size=3), SketchedCovariance(),
                          SketchedCovariance(sketch_size=3)])
def test_estimator_check(estimator, check):
    check(estimator)
