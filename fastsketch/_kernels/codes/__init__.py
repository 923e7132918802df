"""Codes of nibbles."""
