"""The main jobs on real input: ``python examples/demo --output FOLDER`` (extras: sklearn, plot)."""
