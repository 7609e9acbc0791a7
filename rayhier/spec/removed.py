"""Keys and values of older specs that went, each with what to write instead."""

REMOVED: dict[str, str] = {}
"""A dotted key, or KEY=VALUE, and what a message says after "removed; "."""


def advice(key: str, value: object) -> str | None:
    """Return what to write instead of a key or its value; None if neither was removed."""
    instead = REMOVED.get(key) or REMOVED.get(f"{key}={value}")
    return None if instead is None else f"removed; {instead}"
