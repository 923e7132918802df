"""A warning function that names the line of the user's program."""

import inspect
import warnings

# Packages whose frames are skipped: this one, and those that call its functions: scikit-learn wraps methods of
# estimators, joblib runs the steps of pipelines, and contextlib the functions that it decorates.
PASSED_OVER = ("fastsketch", "sklearn", "joblib", "contextlib")


def warn_caller(message: str, category: type[UserWarning] = UserWarning) -> None:
    """Warn the user, naming the innermost line of code outside of this library.

    ``skip_file_prefixes`` of ``warnings.warn`` would do the same, but needs Python 3.12.
    """
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in PASSED_OVER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
