"""The main jobs on real input, run by ``fastsketch demo`` (extras: sklearn, plot)."""

from fastsketch.cli.demo._demo_run import run_demo

__all__ = ["run_demo"]
