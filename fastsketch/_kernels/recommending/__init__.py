"""Rows of items for users, and scores of items."""
