"""Training of encoder and router."""
