"""Codes of rows: made, and scanned."""
