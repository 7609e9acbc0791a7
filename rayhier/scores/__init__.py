"""Scores by a cross-encoder: in a search, ahead of any search, and the factors that are learned from scores."""
