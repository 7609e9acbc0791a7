"""Scores of a cross-encoder: of pairs in a search, of pairs ahead of any search, and factors learned from these."""
