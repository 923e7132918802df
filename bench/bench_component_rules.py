"""Which rule one pass should follow: every rule on every set, in one pass and after an extra one."""

from typing import NamedTuple

import numpy as np

import fastsketch as fs
from bench_component_sets import captured

RULES = {  # label: method, beta
    "FD": ("fd", None),
    "PFD 0.1": ("pfd", 0.1),
    "PFD 0.5": ("pfd", 0.5),
    "iSVD": ("isvd", None),
    "TFD 0.2": ("tfd", 0.2),
    "TFD 0.4": ("tfd", 0.4),
    "TFD 0.45": ("tfd", 0.45),
    "TFD 0.5": ("tfd", 0.5),
}


class Reading(NamedTuple):
    """What the spectrum of a sketch says of the k leading eigenvalues."""

    worst: float  # relative error
    deficit: float  # of captured variance
    certificate: float
    outside: int  # true eigenvalues outside their interval


def reading(sketch, rows, truth, k):
    spectrum, true = sketch.spectrum(), truth.eigenvalues[:k]
    values = np.concatenate([spectrum.values[:k], np.zeros(max(0, k - len(spectrum.values)))])
    low, high = spectrum.low[:k], spectrum.high[:k]
    slack = 1e-10 * true[0]
    return Reading(
        float(np.abs(values / true - 1).max()),
        max(0.0, float((true.sum() - captured(rows, spectrum.vectors[:k])) / truth.total)),
        float(sketch.error_bound),
        int(np.sum((true[: len(low)] < low - slack) | (true[: len(high)] > high + slack))),
    )


def rules_on(rows, truth, k, *, refine):
    """{rule: (Reading of one pass, Reading after an extra one or None)} with sketches of 2 k + 10 rows."""
    out = {}
    for label, (method, beta) in RULES.items():
        sketch = fs.FrequentDirections(2 * k + 10, method=method, beta=beta, solver="gram", center=True)
        once = reading(sketch.update(rows), rows, truth, k)
        out[label] = once, reading(sketch.refine(rows), rows, truth, k) if refine else None
    return out


def frontier(cases, share):
    """A line a rule: of each target the worst value and how many cases meet it."""

    def cell(values, limit, shown):
        values = list(values)
        return f"{shown(max(values))} ({sum(v <= limit for v in values)} of {len(values)})" if values else ""

    cases = [case for case in cases if case.rules]
    of = {kind: [c for c in cases if c.kind == kind] for kind in ("image", "sensor", "text", "noise", "drift")}
    pictures, exact = of["image"] + of["sensor"], [c for c in cases if c.name in ("MNIST", "Isolet")]
    ratio, small = "{:.2f}".format, "{:.1e}".format
    out = []
    for rule in RULES:

        def once(case, rule=rule):
            return case.rules[rule][0]

        def again(case, rule=rule):
            return case.rules[rule][1]

        out.append(
            {
                "rule": rule,
                "images and sensors (3%)": cell((once(c).worst for c in pictures), 0.03, share),
                "text (7%)": cell((once(c).worst for c in of["text"]), 0.07, share),
                "flat noise (15%)": cell((once(c).worst for c in of["noise"]), 0.15, share),
                "drift: deficit / FD's with ledger (2)": cell(
                    (once(c).deficit / c.ledger for c in of["drift"]), 2.0, ratio
                ),
                "certificate / FD's (1.5)": cell((once(c).certificate / c.fd for c in cases if c.fd > 0), 1.5, ratio),
                "extra pass: MNIST, Isolet (0.1%)": cell((again(c).worst for c in exact), 1e-3, share),
                "their deficit (1e-5)": cell((again(c).deficit for c in exact), 1e-5, small),
                "text (1%)": cell((again(c).worst for c in of["text"]), 0.01, share),
                "outside intervals": sum(found.outside for c in cases for found in c.rules[rule] if found),
            }
        )
    return out
