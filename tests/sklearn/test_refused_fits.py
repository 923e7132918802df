"""A fit that is refused leaves the estimator as it was: names of columns, widths, classes and models."""

import inspect
import pickle

import numpy as np
import pytest

import fastsketch.sklearn as estimators
from fastsketch._frame.model import Model

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
ROWS = np.abs(RNG.standard_normal((60, 5)))
LABELS = (ROWS[:, 0] > np.median(ROWS[:, 0])).astype(int)
WIDER = np.abs(RNG.standard_normal((30, 7)))
WIDER_LABELS = (WIDER[:, 0] > np.median(WIDER[:, 0])).astype(int)
MORE = {"SketchCoder": {"n_bytes": 4}, "SketchHasher": {"n_bits": 4}}
NAMES = [name for name in estimators.__all__ if inspect.isclass(getattr(estimators, name))]


def with_one(rows, value):
    """Return a copy of rows that holds a value where it is not allowed."""
    rows = rows.astype(object) if isinstance(value, str) else rows.copy()
    rows[3, 2] = value
    return rows


REFUSED = {
    "infinity": lambda: (with_one(WIDER, np.inf), WIDER_LABELS, {}),
    "text": lambda: (with_one(WIDER, "x"), WIDER_LABELS, {}),
    "infinity in a frame": lambda: (pd.DataFrame(with_one(WIDER, np.inf), columns=list("abcdefg")), WIDER_LABELS, {}),
    "infinity in a frame of the same width": lambda: (
        pd.DataFrame(with_one(ROWS, np.inf), columns=list("abcde")),
        LABELS,
        {},
    ),
    "one label": lambda: (WIDER, np.ones(30, int), {}),
    "too few targets": lambda: (WIDER, WIDER_LABELS[:9], {}),
    "weights below 0": lambda: (WIDER, WIDER_LABELS, {"sample_weight": -np.ones(30)}),
    "weights of 0": lambda: (WIDER, WIDER_LABELS, {"sample_weight": np.zeros(30)}),
}


def state_of(estimator):
    """Return {name: bytes} of all attributes, but not of the guard against other threads."""
    return {
        name: value.to_bytes() if isinstance(value, Model) else pickle.dumps(value)
        for name, value in vars(estimator).items()
        if name not in ("_entered", "_read_out")
    }


def cases():
    """Return (name, method, reason) of the methods that an estimator has and the arguments that these take."""
    return [
        (name, method, why)
        for name in NAMES
        for method in ("fit", "partial_fit")
        for why in REFUSED
        if hasattr(kind := getattr(estimators, name), method)
        and ("weights" not in why or "sample_weight" in inspect.signature(getattr(kind, method)).parameters)
    ]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("begin", ["fitted", "new"])
@pytest.mark.parametrize(("name", "method", "why"), cases())
def test_refused_rows_leave_the_estimator_as_it_was(name, method, begin, why):
    estimator = getattr(estimators, name)(**MORE.get(name, {}))
    if begin == "fitted":
        estimator.fit(ROWS, LABELS)
    before = state_of(estimator)
    rows, targets, more = REFUSED[why]()
    known = inspect.signature(getattr(estimator, method)).parameters
    if "classes" in known and begin == "new":
        more = {**more, "classes": [0, 1]}
    try:
        getattr(estimator, method)(rows, targets, **more)
    except (TypeError, ValueError):
        assert state_of(estimator) == before
    else:
        assert why in ("one label", "too few targets", "weights of 0")  # of estimators that can learn from these
