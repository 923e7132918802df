"""The members of the Frequent Directions family: which rows a shrink spares, and how its result is read.

The shrink finds the eigenvalues lambda_1 >= lambda_2 >= ... of F F' and removes delta = lambda_l. Every method keeps
l - 1 rows; `spared` of them keep their length, the longest or those that a ledger names, the others lose delta.
"""

from dataclasses import dataclass
from typing import Final, Literal

MethodName = Literal["fd", "pfd", "cfd", "isvd", "rfd", "tfd"]


@dataclass(frozen=True)
class Method:
    """One member of the family."""

    share_lowered: float = 1.0  # of the rows, those that a shrink shortens, unless a beta is given
    takes_beta: bool = False
    compensates: bool = False  # the read-out adds Delta to every squared singular value
    tracks: bool = False  # a ledger says what the directions hold, and which rows a shrink spares
    regularises: bool = False  # alpha = alpha0 + Delta / 2 stands for the removed part

    def error_bound(self, shrinkage: float) -> float:
        """Return a bound on || A'A (+ alpha0 I) - estimate ||_2 that needs no second look at the rows."""
        return shrinkage / 2 if self.regularises else shrinkage


METHODS: Final[dict[str, Method]] = {
    "fd": Method(),
    # 0.2 as in the RFD paper (section 6.2)
    "pfd": Method(0.2, takes_beta=True),
    "cfd": Method(compensates=True),
    "isvd": Method(0.0),
    "rfd": Method(regularises=True),
    # With l = 2 k + 10 more than k rows are then shrunk, so that k weak directions that come late are not lost, for k
    # up to 35. Less loses them; more costs accuracy of the read-out (docs/read-outs.md).
    "tfd": Method(0.45, takes_beta=True, tracks=True),
}
