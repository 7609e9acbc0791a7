"""Spherical k-means and document trees, on faiss."""
