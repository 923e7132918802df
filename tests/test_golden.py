"""State files in tests/data/golden load, say what their models said, learn on, and are what is written today."""

import json

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.data import read_header
from tests import golden
from tests.reliability.zoo import SPECIMENS

ANSWERS = json.loads(golden.ANSWERS.read_text(encoding="utf-8"))


def agree(found, expected, name):
    """Whether figures are equal to a few roundings."""
    tolerance = 1e-4 if "float32" in name or name.startswith("ease") else 1e-6
    assert len(found) == len(expected)
    for one, two in zip(found, expected, strict=True):
        assert np.allclose(one, two, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("name", [*golden.NAMES, *golden.EARLIER])
def test_a_file_loads_and_its_model_says_what_it_said(name):
    model = fs.load(golden.path_of(name))
    assert name in golden.EARLIER or model.to_bytes() == golden.path_of(name).read_bytes()
    agree(golden.says(name, model), ANSWERS[name], name)


def form_of(about):
    """Return (shape, dtype) of an array; bytes are a state within, as long as the digits of its numbers make it."""
    is_state = about["dtype"] == "|u1" and len(about["shape"]) == 1
    return None if is_state else about["shape"], about["dtype"]


@pytest.mark.parametrize("name", golden.NAMES)
def test_what_is_written_today_has_the_form_of_the_file(name, tmp_path):
    """Another form is another schema: see ``fastsketch.data.files._state.SCHEMA``."""
    golden.learned(name).save(tmp_path / "now.fsk")
    then, now = read_header(golden.path_of(name)), read_header(tmp_path / "now.fsk")
    forms = [{key: form_of(about) for key, about in header.pop("arrays").items()} for header in (then, now)]
    assert forms[0] == forms[1]
    assert then.pop("state").keys() == now.pop("state").keys()
    assert then == now  # schema, kind, home, parameters, notes


def test_every_kind_has_a_file():
    found = {type(golden.ZOO[name].make()).__name__ for name in golden.NAMES}
    assert found == {type(specimen.make()).__name__ for specimen in SPECIMENS}  # every kind: see test_zoo.py


def test_an_index_loads_and_finds_what_it_found():
    agree(golden.found(fs.load(golden.INDEX)), ANSWERS["codes-index.fsk"], "codes-index.fsk")


def test_an_estimator_loads_and_says_what_it_said():
    pca = pytest.importorskip("fastsketch.sklearn").SketchedPCA.load(golden.ESTIMATOR)
    agree([pca.singular_values_], [ANSWERS["estimator.fsk"]], "estimator.fsk")
