"""Input and output: rows from files, pipes, tables and objects in chunks; named features and ids; state files."""

from fastsketch.data.files import SourceError, StateError, read_header
from fastsketch.data.names import IdMap, NamedRows, NameHash, TableRows, Triples, Vocabulary
from fastsketch.data.sources import Source, comes_once, naming, open_rows

__all__ = [
    "IdMap",
    "NameHash",
    "NamedRows",
    "Source",
    "SourceError",
    "StateError",
    "TableRows",
    "Triples",
    "Vocabulary",
    "comes_once",
    "naming",
    "open_rows",
    "read_header",
]
