"""load and from_bytes for every model: importing the rooms is what registers their kinds with io."""

import fastsketch.sketching  # noqa: F401
from fastsketch.io._state import from_bytes, load

__all__ = ["from_bytes", "load"]
