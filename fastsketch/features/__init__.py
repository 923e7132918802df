"""Rows as people have them: features by name, columns by a vocabulary or a hash, tables in text, ids of any type."""

from fastsketch.features._columns import NameHash, Vocabulary
from fastsketch.features._id_map import IdMap
from fastsketch.features._naming import NamedRows
from fastsketch.features._table_rows import TableRows
from fastsketch.features._triples import Triples

__all__ = ["IdMap", "NameHash", "NamedRows", "TableRows", "Triples", "Vocabulary"]
