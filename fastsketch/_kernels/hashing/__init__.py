"""Kernels that encode rows as packed sign bits, and compute Hamming distances of packed codes."""
