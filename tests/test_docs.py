"""Docstrings: every public name has one, and every example in one runs."""

import doctest
import importlib
import importlib.util
import inspect
import pkgutil

import pytest

import fastsketch


def modules():
    pytest.importorskip("sklearn")
    absent = ("__main__",) if importlib.util.find_spec("torch") else ("__main__", "fastsketch.torch")
    for info in pkgutil.walk_packages(fastsketch.__path__, "fastsketch."):
        if not any(part in info.name for part in absent):
            yield importlib.import_module(info.name)


def test_examples_run():
    attempted = 0
    for module in modules():
        result = doctest.testmod(module)
        assert result.failed == 0, module.__name__
        attempted += result.attempted
    assert attempted > 15


def public_objects():
    from fastsketch.sklearn import (
        AdaptiveSubgradientClassifier,
        AdaptiveSubgradientRegressor,
        EASERecommender,
        LowRankCompleter,
        SketchedCovariance,
        SketchedNewtonClassifier,
        SketchedNewtonRegressor,
        SketchedPCA,
        SketchHasher,
    )

    names = [getattr(fastsketch, name) for name in fastsketch.__all__ if not name.startswith("_")]
    return [item for item in names if callable(item)] + [
        SketchedPCA,
        SketchedCovariance,
        SketchHasher,
        SketchedNewtonClassifier,
        SketchedNewtonRegressor,
        AdaptiveSubgradientClassifier,
        AdaptiveSubgradientRegressor,
        EASERecommender,
        LowRankCompleter,
        EASERecommender,
    ]


def first_line(item):
    """Of its own docstring: one inherited from the base class would describe another thing."""
    doc = item.__doc__ if inspect.isclass(item) else inspect.getdoc(item)
    return (doc or "").strip().split("\n")[0]


def is_one_sentence(line):
    """More than two words, a full stop at the end and none before."""
    return len(line.split()) > 2 and line.endswith(".") and ". " not in line


def test_one_sentence():
    assert is_one_sentence("The covariance of a stream, to a certain error.")
    for line in ("", "The covariance of a stream", "The covariance of", "Read: one. Then another.", "A model."):
        assert not is_one_sentence(line)


@pytest.mark.parametrize("item", public_objects(), ids=lambda item: item.__name__)
def test_public_objects_are_documented(item):
    assert is_one_sentence(first_line(item)), f"{item.__name__}: {first_line(item)!r}"
    if inspect.isclass(item) and not issubclass(item, Exception):
        for name, member in vars(item).items():
            if callable(member) and not name.startswith("_"):
                assert is_one_sentence(first_line(member)), f"{item.__name__}.{name}: {first_line(member)!r}"


def test_parameters_are_documented():
    for item in (
        fastsketch.FrequentDirections,
        fastsketch.sketch_file,
        fastsketch.thread_limit,
        fastsketch.SketchHash,
        fastsketch.SketchQuantizer,
        fastsketch.SketchedNewton,
        fastsketch.AdaptiveSubgradient,
        fastsketch.AdaptiveGrid,
        fastsketch.LowRankModel,
        fastsketch.SketchedEASE,
        fastsketch.Compressor,
        fastsketch.fwht,
        fastsketch.srht,
        fastsketch.hamming_topk,
        fastsketch.merge,
        fastsketch.map_merge,
    ):
        doc = inspect.getdoc(item)
        for name, parameter in inspect.signature(item).parameters.items():
            if parameter.kind is not parameter.VAR_KEYWORD:
                assert name in doc, f"{item.__name__}: {name}"
