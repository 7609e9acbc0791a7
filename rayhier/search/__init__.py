"""The one retrieval path of evaluation and serving: route, scan leaves, rank."""
