"""Kernels of sketches: buffers of rows that are shrunk, exact products, and random maps of blocks of rows."""
