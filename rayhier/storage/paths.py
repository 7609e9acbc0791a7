"""Paths as users give them."""

from pathlib import Path

from rayhier.spec import InputError


def resolve(key: str, text: str) -> Path:
    """The absolute path of a spec's value, `~` expanded; InputError where no path can be that."""
    try:
        path = Path(text).expanduser().resolve()
        path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        shown = text if len(text) <= 80 else text[:77] + "…"
        raise InputError(f"{key}: got {shown!r}, which is no path here ({error.__class__.__name__})") from None
    return path
