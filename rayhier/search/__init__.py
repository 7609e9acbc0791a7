"""Search of an index: route queries, scan leaves, rank documents. Evaluation and serving use the same code."""
