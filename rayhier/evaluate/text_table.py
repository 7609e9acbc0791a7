"""Measures and tables as lines of text."""

import numpy as np

DIGITS = 3


def cell(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.{DIGITS}f}"


def aligned(header: list[str], rows: list[list[str]]) -> list[str]:
    """Format a table as lines of aligned columns: the first to the left, the others to the right."""
    widths = [max(len(row[place]) for row in (header, *rows)) for place in range(len(header))]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (header, *rows)
    ]
