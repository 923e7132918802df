"""Rows through a buffer or a random map."""
