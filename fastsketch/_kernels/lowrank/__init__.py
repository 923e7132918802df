"""Kernels of low-rank models: loops over the observed entries of a matrix."""
