"""The corpus stage: a source becomes documents, queries, judgements, and rejected rows with reasons."""
