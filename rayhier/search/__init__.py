"""Search an index: route, scan leaves, rank. Evaluation and serving share this path."""
