"""The seeds of the fuzzers, and what they once found: all of it is read again."""

import pytest

from tests.fuzz.targets import CORPUS, SEEDS, TARGETS

FILES = sorted(path for path in CORPUS.rglob("*") if path.is_file())


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_replay(path):
    data = path.read_bytes()
    TARGETS[path.parent.name](data)
    for stop in range(0, len(data), max(1, len(data) // 50)):  # and its beginnings
        TARGETS[path.parent.name](data[:stop])


@pytest.mark.parametrize("target", SEEDS)
def test_seeds_that_are_made(target):
    for data in SEEDS[target]():
        TARGETS[target](data)
        for stop in range(0, len(data), max(1, len(data) // 10)):
            TARGETS[target](data[:stop])


def test_every_target_has_seeds():
    assert {path.parent.name for path in FILES} | set(SEEDS) == set(TARGETS)
    assert sum(path.stat().st_size for path in FILES) < 40_000
