"""Summaries of a stream in blocks: sketch, mean and sample, the same bits whoever saw which block."""
