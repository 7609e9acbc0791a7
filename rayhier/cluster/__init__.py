"""Spherical k-means and trees of clusters, on faiss."""
