"""HCE beside contrast and its own ablations: encoders, and what they find by exact search."""
