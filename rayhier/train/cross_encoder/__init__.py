"""Training of the cross-encoder."""
