"""Encode texts as vectors, in the same way for all stages."""
