"""Adapters: an index behind the interfaces of other libraries, a file and an extra of the package each."""
