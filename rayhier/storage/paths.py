"""Places as users and the workers of a job give them."""

from pathlib import Path

from rayhier.spec import InputError
from rayhier.storage.remote import Remote

Location = Path | Remote
"""Where artifacts lie: a path on this machine, or a key in a bucket."""


def locate(text: str) -> Location:
    """What `str()` of a location says, again a location; InputError where it is a URL of another kind."""
    if "://" not in text:
        return Path(text)
    try:
        return Remote.parse(text)
    except ValueError as error:
        raise InputError(f"got {text!r}; allowed: a path, {error}") from None


def resolve(key: str, text: str) -> Path:
    """The absolute path of a spec's value, `~` expanded; InputError where no path can be that."""
    try:
        path = Path(text).expanduser().resolve()
        path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        shown = text if len(text) <= 80 else text[:77] + "…"
        raise InputError(f"{key}: got {shown!r}, which is no path here ({error.__class__.__name__})") from None
    return path
