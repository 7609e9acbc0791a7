"""Requests of queries, with rules and messages, and the results that answer them."""
