"""An index that grows by the same steps in every process, and a program that saves it after each of them for ever."""

import sys
from pathlib import Path

import numpy as np

import fastsketch as fs
from tests.neighbours.index.toy import toy

ROWS, QUERIES = (np.random.default_rng(seed).standard_normal((n, 8)) for seed, n in ((0, 600), (1, 5)))
MARK = 1 << 40  # an id for each step


def step(index, number):
    """One step: rows come and go, once in a while a generation begins and small segments are joined."""
    rng = np.random.default_rng(number)
    if number % 7 == 6:
        index.renew(toy(seed=number))
    index.add(rng.standard_normal((20, 8)), np.arange(20 * number, 20 * number + 20))
    index.add(rng.standard_normal((1, 8)), [MARK + number])
    index.remove(np.arange(20 * number, 20 * number + 5))
    if number % 11 == 10:
        index.reencode().compact()


def after(steps):
    """The index after so many steps."""
    index = fs.CodeIndex(toy(), rows="float32")
    for number in range(steps):
        step(index, number)
    return index


def steps_of(index):
    """How many steps an index has made."""
    return int(index.ids.max()) - MARK + 1


def main(folder):
    """Save for ever, and say after how many steps."""
    index = fs.load(folder) if (folder / "index.fsk").exists() else after(0)
    number = steps_of(index) if len(index) else 0
    while True:
        step(index, number)
        index.save(folder)
        number += 1
        print(number, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
