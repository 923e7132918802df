"""LowRankCompleter: scikit-learn's checks, and the model behind it."""

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

import fastsketch as fs  # noqa: E402
from fastsketch.sklearn import LowRankCompleter  # noqa: E402


@parametrize_with_checks(
    [LowRankCompleter(), LowRankCompleter(3, loss="huber", sweeps=0), LowRankCompleter(2, biases=False, refine="full")]
)
def test_estimator_check(estimator, check):
    check(estimator)


def test_it_is_the_model():
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 20))
    seen = rng.random(truth.shape) < 0.6
    dense = np.where(seen, truth, np.nan)
    rows, columns = np.nonzero(seen)
    x = sparse.csr_array(sparse.coo_array((truth[seen], (rows, columns)), shape=truth.shape))
    one = LowRankCompleter(3, sweeps=5, ridge=0.1, scaling=False).fit(dense)
    two = LowRankCompleter(3, sweeps=5, ridge=0.1, scaling=False).fit(x)
    model = fs.LowRankModel(3, sweeps=5, ridge=0.1, scaling=False).fit(x)
    assert np.array_equal(one.components_, two.components_)
    assert np.array_equal(one.components_, model.factors()[1].T)
    filled = one.inverse_transform(one.transform(dense))
    # rows of the fit have the factors of the fit: what transform gives fills as the model predicts
    assert np.allclose(filled, model.predict_block(np.arange(60)), atol=1e-4)
    assert np.abs(filled - truth)[~seen].mean() < 0.5
    assert one.transform(dense).shape == (60, 4)
    assert list(one.get_feature_names_out())[0] == "lowrankcompleter0"
    with pytest.raises(ValueError, match="4 columns"):
        one.inverse_transform(np.ones((2, 3)))
    with pytest.raises(ValueError, match="infinity|inf"):
        LowRankCompleter(2).fit(np.where(truth > 1, np.inf, truth))
