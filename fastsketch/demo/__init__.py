"""The main jobs on real input: what ``fastsketch demo`` runs (extras: sklearn, plot)."""

from fastsketch.demo._run import run_demo

__all__ = ["run_demo"]
