"""The table of constants without a parameter says what the code has."""

import ast
import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "project" / "constants.md"
ROW = re.compile(r"^\| `([\w.]+)\.(\w+)` \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))


def test_every_row_of_the_page_is_read():
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert len(lines) == len(ROWS) > 40
    assert len({row[:2] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("module", "name", "value"), [row[:3] for row in ROWS])
def test_a_constant_has_the_value_of_the_page(module, name, value):
    stated = 10**0.5 if value == "10**0.5" else ast.literal_eval(value)
    assert getattr(importlib.import_module(f"fastsketch.{module}"), name) == stated
