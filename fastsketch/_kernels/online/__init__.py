"""Kernels of the online learners: scaling of rows, learning steps, calibration of scores and running metrics."""
