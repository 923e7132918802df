"""One line of progress on a terminal."""

from fastsketch.jobs._progress import Line as Progress

__all__ = ["Progress"]
