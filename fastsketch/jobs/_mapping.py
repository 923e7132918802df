"""Map jobs: the answers of a model for every row of a source, in one file or folder, in the order of rows."""

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
from fastsketch._frame.batches import agreed
from fastsketch.data.sources import Source, open_rows
from fastsketch.data.sources._row_naming import naming
from fastsketch.data.sources._source import length
from fastsketch.jobs._engines import Engine, tell
from fastsketch.jobs._fields import Fields, Method, Spec, as_fields, name_of, spec_of, unwrapped
from fastsketch.jobs._manifest import Identity, check_unchanged, identity_of
from fastsketch.jobs._options import Job
from fastsketch.jobs._outputs import Append, Npy, Parquet, Sink
from fastsketch.jobs._parts import JobNode
from fastsketch.jobs._progress import Reporter, Wanted
from fastsketch.jobs._tree import Span, Task, completed
from fastsketch.jobs._unfinished import Unfinished

# Bytes of rows in a part: what is done again after a kill, and of Parquet what becomes one file.
PART_BYTES = 64 << 20
# Bytes of answers that are formed at a time.
ANSWER_BYTES = 16 << 20
# Rows of which the first answers of a part are formed: how long one of them is shows then.
FIRST_ROWS = 256


class MapResult(NamedTuple):
    """Result of a map job.

    Attributes
    ----------
    output : Path
    n_rows, n_parts : int
        Rows that were asked about, and parts of the source that they came in.
    n_kept : int
        Parts that an earlier run of the same job had done.
    seconds : float

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
    progress: Wanted = None,
    part_bytes: int = PART_BYTES,
    retries: int = 3,
) -> MapResult:
    """Write the answers of a model for every row of a source, in order: codes, components, predictions, scores.

    Parameters
    ----------
    function : callable(rows) -> array_like (n, ...), or several of these as a tuple or a dict
        A bound method of a model, an encoder or an estimator, as ``model.encode``, ``pca.transform``,
        ``learner.predict_proba`` or ``neighbours.kneighbors``; or a function of rows (n, d). For processes it must be
        importable: defined in a module, not in a lambda; ``functools.partial`` gives it more arguments.
    source : path, glob, folder, array, ... or fastsketch.data.Source
        Whatever ``fs.open_rows`` takes. A column that is read beside the rows, ``open_rows(..., beside="id")``, stands
        beside their answers too.
    output : path
        ".npy": one array, (n, ...). ".parquet": a folder of numbered files, one for each part, which readers take as
        one table (extra: arrow). What is there already is replaced when the new content is complete.
    workers, engine, scheduler, progress, retries
        As in ``fs.run``. Workers of Dask write to the output themselves: it must lie where all of them see it.
    resume : bool, default False
        Go on from what a job that was killed has left in the folder ``OUTPUT.partial``: only parts that are not there
        are done. Where there is none the job begins, with a warning. Refused if rows, model or parts are not the same,
        or come once, and if the output is finished: it would be replaced. What the folder holds is not trusted: the
        function is asked once more for the first rows of a part that is there, and its answers say what the files of
        all parts must hold.
    part_bytes : int, default 64 MiB
        Bytes of rows in a part: what is done again after a kill, and what becomes a file of Parquet.

    Returns
    -------
    MapResult
        (output, n_rows, n_parts, n_kept, seconds); n_kept parts had been done before by the job that was resumed.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be; if what the function gives is sparse, is made of objects, has not one
        entry for each row, or differs from part to part in dtype or width. Errors of the function name file and row.
    OSError
        If the output cannot be written; the parts that are done are kept for ``resume``.
    ImportError
        For ".parquet" without pyarrow.

    Notes
    -----
    The answers do not depend on workers or engine: the source is cut by the data and ``part_bytes`` alone, and BLAS
    runs on one thread. Where a model promises that a row's answer does not depend on the batch (codes), they are those
    of one call; others are to rounding. The model is sent to a worker once. Memory of a worker: the model, two chunks
    of rows and the answers to one.

    Columns of Parquet: "code" of bytes, as binary values of fixed size; "prediction" or "score"; "probability_<class>";
    of ``transform`` the names that ``get_feature_names_out`` gives, or numbered ones; of several answers their names.

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
    return written(function, open_rows(source), Path(name), sink, job, part_bytes)


def written(
    method: Method,
    source: Source,
    output: Path,
    sink: Sink,
    job: Job,
    part_bytes: int | None = None,
    *,
    held: bool = False,
) -> MapResult:
    """Write answers as ``map_rows`` does, into any kind of output; `held`: the caller holds its name already."""
    started = time.perf_counter()
    method = frozen(method)
    name = name_of(method)
    check_names(method, source)
    part_bytes = part_bytes or PART_BYTES
    parts = source.parts(part_bytes)
    about: Identity | None = None
    if source.repeatable:
        rows_as = {"part_bytes": part_bytes, "parts": len(parts), "rows": identity_of(source)}
        about = {"method": name, "digest of the model": digest_of(method), **rows_as}
    with (
        warnings.catch_warnings(),
        Reporter(job.progress, source, len(parts)) as reporter,
        Unfinished.opened(output, sink, about, resume=job.resume, held=held) as kept,
    ):
        done: dict[int, int] = {}
        if job.resume:
            lengths = [part.n_rows for part in parts]
            done = kept.done(lengths, method, lambda number: _first_spec(method, name, parts[number]))
        for number, rows in done.items():
            reporter.known(_node(number, rows))
        left = [number for number in range(len(parts)) if number not in done]
        remaining = [parts[n] for n in left]
        with job.engine_for(remaining, lambda: 2 * _bytes_of(method), reporter.rows_here) as engine:
            shared = _sent(engine, method)

            def task(n: int) -> Task:
                writer = partial(sink.writer, str(sink.part(kept.place, n)))
                return Span(0, n, n, n), answer_part, (shared, name, parts[n], writer)

            for place, (rows, spec) in completed(engine, map(task, left), len(left), deque()):
                kept.add(place.first, rows, spec)
                reporter.finished(_node(place.first, rows))
        if about is not None:
            check_unchanged(source, about["rows"])
        n_rows = kept.finish(len(parts), lambda: _spec_of_nothing(method, name, source))
    return MapResult(output, n_rows, len(parts), len(done), time.perf_counter() - started)


def _sent(engine: Engine, value: Any) -> Any:
    try:
        return engine.share(value)
    except Exception as error:
        raise TypeError(
            f"{name_of(value)} cannot be sent to workers: {error}; define it in a module, or take engine='threads'"
        ) from error


def answer_part(
    method: Method,
    name: str,
    part: Source,
    writer: Callable[[Spec, Method], contextlib.AbstractContextManager[Append]],
) -> tuple[int, Spec | None]:
    """Write the answers for the rows of a part, and return (rows, what answers are); the writer has a path already."""
    _expect_names(part)
    n_rows, spec = 0, None
    with contextlib.ExitStack() as stack:
        append: Any = None
        for fields, n in answers(method, name, part):
            now = spec_of(fields)
            if spec is None:
                spec, append = now, stack.enter_context(writer(now, method))
            elif now != spec:
                raise ValueError(f"{part.where(n_rows)}: {name} gives {now} there, and gave {spec} before")
            append(fields)
            n_rows += n
            tell(n)
    return n_rows, spec


def _expect_names(part: Source) -> None:
    """Keep scikit-learn from warning about names, which ``check_names`` has seen; it stays so in a worker."""
    if part.feature_names is not None:
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)


def _first_spec(method: Method, name: str, part: Source) -> Spec | None:
    """Return what the answers for the first rows of a part are; None if it has no rows."""
    with contextlib.closing(answers(method, name, part)) as pieces, warnings.catch_warnings():
        _expect_names(part)
        return next((spec_of(fields) for fields, _ in pieces), None)


def answers(method: Method, name: str, part: Source) -> Generator[tuple[Fields, int]]:
    """Yield (answers, rows) of a part, some rows at a time: cut by the data alone."""
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
    """Yield rows with the values beside them: numbers, or text as objects."""
    for rows, values, _ in part.chunks_beside():
        kind = values.dtype.kind
        yield rows, values if kind in "biuf" else np.array(["" if v is None else str(v) for v in values], object)


# -- what is asked -----------------------------------------------------------------------------------------------------
def frozen(method: Method) -> Method:
    """Return the function of a model that changes no more: an encoder is learned once, and not in each worker."""
    owner = getattr(method, "__self__", None)
    if getattr(method, "__name__", "") == "encode" and callable(getattr(owner, "encoder", None)):
        return cast("Method", cast("Any", owner).encoder().encode)
    return method


def check_names(method: Method, source: Source) -> None:
    """Raise ValueError unless the columns of a source are those that a model has learned, by name, in their order."""
    owner = getattr(unwrapped(method), "__self__", None)
    known: Any = getattr(owner, "feature_names", None)
    known = getattr(owner, "feature_names_in_", None) if known is None else known
    if known is not None and not callable(known):
        agreed(source.feature_names, tuple(map(str, known)), source.name)


def digest_of(method: Method) -> str:
    """Return a digest of a function and all that belongs to it; the name of one that cannot be pickled."""
    content = io.BytesIO()
    pickler = pickle.Pickler(content, 5)
    pickler.fast = True  # no memo: it would tell equal objects from the same
    try:
        pickler.dump(method)
    except Exception:
        return str(getattr(unwrapped(method), "__qualname__", type(method).__qualname__))
    return hashlib.blake2b(content.getvalue(), digest_size=16).hexdigest()


# -- inside ------------------------------------------------------------------------------------------------------------
def _bytes_of(method: Method) -> int:
    """Return about how many bytes a model takes in memory."""
    try:
        return len(pickle.dumps(method))
    except Exception:  # for threads alone, which share it
        return 0


def _node(number: int, rows: int) -> JobNode:
    return JobNode(None, rows, number, number, {})


def _spec_of_nothing(method: Method, name: str, source: Source) -> Spec:
    """Return what answers would be, of a source without rows."""
    none: Any = np.empty((0, source.n_features), source.dtype or np.float64)
    try:
        return spec_of(as_fields(method(none), 0, name))
    except Exception as error:
        raise ValueError(f"{source.name} holds no rows, and {name} does not say what it would give") from error
