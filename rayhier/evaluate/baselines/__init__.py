"""Build and search the systems that an index is compared with."""
