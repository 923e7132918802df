# The one declaration of what online models and their loops know by number: Cython cimports it, Numba and Python import
# the same integers from fastsketch._kernels.online.numbers.

cpdef enum:
    # Entries of `count` (int64); of an adaptive model, then of a Newton model.
    RANK = 0               # directions held
    ROWS = 1               # rows held: of C (adaptive), of X (Newton)
    ROUND = 2              # examples seen
    OLD = 3                # columns of Z in C = [F Z'; X]
    TURNS = 4              # turns of T since the last polish
    COUNTS = 5             # how many there are

cpdef enum:
    MISTAKES = 3           # signs predicted wrongly
    FULL = 4               # rank + 1 where a shrink must follow; -1: numbers would leave their range
    APPENDED = 5           # gradients taken in by a sketch whose rows all change
    NEWTON_COUNTS = 6

cpdef enum:
    # Entries of `scalar` (float64) of a Newton model.
    ALPHA = 0              # regulariser of H
    SHRINKAGE = 1          # sum of the squared lengths that shrinks removed
    LOSS = 2               # cumulative loss
    NEWTON_SCALARS = 3

cpdef enum:
    # Entries of `fading` (float64) of a Newton model.
    FADED = 0              # what B'B + alpha I as stored is to be multiplied with, of which ALPHA already is
    FLOOR = 1              # alpha is put back to it when it has faded to less than half
    TAKEN = 2              # how much has faded in F Z' since Z was computed as a whole, of squares
    FADINGS = 3

cpdef enum:
    # Which predictions a Newton model keeps within [-1, 1].
    UNCONSTRAINED = 0
    CURRENT = 1            # of the example just learned from
    NEXT = 2               # of the next one, before it is predicted
    BOTH = 3

cpdef enum:
    # What limits the rank of an adaptive sketch: a shrink in every round, a shrink at twice its size, nothing but d.
    EVERY_ROUND = 0
    WHEN_FULL = 1
    NEVER = 2

cpdef enum:
    # Methods with a diagonal H.
    DIAGONAL = 0
    GRADIENT = 1
    ADAM = 2
