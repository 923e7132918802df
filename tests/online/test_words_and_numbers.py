"""A column that was learned as words and is given as numbers, or the other way round: a model says so, once."""

import io
import pickle
import warnings

import numpy as np
import pytest

import fastsketch as fs

RNG = np.random.default_rng(0)
HOURS = RNG.integers(0, 24, 200)
TARGETS = np.where(HOURS > 12, 1.0, -1.0)
AS_WORDS = [{"hour": str(hour), "size": float(size)} for hour, size in zip(HOURS, RNG.random(200), strict=True)]
AS_NUMBERS = [{**row, "hour": int(row["hour"])} for row in AS_WORDS]
AS_PAIRS = [list(row.items()) for row in AS_WORDS]
READY_MADE = [{f"hour={row['hour']}": 1.0, "size": row["size"]} for row in AS_WORDS]
MODELS = {
    "newton": lambda: fs.SketchedNewton(4),
    "newton square": lambda: fs.SketchedNewton(4, loss="square"),
    "newton decay auto": lambda: fs.SketchedNewton(4, decay="auto"),
    "ada_ffd": lambda: fs.AdaptiveSubgradient(4),
    "ada_diag": lambda: fs.AdaptiveSubgradient(method="ada_diag"),
}


def told(call):
    """Return the warnings about features that a call gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught if "the feature" in str(warning.message)]


@pytest.mark.parametrize("before", ["words", "pairs", "ready made", "numbers"])
@pytest.mark.parametrize(
    ("name", "ask"),
    [
        (name, ask)
        for name in MODELS
        for ask in ("predict", "decision_function", "predict_proba", "update")
        if (name, ask) != ("newton square", "predict_proba")  # a regression has no probabilities
    ],
)
def test_a_model_warns_once(name, before, ask):
    first, then = (AS_NUMBERS, AS_WORDS) if before == "numbers" else (AS_WORDS, AS_NUMBERS)
    first = {"pairs": AS_PAIRS, "ready made": READY_MADE}.get(before, first)
    model = MODELS[name]()
    assert not told(lambda: model.update(first, TARGETS))
    assert not told(lambda: model.predict(first))
    arguments = (then[7:9], TARGETS[7:9]) if ask == "update" else (then[7:9],)
    (message,) = told(lambda: getattr(model, ask)(*arguments))
    assert "row 0: the feature 'hour'" in message
    assert ("float(row['hour'])" if before == "numbers" else "str(row['hour'])") in message
    assert ("is learned as another feature" in message) == (ask == "update")
    assert not told(lambda: (model.predict(then), model.update(then, TARGETS), model.copy().predict(then)))


@pytest.mark.parametrize("before", ["words", "numbers"])
def test_after_a_file_a_pickle_a_copy_and_a_refused_batch(before):
    first, then = (AS_NUMBERS, AS_WORDS) if before == "numbers" else (AS_WORDS, AS_NUMBERS)
    model = fs.SketchedNewton(4).update(first, TARGETS)
    with pytest.raises(ValueError):
        model.update([{"new": 1.0}, {"hour": float("nan")}], [1.0, -1.0])
    for other in (model.copy(), pickle.loads(pickle.dumps(model)), fs.load(io.BytesIO(model.to_bytes())), model):
        assert not told(lambda: other.predict(first))  # noqa: B023
        assert len(told(lambda: other.predict(then))) == 1  # noqa: B023


def test_single_rows_and_both_kinds_in_one_batch():
    model = fs.SketchedNewton(4)
    assert len(told(lambda: [model.update(row, 1.0) for row in ({"a": "x"}, {"b": 2.0}, {"a": 1}, {"a": 2})])) == 1
    model = fs.SketchedNewton(4)
    assert len(told(lambda: model.update([{"a": 1.0}, {"a": "x"}], [1.0, -1.0]))) == 1
    assert not told(lambda: model.predict([{"a": 1.0}, {"a": "x"}, {"a": "y"}]))


def test_what_is_no_mixture_is_not_told():
    model = fs.SketchedNewton(4).update([["good", "film"], ["bad", ("stars", 2.0)]], [1.0, -1.0])
    assert not told(lambda: model.predict([["new", "words"], [("stars", 3)], {"good": 1, "colour": "red"}]))
    model = fs.SketchedNewton(4).update(AS_WORDS, TARGETS)
    assert not told(lambda: model.predict([{"hour": "99"}, {"minute": 3}, {"size": 1}, {"size": True}]))


def test_answers_are_as_before():
    """The warning changes nothing: the number counts as a name that was never seen."""
    model = fs.SketchedNewton(4).update(AS_WORDS, TARGETS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mixed = model.decision_function(AS_NUMBERS[:9])
    assert np.array_equal(mixed, model.decision_function([{"size": row["size"]} for row in AS_WORDS[:9]]))
