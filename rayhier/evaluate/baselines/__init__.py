"""Systems that an index is compared with: how each is built and searched."""
