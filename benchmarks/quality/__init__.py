"""Documents visited against recall, for every system and its baselines."""
