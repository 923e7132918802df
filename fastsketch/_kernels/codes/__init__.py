"""Kernels that quantize rows to short codes, and search codes by lookup tables."""
