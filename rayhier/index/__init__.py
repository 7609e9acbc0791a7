"""Build and change the leaf map, the index on storage: documents are routed to leaves and written as files."""
