"""The subcommands sketch, which sketches the rows of files, and audit, which measures the error of a sketch."""

# pyright: reportPrivateUsage=false
# (whether a model can read its rows again)

import time
import warnings
from dataclasses import dataclass

from fastsketch._core.validation import as_integer
from fastsketch.cli._flags import PartsVerb, RowsVerb, flag, parameter
from fastsketch.cli._jobs import learn_rows, refuse_rereading_streams
from fastsketch.cli._output import open_output
from fastsketch.cli._reading import load_model, open_inputs, reading_notes, reading_of_command_line
from fastsketch.data.sources import comes_once
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._rereading import OtherRows


@dataclass(kw_only=True)
class Sketch(RowsVerb, PartsVerb):
    """Sketch the rows of files in one pass and constant memory.

    Formats: .npy, scipy .npz, svmlight text, csv, tsv and Matrix Market (also .gz, .bz2, .xz), Parquet, Arrow, HDF5,
    Zarr, AnnData; folders and quoted globs of them; - is the standard input. The sketch stores how its rows were read,
    and other verbs read rows for it in the same way.

    Parameters
    ----------
    inputs : INPUT
    output : OUT.fsk
        file for the sketch, or -
    sketch_size : L
        maximal number of rows of the sketch, at least 2 (default 64)
    method : {fd,pfd,cfd,isvd,rfd,tfd}
        Frequent Directions: robust (rfd), plain (fd), with leading rows that keep their length (pfd, tfd), with
        compensated lengths (cfd); iterative SVD, which has no error bound (isvd) (default rfd)
    center
        subtract the mean of all rows, exactly and online
    tolerance : X
        instead of a size: the sketch grows until its certified error is at most this share of the sum of squares
    passes : {1,2}
        2: read the inputs a second time, which makes singular values and directions nearly exact (default 1)

    Examples
    --------
    zcat rows.svm.gz | fastsketch sketch - --set n_features=20 -l 8 -o - | fastsketch info -
    fastsketch sketch rows.npy -l 8 --center -o rows.fsk
    fastsketch sketch rows.npy --passes 2 -o refined.fsk
    """

    MODELS = ("FrequentDirections",)

    inputs: list[str] = flag(nargs="+")
    output: str = flag("-o", "--output", required=True)
    sketch_size: str | None = parameter("-l", "--sketch-size")
    method: str | None = parameter("--method")
    center: str | None = parameter("--center", action="store_const", const="yes")
    tolerance: str | None = parameter("--tolerance")
    passes: int = flag("--passes", type=int, default=1)

    def run(self) -> None:
        """Sketch the rows of the inputs, and save the sketch."""
        model = FrequentDirections(**self.parameters(FrequentDirections))
        if as_integer(self.passes, "--passes", 1, 3) > 1:
            model._check_rereadable("--passes 2")
        reading = reading_of_command_line(self)
        with open_output(self) as out:
            refuse_rereading_streams(self, passes=self.passes)
            source = open_inputs(self)
            notes = reading_notes(reading)
            out.report(learn_rows(self, model, out, source, notes=notes, switches={}, passes=self.passes))


@dataclass(kw_only=True)
class Audit(RowsVerb):
    """Measure the spectral error of a sketch, and compare it with the certified bound.

    Lanczos steps each read the rows once (usually 5 to 15, at most 40). The inputs are the same as of 'sketch'; nothing
    is written. Exit status 1, after the report, if the rows are not those of the sketch or the error exceeds the bound.

    Parameters
    ----------
    model : SKETCH.fsk
    inputs : INPUT
        the rows of the sketch
    accuracy : X
        relative accuracy of the measured error (default 0.01)

    Examples
    --------
    fastsketch audit rows.fsk rows.npy
    """

    model: str = flag()
    inputs: list[str] = flag(nargs="+")
    accuracy: float = flag("--accuracy", type=float, default=0.01)

    def run(self) -> int:
        """Measure the error of the sketch, print a report, and return the exit status.
        It is 1 if the rows are not those of the sketch, or if the certified bound does not hold, otherwise 0.
        """
        model = load_model(self.model, FrequentDirections, ": only a sketch is audited")
        model._rereadable("an audit")
        if streams := [path for path in self.inputs if comes_once(path)]:
            raise ValueError(
                f"an audit reads rows again, but {streams[0]} can be read only once: save it to a file first"
            )
        sources = list(open_inputs(self, model).each())
        started = time.perf_counter()
        with open_output(self) as out:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                audited = model.audit(sources, accuracy=self.accuracy)
            total = model.squared_norm
            same_rows = not any(issubclass(warning.category, OtherRows) for warning in caught)
            facts = {"kind": "Audit", "n_rows": model.n_rows, "n_features": model.n_features, **audited._asdict()}
            facts |= {"relative_error": audited.error / total if 0 < total < float("inf") else 0.0}
            out.report({**facts, "same_rows": same_rows, "seconds": time.perf_counter() - started})
        for warning in caught:
            warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)
        return int(not same_rows)
