"""Serves a published index over HTTP. An ingress encodes, routes and merges, and shard groups scan leaves."""
