"""HCE: training of the encoder against a tree of documents."""
