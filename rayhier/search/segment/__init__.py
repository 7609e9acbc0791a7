"""Rows of an index that are scanned: leaf files, the tail of the log, levels of a tree."""
