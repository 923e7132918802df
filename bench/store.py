"""Results that are kept: what a bench command measured, as small JSON that pages are made from.

A command runs inside ``recording(name, options, folder)``; every `table` of ``bench_tools`` is added to the record, and
so are the seconds of every run that `interleaved` timed. The file is written when the command ends without an error:
one that fails or is interrupted leaves the file of before. A run with --quick, or of a part of the sets, goes to
COMMAND.quick.json, which git ignores. A folder that cannot be written to is refused before anything is measured.

    {"format": 1, "command": "speed", "fastsketch": "0.1.0", "date": "2026-11-22", "seconds": 61.2,
     "options": {...}, "versions": {...}, "machine": {...}, "blas": [...], "presets": {...},
     "tables": [{"name", "columns", "rows", "runs", "note"}], "timings": [{"name", "clock", "runs": {what: [s, ...]}}]}

"code" has the commit, and a digest of every module of the library that the command loaded (``provenance``): a page says
which of them have changed since. Records of before 29 November 2026 have none.

With --join a part takes the place of its tables in the record of the whole command; such a table has, as "measured",
the circumstances of its own run.

A command that found a file of the data folder absent names it under "absent".

Cells are text as a page shows them, rows lists of cells. What was not measured by the command has no place here.
"""

import contextlib
import datetime
import json
import os
import platform
import tempfile
import time
from pathlib import Path

import provenance

FORMAT = 1
RESULTS = Path(__file__).resolve().parent / "results"
PACKAGES = (
    *("numpy", "scipy", "numba", "scikit-learn", "faiss-cpu", "implicit", "cmfrec", "scikit-surprise"),
    *("vowpalwabbit", "river", "torch", "pytorch-optimizer"),
    *("pandas", "polars", "pyarrow", "h5py", "zarr", "dask", "distributed"),
)
_open: list[dict] = []


def file_of(command, options):
    """Return the name of the file; results of a part have another."""
    parts = ("quick",) if options.get("join") else ("quick", "only", "sets", "bytes", "rows")
    part = any(options.get(name) for name in parts)
    return f"{command}.quick.json" if part else f"{command}.json"


def partial(args):
    """Return the path of partial results, which the next call of the command continues; git ignores it."""
    args.out.mkdir(parents=True, exist_ok=True)
    return args.out / file_of(args.command, {"quick": args.quick}).replace(".json", ".partial.json")


class Parts:
    """What the parts of a command measured, in a file that is written after each.

    With --keep the parts that are there are not measured again, and their seconds count as the command's.
    Parts of another version of the library, or of other code of it, are measured again.
    """

    def __init__(self, args):
        import fastsketch

        self.path, self.version, self.known = partial(args), fastsketch.__version__, {}
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):  # absent or torn: measured anew
            record = json.loads(self.path.read_text(encoding="utf-8")) if args.keep else {}
            if record["fastsketch"] == self.version:
                self.known = {
                    name: part for name, part in record["parts"].items() if not provenance.changed(part["code"])
                }

    def of(self, name, measure, *arguments, **options):
        """Return what `measure` returned, or would return now; it has to be made of lists, dicts, text and numbers."""
        if name in self.known:
            if _open:
                _open[-1]["seconds"] += self.known[name]["seconds"]
        else:
            start = time.perf_counter()
            result = json.loads(json.dumps(measure(*arguments, **options)))  # as the next call reads it
            seconds = round(time.perf_counter() - start, 1)
            self.known[name] = {"seconds": seconds, "code": provenance.loaded(), "result": result}
            with replacing(self.path) as begun:
                begun.write_text(json.dumps({"fastsketch": self.version, "parts": self.known}), encoding="utf-8")
        return self.known[name]["result"]


@contextlib.contextmanager
def recording(command, options, folder):
    """Keep the tables and timings of a command in a file of the folder when the block ends."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):  # an hour of measuring is not to end with a folder that is read-only
        pass
    record = {"format": FORMAT, "command": command, **circumstances()}
    record |= {"options": {name: str(value) for name, value in sorted(options.items())}, "seconds": 0.0}
    record |= {"tables": [], "timings": []}
    _open.append(record)
    start = time.perf_counter()
    try:
        yield record
    finally:
        _open.pop()
    record["seconds"] = round(record["seconds"] + time.perf_counter() - start, 1)
    record["code"] = {"commit": provenance.commit(), "modules": provenance.loaded()}
    if record["tables"]:
        path = Path(folder) / file_of(command, options)
        write(joined(read(path), record) if options.get("join") and path.exists() else record, path)


def joined(whole, part):
    """Return a record with the tables of a later one in the place of its own: they say when they were measured."""
    keys = ("fastsketch", "date", "seconds", "versions", "machine", "blas", "presets", "code")
    about = {key: part[key] for key in keys if key in part}
    tables = {table["name"]: table for table in whole["tables"]}
    tables |= {table["name"]: {**table, "measured": about} for table in part["tables"]}
    timings = {timing["name"]: timing for timing in whole["timings"] + part["timings"]}
    return {**whole, "tables": [*tables.values()], "timings": [*timings.values()]}


def add_table(rows, columns, name, runs, note):
    """Add a table to the command that runs; `runs` says of how many runs a figure is."""
    if not _open:
        return
    tables = _open[-1]["tables"]
    name = name or ("main" if not tables else f"table {len(tables) + 1}")
    found = {"name": name, "columns": distinct(columns), "rows": [list(map(str, row)) for row in rows]}
    found |= {"runs": runs, "note": note}
    same = [k for k, table in enumerate(tables) if table["name"] == name]
    tables[same[0] if same else len(tables) :] = [found, *(tables[same[0] + 1 :] if same else [])]


def distinct(columns):
    """Return names that a page can refer to: the second "ratio" is "ratio, " and the name of the column before it."""
    names = []
    for column in map(str, columns):
        names.append(f"{column}, {names[-1]}" if column in names else column)
    return names


def add_absent(file):
    """Note a file of the data folder that the command would have read: with it there is more to measure."""
    if _open and file not in _open[-1].setdefault("absent", []):
        _open[-1]["absent"].append(file)


def add_timing(name, clock, runs):
    """Add the seconds of every run of functions that ran in turn: {what: [seconds, ...]}."""
    if _open:
        words = {what: ", ".join(map(str, what)) if isinstance(what, tuple) else str(what) for what in runs}
        runs = {words[what]: [float(f"{t:.4g}") for t in times] for what, times in runs.items()}
        _open[-1]["timings"].append({"name": name, "clock": clock, "runs": runs})


def write(record, path):
    """Write a record to a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as begun:
        begun.write_text(text_of(record), encoding="utf-8")


@contextlib.contextmanager
def replacing(path):
    """Give a path to write to that replaces `path` when the block ends; two commands at once have one each."""
    begun = path.with_name(f"{path.name}.{os.getpid()}.begun")
    try:
        yield begun
        begun.replace(path)
    finally:
        begun.unlink(missing_ok=True)


def read(path):
    """Return the record of a file, or raise a ValueError that names the file and what is wrong with it."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name} is no JSON: {error}") from None
    found = faults(record)
    if found:
        raise ValueError(f"{path.name} is not of format {FORMAT}: {found[0]}")
    return record


KEYS = {"format", "command", "fastsketch", "date", "seconds", "options", "versions", "machine", "blas", "presets"}
KEYS |= {"tables", "timings"}
KEYS_OF_TABLES = {"name", "columns", "rows", "runs", "note"}


def faults(record):
    """List what violates the format, in words."""
    if not isinstance(record, dict):
        return ["no record"]
    missing = KEYS - set(record)
    if missing:
        return [f"no {key}" for key in sorted(missing)]
    lacking = {key for table in record["tables"] for key in KEYS_OF_TABLES - set(table)}
    if lacking:
        return [f"a table without {key}" for key in sorted(lacking)]
    found = []
    if record["format"] != FORMAT:
        found.append(f"format {record['format']}")
    names = [table["name"] for table in record["tables"]]
    if not names or len(set(names)) < len(names):
        found.append(f"names of tables: {names}")
    for table in record["tables"]:
        found += [f"{table['name']}: {fault}" for fault in _faults_of(table)]
    return found


def _faults_of(table):
    columns, cells = table["columns"], [cell for row in table["rows"] for cell in row]
    if len(set(columns)) < len(columns):
        yield f"columns of one name: {columns}"
    if not table["rows"] or any(len(row) != len(columns) for row in table["rows"]):
        yield f"rows of other than {len(columns)} cells"
    if not all(isinstance(cell, str) for cell in [*columns, *cells]):
        yield "cells that are no text"


def text_of(record):
    """Return JSON with a line for each row of a table, so that a diff shows which figures changed."""
    head = {key: value for key, value in record.items() if key not in ("tables", "timings")}
    modules = head.get("code", {}).get("modules")
    if modules is not None:  # on one line
        head["code"] = {**head["code"], "modules": "MODULES"}
    lines = json.dumps(head, indent=1, ensure_ascii=False)[:-2]
    lines = lines.replace('"MODULES"', json.dumps(modules, ensure_ascii=False)).splitlines()
    lines[-1] += ","
    lines += _lines_of("tables", record["tables"], "rows")
    lines[-1] += ","
    lines += _lines_of("timings", record["timings"], None)
    return "\n".join([*lines, "}"]) + "\n"


def _lines_of(key, items, rows_key):
    if not items:
        return [f' "{key}": []']
    lines = [f' "{key}": [']
    for item in items:
        rows = item.get(rows_key)
        head = json.dumps({k: v for k, v in item.items() if k != rows_key}, ensure_ascii=False)
        if rows:
            lines.append(f'  {head[:-1]}, "{rows_key}": [')
            lines += [f"   {json.dumps(row, ensure_ascii=False)}," for row in rows]
            lines[-1] = lines[-1][:-1]
            lines.append("  ]},")
        elif rows_key:
            lines.append(f'  {head[:-1]}, "{rows_key}": []}},')
        else:
            lines.append(f"  {head},")
    lines[-1] = lines[-1][:-1]
    return [*lines, " ]"]


def circumstances():
    """Return date, versions, machine and BLAS pools of a record."""
    import threadpoolctl

    import fastsketch
    from fastsketch._kernels import level

    pools = [
        {key: pool.get(key) for key in ("internal_api", "version", "architecture", "num_threads")}
        for pool in threadpoolctl.threadpool_info()
        if pool["user_api"] == "blas"
    ]
    presets = {name: value for name, value in os.environ.items() if name.startswith("OPENBLAS_") and "NUM" not in name}
    return {
        "fastsketch": fastsketch.__version__,
        "date": datetime.date.today().isoformat(),
        "versions": {"python": platform.python_version(), **_versions()},
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "instructions": level.current(),
            "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,  # when the command began
        },
        "blas": pools,
        "presets": presets,
    }


def _versions():
    from importlib.metadata import PackageNotFoundError, version

    out = {}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            out[name] = version(name)
    return out


def _processor():
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
