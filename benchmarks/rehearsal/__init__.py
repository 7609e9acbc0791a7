"""The shipped run over MS MARCO, rehearsed on one machine over files of its format and size."""
