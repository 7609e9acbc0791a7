"""Show the tree of an index to people: contents of its nodes, and paths of documents and queries."""
