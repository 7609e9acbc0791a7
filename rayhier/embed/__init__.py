"""Text -> vectors: the one encoding path of every stage."""
