"""sketch, merge and info."""

import json
from dataclasses import asdict
from pathlib import Path

import fastsketch as fs
from fastsketch.cli._job import finite, learn, limited, load_model, report, writable
from fastsketch.sketching import FrequentDirections


# -- sketch ------------------------------------------------------------------------------------------------------------
def sketch(args):
    """Sketch files into one state file, with checkpoints."""
    model = FrequentDirections(
        args.sketch_size,
        rule=args.rule,
        alpha0=args.alpha0,
        beta=args.beta,
        buffer_size=args.buffer_size,
        solver=args.solver,
        center=args.center,
        decay=args.decay,
        dtype=args.dtype,
    )
    report(args, learn(args, model, describe))


# -- merge -------------------------------------------------------------------------------------------------------------
def merge(args):
    """Merge state files of sketches."""
    writable(args.output)
    with limited(args.threads):
        loaded = [load_model(path) for path in args.inputs]
        for path, other in zip(args.inputs[1:], loaded[1:], strict=True):
            try:
                loaded[0].copy().merge(other)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path}: {error}") from None
        out = fs.tree_merge(loaded)
        out.notes = {"merged": [Path(path).name for path in args.inputs]}
        out.save(args.output)
        facts = describe(out)
    report(args, {**facts, "output": args.output})


# -- info --------------------------------------------------------------------------------------------------------------
def info(args):
    """Show a sketch, or any other model."""
    if args.top < 0:
        raise ValueError(f"--top must not be negative, got {args.top}")
    with limited(args.threads):
        model = load_model(args.input, (object,))
        facts = describe(model)
        sketched = isinstance(model, FrequentDirections)
        values = [float(value) for value in model.singular_values] if sketched and model.n_features else []
    if args.plot:
        if not sketched:
            raise ValueError(f"--plot draws the spectrum of a sketch; {args.input} holds a {type(model).__name__}")
        from fastsketch.cli._plot import plot_spectrum

        plot_spectrum(values, facts, args.plot)
    if args.json:
        spectrum = {"singular_values": values} if sketched else {}
        notes = {name: note for name, note in model.notes.items() if name not in ("rows", "columns")}  # lists of ids
        print(json.dumps(finite({**facts, "notes": notes, **spectrum})))
        return
    report(args, facts)
    if values:
        print(f"singular values ({min(args.top, len(values))} of {len(values)}):")
        for value in values[: args.top]:
            print(f"  {value:12.6g}  {'#' * round(40 * value / values[0])}")


def describe(model):
    """The facts of a model as a dict."""
    if hasattr(model, "n_rounds"):
        config = {name: value for name, value in asdict(model._config).items() if value is not None}
        return {"kind": type(model).__name__, **config, "features": model.n_features, **model.progress}
    if hasattr(model, "history_"):
        config = {name: value for name, value in asdict(model._config).items() if value is not None}
        m, n = model.shape_ if model.rank_ is not None else (None, None)
        return {"kind": type(model).__name__, "rows": m, "columns": n, **config, "rank_taken": model.rank_}
    if not isinstance(model, FrequentDirections):
        return {
            "kind": type(model).__name__,
            "sketch": model.sketch,
            "rotation": model.rotation,
            "bits": model.n_bits,
            "rows": model.n_rows,
            "features": model.n_features,
            "sketch_size": model.sketch_size,
            "block_rows": model.block_rows,
            "dtype": str(model.dtype),
        }
    squared = model.squared_norm
    return {
        "rule": model.rule,
        "solver": model.solver,
        "rows": model.n_rows,
        "features": model.n_features,
        "sketch_size": model.sketch_size,
        "dtype": str(model.dtype),
        "centered": model.center,
        "squared_norm": squared,
        "error_bound": model.error_bound,
        "relative_error_bound": model.error_bound / squared if squared > 0 else 0.0,
        "alpha": model.alpha,
    }
