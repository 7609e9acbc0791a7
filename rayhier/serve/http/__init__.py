"""HTTP: paths, bodies, limits, tokens and errors of a served index."""
