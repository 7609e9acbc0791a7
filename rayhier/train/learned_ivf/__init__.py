"""Train the learned IVF: k-means of trained vectors makes leaves, then a router learns to choose among them."""
