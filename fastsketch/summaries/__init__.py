"""What a stream is remembered by, in blocks: sketch, mean and sample, the same bits whoever saw which block."""
