"""What an estimator has begun with, and later calls cannot change."""

# scikit-learn has no types.
# pyright: basic

from os import PathLike
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from fastsketch._sparse import as_csr
from fastsketch._validation import is_sparse
from fastsketch.sources import Source


def checked(estimator: BaseEstimator, X: Any, *, sum_duplicates: bool = True, **options: Any) -> Any:
    """validate_data for an estimator that takes CSR: scipy converts and stacks sparse arrays without a look at them."""
    if isinstance(X, str | PathLike | Source):  # to scikit-learn a word that is no number
        raise TypeError(
            f"X is {'a source' if isinstance(X, Source) else 'the name of a file'}, and this method takes rows: "
            "fs.map_rows(estimator.transform, X, output=...) writes what a method says of each"
        )
    if is_sparse(X) and X.ndim == 2:  # scikit-learn has a message of its own for others
        X = as_csr(X, "X", sum_duplicates=sum_duplicates)
    return validate_data(estimator, X, accept_sparse="csr", **options)


class Begun(BaseEstimator):
    """An estimator whose partial_fit goes on with the parameters of its first call, those in _FREE excepted."""

    _FREE: ClassVar[frozenset[str]] = frozenset()

    def _fix_parameters(self) -> None:
        """Keep the parameters with which learning begins."""
        self._fixed = {name: value for name, value in self.get_params(deep=False).items() if name not in self._FREE}

    def _check_parameters(self) -> None:
        """Raise ValueError naming a parameter that is no longer what learning began with."""
        for name, fixed in getattr(self, "_fixed", {}).items():
            value = getattr(self, name)
            if value is not fixed and not np.all(value == fixed):
                raise ValueError(
                    f"{name} is {value!r} but learning began with {name}={fixed!r}, which partial_fit cannot change: "
                    "set it back, or begin again with fit"
                )
