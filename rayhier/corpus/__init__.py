"""Turn a source into documents, queries, judgements, and rejected rows with reasons."""
