"""Kernels that encode rows of named features as sparse matrices, and number their columns."""
