"""Vectors -> leaves -> the leaf map on storage."""
