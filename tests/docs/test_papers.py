"""docs/papers: a line for everything that a paper numbers, whose tests and results are there."""

import ast
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "papers"
# What each paper numbers, lemmas of proofs and quoted theorems too; FROSH's Table I is one of notation.
NUMBERED = {
    "rfd": {"Algorithm": 8, "Assumption": 2, "Theorem": 7, "Corollary": 2, "Lemma": 7, "Table": 3, "Figure": 11},
    "adafd": {"Algorithm": 4, "Theorem": 5, "Lemma": 4, "Table": 1, "Figure": 10},
    "frosh": {"Algorithm": 3, "Definition": 1, "Remark": 5, "Lemma": 3, "Theorem": 4, "Table": [2], "Figure": 6},
    "glrl": {"Algorithm": 3, "Definition": 2, "Proposition": [1, 8, 9], "Theorem": [2, 3, 4, 5, 6], "Lemma": [7]},
}
NUMBERED["glrl"] |= {"Table": 4, "Figure": 2}
WORDS = "|".join(dict.fromkeys(word for numbers in NUMBERED.values() for word in numbers))
LEFT_OUT = ("gisette", "sido0", "rcv1", "real-sim", "epsilon", "CIFAR-100", "SVHN", "GIST-1M", "FLICKR-25600")
LEFT_OUT += ("MovieLens-10M", "VGG19")


def lines_of(page):
    """Return the cells of each line of the table with which a page begins."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    table = text[text.index("| in the paper |") :].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def named(cell):
    """Give (word, number) of "Theorems 3, 4", "Algorithm 1, FD", "Table II" and what has several of them."""
    for word, numbers in re.findall(rf"({WORDS})s? (II|[\d, ]*\d)", cell):
        for number in re.findall(r"\d+", numbers.replace("II", "2")):
            yield word, int(number)


@pytest.mark.parametrize("page", NUMBERED)
def test_everything_numbered_has_a_line(page):
    there = {item for line in lines_of(page) for item in named(line[0])}
    for word, numbers in NUMBERED[page].items():
        numbers = range(1, numbers + 1) if isinstance(numbers, int) else numbers
        assert {(word, number) for number in numbers} <= there, word


@pytest.mark.parametrize("page", NUMBERED)
def test_every_line_has_a_test_or_a_result_or_says_what_is_lacking(page):
    for what, _, held, verdict in lines_of(page):
        tests, commands = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", held), re.findall(r"`bench (\w+)`", held)
        assert verdict and (tests or commands or verdict.startswith("not to be had")), what
        for path, name in tests:
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name
        for name in commands:
            record = json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text(encoding="utf-8"))
            assert record["command"] == name


def test_what_cannot_be_had_is_named_with_its_command():
    index = (PAGES / "index.md").read_text(encoding="utf-8")
    commands = (ROOT / "bench" / "run.py").read_text(encoding="utf-8")
    for name in LEFT_OUT:
        assert name in index, name
    for line in index.splitlines():
        for name in re.findall(r"`(\w+)`", line) if line.startswith("| ") and "not found" in line else []:
            assert re.search(rf'"[\w.]*\b{name}":', commands), name
