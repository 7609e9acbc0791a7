"""ReTreever: representations of several sizes, the levels of a tree or the first numbers of a vector."""
