"""Show an index's tree to people: the content of nodes, and the paths of documents and queries."""
