"""The members of the Frequent Directions family: which rows a shrink spares, and how its result is read.

The shrink finds the eigenvalues lambda_1 >= lambda_2 >= ... of F F' and removes delta = lambda_l. Every method keeps
l - 1 rows; `spared` of them keep their length, the longest or those that a ledger names, the others lose delta.
"""

from dataclasses import dataclass
from typing import Final, Literal

MethodName = Literal["fd", "pfd", "cfd", "isvd", "rfd", "tfd"]

# The share of squared singular values that PFD shrinks; 0.2 as in the RFD paper (section 6.2).
DEFAULT_BETA: Final = 0.2

# Of TFD: with l = 2 k + 10 more than k rows are then shrunk, so that k weak directions that come late are not lost, for
# k up to 35. Less loses them; more costs accuracy of the read-out (docs/read-outs.md).
TRACKED_BETA: Final = 0.45

DEFAULT_BETAS: Final = {"pfd": DEFAULT_BETA, "tfd": TRACKED_BETA}


@dataclass(frozen=True)
class Method:
    """One member of the family."""

    title: str
    compensates: bool = False  # the read-out adds Delta to every squared singular value
    tracks: bool = False  # a ledger says what the directions hold, and which rows a shrink spares
    lowers_all: bool = True  # every direction loses delta at every shrink
    regularises: bool = False  # alpha = alpha0 + Delta / 2 stands for the removed part

    def error_bound(self, shrinkage: float) -> float:
        """Return a bound on || A'A (+ alpha0 I) - estimate ||_2 that needs no second look at the rows."""
        return shrinkage / 2 if self.regularises else shrinkage


METHODS: Final[dict[str, Method]] = {
    "fd": Method("Frequent Directions"),
    "pfd": Method("Parameterized FD", lowers_all=False),
    "cfd": Method("Compensative FD", compensates=True),
    "isvd": Method("Iterative SVD", lowers_all=False),
    "rfd": Method("Robust FD", regularises=True),
    "tfd": Method("Tracked FD", tracks=True, lowers_all=False),
}


def share_lowered(method: str, *, beta: float | None = None) -> float:
    """Return the share of rows that a shrink shortens: all for FD, none for iSVD, floor(beta l) for PFD and TFD."""
    if method == "isvd":
        return 0.0
    if method in DEFAULT_BETAS:
        return DEFAULT_BETAS[method] if beta is None else beta
    return 1.0
