"""Systems to measure, one in each file: the index itself, and the baselines that it is compared with."""
