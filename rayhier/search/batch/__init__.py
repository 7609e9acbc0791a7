"""Searches of many queries, in one process or on Ray."""
