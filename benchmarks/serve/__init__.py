"""A served index under load."""
