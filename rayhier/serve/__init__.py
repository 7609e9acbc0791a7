"""Serving a published index over HTTP: an ingress that encodes, routes and merges, and groups of shards that scan."""
