"""Documents, queries, judgements and rankings as arrays: what training, search and evaluation all read."""
