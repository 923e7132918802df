"""Sketches of groups as a table."""

from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from fastsketch.data.sources._foreign import needs

if TYPE_CHECKING:
    from fastsketch.sketching._groups._sketches import GroupSketches

# Groups that are written together.
TOGETHER = 1024


def write_parquet(groups: "GroupSketches", file: BinaryIO) -> None:
    """Write one row a group, in groups of rows."""
    pa, parquet = needs("pyarrow", "Parquet files"), needs("pyarrow", "Parquet files", "pyarrow.parquet")
    key = pa.int64() if groups.group_keys.dtype.kind == "i" else pa.string()
    number = pa.float32() if groups.resolved["dtype"] == np.float32 else pa.float64()
    d = groups.n_features or 0
    fields = [
        ("key", key),
        ("n_rows", pa.int64()),
        ("squared_norm", pa.float64()),
        ("shrinkage", pa.float64()),
        ("alpha", pa.float64()),
        ("error_bound", pa.float64()),
        ("sketch", pa.list_(pa.list_(number, d))),
    ]
    if groups.center:
        fields.append(("mean", pa.list_(pa.float64(), d)))
    schema = pa.schema(fields)
    items = iter(groups.items())
    with parquet.ParquetWriter(file, schema) as writer:
        while some := list(islice(items, TOGETHER)):
            columns: dict[str, list[Any]] = {name: [] for name, _ in fields}
            rows: list[Any] = []
            for key_of_group, sketch in some:
                rows.append(sketch.sketch())
                columns["key"].append(key_of_group)
                for name in ("n_rows", "squared_norm", "shrinkage", "alpha", "error_bound"):
                    columns[name].append(getattr(sketch, name))
                if groups.center:
                    columns["mean"].append(sketch.mean)
            lengths = np.cumsum([0, *map(len, rows)]).astype(np.int32)
            flat = pa.FixedSizeListArray.from_arrays(pa.array(np.concatenate(rows).reshape(-1), number), d)
            arrays = {
                name: pa.array(values, schema.field(name).type) for name, values in columns.items() if name != "sketch"
            }
            arrays["sketch"] = pa.ListArray.from_arrays(pa.array(lengths), flat)
            writer.write_table(pa.table([arrays[name] for name, _ in fields], schema=schema))
