"""The HTTP interface of a served index: paths, bodies, limits, tokens and errors."""
