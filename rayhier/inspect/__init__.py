"""Show an index's tree to people: what is where, and why a document or a query goes there."""
