"""The corpus stage: a source -> documents, queries, judgements, and what was rejected and why."""
