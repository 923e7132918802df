"""The variants of Frequent Directions: which rows each of them shortens in a shrink, and how its result is read.

A shrink of the buffer F computes the eigenvalues lambda_1 >= lambda_2 >= ... of F F' and delta = lambda_l. Every method
retains l - 1 rows. Some keep their length: the longest, or those with most of A'A according to a log of removed mass.
From the squared lengths of the others delta is subtracted.
"""

from dataclasses import dataclass
from typing import Final, Literal

MethodName = Literal["fd", "pfd", "cfd", "isvd", "rfd", "tfd"]


@dataclass(frozen=True)
class Method:
    """One variant of Frequent Directions: which rows a shrink shortens, and how results follow from the shrinkage."""

    share_lowered: float = 1.0  # share of the rows that a shrink shortens, unless a beta is given
    takes_beta: bool = False
    compensates: bool = False  # the read-out adds Delta to every squared singular value
    tracks: bool = False  # a log of removed mass selects the rows that keep their length
    regularises: bool = False  # alpha = alpha0 + Delta / 2 replaces half of what was removed

    def error_bound(self, shrinkage: float) -> float:
        """Return the bound on the spectral norm of A'A - B'B that this method guarantees.

        `shrinkage` is the total that shrinks have subtracted.
        """
        return shrinkage / 2 if self.regularises else shrinkage


METHODS: Final[dict[str, Method]] = {
    "fd": Method(),
    # 0.2 as in the RFD paper (section 6.2)
    "pfd": Method(0.2, takes_beta=True),
    "cfd": Method(compensates=True),
    "isvd": Method(0.0),
    "rfd": Method(regularises=True),
    # With l = 2 k + 10 and k up to 35 more than k rows are then shortened, so that k weak directions that appear late
    # are not lost. A smaller share loses them; a larger one makes the spectrum less accurate (docs/read-outs.md).
    "tfd": Method(0.45, takes_beta=True, tracks=True),
}
