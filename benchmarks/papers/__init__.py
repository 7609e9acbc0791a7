"""The tables of four papers: what rayhier finds by their methods, and by the baselines that they compare with."""
