"""Rows as people have them: features by name, columns by a vocabulary or a hash, tables in text."""

from fastsketch.features._columns import NameHash, Vocabulary
from fastsketch.features._naming import NamedRows
from fastsketch.features._table_rows import TableRows

__all__ = ["NameHash", "NamedRows", "TableRows", "Vocabulary"]
