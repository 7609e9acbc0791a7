"""Documents visited against recall, every system beside its controls."""
