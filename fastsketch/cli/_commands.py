"""sketch, merge, info and demo."""

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import fastsketch as fs
from fastsketch._model import MergeableModel
from fastsketch.cli._job import given, learn, limited
from fastsketch.cli._output import output_of
from fastsketch.cli._progress import Progress
from fastsketch.cli._report import SPECTRUM, finite, report
from fastsketch.io import StateError
from fastsketch.sketching import FrequentDirections

# Notes of a model with the ids of its rows and columns: as long as its data.
ID_LISTS = ("rows", "columns")


def sketch(args: Namespace) -> None:
    """Sketch files into one state file, with checkpoints."""
    with output_of(args) as out:
        _, facts = learn(args, FrequentDirections(**given(args)), out)
        report(args, facts, out)


def merge(args: Namespace) -> None:
    """Merge state files of models of one kind."""
    with output_of(args, over_input=True) as out:
        with limited(args.threads):
            models = [_mergeable(path) for path in args.inputs]
            for path, other in zip(args.inputs[1:], models[1:], strict=True):
                try:
                    models[0].copy().merge(other)
                except (TypeError, ValueError) as error:
                    raise ValueError(f"{path}: {error}") from None
            merged = fs.merge(models)
            merged.notes = {"merged": [Path(path).name for path in args.inputs]}
            out.save(merged)
            facts = merged.facts()
        report(args, {**facts, "output": args.output}, out)


def _mergeable(path: str) -> MergeableModel:
    model = fs.load(path)
    if not isinstance(model, MergeableModel):
        raise StateError(f"{path} holds a {type(model).__name__}, which does not merge")
    return model


def info(args: Namespace) -> None:
    """Show the facts of a model in a state file."""
    if args.top < 0:
        raise ValueError(f"--top must not be negative, got {args.top}")
    with limited(args.threads):
        model = fs.load(args.input)
        facts: dict[str, Any] = model.facts()
    if args.plot:
        if SPECTRUM not in facts:
            raise ValueError(f"--plot draws the spectrum of a sketch; {args.input} holds a {facts['kind']}")
        from fastsketch._plot import plot_spectrum

        plot_spectrum(facts, args.plot)
    if args.json:
        notes = {name: note for name, note in model.notes.items() if name not in ID_LISTS}
        print(json.dumps(finite({**facts, "notes": notes})))
        return
    report(args, facts)
    values: list[float] = facts.get(SPECTRUM, [])
    if values:
        print(f"singular values ({min(args.top, len(values))} of {len(values)}):")
        longest = values[0] or 1.0
        for value in values[: args.top]:
            print(f"  {value:12.6g}  {'#' * round(40 * value / longest)}")


def demo(args: Namespace) -> None:
    """Run the main jobs on photographs and handwritten digits."""
    from fastsketch.demo import run_demo

    progress = Progress("sketch")
    with limited(args.threads):
        facts = run_demo(
            args.output,
            sketch_size=args.sketch_size,
            say=_silent if args.json else print,
            progress=progress.show,
        )
    if args.json:
        print(json.dumps(finite(facts)))


def _silent(_: str) -> None:
    pass
