"""Mergeable summaries of a stream in blocks: sketch, mean and reservoir sample."""
