"""Reader of folders in BEIR's layout: JSON lines and judgements under BEIR's file names."""

from rayhier.corpus.check import Rules
from rayhier.corpus.lines import LinesReader, json_lines
from rayhier.spec.corpus import Beir, Columns
from rayhier.storage import listing


def reader(spec: Beir) -> LinesReader:
    """Make the reader of a BEIR folder; InputError where a file is missing."""
    return json_lines(listing.find(spec), Rules(spec.limits, Columns(id="_id"), spec.fields))
