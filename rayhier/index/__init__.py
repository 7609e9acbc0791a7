"""Build and change the leaf map: vectors -> leaves -> files on storage."""
