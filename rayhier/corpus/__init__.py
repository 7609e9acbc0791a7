"""The corpus stage: a source -> documents, queries, judgements, and rejected rows with reasons."""
