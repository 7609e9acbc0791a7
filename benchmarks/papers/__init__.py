"""Tables of four papers: results of their methods in rayhier, and of the baselines of the papers."""
