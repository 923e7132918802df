"""Base classes of all models: parameters, learning of batches, state files and merging.

A batch is learned completely or not at all.
"""
