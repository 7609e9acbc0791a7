"""Size from which an index counts as large."""

MOST_SMALL = 200_000
"""Most documents of an index of which `auto` chooses few leaves, and a beam by dev queries (docs/search.md)."""
