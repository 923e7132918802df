"""Apply a function, such as a model's method, to every row of a source in parallel, and write the results in order."""

import contextlib
import hashlib
import io
import os
import pickle
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_integer
from fastsketch._frame.batches import require_same_names
from fastsketch.data.sources import Source, open_rows, with_missing
from fastsketch.data.sources._row_naming import naming
from fastsketch.data.sources._source import length
from fastsketch.jobs._engines import Engine, report_rows
from fastsketch.jobs._fields import Fields, Method, Spec, as_fields, name_of, spec_of, unwrap_partial
from fastsketch.jobs._manifest import Identity, check_unchanged, identity_of
from fastsketch.jobs._options import Job
from fastsketch.jobs._outputs import Append, Npy, Parquet, Sink
from fastsketch.jobs._partial_output import PartialOutput
from fastsketch.jobs._parts import JobNode
from fastsketch.jobs._progress import ProgressOption, Reporter
from fastsketch.jobs._tree import Span, Task, run_tasks

# Bytes of rows in a part: the work that a kill costs, and the rows of a file of Parquet.
PART_BYTES = 64 << 20
# Bytes of answers that are computed at a time.
ANSWER_BYTES = 16 << 20
# Rows of the first answers of a part, which show how many bytes the answers for a row have.
FIRST_ROWS = 256


class MapResult(NamedTuple):
    """The result of ``fs.map_rows``: the output path, the numbers of rows and parts, and the duration.

    Attributes
    ----------
    output : Path
    n_rows, n_parts : int
        Number of rows, and of the parts into which the source was split.
    n_kept : int
        Parts that were finished by an earlier run of the same job.
    seconds : float
        Duration of this run.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((1000, 50))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = fs.map_rows(fs.SketchHash(16).update(rows).encode, rows, output=Path(folder, "codes.npy"))
    >>> result.output.name, result.n_rows, result.n_parts, result.n_kept
    ('codes.npy', 1000, 1, 0)
    """

    output: Path
    n_rows: int
    n_parts: int
    n_kept: int
    seconds: float


def map_rows(
    function: Method,
    source: Any,
    *,
    output: str | PathLike[str],
    workers: int | str = "auto",
    engine: str = "processes",
    scheduler: Any = None,
    resume: bool = False,
    progress: ProgressOption = None,
    part_bytes: int = PART_BYTES,
    retries: int = 3,
) -> MapResult:
    """Apply a function to every row of a source in parallel, and write the results in the order of the rows.

    Parameters
    ----------
    function : callable(rows) -> array_like (n, ...), or several of these as a tuple or a dict
        A bound method of a model, an encoder or an estimator, such as ``model.encode``, ``pca.transform``,
        ``learner.predict_proba`` or ``neighbours.kneighbors``; or a function of rows (n, d). For processes it must be
        importable: defined in a module, not a lambda. ``functools.partial`` adds arguments.
    source : path, glob, folder, array, ... or fastsketch.data.Source
        Anything that ``fs.open_rows`` accepts. An extra column of a source, ``open_rows(..., beside="id")``, is
        written in front of the results. Missing numbers are an error, unless the function is a method of an estimator
        that takes NaN, such as ``SketchedCovariance(fill="mean")`` and ``LowRankCompleter``.
    output : path
        ".npy" for one array (n, ...), or ".parquet" for a folder of numbered files, one for each part, which readers
        treat as one table (extra: arrow). An existing output is replaced when the new one is complete.
    workers, engine, scheduler, progress, retries
        As in ``fs.run``. Dask workers write the files of parts themselves, so that the output must be in a file system
        that all of them share.
    resume : bool, default False
        Whether to continue a job that was killed, from the folder ``OUTPUT.partial``: only parts that are not in it are
        computed. If there is no such folder, the job starts, with a warning. ValueError if the rows, the model or the
        parts are others, if the rows cannot be read again, or if the output is finished, because it would be replaced.
        The files in the folder are not trusted: the function is called again for the first rows of one part, and files
        with other dtypes, shapes or numbers of rows are computed again.
    part_bytes : int, default 64 MiB
        Bytes of rows in a part: the work that a kill costs, and the rows of a file of Parquet.

    Returns
    -------
    MapResult
        (output, n_rows, n_parts, n_kept, seconds); n_kept parts were finished by the job that is resumed.

    Raises
    ------
    TypeError, ValueError
        If an argument is not valid; if the function returns sparse rows, objects, a number of entries other than the
        number of rows, or in one part other dtypes or shapes than in another. Errors of the function name file and row.
    OSError
        If the output cannot be written. Finished parts are kept for ``resume``.
    ImportError
        For ".parquet" without pyarrow.

    Notes
    -----
    The results do not depend on workers or engine: the split into parts depends only on the data and ``part_bytes``,
    and BLAS runs on one thread. They equal those of one call bit for bit if the result of the function for a row does
    not depend on the other rows (codes), otherwise up to rounding. The model is sent to each worker once. A worker
    needs memory for the model, two chunks of rows and the results for one.

    Columns of Parquet: "code" for bytes, as binary values of fixed size; "prediction" or "score";
    "probability_<class>"; for ``transform`` the names of ``get_feature_names_out``, or numbers; for several results
    their names.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((1000, 50))
    >>> model = fs.SketchHash(16).update(rows)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = fs.map_rows(model.encode, rows, output=Path(folder, "codes.npy"))
    ...     codes = np.load(result.output)
    >>> result.n_rows, bool((codes == model.encode(rows)).all())
    (1000, True)
    """
    if not callable(function):
        raise TypeError(f"function must be callable, as model.encode, got {type(function).__name__}")
    name = os.fspath(output)
    if not isinstance(name, str):
        raise TypeError(f"output must be a path, got {type(output).__name__}")
    sink: Sink
    if name.endswith(".npy"):
        sink = Npy()
    elif name.endswith(".parquet"):
        sink = Parquet()
    else:
        raise ValueError(f"output must end in .npy or .parquet, got {name!r}")
    part_bytes = as_integer(part_bytes, "part_bytes", 1)
    job = Job(workers, engine, scheduler, resume, progress, retries).checked()
    return write_results(function, open_rows(source), Path(name), sink, job, part_bytes)


def write_results(
    method: Method,
    source: Source,
    output: Path,
    sink: Sink,
    job: Job,
    part_bytes: int | None = None,
    *,
    already_locked: bool = False,
) -> MapResult:
    """Apply a function to every row of a source in parallel, write the results to `output`, and return a MapResult.

    This is ``map_rows`` for any output format, which `sink` defines. `already_locked` says that the caller has locked
    the output.
    """
    started = time.perf_counter()
    method = bind_to_encoder(method)
    name, content = name_of(method), _pickle_function(method)
    require_same_columns(method, source)
    if takes_missing(method):
        source = with_missing(source)
    part_bytes = part_bytes or PART_BYTES
    parts = source.parts(part_bytes)
    identity: Identity | None = None
    if source.repeatable:
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        identity = {"method": name, "digest of the model": digest, "part_bytes": part_bytes, "parts": len(parts)}
        identity["rows"] = identity_of(source)
    with (
        warnings.catch_warnings(),
        Reporter(job.progress, source, len(parts)) as reporter,
        PartialOutput.open(output, sink, identity, resume=job.resume, already_locked=already_locked) as partial_output,
    ):
        finished_rows: dict[int, int] = {}
        if job.resume:
            lengths = [part.n_rows for part in parts]
            finished_rows = partial_output.find_finished(
                lengths, method, lambda number: _first_spec(method, name, parts[number])
            )
        for number, rows in finished_rows.items():
            reporter.count_earlier(_progress_node(number, rows))
        remaining_numbers = [number for number in range(len(parts)) if number not in finished_rows]
        remaining = [parts[number] for number in remaining_numbers]
        with job.engine_for(remaining, lambda: 2 * len(content), reporter.count_rows) as engine:
            shared_function = _share_function(engine, method)

            def task(number: int) -> Task:
                writer = partial(sink.writer, str(sink.part_path(partial_output.path, number)))
                return Span(0, number, number, number), map_part, (shared_function, name, parts[number], writer)

            for span, (rows, spec) in run_tasks(engine, map(task, remaining_numbers), len(remaining_numbers), deque()):
                partial_output.record_part(span.first, rows, spec)
                reporter.count_finished(_progress_node(span.first, rows))
        if identity is not None:
            check_unchanged(source, identity["rows"])
        n_rows = partial_output.finish(len(parts), lambda: _spec_of_empty_result(method, name, source))
    return MapResult(output, n_rows, len(parts), len(finished_rows), time.perf_counter() - started)


def _progress_node(number: int, rows: int) -> JobNode:
    """Return a JobNode without a model that stands for a finished part of `rows` rows, for the progress reporter."""
    return JobNode(None, rows, number, number, {})


def _share_function(engine: Engine, method: Method) -> Any:
    """Send a function to the workers of an engine, and return the substitute to pass to tasks.
    TypeError if it cannot be pickled.
    """
    try:
        return engine.share(method)
    except Exception as error:
        raise TypeError(
            f"{name_of(method)} cannot be sent to workers: {error}; define it in a module, or take engine='threads'"
        ) from error


# -- one part ----------------------------------------------------------------------------------------------------------
def map_part(
    method: Method,
    name: str,
    part: Source,
    writer: Callable[[Spec, Method], contextlib.AbstractContextManager[Append]],
) -> tuple[int, Spec | None]:
    """Apply a function to all rows of one part, and write the results to the file of the part.
    Return (number of rows, Spec of the results); the Spec is None if the part has no rows.

    `writer` opens the file of the part, as ``Writer`` does once its path is bound.
    """
    _ignore_name_warning(part)
    n_rows, spec = 0, None
    with contextlib.ExitStack() as stack:
        append: Any = None
        for fields, n in iterate_results(method, name, part):
            block_spec = spec_of(fields)
            if spec is None:
                spec, append = block_spec, stack.enter_context(writer(block_spec, method))
            elif block_spec != spec:
                raise ValueError(f"{part.where(n_rows)}: {name} gives {block_spec} there, and gave {spec} before")
            append(fields)
            n_rows += n
            report_rows(n)
    return n_rows, spec


def _ignore_name_warning(part: Source) -> None:
    """Silence scikit-learn's warning about missing feature names in this process, from now on.

    ``require_same_columns`` has compared the names of the source with those of the model.
    """
    if part.feature_names is not None:
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)


def _first_spec(method: Method, name: str, part: Source) -> Spec | None:
    """Return names, dtypes and shapes of a function's results, as a Spec, by applying it to the first rows of a part.
    Return None if the part has no rows.
    """
    with contextlib.closing(iterate_results(method, name, part)) as pieces, warnings.catch_warnings():
        _ignore_name_warning(part)
        return next((spec_of(fields) for fields, _ in pieces), None)


def _spec_of_empty_result(method: Method, name: str, source: Source) -> Spec:
    """Return names, dtypes and shapes of a function's results, as a Spec, by applying it to an array without rows."""
    no_rows: Any = np.empty((0, source.n_features), source.dtype or np.float64)
    try:
        return spec_of(as_fields(method(no_rows), 0, name))
    except Exception as error:
        raise ValueError(f"{source.name} holds no rows, and {name} does not say what it would give") from error


def iterate_results(method: Method, name: str, part: Source) -> Generator[tuple[Fields, int]]:
    """Apply a function to a part block by block. Yield (dict of result arrays, number of rows) for each block.

    The first block has 256 rows. The size of the others is chosen so that their results take about ANSWER_BYTES, and
    never exceeds a chunk of the source.
    """
    step, row = FIRST_ROWS, 0
    chunks = ((rows, None) for rows, _ in part.chunks()) if part.beside is None else _with_ids(part)
    for rows, ids in chunks:
        n, start = length(rows), 0
        while start < n:
            stop = min(start + step, n)
            with naming(part, row):
                fields = as_fields(method(rows[start:stop]), stop - start, name)
                if ids is not None:
                    fields = {str(part.beside): ids[start:stop], **fields}
            yield fields, stop - start
            step = max(1, ANSWER_BYTES // max(1, spec_of(fields).row_bytes))
            row += stop - start
            start = stop


def _with_ids(part: Source) -> Iterator[tuple[Any, NDArray[Any]]]:
    """Yield (rows, values of the extra column) for each chunk.

    The values are numbers, or strings in an object array, with "" for a missing value.
    """
    for rows, values, _ in part.chunks_beside():
        kind = values.dtype.kind
        yield rows, values if kind in "biuf" else np.array(["" if v is None else str(v) for v in values], object)


# -- the function ------------------------------------------------------------------------------------------------------
def bind_to_encoder(method: Method) -> Method:
    """Return the encoder's ``encode`` method for the method ``model.encode``, and other functions unchanged.

    Workers then need not derive the encoder from the model. Other functions are returned unchanged.
    """
    owner = getattr(method, "__self__", None)
    if getattr(method, "__name__", "") == "encode" and callable(getattr(owner, "encoder", None)):
        return cast("Method", cast("Any", owner).encoder().encode)
    return method


def require_same_columns(method: Method, source: Source) -> None:
    """Raise ValueError unless the source's column names equal those that the model has learned, in the same order."""
    owner = getattr(unwrap_partial(method), "__self__", None)
    learned_names: Any = getattr(owner, "feature_names", None)
    learned_names = getattr(owner, "feature_names_in_", None) if learned_names is None else learned_names
    if learned_names is not None and not callable(learned_names):
        require_same_names(source.feature_names, tuple(map(str, learned_names)), source.name)


def takes_missing(method: Method) -> bool:
    """Return True if the method is that of an estimator whose scikit-learn tags say that rows may hold NaN."""
    tags = getattr(getattr(unwrap_partial(method), "__self__", None), "__sklearn_tags__", None)
    return tags is not None and bool(tags().input_tags.allow_nan)


def _pickle_function(method: Method) -> bytes:
    """Return the pickle of a function and its model, or the function's name in bytes if it cannot be pickled."""
    content = io.BytesIO()
    pickler = pickle.Pickler(content, 5)
    pickler.fast = True  # without a memo, equal models have equal pickles
    try:
        pickler.dump(method)
    except Exception:
        return str(getattr(unwrap_partial(method), "__qualname__", type(method).__qualname__)).encode()
    return content.getvalue()
