"""Packed codes."""
