"""What every model is: declared parameters, batches that are taken whole or not at all, states and merges."""
