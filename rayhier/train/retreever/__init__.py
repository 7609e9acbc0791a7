"""Train ReTreever: vectors of a text at several sizes, the levels of a tree or the first numbers of a vector."""
