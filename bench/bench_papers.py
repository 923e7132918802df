"""The papers' learners: by `fastsketch.papers` where that has them, otherwise with its settings."""

import fastsketch as fs
from fastsketch import papers

# Rows as they come, no intercept, nothing read out of the scores.
PLAIN = {"scale": None, "fit_intercept": False, "calibrate": False, "blend": False}
# The RFD paper's: (z - y)^2, scores cut at 1.
NEWTON = {"loss": "square", "loss_scale": 2.0, "constraint": "current", **PLAIN}


def newton(method, size, alpha0):
    """Return RFD-SON, FD-SON or PFD-SON of the RFD paper by their method, "rfd", "fd" or "pfd"."""
    if method == "rfd":
        return papers.rfd_son(size, alpha0=alpha0)
    return fs.SketchedNewton(size, method=method, alpha0=alpha0, **NEWTON)


def adaptive(method, sketch_size, **options):
    """Return a learner of the ADA-FD paper by its method."""
    if hasattr(papers, method):
        return getattr(papers, method)(sketch_size, **options)
    return fs.AdaptiveSubgradient(sketch_size, method=method, **PLAIN, **options)
