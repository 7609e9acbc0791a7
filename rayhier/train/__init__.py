"""Joint training of encoder and router."""
