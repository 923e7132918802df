"""How facts are printed."""

import json
import math
from argparse import Namespace
from typing import Any, cast

from fastsketch.cli._output import Output

# A fact that is printed in lines of its own, and plotted.
SPECTRUM = "singular_values"
# Names of columns or classes that the text lists; JSON has them all.
MOST_NAMES = 20


def finite(value: Any) -> Any:
    """Return the same with None for infinities and NaN: JSON has neither."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [finite(item) for item in cast(list[Any], value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def report(args: Namespace, facts: dict[str, Any], out: Output | None = None) -> None:
    """Print facts as JSON, or as text, a line each; a spectrum is left out of the text."""
    say = (out or Output(None, "")).say
    if args.json:
        say(json.dumps(finite(facts)))
        return
    shown = {name: value for name, value in facts.items() if name != SPECTRUM}
    width = max(map(len, shown))
    texts = [f"{value:,.0f}" if name == "rows_per_second" else as_text(value) for name, value in shown.items()]
    heads = [name.replace("_", " ").ljust(width) for name in shown]
    say("\n".join(map("  ".join, zip(heads, texts, strict=True))))


def as_text(value: Any) -> str:
    """Return a fact on one line."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, dict):
        named = cast(dict[str, Any], value)
        return ", ".join(f"{name}={as_text(item)}" for name, item in named.items() if item is not None)
    if not isinstance(value, list):
        return str(value)
    items = cast(list[Any], value)
    many = len(items) > MOST_NAMES and all(isinstance(item, str) for item in items)
    text = ", ".join(map(as_text, items[: MOST_NAMES if many else None]))
    return f"{text}, ... ({len(items):,})" if many else text
