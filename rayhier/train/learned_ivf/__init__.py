"""Training of the learned IVF: k-means leaves of trained vectors, then a router of queries to leaves."""
