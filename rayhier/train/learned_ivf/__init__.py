"""Leaves from k-means of trained vectors, then queries learn which of them hold their answers."""
