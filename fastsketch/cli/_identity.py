"""Which job a partial result belongs to: its inputs by size and sampled content, and every switch that counts."""

import json
from argparse import Namespace
from collections.abc import Sequence
from typing import Any, cast

from fastsketch._model import plain
from fastsketch.sources import Source

# Switches that are written only where they are something else.
UNWRITTEN: dict[str, Any] = {
    "names": None,
    "binary": False,
    "target": None,
    "header": None,
    "separator": None,
    "decimal": None,
    "categorical": None,
    "numeric": None,
    "ignore": None,
    "missing": "feature",
}

Identity = dict[str, Any]


def identity(args: Namespace, model: Any, sources: Sequence[Source]) -> Identity:
    """What json can write and two runs of one job have in common; `model` has seen no rows."""
    switches = {
        "regression": bool(getattr(args, "regression", False)),
        "zero_based": bool(args.zero_based),
        "n_features": sources[0].n_features,
    }
    switches |= {name: getattr(args, name) for name, usual in UNWRITTEN.items() if getattr(args, name, usual) != usual}
    return {
        "kind": type(model).__name__,
        "parameters": _as_read(plain(model.parameters)),
        "resolved": _as_read(plain(model.resolved)),  # a default of another version of the library may be another
        "switches": switches,
        "inputs": [source.identity() for source in sources],
    }


def _as_read(value: Any) -> Any:
    """As it is when json has written and read it: tuples are lists."""
    return json.loads(json.dumps(value))


def differences(now: Identity, then: Identity) -> list[str]:
    """In what two jobs differ, each in words; files that were only moved or touched do not."""
    found: list[str] = []
    for part in ("switches", "parameters", "resolved"):
        mine, theirs = now[part], cast(dict[str, Any], then[part])
        for name in {**mine, **theirs}:
            one, other = (written.get(name, UNWRITTEN.get(name)) for written in (mine, theirs))
            if one != other and not any(text.startswith(f"{_flag(name)} ") for text in found):
                found.append(f"{_flag(name)} is {_shown(one)} now and was {_shown(other)}")
    if len(now["inputs"]) != len(then["inputs"]):
        return [*found, f"there are {len(now['inputs'])} inputs now and were {len(then['inputs'])}"]
    for mine, theirs in zip(now["inputs"], then["inputs"], strict=True):
        if mine["format"] != theirs["format"]:
            found.append(f"{mine['path']} takes the place of {theirs['path']}")
        elif mine["bytes"] != theirs["bytes"]:
            found.append(f"{mine['path']} has {mine['bytes']:,} bytes now and had {theirs['bytes']:,}")
        elif mine["digest"] != theirs["digest"]:
            found.append(f"the content of {mine['path']} is not what it was")
    return found


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)


def to_compare(now: Identity, then: Identity) -> list[int]:
    """The inputs of the same size and sampled digest that are another file, or were written to since."""
    pairs = zip(now["inputs"], then["inputs"], strict=True)
    return [
        index
        for index, (mine, theirs) in enumerate(pairs)
        if any(mine[name] != theirs[name] for name in ("path", "modified"))
    ]
