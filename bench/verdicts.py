"""Verdicts on the papers' figures and tables, computed from stored results: ``{{ verdict NAME }}`` in a page.

bench/claims.toml holds what a paper prints: an order of methods, or numbers. A pair of an order agrees if the method
that the paper has ahead is ahead here by more than both spreads together, is level if the difference is within them,
and disagrees otherwise. A number agrees if it differs by at most both spreads together.
"""

import math
import tomllib
from itertools import combinations, product
from pathlib import Path

CLAIMS = Path(__file__).with_name("claims.toml")
MOST_SHOWN = 3


class ClaimError(ValueError):
    """Error of a claim that cannot be compared with the stored results."""


def claims():
    """Return the claims by name."""
    return tomllib.loads(CLAIMS.read_text(encoding="utf-8"))


def value_and_spread(cell):
    """Split "309 +- 9" into numbers; a run that diverged, or has no number, is infinitely bad (None)."""
    words = cell.split("(")[0].replace(",", "").split("+-")
    try:
        return float(words[0].rstrip("% ")), float(words[1].rstrip("% ")) if len(words) > 1 else 0.0
    except ValueError:
        return None, 0.0


def sign(better, worse, best):
    """Return 1 if the first cell is ahead by more than both spreads, 0 within them, -1 if it is behind."""
    (x, dx), (y, dy) = value_and_spread(better), value_and_spread(worse)
    if x is None or y is None:
        return (y is None) - (x is None)
    ahead = y - x if best == "smallest" else x - y
    return 0 if abs(ahead) <= dx + dy else int(math.copysign(1, ahead))


def pairs(claim, table):
    """Yield (where, better, worse, sign) of every pair of an order whose two cells are in the table."""
    place = {name: k for k, name in enumerate(table["columns"])}
    conditions, each = claim.get("where", {}), claim.get("each", [])
    by = [name.strip() for name in claim["by"].split(", ")] if "by" in claim else []
    cells = {}
    for row in table["rows"]:
        if all(row[place[name]] in values for name, values in conditions.items()):
            group, method = tuple(row[place[name]] for name in each), ", ".join(row[place[name]] for name in by)
            for column in claim["columns"]:
                key = (group, method, column) if by else (group, column, "")
                cells[key] = row[place[column]]
    of_groups = {(group, column if by else "") for group, _, column in cells}
    for (group, column), (ahead, behind) in product(sorted(of_groups), combinations(claim["order"], 2)):
        for better, worse in product(ahead, behind):
            keys = (group, better, column), (group, worse, column)
            if all(cells.get(key) for key in keys):
                where = (*group, column) if len(claim["columns"]) > 1 else group
                yield ", ".join(filter(None, where)), better, worse, sign(*map(cells.get, keys), claim["best"])


def of_order(name, claim, table):
    """Return (short verdict, what stands in brackets behind it)."""
    found = list(pairs(claim, table))
    if not found:
        raise ClaimError(f"no pair of the claim {name!r} is in its table")
    agree, level = (sum(pair[3] == value for pair in found) for value in (1, 0))
    against = [pair for pair in found if pair[3] < 0]
    count = f"{agree} of {len(found)} pairs" + (f", {level} within the spread" if level else "")
    places = [f"{better} behind {worse}" + (f" ({where})" if where else "") for where, better, worse, _ in against]
    shown = "; ".join(places[:MOST_SHOWN])
    more = f" and {len(against) - MOST_SHOWN} more" if len(against) > MOST_SHOWN else ""
    if not against:
        return ("same order" if agree else "level"), count
    if claim.get("most") and agree > len(found) / 2:
        return "same order in most cases", count
    return ("other order" if len(against) > agree else "same order in part"), f"{count}; {shown}{more}"


def of_numbers(claim, cell):
    """Return (short verdict, what stands in brackets behind it); `cell` looks up a reference."""
    differences, within = [], 0
    for reference, printed in claim["numbers"]:
        (here, spread), (paper, theirs) = value_and_spread(cell(reference)), value_and_spread(printed)
        differences.append(here - paper)
        within += abs(here - paper) <= spread + theirs + 1e-12
    short = {0: "other numbers", len(differences): "agrees within the spread"}.get(within, "agrees in part")
    reach = f"differences {min(differences):+.3g} to {max(differences):+.3g}"
    return short, f"{within} of {len(differences)} cells within the spread, {reach}"


def verdict(name, table, cell):
    """Return (what the paper says, short verdict, details); `table` and `cell` look up stored results."""
    claim = claims().get(name)
    if claim is None:
        raise ClaimError(f"no claim {name!r} in {CLAIMS.name}")
    short, details = of_numbers(claim, cell) if "numbers" in claim else of_order(name, claim, table(claim["table"]))
    return f"{claim['paper']}: {claim['says']}", short, details
