"""Documents, queries, judgements and rankings as arrays, which training, search and evaluation share."""
