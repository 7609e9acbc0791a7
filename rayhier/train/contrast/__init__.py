"""Contrastive training of the encoder, without an index."""
