"""Kernels of rows whose features have names."""
