"""Encode texts as vectors: the one way in which all stages encode."""
