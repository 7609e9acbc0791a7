"""Contrastive training of the encoder alone."""
