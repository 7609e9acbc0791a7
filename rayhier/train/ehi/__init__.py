"""Joint training of encoder and tree by EHI's three losses."""
