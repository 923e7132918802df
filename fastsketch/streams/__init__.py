"""Tools for streams that change: windows of the latest rows, alarms, and comparisons of two sketches."""

from fastsketch.streams._compare import Comparison, compare
from fastsketch.streams._drift_monitor import Alarm, Carried, DriftMonitor
from fastsketch.streams._window import Window

__all__ = ["Alarm", "Carried", "Comparison", "DriftMonitor", "Window", "compare"]
