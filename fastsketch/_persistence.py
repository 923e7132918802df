"""load and from_bytes for every model: importing the rooms is what registers their kinds with io."""

import fastsketch.hashing  # noqa: F401
import fastsketch.lowrank  # noqa: F401
import fastsketch.online  # noqa: F401
import fastsketch.sketching  # noqa: F401
from fastsketch.io._state import from_bytes, load

__all__ = ["from_bytes", "load"]
