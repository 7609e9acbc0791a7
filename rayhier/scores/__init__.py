"""Score pairs with a cross-encoder, in a search or before any search, and learn factors from the scores."""
