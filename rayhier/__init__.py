"""Train an encoder and a hierarchical index together on Ray; index, measure and search what came out."""
