"""Sources: read rows in chunks from files, folders, pipes, tables, stored arrays and iterators."""

from fastsketch.data.sources._extra_column import rename_beside_in_errors
from fastsketch.data.sources._open import open_rows
from fastsketch.data.sources._paths import comes_once
from fastsketch.data.sources._row_naming import naming
from fastsketch.data.sources._select import with_missing
from fastsketch.data.sources._source import Source

__all__ = ["Source", "rename_beside_in_errors", "comes_once", "naming", "open_rows", "with_missing"]
