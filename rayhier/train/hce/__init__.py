"""Training of the encoder against a document tree."""
