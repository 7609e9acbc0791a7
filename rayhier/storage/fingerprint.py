"""What makes two runs of a step the same: the fingerprint of everything its result depends on."""

import hashlib
import json


def fingerprint(**parts: object) -> str:
    """12 hex digits of the parts, whatever their order. Parts are JSON values."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
