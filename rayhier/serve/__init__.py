"""Serving of a published index over HTTP: an ingress encodes, routes and merges; groups of shards scan."""
