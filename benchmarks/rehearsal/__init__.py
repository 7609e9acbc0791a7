"""A rehearsal of the shipped run over MS MARCO, on one machine, with files of its format and size."""
