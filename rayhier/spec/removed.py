"""Keys and values of older specs that went, each with what to write instead."""

REMOVED: dict[str, str] = {
    "evaluate.baselines=codes": "compare with exact_same_encoder, or with faiss_ivf_same_encoder",
    "search.beam.target": "write search.beam: {recall: 0.98}, a share of what an exact search finds",
    "search.beam.type": "write search.beam: {recall: 0.98}, one beam for all queries, which dev queries choose",
    "search.how=auto": "write how: leaves, the default, or how: level",
    "search.how=codes": "write how: leaves, and a beam of all leaves to compare all documents",
}
"""A dotted key, or KEY=VALUE, and what a message says after "removed; "."""


def advice(key: str, value: object) -> str | None:
    """Return what to write instead of a key or its value; None if neither was removed."""
    instead = REMOVED.get(key) or REMOVED.get(f"{key}={value}")
    return None if instead is None else f"removed; {instead}"
