"""Cross-encoder search within a budget, beside its controls: `make bench-axn`."""
