"""Rounds of online learners."""
