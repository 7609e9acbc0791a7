"""Routing: the leaves that a query visits, by a model that routes it, and the beam."""
