"""Loops over the observed entries of a matrix, for low-rank models."""
