"""Models in plain torch: encoder, routers, cross-encoder and losses. No module here uses Ray or reads an index."""
