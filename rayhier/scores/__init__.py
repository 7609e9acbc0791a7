"""Scores of a cross-encoder: of pairs asked for, and of many made ahead, with what is learned from these."""
