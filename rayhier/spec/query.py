"""Checks of a query's text. This module loads without numpy, for clients of a server."""


def check_text(text: str) -> str:
    """Return a query's text unchanged. ValueError if the text is blank or not valid Unicode."""
    if not text.strip():
        raise ValueError("got no words; allowed: text that is not blank")
    return check_unicode(text)


def check_unicode(text: str) -> str:
    """Return a text unchanged. ValueError if it is not valid Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"got an unpaired surrogate at character {error.start}; allowed: Unicode text") from None
    return text
