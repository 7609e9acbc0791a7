"""Measure an index: curves of recall against documents visited, baselines, and a report."""
