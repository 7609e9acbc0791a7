"""Routing: a model chooses the leaves that a query visits, and a beam limits their number."""
