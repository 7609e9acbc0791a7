"""Documents, queries, judgements and rankings as arrays, for training, search and evaluation."""
