"""Warnings that name the line of the program which called the library."""

import inspect
import warnings

# Packages whose frames are passed over: this one, and those through which its own functions are called: scikit-learn
# wraps methods of estimators, joblib runs the steps of pipelines, and contextlib the functions that it decorates.
PASSED_OVER = ("fastsketch", "sklearn", "joblib", "contextlib")


def warn_caller(message: str, category: type[UserWarning] = UserWarning) -> None:
    """Write a warning at the innermost line of code outside of this library.

    ``warnings.warn`` counts frames from its own caller; ``skip_file_prefixes``, which would pass over them by their
    files, came with Python 3.12.
    """
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in PASSED_OVER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
