"""A checked history: clients change and read a server that is killed, and a checker reads what they were answered."""
