"""The encoder alone, by contrast."""
