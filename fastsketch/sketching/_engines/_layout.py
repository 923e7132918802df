"""Names for the entries of the two scalar arrays that the kernels update (the same numbers: _kernels/state.pxd)."""

SHRINKAGE, SQUARED_NORM, WEIGHT, SETTLED_WEIGHT, ROUNDING, BOOK_SIZE = range(6)
FILL, KEPT, AGE, N_ROWS, EXPONENT, TOP, COUNT_SIZE = range(7)
SOLVERS = {"gram": 0, "svd": 1, "exact": 2}

# Below every binary exponent of a float: "no entry other than zero seen yet".
NOTHING_SEEN = -(2**20)
