"""rayhier in other projects' own runners: ann-benchmarks, big-ann-benchmarks."""
