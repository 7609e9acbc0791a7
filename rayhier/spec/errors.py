"""The one error that means "what you gave cannot work": exit code 2, its text is all the user sees."""


class InputError(ValueError):
    """A user's mistake: says what was wrong, where, and what is allowed."""
