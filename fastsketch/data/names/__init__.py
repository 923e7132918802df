"""Rows as people have them: features by name, columns by a vocabulary or a hash, tables in text, ids of any type."""

from fastsketch.data.names._columns import NameHash, Vocabulary
from fastsketch.data.names._id_map import IdMap
from fastsketch.data.names._naming import NamedRows
from fastsketch.data.names._table_rows import TableRows
from fastsketch.data.names._triples import Triples

__all__ = ["IdMap", "NameHash", "NamedRows", "TableRows", "Triples", "Vocabulary"]
