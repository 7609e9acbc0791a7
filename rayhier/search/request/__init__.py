"""What a query asks for, with its rules and messages, and the results that answer it."""
