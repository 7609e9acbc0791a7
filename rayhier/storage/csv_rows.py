"""Rows of a user's CSV and TSV files, whose first line names the columns."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rayhier.spec import InputError

SUFFIXES = (".csv", ".tsv")
NOT_TEXT = re.compile("[\0\udc80-\udcff]")
"""Matches NUL, and a byte that is not UTF-8 (as a surrogate), which files in UTF-16 or Latin-1 have."""
LONGEST = 64 << 20
"""Largest number of characters of a value."""


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield rows as column -> text. A missing value is None. Values without a column have the key None.

    In `.tsv` files a tab separates values and quotes mean nothing. In other files the separator is the most frequent of
    comma, semicolon and tab in the first line. Bytes that are not UTF-8 become surrogates, which spoil only their row.
    InputError if the first line is not UTF-8, or if text follows a quote's end, or if a quote has no end.
    """
    csv.field_size_limit(LONGEST)
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as opened:
        first = opened.readline(LONGEST)
        opened.seek(0)
        if NOT_TEXT.search(first):
            raise InputError(f"{path}: line 1: not UTF-8; allowed: UTF-8, which iconv -t utf-8 writes")
        is_plain = path.suffix.lower() == ".tsv"
        separator = "\t" if is_plain else max(",;\t", key=first.count)
        dialect = dict[str, Any](delimiter=separator, quoting=csv.QUOTE_NONE if is_plain else csv.QUOTE_MINIMAL)
        reader, lines = csv.DictReader(opened, **dialect, strict=True), 0
        try:
            lines = reader.line_num if reader.fieldnames else 0
            for row in reader:
                yield row
                lines = reader.line_num
        except csv.Error as error:
            begins = f"{path}: the row that begins in line {lines + 1:,} cannot be read as CSV ({error})"
            raise InputError(f"{begins}; allowed: rows as RFC 4180 has them, each quote closed") from None
