"""The generate stage: pairs of a query that a model has written and its document, from a file or written here."""
