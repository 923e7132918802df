"""Read rows in chunks from files, pipes, tables and objects; map names and ids to columns; store models in files."""

from fastsketch.data.files import SourceError, StateError, read_header
from fastsketch.data.names import IdMap, NamedRows, TableRows, Triples
from fastsketch.data.sources import Source, comes_once, naming, open_rows

__all__ = [
    "IdMap",
    "NamedRows",
    "Source",
    "SourceError",
    "StateError",
    "TableRows",
    "Triples",
    "comes_once",
    "naming",
    "open_rows",
    "read_header",
]
