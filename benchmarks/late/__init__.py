"""What MaxSim of tokens adds to hybrid search: candidates, tokens, projections, and codes of few bits."""
