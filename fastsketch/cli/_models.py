"""The subcommands info, which prints counts and parameters of a model, and merge, which merges models."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fastsketch as fs
from fastsketch._frame.model import MergeableModel
from fastsketch.cli._flags import Verb, flag
from fastsketch.cli._output import SPECTRUM, open_output
from fastsketch.cli._reading import common_reading_notes, load_model
from fastsketch.sketching import FrequentDirections

# The note of an item model about the meaning of its events. Models are merged only if it is equal.
EVENTS = "events"


@dataclass(kw_only=True)
class Info(Verb):
    """Print the counts and parameters of a model or an index, and the certificate and spectrum of a sketch.

    Parameters
    ----------
    inputs : IN.fsk
    top : K
        number of singular values and row lengths to print (default 10)

    Examples
    --------
    fastsketch info all.fsk --json
    """

    inputs: str = flag()
    top: int = flag("--top", type=int, default=10)

    def run(self) -> None:
        """Print counts, parameters and error bounds of the model in a state file."""
        if self.top < 0:
            raise ValueError(f"--top must not be negative, got {self.top}")
        with open_output(self) as out:
            model = load_model(self.inputs)
            facts: dict[str, Any] = model.facts()
            intervals: dict[str, list[float]] = {}
            if isinstance(model, FrequentDirections) and model.n_features is not None:
                spectrum = model.spectrum()
                intervals = {name: np.sqrt(getattr(spectrum, name)).tolist() for name in ("values", "low", "high")}
            if self.json:
                notes = {"notes": model.notes} if hasattr(model, "notes") else {}
                out.report({**facts, **({"spectrum": intervals} if intervals else {}), **notes})
                return
            out.report(facts)
            self._show_spectra(intervals, facts.get(SPECTRUM, []), isinstance(model, FrequentDirections))

    def _show_spectra(self, intervals: dict[str, list[float]], values: list[float], sketched: bool) -> None:
        """Print intervals of the rows' singular values, and the singular values or row lengths stored in the model."""
        if intervals:
            triples = list(zip(*intervals.values(), strict=True))
            counts_text = f"{min(self.top, len(triples))} of {len(triples)}"
            print(f"singular values of the rows: estimate, low and high end ({counts_text}):")
            for triple in triples[: self.top]:
                print("".join(f"  {number:12.6g}" for number in triple))
        if values:
            title = "lengths of the rows of B" if sketched else "singular values"
            print(f"{title} ({min(self.top, len(values))} of {len(values)}):")
            print(*(f"  {value:12.6g}" for value in values[: self.top]), sep="\n")


@dataclass(kw_only=True)
class Merge(Verb):
    """The command `merge`, which merges saved models of one kind and equal parameters into one model file.

    Parameters
    ----------
    inputs : IN.fsk
    output : OUT.fsk
        file for the model, or -

    Examples
    --------
    fastsketch sketch more.npy -l 8 --center -o - | fastsketch merge rows.fsk - -o all.fsk
    """

    inputs: list[str] = flag(nargs="+")
    output: str = flag("-o", "--output", required=True)

    def run(self) -> None:
        """Merge the models in state files, and save the result."""
        with open_output(self, over_input=True) as out:
            models = [load_model(path, MergeableModel, ", which does not merge") for path in self.inputs]
            meaning = models[0].notes.get(EVENTS)
            for path, model in zip(self.inputs[1:], models[1:], strict=True):
                if model.notes.get(EVENTS) != meaning:
                    raise ValueError(
                        f"{path}: its events have another meaning (--relevant, --binary) than those of {self.inputs[0]}"
                    )
                try:
                    models[0].copy().merge(model)
                except (TypeError, ValueError) as error:
                    raise ValueError(f"{path}: {error}") from None
            merged = fs.merge(models)
            merged.notes = {"merged": [Path(path).name for path in self.inputs]}
            merged.notes |= common_reading_notes([model.notes for model in models])
            merged.notes |= {} if meaning is None else {EVENTS: meaning}
            out.save(merged)
            out.report(merged.facts())
