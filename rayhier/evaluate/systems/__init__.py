"""Controls: what an index is measured beside, one a file."""
