"""What tests of the command line share."""

import pytest

from fastsketch.cli import main


@pytest.fixture
def run(capfd, tmp_path, monkeypatch):
    """Run a command in a folder of its own, and return what it has printed."""
    monkeypatch.chdir(tmp_path)

    def run(*args, status=0):
        try:
            got = main([str(arg) for arg in args])
        except SystemExit as stop:  # argparse
            got = stop.code
        out = capfd.readouterr()
        assert got == status, (args, out.err)
        return out

    return run
