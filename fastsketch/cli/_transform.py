"""The subcommand transform, which writes principal components, a density, a distance or a code of every row."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from fastsketch.cli._flags import PartsVerb, RowsVerb, as_column, flag
from fastsketch.cli._jobs import write_results_of_rows
from fastsketch.cli._reading import load_model, open_inputs
from fastsketch.data.files import StateError, read_header
from fastsketch.data.sources import comes_once
from fastsketch.neighbours.hashing import SketchHash
from fastsketch.neighbours.quantizing import SketchQuantizer
from fastsketch.sketching import FrequentDirections

METHODS = {"components": "transform", "scores": "score_samples", "distances": "mahalanobis"}


@dataclass(kw_only=True)
class Transform(RowsVerb, PartsVerb):
    """Write what a model computes for every row.

    A model of 'sketch' or a saved estimator gives principal components, log-likelihoods or squared Mahalanobis
    distances; a saved SketchQuantizer or SketchHash gives codes, in an .npy of uint8 or a binary column of Parquet.
    Rows are read as those of the model were, and columns are matched by name.

    Parameters
    ----------
    model : MODEL.fsk
    inputs : INPUT
        rows, as for 'sketch'
    output : OUT
        csv, or .npy or .parquet (a folder) by its name (default: csv on the standard output)
    n_components : K
        number of components of a sketch (default: all that it can distinguish from noise)
    what : {components,scores,distances}
        principal components, score_samples or squared Mahalanobis distances (default components)
    beside : COLUMN
        name or number (from 0) of a column of ids to write in front of the answers

    Examples
    --------
    fastsketch transform rows.fsk 'rows*.npy' -k 4 -o scores.npy
    """

    model: str = flag()
    inputs: list[str] = flag(nargs="+")
    output: str = flag("-o", "--output", default="-")
    n_components: int | None = flag("-k", "--n-components", type=int)
    what: str | None = flag("--what")
    beside: Any = flag("--beside", type=as_column)

    def run(self) -> None:
        """Compute the model's results for all rows of the inputs, and write them to the output."""
        estimator = None if comes_once(self.model) else self._saved_estimator()
        model = load_model(self.model) if estimator is None else estimator
        if isinstance(model, SketchHash | SketchQuantizer):
            self._encode(model)
            return
        source_model, estimator = model, estimator or self._estimator_of(model)
        what = self.what or "components"
        choices = [name for name, method in METHODS.items() if hasattr(estimator, method)]
        if what not in choices:
            kind = f"a {type(estimator).__name__}"
            raise ValueError(f"--what must be {' or '.join(choices) or 'nothing'} for {kind}, got {what}")
        source = open_inputs(self, source_model, beside=self.beside)
        column_names = [str(name) for name in estimator.get_feature_names_out()] if what == "components" else [what]
        column_names = column_names if self.beside is None else [str(self.beside), *column_names]
        write_results_of_rows(
            self, getattr(estimator, METHODS[what]), source, ".csv", column_names, {"columns": len(column_names)}
        )

    def _encode(self, model: SketchHash | SketchQuantizer) -> None:
        """Write the binary codes of all rows to the output, by default as .npy."""
        for name in ("what", "n_components", "beside"):
            if getattr(self, name) is not None:
                kind = type(model).__name__
                raise ValueError(f"{self.flag_of(name)} is not for codes, and {self.model} holds a {kind}")
        encoder = model.encoder()
        facts: dict[str, Any] = {"n_bits": model.n_bits} if isinstance(model, SketchHash) else {}
        write_results_of_rows(
            self, encoder.encode, open_inputs(self, model), ".npy", facts={**facts, "bytes_per_code": encoder.width}
        )

    def _saved_estimator(self) -> Any:
        """Load the model file if it holds an estimator of fastsketch.sklearn; otherwise return None."""
        header = read_header(self.model)
        if header.get("home") != "fastsketch.sklearn":
            return None
        if self.n_components is not None:
            raise ValueError("--n-components is for sketches: an estimator has its own")
        cls = getattr(_import_sklearn(), str(header["kind"]), None)
        if cls is None or not hasattr(cls, "load"):
            raise StateError(f"{self.model} holds a {header['kind']}, which this version of fastsketch does not know")
        return cls.load(self.model)

    def _estimator_of(self, model: Any) -> Any:
        """Create an estimator from a sketch: SketchedPCA for components, otherwise SketchedCovariance."""
        sklearn = _import_sklearn()
        if not isinstance(model, FrequentDirections):
            raise StateError(
                f"{self.model} holds a {type(model).__name__}, not a sketch, an estimator with components or a model "
                "of codes"
            )
        if self.what not in (None, "components"):
            return sklearn.SketchedCovariance.from_model(model)
        return sklearn.SketchedPCA.from_model(model, n_components=self.n_components)


def _import_sklearn() -> Any:
    """Import and return fastsketch.sklearn. ImportError names the extra to install."""
    try:
        return import_module("fastsketch.sklearn")
    except ImportError as error:
        raise ImportError("transform needs scikit-learn: pip install 'fastsketch[sklearn]'") from error
