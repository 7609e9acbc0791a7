"""The generate stage: pairs of a document and a query for it, read from a file or written by a model."""
