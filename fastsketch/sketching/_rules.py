"""What sets the members of the Frequent Directions family apart: which rows a shrink spares, and how it is read.

The shrink finds the eigenvalues lambda_1 >= lambda_2 >= ... of F F' and removes delta = lambda_l. Every rule keeps
l - 1 rows; the first `spared` of them keep their length, the others lose delta.
"""

from dataclasses import dataclass
from math import floor


@dataclass(frozen=True)
class Rule:
    """One member of the family."""

    title: str
    compensates: bool = False  # the read-out adds Delta to every squared singular value
    regularises: bool = False  # alpha = alpha0 + Delta / 2 stands for what was removed

    def error_bound(self, shrinkage):
        """Bound on || A'A (+ alpha0 I) - estimate ||_2 that needs no second look at the rows."""
        return shrinkage / 2 if self.regularises else shrinkage


RULES = {
    "fd": Rule("Frequent Directions"),
    "pfd": Rule("Parameterized FD"),
    "cfd": Rule("Compensative FD", compensates=True),
    "isvd": Rule("Iterative SVD"),
    "rfd": Rule("Robust FD", regularises=True),
}


def rows_spared(rule, sketch_size, beta):
    """Rows that keep their length in a shrink: none for FD, all for iSVD, l - floor(beta l) for PFD-beta."""
    if rule == "isvd":
        return sketch_size
    if rule == "pfd":
        return sketch_size - floor(beta * sketch_size)
    return 0
