"""Bad parameters and bad batches of the online learners: a named error, and a model that is unchanged."""

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.online._adaptive_subgradient import COMPENSATED, METHODS
from tests.helpers import papers

BOTH = fs.SketchedNewton, fs.AdaptiveSubgradient
# parameters of one kind of model, or of both
OF_NEWTON = [
    ({"sketch_size": 1}, ValueError, "sketch_size"),
    ({"sketch_size": 2.0}, TypeError, "sketch_size"),
    ({"method": "x"}, ValueError, "method"),
    ({"method": None}, TypeError, "method"),
    ({"loss_scale": 0.0}, ValueError, "loss_scale"),
    ({"loss": "hinge"}, ValueError, "loss"),
    ({"sketch_sise": 3}, TypeError, "did you mean 'sketch_size'"),
    ({"loss": "x"}, ValueError, "loss"),
    ({"loss": 1}, TypeError, "loss"),
    ({"alpha0": -1.0}, ValueError, "alpha0"),
    ({"method": "fd"}, ValueError, "alpha0 must be positive"),
    ({"constraint": "x"}, ValueError, "constraint"),
    ({"beta": 0.5}, ValueError, "beta"),
    ({"method": "pfd", "alpha0": 1.0, "beta": 2.0}, ValueError, "beta"),
]
OF_ADAPTIVE = [
    ({"sketch_size": 1}, ValueError, "sketch_size"),
    ({"method": "x"}, ValueError, "method"),
    ({"form": "x"}, ValueError, "form"),
    ({"loss": "x"}, ValueError, "loss"),
    ({"learning_rate": 0.0}, ValueError, "learning_rate"),
    ({"learning_rate": -1}, ValueError, "learning_rate"),
    ({"delta": 0.0}, ValueError, "delta"),
    ({"learning_rate": "a"}, TypeError, "learning_rate"),
    ({"penalty": "l3", "penalty_strength": 1.0}, ValueError, "penalty"),
    ({"penalty": "l1"}, ValueError, "go together"),
    ({"penalty_strength": 1.0}, ValueError, "go together"),
    ({"penalty_strength": -1.0}, ValueError, "penalty_strength"),
    ({"method": "adam", "form": "dual_averaging"}, ValueError, "form='mirror_descent' alone"),
    ({"method": "ftsl"}, ValueError, "needs form='dual_averaging', got 'mirror_descent'"),
    ({"method": "ftfsl", "form": "dual_averaging", "decay": 0.9}, ValueError, "decay must be 1 with method='ftfsl'"),
    ({"learnin_rate": 0.1}, TypeError, "did you mean 'learning_rate'"),
]
OF_BOTH = [
    ({"fit_intercept": 1}, TypeError, "fit_intercept must be True or False"),
    ({"scale": "std"}, ValueError, "scale must be one of 'moments', None"),
    ({"scale": 1.0}, TypeError, "scale must be a string"),
    ({"classes": [1]}, ValueError, "at least two different labels"),
    ({"classes": [1, 1.0]}, ValueError, "at least two different labels"),
    ({"classes": "ab"}, TypeError, "classes must be a sequence of labels"),
    ({"classes": 3}, TypeError, "classes must be a sequence of labels"),
    ({"classes": [1, "a"]}, TypeError, "numbers or strings, not both, got 1, 'a'$"),
    ({"classes": [1, 2, 3, 4, 5, "a"]}, TypeError, r"not both, got 1, 2, 3, 4, 5, \.\.\.$"),
    ({"classes": [1, 0.5]}, ValueError, "a label of classes must be an integer"),
    ({"classes": [1, None]}, TypeError, "a label of classes must be a number, a bool or a string"),
    ({"classes": np.ones((2, 2))}, ValueError, "must be a vector"),
    ({"class_weight": "even"}, ValueError, "must be 'balanced'"),
    ({"class_weight": 2.0}, TypeError, "must be 'balanced', a dict"),
    ({"class_weight": {1: -1.0}}, ValueError, r"class_weight\[1\] must lie in"),
    ({"class_weight": {1: "a"}}, TypeError, r"class_weight\[1\] must be a real number"),
    ({"class_weight": {None: 1.0}}, TypeError, "a label of class_weight must be"),
    ({"class_weight": [1, 2]}, TypeError, "must be 'balanced', a dict"),
    ({"loss": "square", "classes": [0, 1]}, ValueError, "classes belongs to labels, and loss='square'"),
    ({"loss": "absolute", "class_weight": "balanced"}, ValueError, "class_weight belongs to labels"),
]
CASES = [
    *((papers.SketchedNewton, *case) for case in OF_NEWTON),
    *((papers.AdaptiveSubgradient, *case) for case in OF_ADAPTIVE),
    *((make, *case) for case in OF_BOTH for make in BOTH),
]


def adaptive(method):
    form = "dual_averaging" if method in COMPENSATED else "mirror_descent"
    return papers.AdaptiveSubgradient(3, method=method, form=form, loss="absolute")


MODELS = {
    "newton": lambda: papers.SketchedNewton(3, loss="square"),
    **{name: lambda name=name: adaptive(name) for name in METHODS},
}


@pytest.mark.parametrize(("make", "parameters", "error", "message"), CASES)
def test_bad_parameters_are_named(make, parameters, error, message):
    with pytest.raises(error, match=message):
        make(**parameters)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("rows", "targets", "error", "message"),
    [
        (np.ones((3, 4)), [1, 1], ValueError, "each of the 3 rows"),
        (np.ones((3, 4)), [1, np.nan, 1], ValueError, "entry 1"),
        (np.ones((3, 4)), [1j, 1, 1], TypeError, "real"),
        (np.ones((3, 4)), ["a", "b", "c"], TypeError, "real"),
        (np.ones((3, 4)), np.ma.masked_array([1.0, 2, 3]), TypeError, "masked"),
        (np.full((3, 4), np.inf), [1, 1, 1], ValueError, "finite"),
        (np.ones((3, 5)), [1, 1, 1], ValueError, "4 columns"),
        (np.ones((3, 4), complex), [1, 1, 1], TypeError, "real"),
    ],
)
def test_bad_batches_change_nothing(name, rows, targets, error, message):
    rng = np.random.default_rng(0)
    model = MODELS[name]().update(rng.standard_normal((20, 4)), np.sign(rng.standard_normal(20)))
    before = model.to_bytes()
    with pytest.raises(error, match=message):
        model.update(rows, targets)
    assert model.to_bytes() == before
