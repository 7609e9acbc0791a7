"""Rows of a user's CSV and TSV files, whose first line names the columns."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rayhier.spec import InputError

SUFFIXES = (".csv", ".tsv")
LONGEST = 64 << 20
"""Most characters of a value."""


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield rows as column -> text. A missing value is None. Values without a column have the key None.

    In `.tsv` files a tab separates values and quotes mean nothing. In other files the separator is the most frequent of
    comma, semicolon and tab in the first line. Bytes that are not UTF-8 become surrogates, so they cost one row only.
    """
    csv.field_size_limit(LONGEST)
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as opened:
        first = opened.readline(LONGEST)
        opened.seek(0)
        is_plain = path.suffix.lower() == ".tsv"
        separator = "\t" if is_plain else max(",;\t", key=first.count)
        dialect = dict[str, Any](delimiter=separator, quoting=csv.QUOTE_NONE if is_plain else csv.QUOTE_MINIMAL)
        try:
            yield from csv.DictReader(opened, **dialect)
        except csv.Error as error:
            raise InputError(f"{path}: cannot be read as CSV ({error}); allowed: rows as RFC 4180 has them") from None
