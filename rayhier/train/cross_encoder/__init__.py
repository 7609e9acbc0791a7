"""Train the cross-encoder."""
