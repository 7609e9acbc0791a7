"""Which leaves a query visits: the model that routes it, and the beam."""
