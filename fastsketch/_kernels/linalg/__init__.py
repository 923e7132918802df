"""Kernels of linear algebra: matrix products, eigensolvers, Hadamard transforms and searches for top entries."""
