"""Generated counts of cells, the same for the tests and for the script that computes scanpy's answers."""

import numpy as np

N_CELLS, N_GENES = 120, 300
BATCHES = np.array(list("abc"))
CASES = ("batches", "empty")


def counts(case):
    """Counts (N_CELLS, N_GENES) of a mixture of Poisson distributions, and a batch for each cell.

    Case "empty" has cells and genes without counts, and a gene that is 2 in every cell.
    """
    rng = np.random.RandomState(CASES.index(case))
    rates = rng.gamma(0.5, 1, (N_CELLS, 6)) @ rng.gamma(0.3, 1, (6, N_GENES)) * rng.gamma(2, 0.5, (N_CELLS, 1))
    batch = BATCHES[rng.randint(0, 3, N_CELLS)]
    values = rng.poisson(rates * (0.7 / rates.mean()) * (1 + 0.5 * (batch == "b")[:, np.newaxis]))
    if case == "empty":
        values[[5, 20]] = 0
        values[:, [7, 11]] = 0
        values[:, 30] = 2
    return values, batch
