"""Loops over the entries of a matrix with holes."""
