"""Encoder and tree together, by EHI's three losses."""
