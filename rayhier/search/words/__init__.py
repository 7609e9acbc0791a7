"""BM25 over an index, and its fusion with vectors."""
