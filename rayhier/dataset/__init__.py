"""Documents, queries, judgements and rankings as arrays. Training, search and evaluation share them."""
