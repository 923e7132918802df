"""Models that merge, on Dask (extra: dask): one task a partition, and a tree of merges.

The result does not depend on how many workers there are; its bits are the same where they are machines of one kind.
"""

from fastsketch.jobs.dask._jobs import fit, refine

__all__ = ["fit", "refine"]
