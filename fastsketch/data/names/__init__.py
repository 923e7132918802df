"""Encode named features and ids of any type, and read tables of events or of mixed columns."""

from fastsketch.data.names._id_map import IdMap
from fastsketch.data.names._naming import NamedRows
from fastsketch.data.names._table_rows import TableRows
from fastsketch.data.names._triples import Triples

__all__ = ["IdMap", "NamedRows", "TableRows", "Triples"]
