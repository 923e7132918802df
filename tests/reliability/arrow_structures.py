"""Arrow IPC, Feather, Parquet and tables of any library whose counts, offsets, types and pages are wrong."""

import struct
from decimal import Decimal

import numpy as np

import fastsketch as fs
from fastsketch.data import open_rows
from fastsketch.data.files._table import Dialect
from fastsketch.data.names import _events
from tests.reliability.structures import FILL, Case, chosen, dense, edited, same, sketching

NUMBERS, LISTS = ["float", "int", "bool", "decimal", "half"], ["list", "large", "fixed"]
OTHERS = ["text", "code", "struct", "lists", "runs", "union", "map", "view"]


def arrow_table(rng, *, parquet=False):
    """A table with a column of every kind, some of their rows missing."""
    import pyarrow as pa

    n = int(rng.integers(1, 25))

    def column(kind, make):
        return pa.array([None if rng.random() < 0.2 else make(k) for k in range(n)], kind)

    def numbers(k):
        return [float(k), None if rng.random() < 0.1 else k + 0.5, k - 0.25]

    floats, words = pa.list_(pa.float64()), column(pa.string(), lambda k: f"w{k % 5}")
    columns = {
        "float": column(pa.float64(), lambda k: k / 3),
        "int": column(pa.int16(), lambda k: k - 5),
        "bool": column(pa.bool_(), lambda k: k % 2 == 0),
        "decimal": column(pa.decimal128(9, 2), lambda k: Decimal(k) / 4),
        "half": column(pa.float16(), lambda k: np.float16(k)),
        "list": column(floats, numbers),
        "large": column(pa.large_list(pa.float32()), numbers),
        "fixed": column(pa.list_(pa.int32(), 2), lambda k: [k, -k]),
        "text": words,
        "code": words.dictionary_encode(),
        "struct": column(pa.struct([("a", pa.float64()), ("b", floats)]), lambda k: {"a": 1.0 * k, "b": numbers(k)}),
        "lists": column(pa.list_(floats), lambda k: [numbers(k)] * (k % 3)),
        "map": column(pa.map_(pa.string(), pa.int32()), lambda k: [("a", k)]),
    }
    if not parquet:
        ends = pa.array(sorted({*rng.integers(1, n + 1, 3).tolist(), n}), pa.int32())
        columns["runs"] = pa.RunEndEncodedArray.from_arrays(ends, pa.array(range(len(ends)), pa.float64()))
        types, places = np.arange(n) % 2, np.arange(n) // 2
        children = [pa.array(range(n), pa.int64()), pa.array(map(str, range(n)))]
        columns["union"] = pa.UnionArray.from_dense(pa.array(types, pa.int8()), pa.array(places, pa.int32()), children)
        columns["view"] = column(pa.string_view(), lambda k: "a long text of number " * (k % 2) + str(k))
    return pa.table(columns)


def wanted_of(rng, names):
    """(columns of numbers, one beside them or None)."""
    numbers = [name for name in rng.permutation([*NUMBERS, *LISTS]).tolist() if name in names]
    others = [name for name in OTHERS if name in names]
    return numbers[: rng.integers(1, 4)], chosen(rng, [None, *others])


def rows_beside(x, columns, beside):
    """[rows, values beside them] of what open_rows takes."""
    if beside is None:
        return [dense(x, columns=columns, fill=FILL), []]
    rows, values = [], []
    for part, some, _ in open_rows(x, columns=columns, beside=beside, fill=FILL).chunks_beside():
        rows.append(np.array(part))
        values += some.tolist()
    return [np.concatenate(rows) if rows else np.empty((0, 0)), values]


def by_pyarrow(batches, columns, beside):
    """The same as pyarrow itself reads it, a value at a time; and the column of each number of a row."""
    rows, values, widths = [], [], {}
    for batch in batches:
        batch.validate(full=True)
        lists = {name: batch.column(name).to_pylist() for name in columns}
        for name, held in lists.items():
            kind = batch.schema.field(name).type
            first = next((len(one) for one in held if one is not None), 1) if "list" in str(kind) else None
            widths.setdefault(name, getattr(kind, "list_size", first))
        for k in range(len(batch)):
            row = []
            for name in columns:
                one, width = lists[name][k], widths[name]
                row += [one] if width is None else [None] * width if one is None else one
            rows.append([FILL if one is None or one != one else float(one) for one in row])
        values += [] if beside is None else batch.column(beside).to_pylist(maps_as_pydicts="lossy")
    return rows, values, [name for name in columns for _ in range(widths.get(name) or 1)]


def agrees_with_pyarrow(batches, columns, beside):
    """Whether what was read is what pyarrow reads; batches(names) gives some columns."""
    import pyarrow as pa

    def right(found):
        try:
            rows, values, _ = by_pyarrow(batches([*columns, *([] if beside is None else [beside])]), columns, beside)
        except (pa.ArrowException, OSError):
            return False
        return same(found[0], rows) and repr(found[1]) == repr(values)

    return right


def agrees_with_original(table, columns, beside, damaged_rows):
    """Whether what was read is the table that was written, except for cells whose pages are damaged.

    `damaged_rows` has the rows of these pages for each column. A page has no checksum unless its writer asked for one,
    so that a damaged page may read as other values. It must not change a cell of another page, or the number of rows.
    """
    rows, values, names = by_pyarrow(table.to_batches(), columns, beside)
    rows = np.array(rows)

    def right(found):
        if found[0].shape != rows.shape or len(found[1]) != len(values):
            return False
        expected = rows.copy()
        for k, name in enumerate(names):
            unknown = sorted(damaged_rows.get(name, ()))
            expected[unknown, k] = found[0][unknown, k]
        unknown = damaged_rows.get(beside, ())
        kept = [k for k in range(len(values)) if k not in unknown]
        return same(found[0], expected) and repr([found[1][k] for k in kept]) == repr([values[k] for k in kept])

    return right


def rows_of_damaged_pages(about, changes):
    """{column: rows of the row groups in which a byte of the column was changed}, by metadata of the intact file."""
    found, first = {}, 0
    for group in map(about.row_group, range(about.num_row_groups)):
        for one in map(group.column, range(group.num_columns)):
            starts = [at for at in (one.dictionary_page_offset, one.data_page_offset) if at]
            if any(min(starts) <= at < min(starts) + one.total_compressed_size for at in changes):
                name = one.path_in_schema.split(".")[0]
                found.setdefault(name, set()).update(range(first, first + group.num_rows))
        first += group.num_rows
    return found


def field(content, table, k):
    """Where field k of a table of a flatbuffer stands; None if it is not there."""
    vtable = table - struct.unpack_from("<i", content, table)[0]
    size = struct.unpack_from("<H", content, vtable)[0]
    offset = struct.unpack_from("<H", content, vtable + 4 + 2 * k)[0] if 4 + 2 * k < size else 0
    return table + offset if offset else None


def arrow_zones(content, start):
    """[(begin, end)] of what describes batches, of their buffers, and of what is behind them."""
    about, bodies = [], []
    while struct.unpack_from("<I", content, start)[0] == 0xFFFFFFFF:
        length = struct.unpack_from("<i", content, start + 4)[0]
        if length == 0:
            break
        root = start + 8 + struct.unpack_from("<I", content, start + 8)[0]
        place = field(content, root, 3)
        size = 0 if place is None else struct.unpack_from("<q", content, place)[0]
        about.append((start + 8, start + 8 + length))
        start += 8 + length
        bodies += [(start, start + size)] * (size > 0)
        start += size
    return [about[:1], about[1:], bodies, [(start, len(content))]]


def arrow(form):
    """A maker of Arrow files: "file", "stream", or tables and readers in memory that pyarrow makes of these."""

    def make(rng, folder):
        import pyarrow as pa

        table, path = arrow_table(rng), folder / ("x.arrows" if form in ("stream", "reader") else "x.arrow")
        is_file = path.suffix == ".arrow"
        options = pa.ipc.IpcWriteOptions(compression=chosen(rng, [None, None, None, "lz4", "zstd"]))
        begin = pa.ipc.new_file if is_file else pa.ipc.new_stream
        with pa.OSFile(str(path), "wb") as sink, begin(sink, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=int(rng.integers(1, 30)))
        content = path.read_bytes()
        path.write_bytes(edited(rng, content, arrow_zones(content, 8 if is_file else 0)))
        columns, beside = wanted_of(rng, table.column_names)

        def batches(names=None):
            opened = pa.ipc.open_file if is_file else pa.ipc.open_stream
            with pa.OSFile(str(path)) as file:
                schema = opened(file).schema
            fields = None if names is None else sorted(map(schema.get_field_index, names))
            with pa.OSFile(str(path)) as file:
                reader = opened(file, options=pa.ipc.IpcReadOptions(included_fields=fields))
                return [reader.get_batch(k) for k in range(reader.num_record_batches)] if is_file else list(reader)

        def read():
            if form in ("file", "stream"):
                return rows_beside(path, columns, beside)
            try:
                found = pa.Table.from_batches(batches())
            except (pa.ArrowException, OSError, ValueError, KeyError) as error:  # pyarrow's own refusal
                raise fs.data.SourceError(f"{named.name}: {' '.join(str(error).split())}") from error
            if form == "table":
                return rows_beside(found, columns, beside)
            return [dense(found.to_reader(), columns=columns, fill=FILL), []]

        named = {"table": folder / "the Table", "reader": folder / "the RecordBatchReader"}.get(form, path)
        right = agrees_with_pyarrow(batches, columns, None if form == "reader" else beside)
        command = sketching(path, "--columns", ",".join(columns)) if named == path and beside is None else None
        return Case(named, read, right, command)

    return make


def ids(rng, folder):
    """Users, items and values in columns of codes and text."""
    import pyarrow as pa
    from pyarrow import feather

    table, path = arrow_table(rng).select(["code", "text", "float"]), folder / "x.feather"
    feather.write_feather(table, path, compression=chosen(rng, ["uncompressed", "lz4"]))
    content = path.read_bytes()
    path.write_bytes(edited(rng, content, arrow_zones(content, 8)))

    def read():
        found = _events.read_events(path, Dialect())
        return [column.to_list() for column in found[:3]]

    def right(found):
        try:
            table = feather.read_table(path)
            table.validate(full=True)
        except (pa.ArrowException, OSError):  # a count of nulls, or another field that pyarrow alone looks at
            return len({len(column) for column in found}) == 1
        return repr(found) == repr([column.to_pylist() for column in table.columns])

    assert pa.types.is_dictionary(table.schema.field(0).type)
    return Case(path, read, right)


def parquet(rng, folder):
    """Pages, their levels and the footer."""
    import pyarrow as pa
    from pyarrow import parquet as pq

    table, path = arrow_table(rng, parquet=True), folder / "x.parquet"
    if int(pa.__version__.split(".")[0]) < 18:  # which writes no lists of one length that may be missing
        table = table.drop_columns("fixed")
    pq.write_table(
        table,
        path,
        row_group_size=int(rng.integers(1, 30)),
        compression=chosen(rng, ["none", "none", "snappy"]),
        use_dictionary=bool(rng.random() < 0.5),
        data_page_version=chosen(rng, ["1.0", "2.0"]),
    )
    content, pages = path.read_bytes(), []
    about = pq.ParquetFile(path).metadata
    for group in range(about.num_row_groups):
        for k in range(about.num_columns):
            one = about.row_group(group).column(k)
            pages += [(at, at + 48) for at in (one.dictionary_page_offset, one.data_page_offset) if at]
    footer = len(content) - 8 - struct.unpack_from("<i", content, len(content) - 8)[0]
    damaged = edited(rng, content, [pages, [(footer, len(content))]])
    path.write_bytes(damaged)
    columns, beside = wanted_of(rng, table.column_names)

    def batches(names):
        with pq.ParquetFile(path) as file:
            return list(file.iter_batches(columns=names, use_threads=False))

    changes = [at for at, (old, new) in enumerate(zip(content, damaged, strict=True)) if old != new]
    as_pyarrow = agrees_with_pyarrow(batches, columns, beside)
    as_written = agrees_with_original(table, columns, beside, rows_of_damaged_pages(about, changes))
    command = sketching(path, "--columns", ",".join(columns)) if beside is None else None
    return Case(
        path,
        lambda: rows_beside(path, columns, beside),
        lambda found: as_pyarrow(found) or as_written(found),
        command,
    )
