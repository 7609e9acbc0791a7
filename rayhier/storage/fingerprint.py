"""Fingerprints: a hash of everything a stage's result depends on. Equal fingerprints mean equal results."""

import hashlib
import json


def fingerprint(**parts: object) -> str:
    """Hash named parts, which are JSON values, to 12 hex digits; the order of the parts does not matter."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
