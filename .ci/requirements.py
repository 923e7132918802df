"""Prints what fastsketch and its named extras need, one requirement a line, for `pip install -r`."""

import sys
import tomllib
from pathlib import Path


def needed(project, extras):
    for extra in extras:
        for line in project["optional-dependencies"][extra]:
            if line.startswith("fastsketch["):
                yield from needed(project, line[len("fastsketch[") : -1].split(","))
            else:
                yield line
    yield from project["dependencies"]


if __name__ == "__main__":
    project = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text())["project"]
    print(*dict.fromkeys(needed(project, sys.argv[1:])), sep="\n")
