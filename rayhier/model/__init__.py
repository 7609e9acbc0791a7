"""Models in plain torch: encoder, routers, cross-encoder and losses; nothing here uses Ray or reads an index."""
