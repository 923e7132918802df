# Layout of the two small arrays that carry a sketch's scalars through the kernels (see sketching/_layout.py,
# which names the same numbers for Python).

cdef enum:
    # book: float64
    SHRINKAGE = 0          # Delta, the sum of the squared singular values removed
    SQUARED_NORM = 1       # sum of squared norms of the (weighted, centred, decayed) rows
    WEIGHT = 2             # sum of the (decayed) weights of all rows seen
    SETTLED_WEIGHT = 3     # the part of WEIGHT that `mean` already contains (centred sketches)
    ROUNDING = 4           # square of the allowance for rounding in the certificate
    BOOK_SIZE = 5

    # count: int64
    FILL = 0               # rows in the buffer: kept + new
    KEPT = 1               # rows at the top of the buffer that a shrink or a merge left there
    AGE = 2                # shrinks since the Gram matrix of the kept rows was computed in full; -1: never
    N_ROWS = 3             # rows seen
    EXPONENT = 4           # everything is stored divided by 2**EXPONENT (squares by 4**EXPONENT)
    TOP = 5                # binary exponent of the largest |entry| seen
    COUNT_SIZE = 6

    # solver
    GRAM = 0
    SVD = 1
    EXACT = 2

    # The kept rows are orthogonal by construction, up to rounding that adds up from shrink to shrink.  Computing
    # their Gram matrix in full every REFRESH shrinks costs 1 part in 7 * REFRESH and stops the drift, which
    # in float32 would otherwise bias the shrinkage.
    REFRESH = 16

    # One shrink may be off by this many units of rounding of the largest eigenvalue. Measured on 500 streams and their
    # merges: up to 12, mostly the eigenvectors' lack of orthogonality, which is LAPACK's own; far less in long streams,
    # where the Gram matrix is nearly diagonal.
    ROUNDING_PER_SHRINK = 16
