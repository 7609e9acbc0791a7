"""What was gained: measures, curves of recall against documents visited, baselines, report."""
